package mapping

import (
	"strings"
	"testing"
)

func TestWrittenTable(t *testing.T) {
	for _, c := range []struct{ statement, want string }{
		{"INSERT INTO log (order_id) SELECT id FROM orders o WHERE o.id IN ({ids})", "log"},
		{"insert into `shop`.log (id) SELECT id FROM o WHERE id IN ({ids}) ON DUPLICATE KEY UPDATE n = n + 1", "shop.log"},
		{"DELETE FROM `points` WHERE order_id IN ({ids})", "points"},
		{"UPDATE coupons SET used = 0, note = CONCAT('a WHERE ', note), at = NULL WHERE order_id IN ({ids})", "coupons"},
		{"UPDATE coupons SET used = (SELECT 0 FROM p WHERE p.id = 1) WHERE order_id IN ({ids})", "coupons"},
		{"UPDATE coupons SET note = 'it''s \\' ; -- #' WHERE id IN ({ids})", "coupons"},
		{"UPDATE a.b.c SET used = 0 WHERE id IN ({ids})", "the statement has more than the table a.b between UPDATE and SET"},
		{"UPDATE coupons AS c SET c.used = 0 WHERE c.id IN ({ids})", "the statement has more than the table coupons between UPDATE and SET"},
		{"UPDATE coupons c JOIN orders o ON o.coupon = c.id SET c.used = 0 WHERE o.id IN ({ids})", "the statement has more than the table coupons between UPDATE and SET"},
		{"UPDATE coupons, orders SET used = 0 WHERE id IN ({ids})", "the statement has more than the table coupons between UPDATE and SET"},
		{"UPDATE IGNORE coupons SET used = 0 WHERE id IN ({ids})", "the statement has more than the table IGNORE between UPDATE and SET"},
		{"UPDATE (coupons c JOIN orders o) SET c.used = 0 WHERE o.id IN ({ids})", "the statement names no table behind UPDATE"},
		{"UPDATE 'coupons' SET used = 0 WHERE id IN ({ids})", "the statement names no table behind UPDATE"},
		{"UPDATE", "the statement names no table behind UPDATE"},
		{"UPDATE coupons WHERE id IN ({ids})", "the statement has more than the table coupons between UPDATE and SET"},
		{"UPDATE coupons SET used = (SELECT COUNT(*) FROM orders WHERE id IN ({ids}))", "the UPDATE has no WHERE before {ids}"},
		{"UPDATE coupons SET used = (SELECT COUNT(*) FROM orders WHERE id IN ({ids})) WHERE id = 1", "the UPDATE has no WHERE before {ids}"},
		{"DELETE p FROM points p WHERE order_id IN ({ids})", "the statement begins neither with UPDATE nor with DELETE FROM nor with INSERT INTO"},
		{"DELETE FROM p USING points p JOIN orders o WHERE o.id IN ({ids})", "the statement has more than the table p between DELETE and WHERE"},
		{"DELETE FROM points p WHERE order_id IN ({ids})", "the statement has more than the table points between DELETE and WHERE"},
		{"INSERT IGNORE INTO log (id) SELECT id FROM orders WHERE id IN ({ids})", "the statement begins neither with UPDATE nor with DELETE FROM nor with INSERT INTO"},
		{"REPLACE INTO t SELECT id FROM orders WHERE id IN ({ids})", "the statement begins neither with UPDATE nor with DELETE FROM nor with INSERT INTO"},
		{"", "the statement begins neither with UPDATE nor with DELETE FROM nor with INSERT INTO"},
		{"UPDATE coupons SET a = 1 WHERE id IN ({ids}); DROP TABLE coupons", "the statement has a ; outside of quotes"},
		{"UPDATE coupons SET a = 1 /*! , b = 2 */ WHERE id IN ({ids})", "the statement has a comment"},
		{"UPDATE coupons SET a = 1 WHERE id IN ({ids}) -- all", "the statement has a comment"},
		{"UPDATE coupons SET a = 1 WHERE id IN ({ids}) # all", "the statement has a comment"},
		{"UPDATE coupons SET a = 'x WHERE id IN ({ids})", "the quote ' is not closed"},
	} {
		tokens, err := scanSQL(c.statement)
		var got string
		if err == nil {
			got, err = writtenTable(tokens)
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.statement, got, c.want)
		}
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
		if problems := m.Check(); (len(problems) > 0) != refused {
			t.Errorf("%s: %v", statement, problems)
		}
	}
}

func TestCheck_OnCloseChangesTheRowsOfItsOrdersOnly(t *testing.T) {
	const outside, not, or = "outside of quotes", "NOT before", "has OR beside"
	for condition, want := range map[string]string{
		`order_id IN ("{ids}")`:                                           outside,
		`order_id = '{ids}'`:                                              outside,
		"order_id IN (`{ids}`)":                                           outside,
		"order_id IN (x{ids})":                                            outside,
		"order_id = ({ids})":                                              outside,
		"order_id <> ALL ({ids})":                                         outside,
		"order_id IN ({ids}) AND id IN ({ids})":                           outside,
		"order_id IN ({ids}) AND note = '{ids}'":                          outside,
		"order_id NOT IN ({ids})":                                         not,
		"NOT order_id IN ({ids})":                                         not,
		"used = 1 and not (used = 1 and order_id IN ({ids}))":             not,
		"! (order_id IN ({ids}))":                                         not,
		"NOT EXISTS (SELECT 1 FROM o WHERE o.id IN ({ids}))":              not,
		"NOT used AND order_id IN ({ids})":                                not,
		"used IS NOT NULL AND order_id in ( {ids} )":                      "",
		"kind != 3 AND order_id IN({ids}) AND kind NOT IN (1, 2)":         "",
		"order_id IN ({ids}) AND NOT used":                                "",
		"note = 'not' AND order_id IN ({ids})":                            "",
		"order_id IN (SELECT id FROM o WHERE id IN ({ids}) AND NOT gone)": "",
		"used = 1 OR order_id IN ({ids})":                                 or,
		"order_id IN ({ids}) or used = 1":                                 or,
		"(used = 1 AND (order_id IN ({ids}) AND a = 1) OR b = 2)":         or,
		"used = 1 || order_id IN ({ids})":                                 or,
		"1 XOR order_id IN ({ids})":                                       or,
		"(order_id IN ({ids})) = 0":                                       or,
		"order_id IN ({ids}) IS FALSE":                                    or,
		"CASE WHEN order_id IN ({ids}) THEN 0 ELSE 1 END":                 or,
		"(a = 1 OR b = 2) AND order_id IN ({ids}) AND (c = 1 OR d = 2)":   "",
		"order_id IN (SELECT id FROM o WHERE id IN ({ids})) AND used = 1": "",
	} {
		m := shop()
		m.OnClose = []string{"UPDATE coupons SET used = 0 WHERE " + condition}
		problems := m.Check()
		if (len(problems) > 0) != (want != "") || want != "" && !strings.Contains(problems[0].What, want) {
			t.Errorf("%s: %v; want %q", condition, problems, want)
		}
	}
}
