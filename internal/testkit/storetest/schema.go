package storetest

import (
	"embed"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/migrations"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

var schemaPromises = []promise[shop]{
	{name: "WrongSchemaVersionIsReported", test: wrongSchemaVersion, tags: Dialect | Empty},
	{name: "ANewerSchemaIsUsedIfItSaysSo", test: newerSchema, tags: Dialect | Empty},
	{name: "MigratingTwiceChangesNothing", test: migratingTwice, tags: Dialect | File | Empty},
	{name: "PrintedSchemaIsTheSchema", test: printedSchema, tags: Dialect | Empty},
	{name: "ASchemaAtVersion13IsThatOfANewDatabase", test: joinedSteps, tags: Dialect | Empty},
	{name: "TablesOfRoomsAreMigratedAndChecked", test: tablesOfRooms, tags: Dialect | Empty},
	{name: "ATableThatARoomDidNotCreateIsRefused", test: foreignTableOfRoom, tags: Dialect | Empty},
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
	s.exec("DELETE FROM orderclose_schema WHERE version_id > 13")
	s.wrongVersion(13, "run orderclose migrate")
	s.exec("DELETE FROM orderclose_schema WHERE version_id > 12")
	s.wrongVersion(12, "run orderclose migrate of commit fc16a75 first")
	if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "commit fc16a75") {
		t.Errorf("%v; want the commit that can migrate", err)
	}
	s.exec("DELETE FROM orderclose_schema WHERE version_id = 7")
	s.exec("INSERT INTO orderclose_schema (version_id, is_applied) VALUES (13, 1)")
	s.exec("INSERT INTO orderclose_schema (version_id, is_applied) VALUES (999, 1)")
	s.wrongVersion(999, "lacks the steps")
}

// A newer program has added a table. Then a step follows with which this program cannot work.
func newerSchema(t *testing.T, s *shop) {
	s.migrated("ink")
	before, err := s.Schema(t.Context())
	s.must(err)
	s.exec("INSERT INTO orderclose_schema (version_id, is_applied) VALUES (998, 1)")
	s.must(s.Migrated(t.Context()))
	s.must(s.Migrate(t.Context()))
	v, err := s.Schema(t.Context())
	s.must(err)
	want(t, "schema", v, store.Schema{Has: 998, Wants: before.Wants, Oldest: 27, Orders: "orders"})
	s.order("a", -1, shopdb.Item{SKU: "ink", Quantity: 1})
	want(t, "verdict", verdicts(s.close("a")), []string{"a closed"})

	s.exec("UPDATE orderclose_schema SET oldest = 999")
	s.wrongVersion(998, "only programs that need version 999 or a later one can use")
	s.exec("INSERT INTO orderclose_schema (version_id, is_applied) VALUES (999, 1)")
	s.wrongVersion(999, "run a newer program")
	if _, ok := errors.AsType[*store.SchemaError](s.Migrate(t.Context())); !ok {
		t.Error("a schema that this program cannot use was migrated")
	}
	want(t, "steps", s.count("SELECT COUNT(*) FROM orderclose_schema WHERE version_id > ?", before.Wants), 2)
}

func keepsActions(t *testing.T, s *shop) {
	s.migrated()
	s.must(s.KeepAction(t.Context(), "ann@laptop", "orderclose dlq discard 0/17 --yes", "done"))
	s.must(s.KeepAction(t.Context(), "李", "redrive 🧾 "+strings.Repeat("长", 3000), "failed"))
	want(t, "actions", s.texts("SELECT who FROM operator_actions WHERE at IS NOT NULL AND action LIKE '%d%' ORDER BY id"), []string{"ann@laptop", "李"})
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

//go:embed testdata
var testdata embed.FS

// joinedSteps migrates a database that the steps of earlier programs brought to version 13, with an
// order, and then a new one. Both have the same tables and the same versions.
func joinedSteps(t *testing.T, s *shop) {
	s.needs(earlierSchemas)
	text, err := testdata.ReadFile("testdata/version13_" + string(s.Dialect()) + ".sql")
	s.must(err)
	for statement := range strings.SplitSeq(withoutComments(string(text)), ";") {
		if strings.TrimSpace(statement) != "" {
			s.exec(statement)
		}
	}
	s.must(s.PutStock(t.Context(), "ink", 1000))
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 1})
	s.order("b", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	// The program of version 13 closes an order.
	at := s.time(s.now())
	s.exec("UPDATE orders SET status = 2, closed_at = ?, version = version + 1 WHERE id = 'a'", at)
	s.exec("INSERT INTO stock_ledger (order_id, sku_id, kind, quantity, created_at) VALUES ('a', 'ink', 'close', 1, ?)", at)
	s.exec("INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms, try) VALUES ('a', 'closed', ?, ?, 'sweep', 0, 0, 1)", at, at)
	s.exec("UPDATE stock SET available = available + 1, reserved = reserved - 1")

	s.wrongVersion(13, "run orderclose migrate")
	s.must(s.Migrate(t.Context()))
	s.must(s.Migrated(t.Context()))
	want(t, "a payment after the close", s.answer(s.Pay(t.Context(), "a", "late")), shopdb.PaidLate)
	want(t, "verdicts", verdicts(s.close("a", "b")), []string{"a already_closed", "b closed"})
	want(t, "stock", s.stock(), []string{"ink 1000 0"})
	want(t, "ledger", s.ledger(), []string{"a ink close 1", "b ink close 2"})
	tables, versions := s.definitions(), s.texts("SELECT DISTINCT version_id FROM orderclose_schema ORDER BY version_id")

	for _, table := range append(mapping.OwnTables(), "orders", "order_items", "stock", "refund_intents") {
		s.exec("DROP TABLE " + table)
	}
	s.migrated()
	want(t, "tables of a new database", s.definitions(), tables)
	want(t, "versions of a new database", s.texts("SELECT DISTINCT version_id FROM orderclose_schema ORDER BY version_id"), versions)
}

