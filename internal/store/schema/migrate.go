package schema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/migrations"
	"github.com/orderclose/orderclose/internal/store/mysqldsn"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// Schema is the version of the schema that a database has, and that this program needs.
type Schema struct {
	Has, Wants int64   // Has is 0 for a database without the schema
	Oldest     int64   // if Has is more than Wants: the oldest program, by its Wants, that can use the schema
	Lacks      []int64 // steps below Has that were skipped
	Orders     string  // the close (see closeOf) to which the receipts in this database belong
	Other      string  // the close of this program if that is another one; else ""
	Rename     string  // the statement that makes Other the owner of the receipts; "" without Other
}

// Newer reports whether a newer program has migrated the schema.
func (v Schema) Newer() bool { return v.Has > v.Wants }

// tooNew reports whether only newer programs can use the schema.
func (v Schema) tooNew() bool { return v.Newer() && v.Oldest > v.Wants }

// usable reports whether this program can use the schema.
func (v Schema) usable() bool {
	return len(v.Lacks) == 0 && v.Other == "" && (v.Has == v.Wants || v.Newer() && v.Oldest <= v.Wants) //mutant:wrong-schema-used
}

// SchemaError says that this program cannot use the schema of the database.
type SchemaError struct{ Schema }

func (e *SchemaError) Error() string {
	if e.tooNew() {
		return fmt.Sprintf("the database's schema has version %d, which only programs that need version %d or a later one can use, "+
			"and this program needs %d: run a newer program",
			e.Has, e.Oldest, e.Wants)
	}
	if e.Other != "" {
		return fmt.Sprintf("the tables of orderclose in this database, such as receipts, belong to (%[1]s), and this topics.yaml says (%[2]s): "+
			"a receipt does not say of which close it is, so an order of one would count as closed by the other. "+
			"Let the DSN name an empty database of the same server (in PostgreSQL a schema: search_path), "+
			"and write the shop's tables with the name of theirs, such as shop.orders. "+
			"If they are the same, and a name has changed: %[3]s",
			e.Orders, e.Other, e.Rename)
	}
	if len(e.Lacks) > 0 {
		return fmt.Sprintf("the database's schema lacks the steps %d: run orderclose migrate", e.Lacks)
	}
	return fmt.Sprintf("the database's schema has version %d and this program needs %d: run orderclose migrate", e.Has, e.Wants)
}

// Migrate brings the schema to the version that this program needs, step by step. It leaves a newer
// schema as it is; if this program cannot use the newer schema, the error is a *SchemaError. Several
// processes may call it at once: one migrates, the others wait for at most five minutes and then
// return an error. SQLite has no such lock: there only one process may call it.
//
// Migrate uses a connection without a read timeout, since a step on a large table may take
// minutes.
func (s *Checker) Migrate(ctx context.Context) (err error) {
	pool := s.DB()
	if s.OpenUnbounded != nil {
		if pool, err = s.OpenUnbounded(); err != nil {
			return fmt.Errorf("migrate the schema: %w", err)
		}
		defer func() { err = errors.Join(err, pool.Close()) }()
	}
	if e, ok := errors.AsType[*SchemaError](s.Migrated(ctx)); ok && (e.tooNew() || e.Other != "") {
		return e
	}
	if err := s.NotReadOnly(ctx); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	ctx = context.WithValue(ctx, postgres.Unlimited{}, true)
	err = s.exclusively(ctx, pool, func(ctx context.Context) error {
		if err := s.applySteps(ctx, pool); err != nil {
			return err
		}
		if err := s.claim(ctx); err != nil || s.Q.M.ByRule {
			return err // by rule, the recorded delays say which orders are old
		}
		return s.KeepOld(ctx)
	})
	return s.FailedTo(ctx, err, "migrate the schema")
}

// closeOf names the close of a mapping: the table of orders, the status of the orders that it closes, and the event. Each close has receipts
// of its own.
func closeOf(m *mapping.Mapping) string {
	return fmt.Sprintf("table %s, status %s, event %s", m.Orders, strings.Join(m.Status.From.Texts(), ", "), m.Event)
}

// programStore is the owner of a database in which no order is closed, because a Store of the program closes the orders.
const programStore = "a Store of a Go program"

// OfOwnStore reports whether a Store of a program closes the orders, as the program said that has migrated the database.
func (s *Checker) OfOwnStore(ctx context.Context) bool {
	owner, _, err := s.owner(ctx)
	return err == nil && owner == programStore
}

