package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// Orders and SKUs with UUIDs in BINARY(16), plain and with the parts of the time swapped.
func TestMySQL_BinaryUUIDs(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		for _, kind := range []mapping.KeyType{mapping.UUIDBinary, mapping.UUIDSwapped} {
			s := openBinary(t, kind)
			must.Do(t, s.CheckMapping(t.Context()))
			var ids, plain []string
			for n := range 3 {
				id := fmt.Sprintf("6ccd780c-baba-102%d-9564-5b8c656024d%d", 9-n, n)
				ids, plain = append(ids, id), append(plain, "'"+id+"'")
			}
			// The server swaps the parts itself: MariaDB has no UUID_TO_BIN.
			bytes := func(id string) string {
				if kind == mapping.UUIDBinary {
					return "UNHEX(REPLACE(" + id + ", '-', ''))"
				}
				return fmt.Sprintf("UNHEX(CONCAT(SUBSTR(%[1]s, 15, 4), SUBSTR(%[1]s, 10, 4), SUBSTR(%[1]s, 1, 8), SUBSTR(%[1]s, 20, 4), SUBSTR(%[1]s, 25)))", id)
			}
			for _, id := range plain {
				exec(t, s.DB(), "INSERT INTO b_order (id, status, due) VALUES ("+bytes(id)+", 0, 1000)")
				exec(t, s.DB(), "INSERT INTO b_line (order_id, sku, num) VALUES ("+bytes(id)+", "+bytes("'00000000-0000-4000-8000-00000000000a'")+", 2)")
				exec(t, s.DB(), "INSERT INTO b_hold (order_id) VALUES ("+bytes(id)+")")
			}
			exec(t, s.DB(), "INSERT INTO b_stock (sku, free) VALUES ("+bytes("'00000000-0000-4000-8000-00000000000a'")+", 5)")
			now := must.Get(s.Now(t.Context()))(t)
			page := must.Get(s.Overdue(t.Context(), now, orderclose.Order{}, 2))(t)
			rest := must.Get(s.Overdue(t.Context(), now, page[1], 2))(t)
			expect.That(t, len(page)+len(rest) == 3 && strings.HasPrefix(page[0].ID, "6ccd780c-baba-102"), "%s: pages %v, %v", kind, page, rest)
			verdicts := must.Get(closeOrders(t, s, ids[0], strings.ToUpper(ids[1]), ids[2]))(t)
			got := fmt.Sprint(verdicts)
			expect.That(t, got == "[closed not_found closed]", "%s: %s", kind, got)
			var state string
			must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT CONCAT((SELECT SUM(status) FROM b_order), ' ', (SELECT free FROM b_stock), ' ', (SELECT "+
				"COUNT(*) FROM b_hold), ' ',"+
				" (SELECT GROUP_CONCAT(order_id, '/', returned ORDER BY order_id) FROM receipts))").Scan(&state))
			want := "2 9 1 " + ids[2] + `/{"00000000-0000-4000-8000-00000000000a":2},` + ids[0] + `/{"00000000-0000-4000-8000-00000000000a":2}`
			expect.That(t, state == want, "%s: %s, want %s", kind, state, want)
			history := must.Get(s.OrderHistory(t.Context(), ids[0]))(t)
			expect.That(t, history.Receipt != nil && len(history.Items) == 1 && history.Items[0].SKU == "00000000-0000-4000-8000-00000000000a",
				"%s: history %+v", kind, history)
			out := must.Get(s.PayOrders(t.Context(), []orderclose.CloseRequest{{OrderID: ids[1]}}))(t)
			expect.That(t, out[0].Verdict == orderclose.AlreadyPaid, "%s: a payment: %+v", kind, out)
		}
	})
}

