package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Each column of the shop's orders that only orderclose writes is filled before, in no, in some and in most unpaid orders, with what a shop may
// have in such a column. One filled order is a finding. If most are filled, no program starts before the first close, unless topics.yaml accepts it.
func TestCheckFilled_FindsWhatSomebodyElseWroteFirst(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		dsn, zoned := ownDatabase(t), "datetime"
		if isPostgres(t) {
			zoned = "timestamp(0)"
		}
		for n, c := range []struct {
			key, mapped, definition string
			empty, full             func(i int) string // as SQL
			accept                  string
			few                     bool // a few rows are no finding
		}{
			{"payment_id", "payment_id: x", "VARCHAR(64) NULL", constant("NULL"), constant("'0'"), "filled_payment_id", false},
			{"payment_id", "payment_id: x", "VARCHAR(64) NOT NULL DEFAULT ''", constant("''"), number("'out-%d'"), "filled_payment_id", false},
			{"payment_id", "payment_id: x", "VARCHAR(64) NULL", constant("''"), number("'%d'"), "filled_payment_id", false},
			{"set.x", "set: {x: timeout}", "VARCHAR(64) NULL", number("'new'"), number("'a note of customer %d'"), "filled_before", true},
			{"set.x", "set: {x: 9}", "INT NOT NULL DEFAULT 0", constant("1"), number("%d"), "filled_before", true},
			{"set_paid.x", "set_paid: {x: '2026-01-01 00:00:00'}", zoned + " NULL", constant("NULL"), number("'2026-01-%02d 00:00:00'"), "filled_before", true},
		} {
			name := ""
			shop := func(accept string) *store.Store {
				return open(t, store.Options{DSN: dsn, Orders: ordersOf(t, "buckets: [1m]\naccept: ["+accept+"]", `
  table: `+name+`
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 4, paid: [1]}
  due: {column: due, type: unix_ms}
  items: none
  stock: none
  `+c.mapped+"\n")})
			}
			for filled, want := range map[int]string{0: "", 4: "", 9: c.accept} {
				name = fmt.Sprintf("t%d_%d", n, filled)
				s := shop("")
				exec(t, s.DB(), "CREATE TABLE "+name+" (id BIGINT NOT NULL PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL, x "+c.definition+")")
				exec(t, s.DB(), "CREATE INDEX "+name+"_due ON "+name+" (state, due, id)")
				for i := range 12 {
					state, x := 0, c.empty(i)
					if i < filled {
						x = c.full(i)
					}
					if i >= 9 {
						state, x = 1, c.full(i) // others are paid
					}
					exec(t, s.DB(), fmt.Sprintf("INSERT INTO %s (id, state, due, x) VALUES (%d, %d, %d, %s)", name, i, state, time.Now().UnixMilli(), x))
				}
				must.Do(t, s.CheckMapping(t.Context()))
				e := must.Get(s.Evidence(t.Context()))(t)
				found := filled > 0 && (filled == 9 || !c.few)
				expect.That(t, len(e.Filled) == 1 == found && (!found || e.Filled[0].Key == c.key && e.Filled[0].Filled == int64(filled) && e.Filled[0].Orders == 9),
					"%s %s, %d of 9 filled: %+v", c.mapped, c.definition, filled, e.Filled)
				err := s.CheckFilled(t.Context())
				expect.That(t, (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), "or add "+want+" to accept")),
					"%s %s, %d of 9 filled: %v", c.mapped, c.definition, filled, err)
				expect.NoError(t, shop(c.accept).CheckFilled(t.Context()))
			}
		}
	})
}

func constant(sql string) func(int) string { return func(int) string { return sql } }

func number(format string) func(int) string {
	return func(i int) string {
		if !strings.Contains(format, "%") {
			return format
		}
		return fmt.Sprintf(format, i+1)
	}
}

// A due time or a number of the stock that means "none" or "no limit" is counted, and no other.
func TestEvidence_CountsValuesThatMeanNoLimit(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 4, paid: [1]}
  due: {column: due, type: unix_s}
  created: {column: created, type: unix_s}
  items: {table: t_line, order: order_id, sku: sku, quantity: n}
  stock: {table: t_stock, sku: sku, available: free, reserved: held}
`)})
		exec(t, s.DB(), "CREATE TABLE t_order (id BIGINT NOT NULL PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL, created BIGINT NOT NULL)")
		exec(t, s.DB(), "CREATE INDEX t_due ON t_order (state, due, id)")
		exec(t, s.DB(), "CREATE TABLE t_line (order_id BIGINT NOT NULL, sku VARCHAR(20) NOT NULL, n INT NOT NULL)")
		exec(t, s.DB(), "CREATE TABLE t_stock (sku VARCHAR(20) NOT NULL PRIMARY KEY, free INT NOT NULL, held INT NOT NULL)")
		exec(t, s.DB(), "INSERT INTO t_stock (sku, free, held) VALUES ('ebook', -1, 0), ('course', -1, 0), ('mug', 7, 1), ('none', 0, 0)")
		now := must.Get(s.Now(t.Context()))(t).Unix()
		for id, row := range [][2]int64{{1, now}, {1, now}, {now - 60, now - 120}, {now + 60, now + 120}, {0, now}, {now + 600, now}} {
			exec(t, s.DB(), fmt.Sprintf("INSERT INTO t_order (id, state, due, created) VALUES (%d, 0, %d, %d)", id, row[0], row[1]))
		}
		c, e := must.Get(s.CountOrders(t.Context()))(t), must.Get(s.Evidence(t.Context()))(t)
		expect.That(t, c.Before2000 == 2 && c.BeforeCreated == 3 && c.Never == 1 && c.Overdue == 3, "%+v", c)
		expect.Same(t, e.BelowZero, []store.Below{{Table: "t_stock", Column: "free", Rows: 2}}, "stock below zero")
	})
}
