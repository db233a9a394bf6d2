package storetest

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/migrations"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var schemaPromises = []promise[shop]{
	{name: "WrongSchemaVersionIsReported", test: wrongSchemaVersion, tags: Dialect | Empty},
	{name: "ASecondTableOrCloseOfOrdersIsRefused", test: secondClose, tags: Dialect | Empty},
	{name: "ANewerSchemaIsUsedIfItSaysSo", test: newerSchema, tags: Dialect | Empty},
	{name: "MigratingTwiceChangesNothing", test: migratingTwice, tags: Dialect | File | Empty | Settings},
	{name: "PrintedSchemaIsTheSchema", test: printedSchema, tags: Dialect | Empty | Settings},
	{name: "FurtherStepsAreAppliedAndChecked", test: furtherSteps, tags: Dialect | Empty},
	{name: "ATableThatOrdercloseDidNotCreateIsRefused", test: foreignTable, tags: Dialect | Empty},
	{name: "AStoreOfTheProgramGetsNoTablesOfOrders", test: ownStore, tags: Dialect | Empty},
	{name: "PingAnswers", test: pingAnswers},
	{name: "ActionsOfOperatorsAreKept", test: keepsActions, tags: Dialect},
}

func (s *shop) wrongVersion(has int64, hint string) {
	s.Helper()
	err := s.Migrated(s.Context())
	if e, ok := errors.AsType[*store.SchemaError](err); !ok || e.Has != has || !strings.Contains(err.Error(), hint) {
		s.Errorf("version %d of the schema: %v; want an error that says so and %q", has, err, hint)
	}
}

func wrongSchemaVersion(t *testing.T, s *shop) {
	s.wrongVersion(0, "run orderclose migrate")
	s.migrated()
	s.must(s.Migrated(t.Context()))
	s.exec("UPDATE orderclose_schema SET version_id = 999 WHERE version_id = 1")
	s.wrongVersion(999, "lacks the steps")
}

// Orders of two tables may have the same numbers, and a receipt says neither of which order it is nor of which close.
func secondClose(t *testing.T, s *shop) {
	s.migrated()
	const own = "table orders, status 0, event order.closed"
	for _, other := range []string{"table course_order, status 0, event order.closed", "table orders, status 2, event order.closed",
		"table orders, status 0, event order.confirmed"} {
		s.exec("UPDATE orderclose_schema SET owner = ? WHERE owner IS NOT NULL", other)
		for _, err := range []error{s.Migrate(t.Context()), s.Migrated(t.Context())} {
			expect.Says(t, err, "belong to ("+other+"), and this topics.yaml says ("+own+")", "a second close")
			if e, is := errors.AsType[*store.SchemaError](err); is {
				s.exec(e.Rename)
			}
			s.must(s.Migrated(t.Context()))
			s.exec("UPDATE orderclose_schema SET owner = ? WHERE owner IS NOT NULL", other)
		}
	}
}

// A program with a Store of its own fits each owner. Others learn from the owner that the orders are not in this database.
func ownStore(t *testing.T, s *shop) {
	s.UseOwnStore()
	s.must(s.Migrate(t.Context()))
	s.must(s.Migrated(t.Context()))
	expect.That(t, s.OfOwnStore(t.Context()), "the database does not say that a Store of a program closes the orders")
	for _, table := range []string{"orders", "order_items", "stock"} {
		_, err := s.DB().ExecContext(t.Context(), "SELECT * FROM "+table)
		expect.That(t, err != nil, "a program that has no orders in the database gets the table %s", table)
	}
	s.exec("INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('b-1', '{}', ?)", s.time(s.now()))
	h := must.Get(s.OrderHistory(t.Context(), "b-1"))(t)
	expect.That(t, h.Known() && h.Order == nil && len(h.PendingEvents) == 1 && h.PendingEvents[0].Type == "order.closed", "%+v", h)
	s.exec("UPDATE orderclose_schema SET owner = 'table orders, status 0, event order.closed' WHERE owner IS NOT NULL")
	s.must(s.Migrated(t.Context()))
	expect.That(t, !s.OfOwnStore(t.Context()), "the tables of a shop are taken for those of a Store of a program")
}

// A newer program has added a table. Then a step follows with which this program cannot work.
func newerSchema(t *testing.T, s *shop) {
	s.migrated("ink")
	before := must.Get(s.Schema(t.Context()))(t)
	s.exec("INSERT INTO orderclose_schema (version_id, is_applied) VALUES (998, 1)")
	s.must(s.Migrated(t.Context()))
	s.must(s.Migrate(t.Context()))
	want(t, "schema", must.Get(s.Schema(t.Context()))(t), store.Schema{Has: 998, Wants: before.Wants, Oldest: 1, Orders: before.Orders})
	s.order("a", -1, shopdb.Item{SKU: "ink", Quantity: 1})
	want(t, "verdict", verdicts(s.close("a")), []string{"a closed"})

	s.exec("UPDATE orderclose_schema SET oldest = 999")
	s.wrongVersion(998, "only programs that need version 999 or a later one can use")
	s.exec("INSERT INTO orderclose_schema (version_id, is_applied) VALUES (999, 1)")
	s.wrongVersion(999, "run a newer program")
	_, ok := errors.AsType[*store.SchemaError](s.Migrate(t.Context()))
	expect.That(t, ok, "a schema that this program cannot use was migrated")
	want(t, "steps", s.count("SELECT COUNT(*) FROM orderclose_schema WHERE version_id > ?", before.Wants), 2)
}

