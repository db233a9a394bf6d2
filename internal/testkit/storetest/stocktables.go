package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// warehouses maps a shop with stock by SKU and location, a total for each product, lines that are deleted by a mark,
// and a price that decides whether an order is closed. The statements of ddl fit all databases.
func warehouses() (m *mapping.Mapping, ddl []string) {
	updated := &mapping.TimeColumn{Column: "updated", Type: mapping.UnixSeconds}
	number := func(column string) mapping.Key { return mapping.Key{Column: column, Type: mapping.Integer} }
	return &mapping.Mapping{
			Orders: "w_order", ID: mapping.Key{Column: "id", Type: mapping.Integer},
			Status:  mapping.Status{Column: "status", From: mapping.OneOf{mapping.IntValue(1)}, To: mapping.IntValue(2)},
			Due:     mapping.TimeColumn{Column: "due", Type: mapping.UnixMillis},
			Where:   []mapping.Condition{mapping.Is("price", mapping.Value{Text: "0.10", Number: true}), mapping.Is("fee", mapping.IntValue(0))},
			OnClose: []string{"DELETE FROM w_reserved WHERE order_id IN ({ids})"},
			Items: &mapping.Items{Table: "w_line", Order: "order_id", SKU: "sku", Quantity: "num", Location: "shed",
				Where: []mapping.Condition{mapping.Is("deleted", mapping.IntValue(0)), mapping.Is("gift", mapping.Value{})}},
			Stock: []*mapping.Stock{{Table: "w_stock", SKU: mapping.Key{Column: "sku"}, Location: number("shed"), Available: "free", Reserved: "held", Lock: updated},
				{Table: "w_product", SKU: number("id"), Line: "product", Available: "total", Version: "version"},
				{Table: "w_shed", SKU: number("id"), Location: number("shed"), Line: "product", Available: "total"}},
		}, []string{
			"CREATE TABLE w_order (id BIGINT PRIMARY KEY, status INT NOT NULL, due BIGINT NOT NULL, price DECIMAL(18, 2) NOT NULL DEFAULT 0.10, " +
				"fee DECIMAL(18, 2) NOT NULL DEFAULT 0)",
			"CREATE INDEX w_due ON w_order (status, due, id)",
			"CREATE TABLE w_line (id BIGINT PRIMARY KEY, order_id BIGINT NOT NULL, sku VARCHAR(64) NULL, product BIGINT NULL, shed INT NULL, " +
				"num INT NOT NULL, deleted INT NOT NULL DEFAULT 0, gift INT NULL)",
			"CREATE INDEX w_by_order ON w_line (order_id)",
			"CREATE TABLE w_stock (sku VARCHAR(64) NOT NULL, shed INT NOT NULL, free INT NOT NULL, held INT NOT NULL, " +
				"updated BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (sku, shed))",
			"CREATE TABLE w_product (id BIGINT PRIMARY KEY, total INT NOT NULL, version BIGINT NOT NULL DEFAULT 1)",
			"CREATE TABLE w_shed (id BIGINT NOT NULL, shed INT NOT NULL, total INT NOT NULL, PRIMARY KEY (id, shed))",
			"CREATE TABLE w_reserved (id BIGINT PRIMARY KEY, order_id BIGINT NOT NULL)",
			"CREATE INDEX w_reserved_order ON w_reserved (order_id)",
			"INSERT INTO w_stock (sku, shed, free, held) VALUES ('a@b', 1, 100, 50), ('a@b', 2, 100, 50), ('pen', 2, 100, 50)",
			"INSERT INTO w_product (id, total) VALUES (7, 300), (8, 300)",
			"INSERT INTO w_shed (id, shed, total) VALUES (7, 1, 10), (7, 2, 10), (8, 2, 10)",
		}
}

