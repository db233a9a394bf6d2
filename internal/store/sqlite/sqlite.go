// Package sqlite opens the store on SQLite, for the demo on a machine without servers and for
// tests in a synctest bubble. Production does not link it.
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

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Memory is the path of a database in memory, which Close deletes.
const Memory = ":memory:"

// Open opens the database in the file path, or a new database in memory if path is Memory. now
// is the database's clock; nil means time.Now.
//
// The pool has one connection, so writers wait in the pool and not in SQLite. The connection's
// goroutines belong to the synctest bubble in which Open is called, and end with Close.
func Open(path string, now func() time.Time) (*store.Store, error) {
	return OpenWith(path, Options{Now: now})
}

// Options for OpenWith. All are optional.
type Options struct {
	Now func() time.Time // the clock of the database; default time.Now
	// Orders maps the tables of orders; nil: the tables that Migrate creates. Their times are
	// unix times.
	Orders *mapping.Mapping
	// OnClose lists further statements of a close in the tables that Migrate creates.
	OnClose []string
	// Through wraps the driver, for example to inject faults. An injected error of MySQL has the
	// same meaning as on MySQL.
	Through func(driver.Connector) driver.Connector
}

// OpenWith is Open with options.
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
	of, err := gorm.Open(gormsqlite.Dialector{Conn: pool}, db.GormConfig())
	if err != nil {
		_ = pool.Close()
		return nil, fmt.Errorf("open SQLite database %q: %w", path, err)
	}
	s, err := store.New(of, dialect(o.Now), o.Orders, "")
	if err != nil {
		_ = pool.Close()
		return nil, err
	}
	if len(o.OnClose) > 0 {
		s.OnClose(o.OnClose)
	}
	return s, nil
}

// dsn returns the DSN of a path. A transaction takes the write lock when it begins, since SQLite
// has no row locks.
func dsn(path string) string {
	params := url.Values{"_txlock": {"immediate"}}
	if path == Memory {
		// The connections of this process share the database, which lasts as long as one is open.
		params.Set("vfs", "memdb")
		return "file:/" + rand.Text() + "?" + params.Encode()
	}
	params["_pragma"] = []string{"journal_mode(WAL)", "synchronous(NORMAL)"}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + params.Encode()
}