func openBinary(t *testing.T, kind mapping.KeyType) *store.Store {
	t.Helper()
	cfg := must.Get(config.Parse("topics.yaml", []byte(strings.ReplaceAll(`buckets: [1m]
orders:
  table: b_order
  id: {column: id, type: KIND}
  status: {column: status, from: 0, to: 1, paid: [2]}
  due: {column: due, type: unix_ms}
  on_close: ["DELETE FROM b_hold WHERE order_id IN ({ids})"]
  items: {table: b_line, order: order_id, sku: sku, quantity: num}
  stock: {table: b_stock, sku: {column: sku, type: KIND}, available: free}
`, "KIND", string(kind)))))(t)
	s := openShop(t, ownDatabase(t), storetest.Shop{Mapping: cfg.Orders},
		"CREATE TABLE b_order (id BINARY(16) PRIMARY KEY, status INT NOT NULL, due BIGINT NOT NULL, KEY (status, due, id))",
		"CREATE TABLE b_line (id INT AUTO_INCREMENT PRIMARY KEY, order_id BINARY(16) NOT NULL, sku BINARY(16) NULL, num INT NOT NULL, KEY (order_id))",
		"CREATE TABLE b_stock (sku BINARY(16) PRIMARY KEY, free INT NOT NULL)",
		"CREATE TABLE b_hold (id INT AUTO_INCREMENT PRIMARY KEY, order_id BINARY(16) NOT NULL, KEY (order_id))",
	)
	return s
}

// A line whose SKU is text has no row in a stock of binary UUIDs.
func TestMySQL_BinaryUUIDsNeedBinaryColumns(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		s := openBinary(t, mapping.UUIDBinary)
		exec(t, s.DB(), "ALTER TABLE b_line MODIFY sku CHAR(36) NULL, MODIFY order_id BINARY(18) NOT NULL")
		err := s.CheckMapping(t.Context())
		for _, want := range []string{"orders.items.sku: column b_line.sku is char(36), and is mapped as uuid_binary",
			"orders.items.order: column b_line.order_id is binary(18)"} {
			expect.That(t, err != nil && strings.Contains(err.Error(), want), "%v; want %s", err, want)
		}
	})
}

// Two orders are due at one moment, in the tables of two months, and the order of their texts is not that of their keys.
func TestMySQL_PagesMergeSwappedUUIDs(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		cfg := must.Get(config.Parse("topics.yaml", []byte(`buckets: [1m]
orders:
  table: b_{yyyyMM}
  shards: {on: created, zone: UTC}
  id: {column: id, type: uuid_binary_swapped}
  status: {column: status, from: 0, to: 1, paid: [2]}
  due: {column: due, type: unix_ms}
  created: {column: made, type: unix_ms}
  items: none
  stock: none
`)))(t)
		var tables []string
		var months [2]string
		this := time.Now().UTC()
		for i := range months {
			months[i] = this.AddDate(0, -i, 1-this.Day()).Format("b_200601")
			tables = append(tables, "CREATE TABLE "+months[i]+
				" (id BINARY(16) PRIMARY KEY, status INT NOT NULL, due BIGINT NOT NULL, made BIGINT NOT NULL, KEY (status, due, id))")
		}
		s := openShop(t, ownDatabase(t), storetest.Shop{Mapping: cfg.Orders}, tables...)
		exec(t, s.DB(), "INSERT INTO "+months[0]+" VALUES (UNHEX('1FFF0000000000018000000000000001'), 0, 1000, 1)")
		exec(t, s.DB(), "INSERT INTO "+months[1]+" VALUES (UNHEX('10000000000000028000000000000001'), 0, 1000, 1)")
		now, last, found := must.Get(s.Now(t.Context()))(t), orderclose.Order{}, 0
		for page := must.Get(s.Overdue(t.Context(), now, last, 1))(t); len(page) > 0; page = must.Get(s.Overdue(t.Context(), now, last, 1))(t) {
			last, found = page[0], found+1
		}
		expect.Equal(t, found, 2, "orders in pages of one")
	})
}
