package storetest

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
)

// couponShop maps a shop whose orders have coupons. A statement of a close gives them back.
func couponShop() (m *mapping.Mapping, ddl []string) {
	return &mapping.Mapping{
			Orders: "c_order", ID: mapping.Key{Column: "id", Type: mapping.Integer},
			Status: mapping.Status{Column: "status", From: mapping.OneOf{mapping.IntValue(1)}, To: mapping.IntValue(2), Paid: []mapping.Value{mapping.IntValue(3)}},
			Due:    mapping.TimeColumn{Column: "due", Type: mapping.UnixMillis},
		}, []string{
			"CREATE TABLE c_order (id BIGINT PRIMARY KEY, status INT NOT NULL, due BIGINT NOT NULL, member INT NOT NULL)",
			"CREATE INDEX c_due ON c_order (status, due, id)",
			"CREATE TABLE c_coupon (id BIGINT PRIMARY KEY, order_id BIGINT NULL, used INT NOT NULL, note VARCHAR(40) NULL)",
			"CREATE INDEX c_of ON c_coupon (order_id)",
			"CREATE INDEX c_used ON c_coupon (used)",
			"CREATE TABLE c_log (order_id BIGINT NOT NULL, n INT NOT NULL)",
			"INSERT INTO c_coupon (id, order_id, used) VALUES (1, NULL, 0), (2, 0, 0), (3, 2, 1), (4, 3, 1)",
		}
}

// closesOthers are statements that change rows of orders that are not closed, whatever their text looks like.
var closesOthers = []string{
	"UPDATE c_coupon SET used = 0 WHERE order_id NOT IN ({ids})",
	"UPDATE c_coupon SET used = 0 WHERE NOT order_id IN ({ids})",
	"UPDATE c_coupon SET used = 0 WHERE used = 1 AND NOT (used = 1 AND order_id IN ({ids}))",
	"UPDATE c_coupon SET used = 0 WHERE NOT EXISTS (SELECT 1 FROM c_order WHERE id IN ({ids}))",
	"UPDATE c_coupon SET used = 0 WHERE used = 1 OR order_id IN ({ids})",
	"UPDATE c_coupon SET used = 0 WHERE order_id IN ({ids}) OR used = 1",
	"UPDATE c_coupon SET used = 0 WHERE (used = 1 AND (order_id IN ({ids}) AND id > 0) OR used = 1)",
	"UPDATE c_coupon SET used = 0 WHERE (order_id IN ({ids})) = FALSE",
	"UPDATE c_coupon SET used = 0 WHERE order_id IN ({ids}) IS FALSE",
	"UPDATE c_coupon SET used = 0 WHERE CASE WHEN order_id IN ({ids}) THEN 0 ELSE 1 END = 1",
	"UPDATE c_coupon SET used = 0 WHERE id IN (SELECT c.id FROM (SELECT id FROM c_coupon WHERE order_id IN ({ids}) OR used = 1) AS c)",
	"DELETE FROM c_coupon WHERE order_id NOT IN ({ids})",
	"DELETE FROM c_coupon WHERE order_id IN ({ids}) OR used = 1",
	"INSERT INTO c_log (order_id, n) SELECT id, 1 FROM c_order WHERE id IN ({ids}) OR status = 3",
	"INSERT INTO c_log (order_id, n) SELECT 0, COUNT(*) FROM c_order WHERE id IN ({ids})",
}

// harmless are statements that the text of topics.yaml or the database refuses, or that change no row of another order there.
var harmless = []string{
	"UPDATE c_coupon SET used = 0 WHERE ! (order_id IN ({ids}))",
	"UPDATE c_coupon SET used = 0 WHERE used = 1 || order_id IN ({ids})",
	"UPDATE c_coupon SET used = 0 WHERE 1 XOR order_id IN ({ids})",
	"UPDATE c_coupon SET used = 0 WHERE used = 1 /* AND order_id IN ({ids}) */",
	"UPDATE c_coupon SET used = 0 WHERE used = 1 -- AND order_id IN ({ids})",
	"UPDATE c_coupon SET used = 0 WHERE used = 1 AND order_id <> ALL ({ids})",
	"UPDATE c_coupon SET used = 0 WHERE note = '{ids}' OR used = 1",
	"UPDATE c_coupon SET used = 0 WHERE order_id IN ({ids}) OR id IN ({ids})",
	"UPDATE c_coupon SET used = 0; DELETE FROM c_coupon WHERE order_id IN ({ids})",
}

