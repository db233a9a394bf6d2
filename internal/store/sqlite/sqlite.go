// Package sqlite opens the store on SQLite, for the demo on a desk without
// servers and for tests inside a synctest bubble. Production does not link it.
package sqlite

import (
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"time"

	gormsqlite "github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"orderclose/internal/store"
	"orderclose/internal/tables"
)

// Memory as a path is a database in memory, gone with Close.
const Memory = ":memory:"

// Open opens the database in the file path, or one of its own in memory if path
// is Memory. The clock of the database is now; nil is time.Now.
//
// One connection does everything, so writers wait in the pool and not in SQLite.
// The connection's goroutines belong to the bubble in which Open is called, and
// end with Close.
func Open(path string, now func() time.Time) (*store.Store, error) {
	return OpenWith(path, Options{Now: now})
}

// Options for OpenWith; each may be left out.
type Options struct {
	Now func() time.Time // the clock of the database; default time.Now
	// Orders says where the orders are, if not in the tables that Migrate makes;
	// their times are unix times.
	Orders *tables.Mapping
	// Through puts something between the pool and the driver, such as faults. What
	// it makes up may be errors of MySQL: they mean the same here.
	Through func(driver.Connector) driver.Connector
}

// OpenWith is Open with more to choose.
func OpenWith(path string, o Options) (*store.Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	var c driver.Connector
	c, err := newConnector(dsn(path))
	if err != nil {
		return nil, fmt.Errorf("open SQLite database %q: %w", path, err)
	}
	if o.Through != nil {
		c = o.Through(c)
	}
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(1)
	db, err := gorm.Open(gormsqlite.Dialector{Conn: pool}, store.GormConfig())
	if err != nil {
		_ = pool.Close()
		return nil, fmt.Errorf("open SQLite database %q: %w", path, err)
	}
	s, err := store.NewMapped(db, store.SQLiteDialect(o.Now, fault), o.Orders)
	if err != nil {
		_ = pool.Close()
		return nil, err
	}
	return s, nil
}

// dsn names the database. A transaction takes the write lock when it begins,
// since SQLite has no row locks.
func dsn(path string) string {
	params := url.Values{"_txlock": {"immediate"}}
	if path == Memory {
		// Shared by the connections of this process, and lives as long as one is open.
		params.Set("vfs", "memdb")
		return "file:/" + rand.Text() + "?" + params.Encode()
	}
	params["_pragma"] = []string{"journal_mode(WAL)", "synchronous(NORMAL)"}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params.Encode()
}
