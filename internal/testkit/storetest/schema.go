package storetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
)

var schemaClaims = []claim{
	{"WrongSchemaVersionIsReported", wrongSchemaVersion},
	{"ANewerSchemaIsUsedIfItSaysSo", newerSchema},
	{"MigratingTwiceChangesNothing", migratingTwice},
	{"PrintedSchemaIsTheSchema", printedSchema},
	{"PingAnswers", pingAnswers},
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
	s.exec("DELETE FROM orderclose_schema WHERE version_id > 2")
	s.wrongVersion(2, "run orderclose migrate")
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
	want(t, "schema", v, store.Schema{Has: 998, Wants: before.Wants, Oldest: 14})
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

func migratingTwice(t *testing.T, s *shop) {
	s.migrated("ink")
	before := s.state()
	s.must(s.Migrate(t.Context()))
	want(t, "state", s.state(), before)
}

func printedSchema(t *testing.T, s *shop) {
	var printed strings.Builder
	s.must(store.WriteMigrations(&printed, string(s.Dialect()), false))
	for statement := range strings.SplitSeq(withoutComments(printed.String()), ";") {
		if strings.TrimSpace(statement) != "" {
			s.exec(statement)
		}
	}
	s.must(s.Migrated(t.Context()))
	s.migrated("ink") // no step is left to apply, and the schema works
	s.order("a", -1, shopdb.Item{SKU: "ink", Quantity: 1})
	want(t, "verdict", verdicts(s.close("a")), []string{"a closed"})
	if err := store.WriteMigrations(&printed, "oracle", false); err == nil {
		t.Error("the schema was printed for an unknown database")
	}
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
