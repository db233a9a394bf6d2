package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
)

// versionTable is goose's table of applied versions. Its name differs from goose's default, so
// that a shop that uses goose in the same database keeps its own versions.
const versionTable = "orderclose_schema"

//go:embed migrations
var migrations embed.FS

// referenceSteps are the steps that create or change the reference schema's tables of orders,
// lines and stock. They are skipped where orders are in the shop's own tables: the other
// tables belong to orderclose alone.
var referenceSteps = []int64{7}

// The first steps were joined. A database with the step firstOwn and without the step joined stopped
// in between.
const firstOwn, joined = 4, 13

// Schema is the version of the schema that a database has, and that this program needs.
type Schema struct {
	Has, Wants int64   // Has is 0 for a database without the schema
	Oldest     int64   // if Has is more than Wants: the oldest program, by its Wants, that can use the schema
	Lacks      []int64 // steps below Has that were skipped, as for the shop's own tables
	Outdated   bool    // the schema has a version below 13, from which this program cannot migrate
}

// Newer reports whether a newer program has migrated the schema.
func (v Schema) Newer() bool { return v.Has > v.Wants }

// tooNew reports whether only newer programs can use the schema.
func (v Schema) tooNew() bool { return v.Newer() && v.Oldest > v.Wants }

// usable reports whether this program can use the schema.
func (v Schema) usable() bool {
	return len(v.Lacks) == 0 && !v.Outdated && (v.Has == v.Wants || v.Newer() && v.Oldest <= v.Wants)
}

// SchemaError says that this program cannot use the schema of the database.
type SchemaError struct{ Schema }

func (e *SchemaError) Error() string {
	if e.tooNew() {
		return fmt.Sprintf("the database's schema has version %d, which only programs that need version %d or a later one can use, and this program needs %d: run a newer program",
			e.Has, e.Oldest, e.Wants)
	}
	if e.Outdated {
		return fmt.Sprintf("the database's schema has version %d, and this program can migrate it from version %d on: run orderclose migrate of commit fc16a75 first", e.Has, joined)
	}
	if len(e.Lacks) > 0 {
		return fmt.Sprintf("the database's schema lacks the steps %d: run orderclose migrate", e.Lacks)
	}
	return fmt.Sprintf("the database's schema has version %d and this program needs %d: run orderclose migrate", e.Has, e.Wants)
}

// Migrate brings the schema to the version that this program needs, step by step. It leaves a newer
// schema as it is; if this program cannot use the newer schema, or the schema has a version below 13, the
// error is a *SchemaError. Several
// processes may call it at once: one migrates, the others wait for at most five minutes and then
// return an error. SQLite has no such lock: there only one process may call it.
//
// Migrate uses a connection without a read timeout, since a step on a large table may take
// minutes. On a pool of the program's own (Options.DB) it cannot: each step, and the wait for
// another process, must end within the pool's read timeout. If a step does not, Migrate returns
// an error while the server may still execute the step.
func (s *Store) Migrate(ctx context.Context) (err error) {
	db := s.DB()
	if s.openUnbounded != nil {
		if db, err = s.openUnbounded(); err != nil {
			return fmt.Errorf("migrate the schema: %w", err)
		}
		defer func() { err = errors.Join(err, db.Close()) }()
	}
	if e, ok := errors.AsType[*SchemaError](s.Migrated(ctx)); ok && (e.tooNew() || e.Outdated) {
		return e
	}
	ctx = context.WithValue(ctx, unlimited{}, true)
	p, err := s.provider(db)
	if err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	err = s.dialect.exclusively(ctx, db, func() error {
		if err := s.createVersionTable(ctx, db); err != nil {
			return err
		}
		_, err := p.Up(ctx)
		return err
	})
	return s.failed(ctx, err, "migrate the schema")
}

