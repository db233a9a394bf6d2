package storetest

import (
	"context"
	"testing"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Tag says where a promise is played, or how it begins. A promise without a tag begins with empty tables. In make test,
// MariaDB, PostgreSQL and SQLite in memory play it.
type Tag int

const (
	// Dialect is the tag of promises about what databases do in their own ways: locks, lock waits, isolation, faults, types,
	// statements that each kind writes in its own way, and the schema. In make test, MySQL plays only these.
	Dialect Tag = 1 << iota
	// File is the tag of promises about what SQLite may do in another way in a file. In make test, a file plays only these.
	File
	// Empty is the tag of promises that begin without tables.
	Empty
	// Settings is the tag of promises that are played on servers with unusual settings.
	Settings
)

// Server is where the suite gets its databases.
type Server struct {
	// New creates a database without tables, which is dropped when the test ends. Each call of open opens a store on that
	// database, as another process does.
	New func(t *testing.T, m *mapping.Mapping) (open func() *store.Store)
	// DSN is that of a server whose databases several promises use, one after the other. Empty: New creates each database.
	DSN string
	// Only is the tag of the promises that are played; 0: all are.
	Only Tag
}

// OnServer returns the real server of a DSN.
func OnServer(dsn string) Server {
	return Server{DSN: dsn, New: func(t *testing.T, m *mapping.Mapping) func() *store.Store {
		t.Helper()
		return opener(t, NewDatabase(t, dsn), m)
	}}
}

// opener returns a function that opens stores on a database. They are closed when the test ends.
func opener(t *testing.T, dsn string, m *mapping.Mapping) func() *store.Store {
	return func() *store.Store {
		t.Helper()
		s := must.Get(store.Open(store.Options{DSN: dsn, Orders: m}))(t)
		t.Cleanup(func() {
			expect.NoError(t, s.Close())
		})
		return s
	}
}

// promise is one promise of the store, and its test on an S.
type promise[S any] struct {
	name string
	test func(t *testing.T, s *S)
	tags Tag
}

// databases are those of the promises of a suite, all with the same mapping.
type databases struct {
	server  Server
	mapping *mapping.Mapping
	pool    *Pool // nil: each promise has a database of its own
}

// databases returns those of a suite. They are dropped when t ends. create creates the tables; nil: the schema alone.
func (s Server) databases(t *testing.T, m *mapping.Mapping, create func(ctx context.Context, s *store.Store) error) databases {
	d := databases{server: s, mapping: m}
	if s.DSN != "" {
		d.pool = NewPool(s.DSN, m, create)
		t.Cleanup(func() {
			expect.NoError(t, d.pool.Close(context.WithoutCancel(t.Context())))
		})
	}
	return d
}

// of returns what opens stores on the database of a promise, and the DSN if that has the tables.
func (d databases) of(t *testing.T, tags Tag) (open func() *store.Store, dsn string) {
	t.Helper()
	if d.pool == nil || tags&Empty != 0 {
		return d.server.New(t, d.mapping), ""
	}
	dsn = d.pool.Take(t)
	return opener(t, dsn, d.mapping), dsn
}

// play plays the promises that the server plays. run prepares the database of a promise, and calls its test.
func play[S any](t *testing.T, s Server, promises []promise[S], run func(t *testing.T, p promise[S])) {
	for _, p := range promises {
		if s.Only == 0 || s.Only&p.tags != 0 {
			t.Run(p.name, func(t *testing.T) { run(t, p) })
		}
	}
}
