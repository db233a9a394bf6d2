package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Each statement in a refusal can be executed on the table that it is about, which has rows. Then the next refusal is about
// something else, and at the end there is none, or none with a statement. An order that is inserted then closes when it is due.
// TestSchemas_AnyShopIsClosedOrRefusedWithAFix does the same for tables by seed.
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
	type shop struct {
		ddl  []string
		says string // of the last refusal
	}
	shops := map[string]shop{
		"a table without indexes": {[]string{"CREATE TABLE o (" + columns + ")"}, ""},
		"a composite key":         {[]string{"CREATE TABLE o (" + columns + ", PRIMARY KEY (shop, no))"}, ""},
		"numbers that repeat": {[]string{"CREATE TABLE o (" + columns + ", PRIMARY KEY (shop, no))", "INSERT INTO o VALUES ('1', 1, 0, 1), ('1', 2, 0, 1)"},
			"if no repeats, since the index "},
		"a partitioned table":              {partitioned, "a partitioned table takes no unique index without the columns of its partitions"},
		"a short column for payments' ids": {[]string{"CREATE TABLE o (" + columns + ", pay VARCHAR(20), PRIMARY KEY (no))"}, ""},
	}
	if isPostgres(t) {
		shops["an id that is padded"] = shop{[]string{"CREATE TABLE o (" + strings.Replace(columns, "VARCHAR", "CHAR", 1) + ", PRIMARY KEY (no))"}, ""}
		shops["lines in another collation"] = shop{[]string{"CREATE TABLE o (" + columns + ", PRIMARY KEY (no))",
			strings.Replace(lines, ") NOT", `) COLLATE "C" NOT`, 1)}, ""}
	} else {
		shops["a table without transactions"] = shop{[]string{"CREATE TABLE o (" + columns + ", PRIMARY KEY (no)) ENGINE = MyISAM"}, ""}
		shops["lines in another collation"] = shop{[]string{"CREATE TABLE o (" + strings.Replace(columns, ") NOT", ") COLLATE utf8mb4_unicode_ci NOT", 1) +
			", PRIMARY KEY (no))", strings.Replace(lines, ") NOT", ") COLLATE utf8mb4_general_ci NOT", 1)}, ""}
	}
	const order = "INSERT INTO o (no, shop, status, due) VALUES ('7', 7, %d, 100)"
	for what, c := range shops {
		t.Run(what, func(t *testing.T) {
			m, dsn := *spelling, ownDatabase(t)
			if strings.Contains(what, "payments") {
				m.PaymentID = "pay"
			}
			s := open(t, store.Options{DSN: dsn, Orders: &m})
			for _, ddl := range append(c.ddl, strings.Replace(lines, "TABLE", "TABLE IF NOT EXISTS", 1), stock,
				fmt.Sprintf(strings.ReplaceAll(order, "7", "3"), 1), "INSERT INTO l VALUES ('3', 'x', 1)", "INSERT INTO g VALUES ('x', 1, 1)") {
				exec(t, s.DB(), ddl)
			}
			said, ran := "", 0
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
				if ran += tried; tried == 0 {
					break
				}
			}
			must.That(t, (said == "") == (c.says == "") && strings.Contains(said, c.says) && (ran > 0 || c.says != ""), "%s, want %q", said, c.says)
			if said == "" {
				must.Do(t, s.Migrate(t.Context()))
				exec(t, s.DB(), fmt.Sprintf(order, 0))
				late := must.Get(s.Overdue(t.Context(), time.Unix(101, 0), orderclose.Order{}, 10))(t)
				must.That(t, len(late) == 1 && late[0].ID == "7", "overdue are %v", late)
				must.Get(s.CloseOrders(t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "7"}}))(t)
				expect.Equal(t, scalar(t, s, "SELECT status FROM o WHERE no = '7'"), "2", "the status of the order")
			}
		})
	}
}

// The statement for a creation time with ON UPDATE keeps all else of the column: on a table with rows, an order that is inserted afterwards without it is due
// after the delay.
func TestMySQL_AColumnWithoutOnUpdateKeepsItsDefault(t *testing.T) { eachServer(t, withoutOnUpdate) }

func withoutOnUpdate(t *testing.T) {
	for _, definition := range []string{
		"TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
		"TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP COMMENT 'when it''s \"placed\" DEFAULT NULL'",
		"TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)",
		"DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP COMMENT '下单时间'",
		"DATETIME(6) DEFAULT NOW(6) ON UPDATE NOW(6)",
	} {
		t.Run(definition, func(t *testing.T) {
			m := *spelling
			m.Items, m.Stock = nil, nil
			m.Due = mapping.TimeColumn{Column: "due", Type: mapping.Timestamp, Precision: mapping.Seconds}
			if strings.HasPrefix(definition, "DATETIME") {
				m.Due.Type, m.Due.Zone = mapping.DateTime, "UTC"
			}
			switch {
			case strings.Contains(definition, "(3)"):
				m.Due.Precision = mapping.Millis
			case strings.Contains(definition, "(6)"):
				m.Due.Precision = mapping.Micros
			}
			m.ByRule, m.Created = true, &m.Due
			s := open(t, store.Options{DSN: ownDatabase(t), Orders: &m})
			exec(t, s.DB(), "CREATE TABLE o (no VARCHAR(20) PRIMARY KEY, status INT NOT NULL, due "+definition+", KEY (status, due, no))")
			exec(t, s.DB(), "INSERT INTO o (no, status, due) VALUES ('1', 0, '2026-01-01 10:00:00'), ('2', 1, '2026-01-02 10:00:00')")
			wrong, refused := errors.AsType[*store.MappingError](s.CheckMapping(t.Context()))
			must.That(t, refused, "the table is not refused")
			_, statement, found := strings.Cut(wrong.Problems[0].Fix, ", or: ")
			must.That(t, found, "%s", wrong.Problems[0].Fix)
			comment := "SELECT GROUP_CONCAT(column_comment, is_nullable) FROM information_schema.columns WHERE table_schema = DATABASE() AND column_name = 'due'"
			before := scalar(t, s, comment)
			exec(t, s.DB(), statement)
			expect.Equal(t, scalar(t, s, comment), before, "the comment, and whether it takes NULL, after %s", statement)
			must.Do(t, s.Migrate(t.Context()))
			s.UseDelays(orderclose.Delays{Default: 30 * time.Minute})
			must.Do(t, s.RecordDelays(t.Context()))
			exec(t, s.DB(), "INSERT INTO o (no, status) VALUES ('3', 0)")
			exec(t, s.DB(), "UPDATE o SET status = 0 WHERE no = '2'")
			for after, want := range map[time.Duration]string{0: "1 2", 31 * time.Minute: "1 2 3"} {
				got := ""
				for _, o := range must.Get(s.Overdue(t.Context(), must.Get(s.Now(t.Context()))(t).Add(after), orderclose.Order{}, 10))(t) {
					got += " " + o.ID
				}
				expect.Equal(t, strings.TrimSpace(got), want, "overdue in %v", after)
			}
		})
	}
}

func scalar(t *testing.T, s *store.Store, query string) (text string) {
	must.Do(t, s.DB().QueryRowContext(t.Context(), query).Scan(&text))
	return text
}
