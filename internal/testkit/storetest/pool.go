package storetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// Pool has databases of one server with the same tables. A test takes a database with empty tables. When the test ends,
// the pool deletes all rows, and another test gets the database: creating tables costs more than most tests. A database
// whose definitions a test has changed is dropped, and so is that of a test that failed.
//
// Ids that the database counts do not begin at 1 again.
type Pool struct {
	server  string
	mapping *mapping.Mapping
	create  func(ctx context.Context, s *store.Store) error

	mu        sync.Mutex
	free, all []*pooled
}

// pooled is a database of a pool.
type pooled struct {
	dsn         string
	drop        func(context.Context) error
	admin       *store.Store
	definitions string
	tables      []string // quoted
}

// NewPool returns a pool without databases on the server of a DSN. create creates the tables of a new database, on a
// store with the mapping; nil: the schema of orderclose alone.
func NewPool(server string, m *mapping.Mapping, create func(ctx context.Context, s *store.Store) error) *Pool {
	if create == nil {
		create = func(ctx context.Context, s *store.Store) error { return s.Migrate(ctx) }
	}
	return &Pool{server: server, mapping: m, create: create}
}

// Take returns the DSN of a database with empty tables. The pool gets the database back when the test ends.
func (p *Pool) Take(t testing.TB) (dsn string) {
	t.Helper()
	d := must.Get(p.take(t.Context()))(t)
	t.Cleanup(func() {
		if t.Failed() {
			return // it is dropped with the pool
		}
		err := p.giveBack(context.WithoutCancel(t.Context()), d)
		expect.That(t, err == nil, "delete the rows of a test: %v", err)
	})
	return d.dsn
}

func (p *Pool) take(ctx context.Context) (d *pooled, err error) {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		d, p.free = p.free[n-1], p.free[:n-1]
	}
	p.mu.Unlock()
	if d != nil {
		return d, nil
	}
	d = &pooled{}
	if d.dsn, d.drop, err = newDatabase(ctx, p.server); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.all = append(p.all, d)
	p.mu.Unlock()
	if d.admin, err = store.Open(store.Options{DSN: d.dsn, Orders: p.mapping, MaxOpenConns: 1}); err != nil {
		return nil, err
	}
	if d.admin.Dialect() == store.Postgres {
		// The store sets enable_seqscan = off. PostgreSQL then takes any other plan for so expensive that it compiles the plan.
		if _, err := d.admin.DB().ExecContext(ctx, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET jit = off', current_database()); END $$"); err != nil {
			return nil, err
		}
	}
	if err := p.create(ctx, d.admin); err != nil {
		return nil, err
	}
	if err := d.read(ctx, tablesOf[d.admin.Dialect()], &d.tables); err != nil {
		return nil, err
	}
	d.definitions, err = d.define(ctx)
	return d, err
}

func newDatabase(ctx context.Context, server string) (dsn string, drop func(context.Context) error, err error) {
	return scenario.CreateDatabase(ctx, server, nil, "oc_"+strings.ToLower(rand.Text()))
}

// NewDatabase creates a database without tables on the server of a DSN, drops it when the test ends, and returns its DSN.
func NewDatabase(t testing.TB, server string) string {
	t.Helper()
	dsn, drop, err := newDatabase(t.Context(), server)
	must.Do(t, err)
	t.Cleanup(func() {
		expect.NoError(t, drop(context.WithoutCancel(t.Context())))
	})
	return dsn
}

// giveBack deletes all rows of a database. It drops a database whose definitions differ from those of a new one.
func (p *Pool) giveBack(ctx context.Context, d *pooled) error {
	now, err := d.define(ctx)
	if err != nil || now != d.definitions {
		return p.remove(ctx, d) // without orderclose_schema there is no answer
	}
	if err := d.empty(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.free = append(p.free, d)
	p.mu.Unlock()
	return nil
}

func (p *Pool) remove(ctx context.Context, d *pooled) error {
	p.mu.Lock()
	for i, other := range p.all {
		if other == d {
			p.all = append(p.all[:i], p.all[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	return d.close(ctx)
}

// Close drops all databases.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	all := p.all
	p.all, p.free = nil, nil
	p.mu.Unlock()
	var errs []error
	for _, d := range all {
		errs = append(errs, d.close(ctx))
	}
	return errors.Join(errs...)
}

func (d *pooled) close(ctx context.Context) (err error) {
	if d.admin != nil {
		err = d.admin.Close()
	}
	return errors.Join(err, d.drop(ctx))
}

// read appends the texts of the rows of a query.
func (d *pooled) read(ctx context.Context, query string, into *[]string) error {
	rows, err := d.admin.DB().QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		*into = append(*into, text)
	}
	return rows.Err()
}

// define returns a text that changes with the definitions of the database.
func (d *pooled) define(ctx context.Context) (text string, err error) {
	err = d.admin.DB().QueryRowContext(ctx, definitionsOf[d.admin.Dialect()]).Scan(&text)
	return text, err
}

// empty deletes all rows, whatever refers to them.
func (d *pooled) empty(ctx context.Context) error {
	tx, err := d.admin.DB().BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	statements := []string{withoutReferences[d.admin.Dialect()]}
	for _, table := range d.tables {
		statements = append(statements, "DELETE FROM "+table)
	}
	if d.admin.Dialect() == store.Postgres {
		statements = []string{strings.Join(statements, "; ")}
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// tablesOf lists the tables, but not those of the applied steps.
var tablesOf = map[store.DialectName]string{
	store.MySQL: "SELECT CONCAT('`', table_name, '`') FROM information_schema.tables WHERE table_schema = DATABASE()" +
		" AND table_type = 'BASE TABLE' AND table_name <> 'orderclose_schema'",
	store.Postgres: "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')" +
		" AND tablename <> 'orderclose_schema'",
}

// withoutReferences lets rows be deleted in any order.
var withoutReferences = map[store.DialectName]string{
	store.MySQL: "SET FOREIGN_KEY_CHECKS = 0", store.Postgres: "SET LOCAL session_replication_role = replica; SET LOCAL jit = off",
}

// definitionsOf is a text that changes with columns, indexes, triggers, routines and applied steps.
var definitionsOf = map[store.DialectName]string{
	store.MySQL: `SELECT CONCAT_WS(' ',
		(SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(CONCAT_WS('|', table_name, column_name, ordinal_position, column_type,
			is_nullable, column_default, collation_name, extra))))
			FROM information_schema.columns WHERE table_schema = DATABASE()),
		(SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(CONCAT_WS('|', table_name, index_name, seq_in_index, column_name, non_unique))))
			FROM information_schema.statistics WHERE table_schema = DATABASE()),
		(SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = DATABASE()),
		(SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE()),
		(SELECT CONCAT(COUNT(*), ' ', SUM(version_id)) FROM orderclose_schema))`,
	store.Postgres: `SELECT CONCAT_WS(' ',
		(SELECT md5(string_agg(CONCAT_WS('|', c.oid, c.relname, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.atthasdef,
			a.attisdropped), ',' ORDER BY c.oid, a.attnum))
			FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
			WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')),
		(SELECT COUNT(*) FROM pg_trigger WHERE NOT tgisinternal),
		(SELECT COUNT(*) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')),
		(SELECT CONCAT(COUNT(*), ' ', SUM(version_id)) FROM orderclose_schema))`,
}