func keepsActions(t *testing.T, s *shop) {
	s.migrated()
	s.must(s.KeepAction(t.Context(), "ann@laptop", "orderclose replay --from 1h --yes", "done"))
	s.must(s.KeepAction(t.Context(), "李", "redrive 🧾 "+strings.Repeat("长", 3000), "failed"))
	want(t, "actions", s.texts("SELECT who FROM operator_actions WHERE at IS NOT NULL AND action LIKE '%d%' ORDER BY id"), []string{"ann@laptop", "李"})
	want(t, "the result", s.texts("SELECT result FROM operator_actions WHERE who = '李'"), []string{"failed"})
}

func migratingTwice(t *testing.T, s *shop) {
	s.migrated("ink")
	before := s.state()
	s.must(s.Migrate(t.Context()))
	want(t, "state", s.state(), before)
}

func printedSchema(t *testing.T, s *shop) {
	var printed strings.Builder
	s.must(s.WriteMigrations(&printed))
	for statement := range strings.SplitSeq(withoutComments(printed.String()), ";") {
		if strings.TrimSpace(statement) != "" {
			s.exec(statement)
		}
	}
	s.must(s.Migrated(t.Context()))
	s.migrated("ink") // no step is left to apply, and the schema works
	s.order("a", -1, shopdb.Item{SKU: "ink", Quantity: 1})
	want(t, "verdict", verdicts(s.close("a")), []string{"a closed"})
}

// WithSteps returns the steps of the schema with further files, by DIALECT/NUMBER_NAME.sql.
func WithSteps(files map[string]string) fs.FS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	names, _ := fs.Glob(migrations.Files, "*/*.sql")
	for _, name := range names {
		text, _ := fs.ReadFile(migrations.Files, name) // embedded files are always read
		all[name] = &fstest.MapFile{Data: text}
	}
	return all
}

// notes are the schema and a number of further steps.
func notes(steps int) fs.FS {
	files := map[string]string{}
	for _, d := range []store.DialectName{store.MySQL, store.Postgres, store.SQLite} {
		for i, sql := range []string{"CREATE TABLE IF NOT EXISTS notes (id BIGINT PRIMARY KEY);\n", "ALTER TABLE notes ADD COLUMN more VARCHAR(9) NULL;\n"}[:steps] {
			files[fmt.Sprintf("%s/90%02d_notes.sql", d, i+1)] = sql
		}
	}
	return WithSteps(files)
}

func furtherSteps(t *testing.T, s *shop) {
	s.migrated("ink")
	v := must.Get(s.Schema(t.Context()))(t)
	steps := func() []string {
		return s.texts("SELECT version_id FROM orderclose_schema WHERE is_applied = 1 AND version_id > 9000 ORDER BY version_id")
	}
	for i, applied := range [][]string{{"9001"}, {"9001", "9002"}} {
		s.Migrations = notes(i + 1)
		s.wrongVersion(v.Has, fmt.Sprintf("has version %d and this program needs %d: run orderclose migrate", v.Has, 9001+i))
		for range 2 {
			s.must(s.Migrate(t.Context()))
			s.must(s.Migrated(t.Context()))
		}
		want(t, "steps", steps(), applied)
		v = must.Get(s.Schema(t.Context()))(t)
	}
	s.exec("INSERT INTO notes (id, more) VALUES (1, 'one')")
	s.Migrations = notes(1) // a program before the second step
	s.must(s.Migrated(t.Context()))
	s.must(s.Migrate(t.Context()))
	want(t, "rows", s.count("SELECT COUNT(*) FROM notes"), 1)
	var printed strings.Builder
	s.must(s.WriteMigrations(&printed))
	expect.That(t, strings.Contains(printed.String(), "-- 9001_notes.sql\nCREATE TABLE IF NOT EXISTS notes"), "the printed schema:\n%s", printed.String())

	// MySQL commits the table by itself, and the row of the step never came.
	s.exec("DELETE FROM orderclose_schema WHERE version_id = 9001")
	s.Migrations = notes(2)
	s.wrongVersion(9002, "lacks the steps [9001]: run orderclose migrate")
	s.must(s.Migrate(t.Context()))
	expect.Equal(t, len(steps()), 2, "steps after one that was interrupted")
}

// The steps can be repeated, so they would take another program's table for their own.
func foreignTable(t *testing.T, s *shop) {
	s.exec("CREATE TABLE stock (a INT)")
	expect.Says(t, s.Migrate(t.Context()), "a table stock that orderclose did not create", "a table of the shop")
	s.wrongVersion(0, "run orderclose migrate")
	s.exec("DROP TABLE stock")
	s.migrated()
}

func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		before, _, _ := strings.Cut(line, "-- ")
		b.WriteString(before + "\n")
	}
	return b.String()
}

func pingAnswers(t *testing.T, s *shop) { s.must(s.Ping(t.Context())) }
