package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Each statement in a refusal can be executed on the table that it is about. Then the next refusal is about something else, and at the end
// there is none, or none with a statement. TestSchemas_AnyShopIsClosedOrRefusedWithAFix does the same for tables by seed.
func TestMapping_TheStatementsOfARefusalWork(t *testing.T) { eachDatabase(t, fixesWork) }

func fixesWork(t *testing.T) {
	const lines, stock = "CREATE TABLE l (no VARCHAR(20) NOT NULL, sku VARCHAR(20), n INT NOT NULL)",
		"CREATE TABLE g (sku VARCHAR(20) PRIMARY KEY, free INT NOT NULL, held INT NOT NULL)"
	columns := "no VARCHAR(20) NOT NULL, shop INT NOT NULL, status INT NOT NULL, due INT NOT NULL"
	partitioned := []string{"CREATE TABLE o (" + columns + ", PRIMARY KEY (no, due)) PARTITION BY RANGE (due) (PARTITION p1 VALUES LESS THAN (1000), PARTITION " +
		"p2 VALUES LESS THAN MAXVALUE)"}
	if isPostgres(t) {
		partitioned = []string{"CREATE TABLE o (" + columns + ", PRIMARY KEY (no, due)) PARTITION BY RANGE (due)",
			"CREATE TABLE p1 PARTITION OF o FOR VALUES FROM (0) TO (1000)"}
	}
	for what, c := range map[string]struct {
		ddl  []string
		says string // of the last refusal
	}{
		"a table without indexes": {[]string{"CREATE TABLE o (" + columns + ")"}, ""},
		"a composite key":         {[]string{"CREATE TABLE o (" + columns + ", PRIMARY KEY (shop, no))"}, ""},
		"numbers that repeat": {[]string{"CREATE TABLE o (" + columns + ", PRIMARY KEY (shop, no))", "INSERT INTO o VALUES ('1', 1, 0, 1), ('1', 2, 0, 1)"},
			"if no repeats, since the index "},
		"a partitioned table": {partitioned, "a partitioned table takes no unique index without the columns of its partitions"},
	} {
		t.Run(what, func(t *testing.T) {
			m, dsn := *spelling, ownDatabase(t)
			s := open(t, store.Options{DSN: dsn, Orders: &m})
			for _, ddl := range append(c.ddl, lines, stock) {
				exec(t, s.DB(), ddl)
			}
			said := ""
			for range 5 {
				wrong, refused := errors.AsType[*store.MappingError](s.CheckMapping(t.Context()))
				if said = ""; !refused {
					break
				}
				tried := 0
				for _, p := range wrong.Problems {
					said += p.How() + "\n"
					if name, is := strings.CutPrefix(p.Fix, "name the one that is there, index: "); is {
						m.ID.Index, tried = name, tried+1
						s = open(t, store.Options{DSN: dsn, Orders: &m})
						continue
					}
					statement, _, _ := strings.Cut(strings.TrimPrefix(p.Fix, "add one: "), ";")
					statement, _, _ = strings.Cut(statement, ", and name it here")
					if !strings.HasPrefix(statement, "CREATE ") && !strings.HasPrefix(statement, "ALTER ") {
						continue
					}
					_, err := s.DB().ExecContext(t.Context(), statement)
					must.That(t, err == nil || c.says != "" && strings.Contains(p.Fix, c.says), "%s: %v", statement, err)
					if err == nil {
						tried++
					}
				}
				if tried == 0 {
					break
				}
			}
			must.That(t, (said == "") == (c.says == "") && strings.Contains(said, c.says), "%s, want %q", said, c.says)
		})
	}
}