// notes are the tables of a room after a number of steps.
func notes(steps int) migrations.Tables {
	files := fstest.MapFS{}
	for _, d := range []store.DialectName{store.MySQL, store.Postgres, store.SQLite} {
		for i, sql := range []string{"CREATE TABLE IF NOT EXISTS notes (id BIGINT PRIMARY KEY);\n", "ALTER TABLE notes ADD COLUMN more VARCHAR(9) NULL;\n"}[:steps] {
			files[fmt.Sprintf("%s/%02d.sql", d, i+1)] = &fstest.MapFile{Data: []byte(sql)}
		}
	}
	return migrations.Tables{Room: "notes", Files: files}
}

func tablesOfRooms(t *testing.T, s *shop) {
	s.migrated("ink")
	v, err := s.Schema(t.Context())
	s.must(err)
	steps := func() []string {
		return s.texts("SELECT CONCAT_WS(' ', room, number) FROM orderclose_rooms ORDER BY number")
	}
	for i, applied := range [][]string{{"notes 0", "notes 1"}, {"notes 0", "notes 1", "notes 2"}} {
		s.UseTables(notes(i + 1))
		s.wrongVersion(v.Has, "the database lacks the tables of notes (keys of topics.yaml): run orderclose migrate")
		for range 2 {
			s.must(s.Migrate(t.Context()))
			s.must(s.Migrated(t.Context()))
		}
		want(t, "steps", steps(), applied)
	}
	s.exec("INSERT INTO notes (id, more) VALUES (1, 'one')")
	s.UseTables(notes(1)) // a program before the second step
	s.must(s.Migrated(t.Context()))
	s.must(s.Migrate(t.Context()))
	want(t, "rows", s.count("SELECT COUNT(*) FROM notes"), 1)
	var printed strings.Builder
	s.must(s.WriteMigrations(&printed))
	if text := printed.String(); !strings.Contains(text, "-- notes/01.sql\nCREATE TABLE IF NOT EXISTS notes") || !strings.Contains(text, "VALUES ('notes', 1);") {
		t.Errorf("the printed schema has no table of the room:\n%s", text)
	}

	// MySQL commits the table by itself, and the row of the step never came.
	s.exec("DELETE FROM orderclose_rooms WHERE number = 1")
	s.UseTables(notes(2))
	s.must(s.Migrate(t.Context()))
	expect.Equal(t, len(steps()), 3, "steps after one that was interrupted")
}

func foreignTableOfRoom(t *testing.T, s *shop) {
	s.migrated()
	s.exec("CREATE TABLE notes (text VARCHAR(9))")
	s.UseTables(notes(1))
	expect.Says(t, s.Migrate(t.Context()), "a table notes that orderclose did not create", "a table of the shop")
	want(t, "steps", s.count("SELECT COUNT(*) FROM orderclose_rooms"), 0)
	s.exec("DROP TABLE notes")
	s.must(s.Migrate(t.Context()))
	s.must(s.Migrated(t.Context()))
}

// definitions returns the columns and indexes of all tables but refund_intents, which an earlier version of the example
// shop had.
func (s *shop) definitions() []string {
	s.Helper()
	if s.Dialect() == store.SQLite {
		return append(s.texts(`SELECT m.name || ' ' || c.cid || ' ' || c.name || ' ' || c.type || ' ' || c."notnull" || ' '
			|| COALESCE(c.dflt_value, '-') || ' ' || c.pk
			FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT IN ('refund_intents', 'sqlite_sequence') ORDER BY 1`),
			s.texts("SELECT name || ' ' || tbl_name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY 1")...)
	}
	return append(s.texts(`SELECT CONCAT_WS(' ', table_name, ordinal_position, column_name, column_type, is_nullable, COALESCE(column_default, '-'),
		COALESCE(collation_name, '-'), column_key, extra, column_comment) AS def FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name <> 'refund_intents' ORDER BY def`),
		s.texts(`SELECT CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name, non_unique) AS def FROM information_schema.statistics
			WHERE table_schema = DATABASE() AND table_name <> 'refund_intents' ORDER BY def`)...)
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