// owner returns two closes: the one to which the receipts in this database belong, and the one of this program. The first is empty until
// somebody has migrated. A table of this database has no database in front of its name, because a copy of the database may have another name.
// A program with a Store of its own writes no receipts, so it fits each owner.
func (s *Checker) owner(ctx context.Context) (owner, own string, err error) {
	own = closeOf(s.Q.M)
	var here string
	err = s.Gorm.WithContext(ctx).Raw("SELECT COALESCE((SELECT owner FROM "+db.VersionTable+" WHERE owner IS NOT NULL ORDER BY id"+
		" LIMIT 1), ''), "+s.Dialect.HereSQL).
		Row().Scan(&owner, &here)
	if here != "" {
		here = "table " + here + "."
		owner, own = strings.Replace(owner, here, "table ", 1), strings.Replace(own, here, "table ", 1)
	}
	if s.OwnStore() {
		own = cmp.Or(owner, programStore)
	}
	return owner, own, err
}

// claim keeps the database for this program's close, unless it has another one.
func (s *Checker) claim(ctx context.Context) error {
	owner, own, err := s.owner(ctx)
	if err != nil || owner != "" {
		return err
	}
	return s.Gorm.WithContext(ctx).Exec("INSERT INTO "+db.VersionTable+" (version_id, is_applied, owner) VALUES (0, 0, ?)", own).Error
}

// applySteps applies the steps that the database lacks, in their order.
//
// Before the first step, it refuses a database that has another table with the name of one of ours:
// the steps, which can be repeated, would take that table for their own.
func (s *Checker) applySteps(ctx context.Context, pool *sql.DB) error {
	steps, err := s.Steps()
	if err != nil {
		return err
	}
	has, err := s.applied(ctx)
	if err != nil {
		return err
	}
	if err := s.refuseForeignTables(ctx, pool, steps); err != nil {
		return err
	}
	for _, step := range steps {
		if slices.Contains(has, step.Number) {
			continue
		}
		if err := applyFreely(ctx, pool, step); err != nil {
			return fmt.Errorf("%s: %w", step.File, err)
		}
	}
	return nil
}

// applyFreely applies a step, once more if an open transaction has read a table that the step changes, for at most migrationWait. The server
// lets the step wait for two seconds only, because everybody else who needs the table waits behind it.
func applyFreely(ctx context.Context, pool *sql.DB, step migrations.Step) error {
	for end := time.Now().Add(migrationWait); ; {
		err := apply(ctx, pool, step)
		switch {
		case !db.HasCode(err, db.LockedCodes):
			return err
		case time.Now().After(end):
			return fmt.Errorf("%w: %w", db.ErrLocked, err)
		case !retry.Sleep(ctx, stepPause):
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// apply executes the statements of a step in a transaction. MySQL commits most of them by itself, so that an
// interrupted step is repeated. Then a column or an index may be there already.
func apply(ctx context.Context, pool *sql.DB, step migrations.Step) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for statement := range strings.SplitSeq(step.SQL, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := tx.ExecContext(ctx, statement); err != nil && !db.HasCode(err, db.ThereCodes) {
			return err
		}
	}
	return tx.Commit()
}

const (
	// migrationWait is how long a process waits while another one migrates, or uses a table, and migrationPoll how often it asks.
	migrationWait = 5 * time.Minute
	migrationPoll = 200 * time.Millisecond
	// stepPause is the pause before a step is tried again, in which everybody else gets the table.
	stepPause = time.Second
)

// exclusively runs work while no other process runs it: MySQL commits each CREATE TABLE by itself, so
// the second process would fail on the tables of the first. While it waits, it keeps no connection, which the
// other process may need. The context of work ends if this process loses the lock.
func (s *Checker) exclusively(ctx context.Context, pool *sql.DB, work func(ctx context.Context) error) error {
	for end := time.Now().Add(migrationWait); ; {
		held, release, err := s.Dialect.SessionLock(ctx, pool, "migrate")
		switch {
		case err != nil:
			return err
		case release != nil:
			defer func() {
				ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), mysqldsn.ReadTimeout)
				defer cancel()
				release(ending)
			}()
			if err = work(held); err != nil && held.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("%w: %w", context.Cause(held), err)
			}
			return err
		case time.Now().After(end):
			return errors.New("another process has been migrating this database for five minutes")
		case !retry.Sleep(ctx, migrationPoll):
			return fmt.Errorf("wait for another process that migrates: %w", ctx.Err())
		}
	}
}