// RunOnClose tests that a statement of a close changes rows of the closed orders only.
func RunOnClose(t *testing.T, server Server) {
	m, ddl := couponShop()
	s := &shop{T: t, Store: server.New(t, m)()}
	for _, statement := range ddl {
		s.exec(statement)
	}
	s.must(s.Migrate(t.Context()))
	due, n := s.now().Add(-time.Minute).UnixMilli(), 10
	for id, status := range map[int]int{2: 1, 3: 3} {
		s.exec(fmt.Sprintf("INSERT INTO c_order (id, status, due, member) VALUES (%d, %d, %d, 7)", id, status, due+int64(time.Hour/time.Millisecond)))
	}
	state := func() string {
		return strings.Join(append(s.texts("SELECT CONCAT(id, ' ', used) FROM c_coupon WHERE order_id IS NULL OR order_id < 10 ORDER BY id"),
			s.texts("SELECT CONCAT('log ', order_id) FROM c_log ORDER BY order_id")...), ", ")
	}
	const untouched = "1 0, 2 0, 3 1, 4 1"
	// overdue adds an order with used coupons.
	overdue := func(coupons int) string {
		n++
		s.exec(fmt.Sprintf("INSERT INTO c_order (id, status, due, member) VALUES (%d, 1, %d, 7)", n, due))
		values := make([]string, coupons)
		for i := range values {
			values[i] = fmt.Sprintf("(%d, %d, 1)", 10_000*n+i, n)
		}
		s.exec("INSERT INTO c_coupon (id, order_id, used) VALUES " + strings.Join(values, ", "))
		return fmt.Sprint(n)
	}
	used := func(id string) int {
		return s.count("SELECT COUNT(*) FROM c_coupon WHERE used = 1 AND order_id = " + id)
	}
	closeBy := func(statement string, ids ...string) error {
		s.OnClose(nil)
		expect.NoError(t, s.CheckMapping(t.Context())) // a trial of the last statement has refused the mapping
		s.OnClose([]string{statement})
		_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, requests(ids...))
		return err
	}
	refuses := func(statement, id, says string) error {
		t.Helper()
		err := closeBy(statement, id)
		expect.That(t, err != nil && strings.Contains(err.Error(), says), "%s: a close returns %v, want %q", statement, err, says)
		if !s.lacks(trials) {
			var wrong *store.MappingError
			_, err := s.TryClose(t.Context())
			expect.That(t, errors.As(err, &wrong), "%s: a trial returns %v, want a problem of the mapping", statement, err)
		}
		want(t, statement+": coupons of others", state(), untouched)
		want(t, statement+": coupons of the order", used(id) > 0, true)
		want(t, statement+": unpaid", s.count("SELECT COUNT(*) FROM c_order WHERE status = 1 AND id = "+id), 1)
		return err
	}

	id := overdue(2)
	for _, statement := range closesOthers {
		err := refuses(statement, id, "orders.on_close[0]: the statement changes ")
		expect.That(t, errors.Is(err, orderclose.ErrNoOrderAtFault), "%s: %v; want that no order is at fault", statement, err)
	}
	for _, statement := range harmless {
		if _, _, err := mapping.OnCloseTable(statement); err == nil {
			_ = closeBy(statement, overdue(1))
			want(t, statement+": coupons of others", state(), untouched)
		}
	}

	// What a statement does to others depends on the rows that there are.
	s.exec("UPDATE c_coupon SET used = 2 WHERE used = 1 AND order_id < 10")
	s.must(closeBy("UPDATE c_coupon SET used = 0 WHERE order_id IN ({ids}) OR used = 1 AND order_id < 10", id))
	want(t, "coupons of the closed order", used(id), 0)
	s.exec("UPDATE c_coupon SET used = 1 WHERE used = 2")
	want(t, "coupons of others", state(), untouched)

	for _, statement := range []string{
		"UPDATE c_coupon SET used = 0 WHERE used IS NOT NULL AND order_id in ( {ids} )",
		"UPDATE c_coupon SET used = 0 WHERE NOT used = 0 AND order_id IN ({ids}) AND NOT used = 5",
		"UPDATE c_coupon SET used = 0 WHERE (used = 1 OR used = 4) AND order_id IN ({ids}) AND (id > 0 OR id < 0)",
		"UPDATE c_coupon SET used = 0, note = 'NOT; -- ''OR' WHERE order_id IN ({ids})",
		"UPDATE c_coupon SET used = 0 WHERE order_id IN (SELECT id FROM c_order WHERE id IN ({ids}) AND NOT member = 0)",
		"DELETE FROM c_coupon WHERE order_id IN ({ids})",
	} {
		a, b := overdue(3), overdue(1)
		err := closeBy(statement, a, b)
		expect.That(t, err == nil, "%s: %v", statement, err)
		want(t, statement+": coupons of the closed orders", used(a)+used(b), 0)
		want(t, statement+": coupons of others", state(), untouched)
	}

	// A statement that reaches further than the rows of an order is refused by their number, and that order alone.
	small, large := overdue(1), overdue(1001)
	const all = "UPDATE c_coupon SET used = 0 WHERE order_id > 9 AND EXISTS (SELECT 1 FROM c_order WHERE id IN ({ids}))"
	refuses(all, small, "rows, and may change up to 1000 for each of 1 orders")
	const own = "UPDATE c_coupon SET used = 0 WHERE order_id IN ({ids})"
	if err := closeBy(own, large); err == nil || errors.Is(err, orderclose.ErrUnavailable) || !strings.Contains(err.Error(), "changes 1001 rows") {
		t.Errorf("%v; want that the order is at fault", err)
	}
	want(t, "coupons of the order", used(large), 1001)
	s.must(closeBy(own, small))
	s.must(closeBy("INSERT INTO c_log (order_id, n) SELECT 7, COUNT(*) FROM c_order WHERE id IN ({ids}) HAVING COUNT(*) > 0", large))
	want(t, "the counter", s.texts("SELECT CONCAT(order_id, ' ', n) FROM c_log"), []string{"7 1"})
}
