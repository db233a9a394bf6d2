package mapping

import (
	"fmt"
	"strings"
	"testing"
)

func TestWrittenTables(t *testing.T) {
	for _, c := range []struct{ statement, want string }{
		{"INSERT INTO log (order_id) SELECT id FROM orders WHERE id IN (0)", "[log]"},
		{"insert ignore shop.log set order_id = 0", "[shop.log]"},
		{"DELETE FROM `points` WHERE order_id IN (0)", "[points]"},
		{"DELETE p FROM points p WHERE order_id IN (0)", "the statement deletes from several tables"},
		{"DELETE FROM p USING points p JOIN orders o WHERE o.id IN (0)", "the statement deletes from several tables"},
		{"UPDATE coupons SET used = 0, note = CONCAT('a, o.status = 1', note), at = NULL WHERE order_id IN (0)", "[coupons coupons coupons]"},
		{"UPDATE coupons AS c JOIN orders o ON o.coupon = c.id SET c.used = 0, c.at = IF(o.a = 1, 2, 3) WHERE o.id IN (0)", "[coupons coupons]"},
		{"UPDATE coupons c LEFT JOIN shop.orders ON orders.coupon = c.id SET orders.used = 0 WHERE c.id IN (0)", "[shop.orders]"},
		{"UPDATE coupons c, shop.orders SET shop.orders.used = 0 WHERE c.id IN (0)", "[shop.orders]"},
		{"UPDATE coupons c JOIN (SELECT id FROM orders WHERE id IN (0)) AS o ON o.id = c.id SET c.used = 0", "[coupons]"},
		{"UPDATE coupons c JOIN (SELECT id FROM orders WHERE id IN (0)) AS o ON o.id = c.id SET o.used = 0", "the statement sets a column whose table is not clear: with several tables, write the table's name or alias before each column"},
		{"UPDATE coupons c JOIN orders o SET used = 0 WHERE o.id IN (0)", "the statement sets a column whose table is not clear: with several tables, write the table's name or alias before each column"},
		{"UPDATE (coupons c JOIN orders o) SET c.used = 0 WHERE o.id IN (0)", "the statement has a join in parentheses"},
		{"UPDATE coupons WHERE id IN (0)", "the UPDATE has no SET"},
		{"UPDATE coupons SET note = 'it''s \\' ; ? -- #' WHERE id IN (0)", "[coupons]"},
		{"UPDATE coupons SET a = 1 WHERE id IN (0); DROP TABLE coupons", "the statement has a ; outside of quotes"},
		{"UPDATE coupons SET a = ? WHERE id IN (0)", "the statement has a ? outside of quotes"},
		{"UPDATE coupons SET a = 1 /*! , b = 2 */ WHERE id IN (0)", "the statement has a comment"},
		{"UPDATE coupons SET a = 'x WHERE id IN (0)", "the quote ' is not closed"},
		{"REPLACE INTO t VALUES (0)", "the statement is not an INSERT, UPDATE or DELETE"},
		{"", "the statement is not an INSERT, UPDATE or DELETE"},
	} {
		var got string
		tokens, err := scanSQL(c.statement)
		if err == nil {
			var tables []tableName
			tables, err = writtenTables(tokens)
			names := make([]string, len(tables))
			for i, w := range tables {
				if names[i] = w.name; w.database != "" {
					names[i] = w.database + "." + w.name
				}
			}
			got = fmt.Sprint(names)
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
		"UPDATE ORDERS_202611 SET a = 1 WHERE id IN ({ids})":         false, // names of tables are case-sensitive on most servers
		"UPDATE orders_202611 SET a = 1 WHERE id IN ({ids})":         true,
		"UPDATE orders_archive SET a = 1 WHERE id IN ({ids})":        false,
		"DELETE FROM lines_202611 WHERE order_id IN ({ids})":         true,
		"INSERT INTO goods (sku) SELECT 'a' FROM t WHERE {ids} = 1":  true,
		"DELETE FROM stock_ledger WHERE order_id IN ({ids})":         true,
		"UPDATE `RECEIPTS` SET path = 'x' WHERE order_id IN ({ids})": true, // some servers ignore the case
	} {
		m := shop()
		m.Orders, m.Items.Table, m.Stock.Table = "orders_{yyyyMM}", "lines_{yyyyMM}", "goods"
		m.OnClose = []string{statement}
		if problems := m.Check(); (len(problems) > 0) != refused {
			t.Errorf("%s: %v", statement, problems)
		}
	}
}

func TestCheck_OnCloseChangesTheRowsOfItsOrdersOnly(t *testing.T) {
	for condition, want := range map[string]string{
		`order_id IN ("{ids}")`:                                           "{ids} inside quotes",
		`order_id = '{ids}'`:                                              "{ids} inside quotes",
		"order_id IN (`{ids}`)":                                           "{ids} inside quotes",
		"order_id = x{ids}":                                               "{ids} inside quotes",
		"order_id NOT IN ({ids})":                                         "NOT before",
		"NOT order_id IN ({ids})":                                         "NOT before",
		"used = 1 and not (used = 1 and order_id IN ({ids}))":             "NOT before",
		"! (order_id IN ({ids}))":                                         "NOT before",
		"order_id <> ALL ({ids})":                                         "NOT before",
		"NOT EXISTS (SELECT 1 FROM o WHERE o.id IN ({ids}))":              "NOT before",
		"used IS NOT NULL AND order_id IN ({ids})":                        "",
		"NOT used AND order_id IN ({ids})":                                "",
		"kind != 3 AND kind NOT IN (1, 2) AND order_id IN ({ids})":        "",
		"order_id IN ({ids}) AND NOT used":                                "",
		"note = 'not' AND order_id IN ({ids})":                            "",
		"order_id IN (SELECT id FROM o WHERE NOT gone AND id IN ({ids}))": "",
	} {
		m := shop()
		m.OnClose = []string{"UPDATE coupons SET used = 0 WHERE " + condition}
		problems := m.Check()
		if (len(problems) > 0) != (want != "") || want != "" && !strings.Contains(problems[0].What, want) {
			t.Errorf("%s: %v; want %q", condition, problems, want)
		}
	}
}
