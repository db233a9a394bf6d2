package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	due "github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Each column that the loop and the commands read holds the odd values of its type, each in an order of its own. No such order keeps
// another one from being read or closed.
func TestReads_AnOddValueKeepsNoOtherOrderWaiting(t *testing.T) { eachDatabase(t, oddValues) }

func oddValues(t *testing.T) {
	const numbers = "-9223372036854775808 0 9223372036854775807"
	texts, kind := []string{"X'636166E9'", "X'610062'", "X'FF'", "X'EDA080'"}, "VARBINARY(40)"
	columns := [][3]string{
		{"datetime, zone: UTC, precision: ms", "DATETIME(3)", "0000-00-00 2026-00-15 2026-02-00 0001-01-01 9999-12-31"},
		{"timestamp, precision: s", "TIMESTAMP", "0000-00-00 2038-01-19"}, {"unix_s", "BIGINT", numbers}, {"unix_ms", "BIGINT", numbers},
		{"unix_ms", "BIGINT UNSIGNED", "0 18446744073709551615"},
	}
	if isPostgres(t) { // a database in SQL_ASCII, which may hold texts that are not UTF-8, is refused
		texts, kind = []string{"U&'\\0080'", "U&'\\FFFE'", "''"}, "VARCHAR(40)"
		const far = "infinity -infinity 0001-01-01 12345-01-01 294276-12-31"
		columns = [][3]string{{"timestamptz, precision: us", "TIMESTAMPTZ", far}, {"datetime, zone: UTC, precision: us", "TIMESTAMP", far},
			{"unix_s", "BIGINT", numbers}, {"unix_ms", "BIGINT", numbers}}
	}
	for _, c := range columns {
		s := open(t, store.Options{DSN: ownDatabase(t), MaxOpenConns: 1, Orders: ordersOf(t, "buckets: [1m]", fmt.Sprintf(`
  table: t
  id: {column: id, type: text}
  status: {column: state, from: 0, to: 4, paid: [1]}
  due: {column: due, type: %[1]s}
  created: {column: made, type: %[1]s}
  category: kind
  attributes: {note: note}
  items: none
  stock: none
`, c[0]))})
		const table = "CREATE TABLE t (id VARCHAR(40) PRIMARY KEY, state INT NOT NULL, due %[1]s NULL, made %[1]s NULL, kind %[2]s NULL, note %[2]s NULL)"
		exec(t, s.DB(), fmt.Sprintf(table, c[1], kind))
		exec(t, s.DB(), "CREATE INDEX k ON t (state, due, id)")
		must.Do(t, s.Migrate(t.Context()))
		past := "'2020-01-01'"
		if strings.HasPrefix(c[0], "unix") {
			past = "1000000000"
		}
		n, odd := 0, map[string]bool{} // the orders with an odd due time
		if !isPostgres(t) {
			exec(t, s.DB(), "SET sql_mode = ''")
		}
		add := func(column int, value string) {
			n++
			id := fmt.Sprintf("o%03d", n)
			row := []string{"'" + id + "'", past, past, "'x'", "'plain'"}
			if row[column] = value; column == 1 {
				odd[id] = true
			}
			exec(t, s.DB(), fmt.Sprintf("INSERT INTO t (id, due, made, kind, note, state) VALUES (%s, 0)", strings.Join(row, ", ")))
		}
		for _, value := range texts {
			add(3, value)
			add(4, value)
			add(2, past)
		}
		for value := range strings.FieldsSeq(c[2]) {
			add(1, "'"+value+"'")
			add(2, "'"+value+"'")
			add(2, past)
		}
		now := must.Get(s.Now(t.Context()))(t)
		plain := func(orders []orderclose.Order) int {
			return len(slices.DeleteFunc(slices.Clone(orders), func(o orderclose.Order) bool { return odd[o.ID] }))
		}
		for _, w := range []due.Window{{To: now}, {To: now, Newest: true}} {
			found := must.Get(s.ReadOverdue(t.Context(), w))(t)
			expect.Equal(t, plain(found.Orders), n-len(odd), "%s: orders that the loop reads", c[1])
		}
		orders, _, _, err := s.OverdueNow(t.Context(), 0)
		expect.That(t, err == nil && plain(orders) == n-len(odd), "%s: %d of %d overdue orders, %v", c[1], plain(orders), n-len(odd), err)
		orders = must.Get(s.DueBetween(t.Context(), time.Time{}, now, orderclose.Order{}, 1000))(t)
		expect.That(t, plain(orders) == n-len(odd), "%s: %d of %d due orders", c[1], plain(orders), n-len(odd))
		var reqs []orderclose.CloseRequest
		for _, o := range orders {
			reqs = append(reqs, orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due})
		}
		for _, o := range must.Get(s.CloseOrders(t.Context(), orderclose.PathSweep, reqs))(t) {
			expect.That(t, o.Verdict == orderclose.Closed || odd[o.OrderID], "%s: order %s: %+v", c[1], o.OrderID, o)
		}
	}
}
