package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// migrationWait is how long a process waits while another one migrates, and lockPoll how often it asks.
const (
	migrationWait = 5 * time.Minute
	lockPoll      = 200 * time.Millisecond
)

// Exclusively runs work while no other process that uses the same database runs it. The server releases
// the lock if the connection breaks. The lock belongs to a transaction, because a lock of a session may be
// another client's behind a pooler.
func Exclusively(ctx context.Context, db *sql.DB, work func() error) error {
	for end := time.Now().Add(migrationWait); ; {
		done, err := tryExclusively(ctx, db, work)
		switch {
		case done || err != nil:
			return err
		case time.Now().After(end):
			return errors.New("another process has been migrating this database for five minutes")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another process that migrates: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// tryExclusively is Exclusively if no other process works now, else done is false. Then it keeps no connection,
// which the other process may need.
func tryExclusively(ctx context.Context, db *sql.DB, work func() error) (done bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() {
		if ended := tx.Rollback(); !errors.Is(ended, sql.ErrTxDone) {
			err = errors.Join(err, ended)
		}
	}()
	// An advisory lock belongs to one database.
	err = tx.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock(hashtextextended('orderclose_migrate', 0))").Scan(&done)
	if err == nil && done {
		_, err = tx.ExecContext(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0")
	}
	if err != nil || !done {
		return false, err
	}
	return true, work()
}