// refuseForeignTables returns an error if there is a table that a step would create. If there is the table of
// applied steps, the tables are ours.
func (s *Checker) refuseForeignTables(ctx context.Context, pool *sql.DB, steps []migrations.Step) error {
	exists := func(table string) (n int, err error) {
		err = pool.QueryRowContext(ctx, s.Dialect.HasTable, table).Scan(&n)
		return n, err
	}
	if ours, err := exists(db.VersionTable); err != nil || ours > 0 { //mutant:foreign-table-taken
		return err
	}
	for _, step := range steps {
		for _, table := range step.Creates() {
			if n, err := exists(table); err != nil {
				return err
			} else if n > 0 {
				return fmt.Errorf("the database has a table %s that orderclose did not create: use another database, "+
					"or, if it has your orders, describe it in topics.yaml (key orders)", table)
			}
		}
	}
	return nil
}

// Migrated reports whether this program can use the schema, as Schema does.
func (s *Checker) Migrated(ctx context.Context) error {
	_, err := s.Schema(ctx)
	return err
}

// Schema reads the schema's version. The error is a *SchemaError if this program cannot use the schema: it
// lacks a step that the program needs, or has one of a newer program that older programs cannot work with.
func (s *Checker) Schema(ctx context.Context) (v Schema, err error) {
	steps, err := s.Steps()
	if err != nil {
		return v, err
	}
	has, err := s.applied(ctx)
	v.Wants = steps[len(steps)-1].Number
	if len(has) > 0 {
		v.Has = slices.Max(has)
	}
	if err == nil && v.Newer() {
		err = s.Gorm.WithContext(ctx).Raw("SELECT MAX(oldest) FROM " + db.VersionTable).Scan(&v.Oldest).Error
	}
	if err == nil && len(has) > 0 {
		var own string
		if v.Orders, own, err = s.owner(ctx); v.Orders != "" && !strings.EqualFold(v.Orders, own) { //mutant:second-close-accepted
			v.Other, v.Rename = own, fmt.Sprintf("UPDATE %s SET owner = %s, not_before = %s WHERE owner IS NOT NULL", db.VersionTable,
				s.Dialect.Literal(own), s.Dialect.NotBeforeSQL())
		}
	}
	if db.Denied(err) {
		return v, s.FailedTo(ctx, err, "read the schema's version: grant SELECT on the table %s, or run orderclose migrate if the table does not exist",
			db.VersionTable)
	}
	if err != nil {
		return v, s.FailedTo(ctx, err, "read the schema's version")
	}
	for _, step := range steps {
		if step.Number < v.Has && !slices.Contains(has, step.Number) {
			v.Lacks = append(v.Lacks, step.Number)
		}
	}
	if !v.usable() {
		return v, &SchemaError{v}
	}
	return v, nil
}

// applied returns the numbers of the steps that were applied to the database; none: it has no schema.
func (s *Checker) applied(ctx context.Context) (versions []int64, err error) {
	tx := s.Gorm.WithContext(ctx)
	var has int64
	if err := tx.Raw(s.Dialect.HasTable, db.VersionTable).Scan(&has).Error; err != nil {
		return nil, err
	}
	err = tx.Raw("SELECT version_id FROM " + db.VersionTable + " WHERE is_applied = 1").Scan(&versions).Error
	if has == 0 && !db.Denied(err) && db.ConnectionFault(err) == db.FaultOrder {
		return versions, nil // there is no such table
	}
	return versions, err // a table that the user may not read is not listed either
}

// WriteMigrations writes the whole schema as SQL of MySQL or PostgreSQL, for shops that run their own migrations. It includes
// the table of versions that Migrated and a later Migrate read. With a mapping, it omits the reference schema's tables of
// orders, lines and stock.
func WriteMigrations(w io.Writer, d db.DialectName, m *mapping.Mapping) error {
	steps, err := migrations.Steps(migrations.Files, string(d), m != nil)
	return writeMigrations(w, db.ServerDialects[d], closeOf(cmp.Or(m, mapping.Reference())), steps, err)
}

// WriteMigrations is the function WriteMigrations for the kind of database that the Store is on.
func (s *Checker) WriteMigrations(w io.Writer) error {
	steps, err := s.Steps()
	return writeMigrations(w, s.Dialect, closeOf(s.Q.M), steps, err)
}

func writeMigrations(w io.Writer, d db.Dialect, owner string, steps []migrations.Step, err error) error {
	for _, step := range steps {
		if err == nil {
			_, err = fmt.Fprintf(w, "-- %s\n%s\n", step.File, step.SQL)
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "-- To which close the receipts here belong.\nINSERT INTO %s (version_id, is_applied, owner, not_before) VALUES (0, 0, %s, %s);\n",
			db.VersionTable, d.Literal(owner), d.NotBeforeSQL())
	}
	return err
}
