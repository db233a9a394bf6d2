package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	gosqlite "github.com/glebarez/go-sqlite"
	"github.com/glebarez/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/orderclose/orderclose/internal/store/internal/db"
)

// connector opens connections to one database, and keeps a connection open itself:
// database/sql drops a connection whose transaction was cancelled, and a database in memory
// disappears with its last connection.
type connector struct {
	driver    driver.Driver
	dsn       string
	keepAlive driver.Conn // open until Close
}

func newConnector(dsn string) (*connector, error) {
	pool, err := sql.Open(sqlite.DriverName, "") // the driver is not exported
	if err != nil {
		return nil, err
	}
	d := pool.Driver()
	if err := pool.Close(); err != nil {
		return nil, err
	}
	keepAlive, err := d.Open(dsn)
	if err != nil {
		return nil, err
	}
	return &connector{driver: d, dsn: dsn, keepAlive: keepAlive}, nil
}

// Connect implements driver.Connector.
func (c *connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.driver }

// Close is called by database/sql when the pool is closed.
func (c *connector) Close() error { return c.keepAlive.Close() }

// fault returns the cause of an error of the driver.
func fault(err error) db.Fault {
	e, ok := errors.AsType[*gosqlite.Error](err)
	if !ok {
		return db.ServerFault(err) // an error that Options.Through injected
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return db.FaultDuplicate
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return db.FaultRetry
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_INTERRUPT:
		return db.FaultUnavailable
	default:
		return db.FaultOrder
	}
}