// exclusively runs work while no other process runs it: MySQL commits each CREATE TABLE by itself, so
// the second process would fail on the tables of the first. The server releases the lock if the
// connection breaks. goose can take such a lock itself, but it reads its table before that, and fails
// if another process has just created the table and not yet filled it. SQLite has no such lock.
func (d Dialect) exclusively(ctx context.Context, db *sql.DB, work func() error) (err error) {
	if d.Name == SQLite {
		return work()
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var got sql.NullInt64
	waiting, cancel := context.WithTimeout(ctx, migrationWait+readTimeout)
	defer cancel()
	if err := conn.QueryRowContext(waiting, "SELECT GET_LOCK("+lockName+", ?)", int(migrationWait.Seconds())).Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return errors.New("another process has been migrating this database for five minutes")
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // then the connection breaks, which releases it too
		defer cancel()
		_, unlocked := conn.ExecContext(ending, "DO RELEASE_LOCK("+lockName+")")
		err = errors.Join(err, unlocked)
	}()
	return work()
}

// migrationWait is how long a process waits while another one migrates.
const migrationWait = 5 * time.Minute

// lockName is the name of the lock of a migration. It includes the database's name, since a lock's
// name is global to the server. It has at most 64 characters.
const lockName = "LEFT(CONCAT('orderclose_migrate.', DATABASE()), 64)"

// createVersionTable creates goose's table of versions with its first row, or adds a missing first row.
// goose can create the table too. But MySQL commits CREATE TABLE by itself, and goose never adds the
// row if it was interrupted, or lacked the privilege, before it wrote the row. SQLite has no such gap.
//
// Before it creates the table, it refuses a database that has another table with the name of one of ours:
// the steps, which can be repeated, would take that table for their own.
func (s *Store) createVersionTable(ctx context.Context, db *sql.DB) error {
	d := s.dialect
	if d.Name == SQLite {
		return nil
	}
	var tables, rows int
	if err := db.QueryRowContext(ctx, d.hasTable, versionTable).Scan(&tables); err != nil {
		return err
	}
	if tables == 0 {
		if err := s.refuseForeignTables(ctx, db); err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, versionTableSQL[d.Name]); err != nil {
			return err
		}
	}
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+versionTable+" WHERE version_id = 0").Scan(&rows); err != nil || rows > 0 {
		return err
	}
	_, err := db.ExecContext(ctx, firstVersion)
	return err
}

