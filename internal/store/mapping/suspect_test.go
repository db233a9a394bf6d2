package mapping

import (
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// The condition on the order's ids decides which rows a statement changes, but not one in a SELECT.
func TestOnCloseTable_NamesTheComparedColumn(t *testing.T) {
	for statement, want := range map[string][2]string{
		"UPDATE coupons SET used = 0 WHERE order_id IN ({ids}) AND used = 1":               {"coupons", "order_id"},
		"UPDATE shop.`coupons` SET used = 0 WHERE (used = 1 AND `id` IN ({ids}))":          {"shop.coupons", "id"},
		`DELETE FROM "couponUse" WHERE "orderId" IN ({ids})`:                               {"couponUse", "orderId"},
		"DELETE FROM coupons WHERE user_id IN (SELECT user_id FROM t WHERE id IN ({ids}))": {"coupons", ""},
		"INSERT INTO closed (order_id) SELECT id FROM t_order WHERE id IN ({ids})":         {"closed", ""},
		"UPDATE coupons SET used = 0 WHERE LEFT(order_no, 9) IN ({ids})":                   {"coupons", ""},
		"UPDATE coupons SET used = 0 WHERE coupons.order_id IN ({ids})":                    {"coupons", "order_id"},
		"nothing": {"", ""},
	} {
		table, column, _ := OnCloseTable(statement)
		expect.That(t, table == want[0] && column == want[1], "%s: %q, %q; want %q", statement, table, column, want)
	}
}

func TestCheckOnClose_RefusesOtherIDs(t *testing.T) {
	schema := Schema{"coupons": {Engine: "InnoDB", Columns: map[string]Column{
		"no": {Numbered: true}, "id": {}, "user_id": {RefersTo: "users"}, "order_id": {RefersTo: "t_order"}, "plain": {},
	}}, "log": {Engine: "MyISAM", Columns: map[string]Column{"order_id": {}}}}
	for column, refused := range map[string]bool{"no": true, "id": true, "user_id": true, "order_id": false, "plain": false, "missing": false} {
		m := &Mapping{Orders: "shop.t_order"}
		statement := "UPDATE coupons SET used = 0 WHERE " + column + " IN ({ids})"
		got := m.CheckOnClose("on_close[0]", statement, schema)
		expect.That(t, (len(got) > 0) == refused, "%s: %v", column, got)
		m.Accept = []string{OnCloseOtherID}
		got = m.CheckOnClose("on_close[0]", statement, schema)
		expect.That(t, len(got) == 0, "%s, accepted: %v", column, got)
	}
	got := (&Mapping{Orders: "t"}).CheckOnClose("on_close[0]", "DELETE FROM log WHERE order_id IN ({ids})", schema)
	expect.That(t, len(got) == 1 && got[0].Accept == "", "a table without transactions: %v", got)
}