// RunWarehouses tests a close that returns stock to several tables, by SKU and location.
func RunWarehouses(t *testing.T, server Server) {
	m, ddl := warehouses()
	s := &shop{T: t, Store: server.New(t, m)()}
	for _, statement := range ddl {
		s.exec(statement)
	}
	s.must(s.Migrate(t.Context()))
	s.must(s.CheckMapping(t.Context()))
	s.must(s.Writable(t.Context()))
	due := s.now().Add(-time.Minute).UnixMilli()
	for id := 1; id <= 5; id++ {
		s.exec(fmt.Sprintf("INSERT INTO w_order (id, status, due) VALUES (%d, 1, %d)", id, due))
		s.exec(fmt.Sprintf("INSERT INTO w_reserved (id, order_id) VALUES (%d, %d), (%d, %d)", 10*id, id, 10*id+1, id))
	}
	s.exec("UPDATE w_order SET price = 0.11 WHERE id = 4")
	s.exec("UPDATE w_order SET fee = 0.01 WHERE id = 5")
	for i, line := range []string{
		"1, 'a@b', 7, 1, 2, 0, NULL", "1, 'a@b', 7, 2, 3, 0, NULL", "1, 'a@b', 7, 2, 1, 0, NULL", // the same SKU in two sheds
		"1, 'pen', 8, 2, 9, 1, NULL", "1, 'pen', 8, 2, 9, 0, 1", // deleted, and a gift
		"2, 'a@b', 7, 1, 4, 0, NULL", "2, 'pen', NULL, 2, 5, 0, NULL", "2, NULL, NULL, NULL, 1, 0, NULL", // a line without a product, and a fee
		"3, 'pen', 8, NULL, 1, 0, NULL", "4, 'pen', 8, 2, 1, 0, NULL", "5, 'pen', 8, 2, 1, 0, NULL",
	} {
		s.exec(fmt.Sprintf("INSERT INTO w_line (id, order_id, sku, product, shed, num, deleted, gift) VALUES (%d, %s)", i+1, line))
	}
	closeOf := func(ids ...string) ([]orderclose.Outcome, error) {
		return s.CloseOrders(t.Context(), orderclose.PathPipeline, requests(ids...))
	}
	out := must.Get(closeOf("1", "2", "4", "5"))(t)
	want(t, "verdicts", verdicts(out), []string{"1 closed", "2 closed", "4 excluded", "5 excluded"})
	expect.That(t, expect.Err(closeOf("3")) != nil, "an order with a line without a location was closed")
	out = must.Get(closeOf("1", "2"))(t)
	want(t, "verdicts of a repeat", verdicts(out), []string{"1 already_closed", "2 already_closed"})
	want(t, "stock", s.texts("SELECT CONCAT(sku, ' ', shed, ' ', free, ' ', held) FROM w_stock ORDER BY sku, shed"),
		[]string{"a@b 1 106 44", "a@b 2 104 46", "pen 2 105 45"})
	want(t, "products", s.texts("SELECT CONCAT(id, ' ', total, ' ', version) FROM w_product ORDER BY id"), []string{"7 310 2", "8 300 1"})
	want(t, "sheds", s.texts("SELECT CONCAT(id, ' ', shed, ' ', total) FROM w_shed ORDER BY id, shed"), []string{"7 1 16", "7 2 14", "8 2 10"})
	want(t, "rows with the time of the close", s.count("SELECT COUNT(*) FROM w_stock WHERE updated > 1000"), 3)
	want(t, "reservations", s.texts("SELECT CONCAT(id, '') FROM w_reserved ORDER BY id"), []string{"30", "31", "40", "41", "50", "51"})
	want(t, "ledger", s.ledger(), []string{"1 a@b@1 close 2", "1 a@b@2 close 4", "2 a@b@1 close 4", "2 pen@2 close 5"})
	want(t, "lines", len(must.Get(s.OrderHistory(t.Context(), "1"))(t).Items), 3)
	parts := must.Get(s.AuditParts(t.Context()))(t)
	for _, p := range parts {
		rows := must.Get(s.AuditPage(t.Context(), p, s.now().Add(-time.Hour), s.now(), orderclose.Order{}, 100))(t)
		for _, r := range rows {
			if p.State == store.AuditClosed {
				want(t, "stock of order "+r.ID, len(store.JudgeStock(r.LineQuantities, r.Ledger, "close")), 0)
			}
		}
	}
}