// createTable matches the name of a table that a step creates.
var createTable = regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?(\w+)`)

// refuseForeignTables returns an error if a table exists that a step would create.
func (s *Store) refuseForeignTables(ctx context.Context, db *sql.DB) error {
	var steps strings.Builder
	if err := WriteMigrations(&steps, string(s.dialect.Name), s.mapped); err != nil {
		return err
	}
	for _, table := range createTable.FindAllStringSubmatch(steps.String(), -1) {
		var exists int
		if err := db.QueryRowContext(ctx, s.dialect.hasTable, table[1]).Scan(&exists); err != nil {
			return err
		}
		if exists > 0 {
			return fmt.Errorf("the database has a table %s that orderclose did not create: use another database, or describe your own tables in topics.yaml (key orders)", table[1])
		}
	}
	return nil
}

func (s *Store) provider(db *sql.DB) (*goose.Provider, error) {
	d := s.dialect
	files, err := d.steps()
	if err != nil {
		return nil, err
	}
	options := []goose.ProviderOption{
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true),
		goose.WithAllowOutofOrder(true), // applies referenceSteps that were skipped before
	}
	if s.mapped {
		options = append(options, goose.WithExcludeVersions(referenceSteps))
	}
	if d.Name == SQLite {
		return goose.NewProvider(goose.DialectSQLite3, db, files, options...)
	}
	return goose.NewProvider(goose.DialectMySQL, db, files, options...)
}

// steps returns the migration files, one for each step, named by version.
func (d Dialect) steps() (fs.FS, error) { return fs.Sub(migrations, "migrations/"+string(d.Name)) }

// Migrated reports whether this program can use the schema: it has every step that the program
// needs, and no step of a newer program that older programs cannot work with. If not, the error is a
// *SchemaError. It only reads.
func (s *Store) Migrated(ctx context.Context) error {
	v, err := s.Schema(ctx)
	if err == nil && !v.usable() {
		err = &SchemaError{v}
	}
	return err
}

// Schema reads the schema's version.
func (s *Store) Schema(ctx context.Context) (v Schema, err error) {
	_, wants, err := s.dialect.versions(s.mapped)
	if err != nil {
		return v, err
	}
	has, err := s.applied(ctx)
	v.Wants = slices.Max(wants)
	if len(has) > 0 {
		v.Has = slices.Max(has)
	}
	if err == nil && v.Newer() {
		err = s.gorm.WithContext(ctx).Raw("SELECT MAX(oldest) FROM " + versionTable).Scan(&v.Oldest).Error
	}
	if denied(err) {
		return v, s.failed(ctx, err, "read the schema's version: grant SELECT on the table %s, or run orderclose migrate if the table does not exist", versionTable)
	}
	if err != nil {
		return v, s.failed(ctx, err, "read the schema's version")
	}
	v.Outdated = slices.Contains(has, firstOwn) && !slices.Contains(has, joined)
	for _, step := range wants {
		if step < v.Has && !slices.Contains(has, step) {
			v.Lacks = append(v.Lacks, step)
		}
	}
	return v, nil
}

// versions returns the steps of the schema and the names of their files, in the same order; if mapped,
// without referenceSteps.
func (d Dialect) versions(mapped bool) (names []string, versions []int64, err error) {
	steps, err := d.steps()
	if err != nil {
		return nil, nil, err
	}
	files, err := fs.Glob(steps, "*.sql") // sorted
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there are no migrations for a database called %q", d.Name)
	}
	for _, name := range files {
		v, err := goose.NumericComponent(name)
		if err != nil {
			return nil, nil, err
		}
		if !mapped || !slices.Contains(referenceSteps, v) {
			names, versions = append(names, name), append(versions, v)
		}
	}
	return names, versions, err
}

// applied returns the steps that were applied to the database; none: it has no schema.
func (s *Store) applied(ctx context.Context) (versions []int64, err error) {
	db := s.gorm.WithContext(ctx)
	var has int64
	if err := db.Raw(s.dialect.hasTable, versionTable).Scan(&has).Error; err != nil {
		return nil, err
	}
	err = db.Raw("SELECT version_id FROM " + versionTable + " WHERE is_applied").Scan(&versions).Error
	if has == 0 && !denied(err) && ConnectionFault(err) == FaultOrder {
		return versions, nil // there is no such table
	}
	return versions, err // a table that the user may not read is not listed either
}

// denied reports whether err says that the user may not read a table. MySQL returns it also for
// a table that does not exist, to a user without privileges on the database.
func denied(err error) bool {
	return slices.Contains([]uint16{1142, 1143}, number(err))
}

// WriteMigrations writes the whole schema as SQL, for shops that run their own migrations. It
// includes the table of versions that Migrated and a later Migrate read. dialect is "mysql" or
// "sqlite". If mapped, it omits the reference schema's tables of orders, lines and stock.
func WriteMigrations(w io.Writer, dialect string, mapped bool) error {
	d := Dialect{Name: DialectName(dialect)}
	files, versions, err := d.versions(mapped)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s;\n%s;\n", versionTableSQL[d.Name], firstVersion)
	for i, name := range files {
		text, err := fs.ReadFile(migrations, "migrations/"+dialect+"/"+name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n-- %s\n%s\nINSERT INTO %s (version_id, is_applied) VALUES (%d, 1);\n",
			name, withoutAnnotations(string(text)), versionTable, versions[i])
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// versionTableSQL creates goose's table of versions as goose does.
var versionTableSQL = map[DialectName]string{
	MySQL: "CREATE TABLE " + versionTable + ` (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  version_id BIGINT NOT NULL,
  is_applied BOOLEAN NOT NULL,
  tstamp DATETIME NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (id)
)`,
	SQLite: "CREATE TABLE " + versionTable + ` (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  version_id INTEGER NOT NULL,
  is_applied INTEGER NOT NULL,
  tstamp TIMESTAMP DEFAULT (datetime('now'))
)`,
}

// firstVersion writes the row that goose writes before any step.
const firstVersion = "INSERT INTO " + versionTable + " (version_id, is_applied) VALUES (0, 1)"

func withoutAnnotations(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "-- +goose") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}
