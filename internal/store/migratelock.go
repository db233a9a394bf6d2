package store

import (
	"context"
	"database/sql"
	"errors"
)

// migrationLock keeps two processes from migrating one database at once: MySQL commits each
// CREATE TABLE by itself, so the second process would fail on the tables of the first. The
// server releases the lock if the connection breaks. SQLite has no such lock.
type migrationLock struct{}

// lockName includes the database's name, since a lock's name is global to the server. It has at
// most 64 characters.
const lockName = "LEFT(CONCAT('orderclose_migrate.', DATABASE()), 64)"

// SessionLock waits for the lock, for at most five minutes.
func (migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", 300)").Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return errors.New("another process has been migrating this database for five minutes")
	}
	return nil
}

// SessionUnlock releases the lock.
func (migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+lockName+")")
	return err
}
