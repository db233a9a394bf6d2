package mapping

import (
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestOnCloseTable_NamesTheWrittenTable(t *testing.T) {
	const (
		begins  = "the statement does not begin with UPDATE t SET, DELETE FROM t WHERE or INSERT INTO t"
		comment = "the statement has a comment, a ; outside of quotes, or a quote that is not closed"
		where   = "the UPDATE has no WHERE before {ids}"
		ids     = "the statement must contain IN ({ids}) once, outside of quotes"
	)
	for _, c := range []struct{ statement, want string }{
		{"INSERT INTO log (order_id) SELECT id FROM orders o WHERE o.id IN ({ids})", "log"},
		{"insert into `shop`.log (id) SELECT id FROM o WHERE id IN ({ids}) ON DUPLICATE KEY UPDATE n = n + 1", "shop.log"},
		{"DELETE FROM `points` WHERE order_id IN ({ids})", "points"},
		{"UPDATE coupons SET used = 0, note = CONCAT('a WHERE ', note), at = NULL WHERE order_id IN ({ids})", "coupons"},
		{"UPDATE coupons SET used = (SELECT 0 FROM p WHERE p.id = 1) WHERE order_id IN ({ids})", "coupons"},
		{"UPDATE coupons SET note = 'it''s \\' ; -- #' WHERE id IN ({ids})", "coupons"},
		{"UPDATE a.b.c SET used = 0 WHERE id IN ({ids})", begins},
		{"UPDATE coupons AS c SET c.used = 0 WHERE c.id IN ({ids})", begins},
		{"UPDATE coupons c JOIN orders o ON o.coupon = c.id SET c.used = 0 WHERE o.id IN ({ids})", begins},
		{"UPDATE coupons, orders SET used = 0 WHERE id IN ({ids})", begins},
		{"UPDATE IGNORE coupons SET used = 0 WHERE id IN ({ids})", begins},
		{"UPDATE (coupons c JOIN orders o) SET c.used = 0 WHERE o.id IN ({ids})", begins},
		{"UPDATE 'coupons' SET used = 0 WHERE id IN ({ids})", begins},
		{"UPDATE", begins},
		{"UPDATE coupons WHERE id IN ({ids})", begins},
		{"UPDATE coupons SET used = (SELECT COUNT(*) FROM orders WHERE id IN ({ids}))", where},
		{"UPDATE coupons SET used = (SELECT COUNT(*) FROM orders WHERE id IN ({ids})) WHERE id = 1", where},
		{"DELETE p FROM points p WHERE order_id IN ({ids})", begins},
		{"DELETE FROM p USING points p JOIN orders o WHERE o.id IN ({ids})", begins},
		{"DELETE FROM points p WHERE order_id IN ({ids})", begins},
		{"INSERT IGNORE INTO log (id) SELECT id FROM orders WHERE id IN ({ids})", begins},
		{"REPLACE INTO t SELECT id FROM orders WHERE id IN ({ids})", begins},
		{"", begins},
		{"UPDATE coupons SET a = 1 WHERE id IN ({ids}); DROP TABLE coupons", comment},
		{"UPDATE coupons SET a = 1 /*! , b = 2 */ WHERE id IN ({ids})", comment},
		{"UPDATE coupons SET a = 1 WHERE id IN ({ids}) -- all", comment},
		{"UPDATE coupons SET a = 1 WHERE id IN ({ids}) # all", comment},
		{"UPDATE coupons SET a = 'x WHERE id IN ({ids})", comment},
		{"UPDATE coupons SET used = 0 WHERE order_id IN (\"{ids}\")", ids},
		{"UPDATE coupons SET used = 0 WHERE order_id = '{ids}'", ids},
		{"UPDATE coupons SET used = 0 WHERE order_id IN (`{ids}`)", ids},
		{"UPDATE coupons SET used = 0 WHERE order_id IN (x{ids})", ids},
		{"UPDATE coupons SET used = 0 WHERE order_id = ({ids})", ids},
		{"UPDATE coupons SET used = 0 WHERE order_id <> ALL ({ids})", ids},
		{"UPDATE coupons SET used = 0 WHERE order_id IN ({ids}) AND id IN ({ids})", ids},
		{"UPDATE coupons SET used = 0 WHERE order_id IN ({ids}) AND note = '{ids}'", ids},
		{"UPDATE coupons SET used = 0 WHERE note = 'x IN ({ids})'", ids},
		{"UPDATE coupons SET used = 0 WHERE note = \"it's\" AND order_id IN ({ids}) AND at = 'x'", "coupons"},
	} {
		got, _, err := OnCloseTable(c.statement)
		if err != nil {
			got = err.Error()
		}
		expect.That(t, got == c.want, "%s\n got %s\nwant %s", c.statement, got, c.want)
	}
}

func TestCheck_OnCloseWritesNoMappedTable(t *testing.T) {
	for statement, refused := range map[string]bool{
		"UPDATE ORDERS_202611 SET a = 1 WHERE id IN ({ids})":           false, // names of tables are case-sensitive on most servers
		"UPDATE orders_202611 SET a = 1 WHERE id IN ({ids})":           true,
		"UPDATE orders_archive SET a = 1 WHERE id IN ({ids})":          false,
		"DELETE FROM lines_202611 WHERE order_id IN ({ids})":           true,
		"INSERT INTO goods (sku) SELECT 'a' FROM t WHERE a IN ({ids})": true,
		"DELETE FROM stock_ledger WHERE order_id IN ({ids})":           true,
		"UPDATE `RECEIPTS` SET path = 'x' WHERE order_id IN ({ids})":   true, // some servers ignore the case
	} {
		m := shop()
		m.Orders, m.Items.Table, m.Stock[0].Table = "orders_{yyyyMM}", "lines_{yyyyMM}", "goods"
		m.OnClose = []string{statement}
		problems := m.Check()
		expect.That(t, (len(problems) > 0) == refused, "%s: %v", statement, problems)
	}
}
