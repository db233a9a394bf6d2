package store

import (
	"context"
	"database/sql"
	"errors"
)

// migrationLock keeps two processes from migrating one database at the same
// time: MySQL commits each CREATE TABLE by itself, so the second would trip over
// the first. The server gives the lock up if the connection breaks.
type migrationLock struct{}

// A lock's name is one for the whole server, hence the database's name in it; it
// has at most 64 characters.
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

// SessionUnlock gives the lock back.
func (migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+lockName+")")
	return err
}
