package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var stockPromises = []promise[shop]{
	{name: "AnAuditAndAQueryFindWrongStock", test: wrongStockFound, tags: Settings},
	{name: "AFailedCloseNamesOneCause", test: failureNamed, tags: Settings},
	{name: "AnOrderOfADeletedProductCloses", test: deletedProduct},
}

// wrongStock returns what an audit finds in the stock of closed orders, and the SKUs that the query of the runbook finds.
func (s *shop) wrongStock() (found []string) {
	s.Helper()
	parts := must.Get(s.AuditParts(s.Context()))(s)
	for _, p := range parts {
		if p.State != store.AuditClosed {
			continue
		}
		rows := must.Get(s.AuditPage(s.Context(), p, s.now().Add(-24*time.Hour), s.now().Add(24*time.Hour), orderclose.Order{}, 100))(s)
		for _, r := range rows {
			for _, f := range store.JudgeStock(r.LineQuantities, r.Ledger, "close") {
				found = append(found, fmt.Sprint(f.Kind, " ", r.ID, " ", f.SKU))
			}
		}
	}
	section, _ := runbook.At("is-everything-well")
	query := strings.Join(section.Commands("Meaning", "sql"), " ")
	found = append(found, s.texts("SELECT CONCAT('reserved ', sku_id) FROM ("+query+") AS wrong")...)
	slices.Sort(found)
	return found
}

// everything creates an order of each status, with two lines of one SKU.
func (s *shop) everything() {
	s.Helper()
	s.migrated("ink", "nib")
	lines := []shopdb.Item{{SKU: "ink", Quantity: 2}, {SKU: "nib", Quantity: 1}, {SKU: "ink", Quantity: 3}}
	for _, id := range []string{"open", "paid", "cancelled"} {
		s.order(id, time.Hour, lines...)
	}
	for _, id := range []string{"closed", "closed too"} {
		s.order(id, -time.Hour, lines...)
	}
	s.exec("UPDATE orders SET status = 1 WHERE id = 'paid'")
	must.Get(s.Cancel(s.Context(), "cancelled"))(s)
	s.close("closed", "closed too")
}

func wrongStockFound(t *testing.T, s *shop) {
	s.everything()
	before := s.state()
	want(t, "findings when all is right", s.wrongStock(), nil)
	for _, c := range []struct {
		breaks, fixes string
		want          []string
	}{
		{"UPDATE stock SET reserved = reserved + 1 WHERE sku_id = 'nib'", "UPDATE stock SET reserved = reserved - 1 WHERE sku_id = 'nib'", []string{"reserved nib"}},
		{"UPDATE orders SET status = 0 WHERE id = 'closed'", "UPDATE orders SET status = 2 WHERE id = 'closed'", []string{"reserved ink", "reserved nib"}},
		{"UPDATE orders SET status = 2 WHERE id = 'open'", "UPDATE orders SET status = 0 WHERE id = 'open'",
			[]string{"ledger_missing open ink", "ledger_missing open nib", "reserved ink", "reserved nib"}},
		{"INSERT INTO stock_ledger (order_id, sku_id, kind, quantity, created_at) SELECT 'closed', sku_id, kind, quantity, created_at" +
			" FROM stock_ledger WHERE order_id = 'cancelled' AND sku_id = 'ink'",
			"DELETE FROM stock_ledger WHERE order_id = 'closed' AND kind = 'cancel'", []string{"ledger_double closed ink"}},
		{"UPDATE receipts SET returned = REPLACE(returned, '5', '4') WHERE order_id = 'closed'",
			"UPDATE receipts SET returned = REPLACE(returned, '4', '5') WHERE order_id = 'closed'", []string{"ledger_wrong closed ink"}},
		// A close and a transaction of the shop that removed the line have returned its stock, both.
		{"DELETE FROM order_items WHERE order_id = 'closed' AND sku_id = 'nib'",
			"INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('closed', 7, 'nib', 1)",
			[]string{"ledger_wrong closed nib"}},
		{"UPDATE order_items SET order_id = 'aa' WHERE order_id = 'open' AND sku_id = 'nib'", "UPDATE order_items SET order_id = 'open' WHERE order_id = 'aa'",
			[]string{"reserved nib"}},
	} {
		s.exec(c.breaks)
		want(t, c.breaks, s.wrongStock(), c.want)
		s.exec(c.fixes)
	}
	want(t, "state", s.state(), before)
	want(t, "findings when all is fixed", s.wrongStock(), nil)
}

// failureNamed plays two causes. The others are those of a shop's own tables.
func failureNamed(t *testing.T, s *shop) {
	s.migrated("ink", "pen")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2}, shopdb.Item{SKU: "pen", Quantity: 1})
	for _, c := range []struct{ query, says string }{
		{"DELETE FROM stock WHERE sku_id = 'pen'", `stock_row_missing: SKU "pen" has no row in table stock`},
		{"DELETE FROM order_items WHERE sku_id = 'pen'", ""},
		{"UPDATE stock SET reserved = 1 WHERE sku_id = 'ink'", `reserved_too_low: reserved of SKU "ink" in table stock is 1, and the order holds 2`},
	} {
		if s.exec(c.query); c.says == "" {
			continue
		}
		_, err := s.CloseOrders(s.Context(), orderclose.PathPipeline, requests("a", "a"))
		_, why := orderclose.Outcome{Verdict: orderclose.Failed, Err: err}.Why()
		look := must.Get(s.WhyOpen(s.Context(), orderclose.CloseRequest{OrderID: "a"}, false))(t)
		_, seen := look.Why()
		expect.That(t, why == c.says && seen == c.says, "%s: the close says %s and the look %s, want %s", c.query, why, seen, c.says)
	}
}

// deletedProduct closes an order whose product was deleted: a person inserts its row of stock for a moment.
func deletedProduct(t *testing.T, s *shop) {
	s.migrated("ink", "pen")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2}, shopdb.Item{SKU: "pen", Quantity: 3})
	s.exec("DELETE FROM stock WHERE sku_id = 'pen'")
	out, err := s.CloseOrders(s.Context(), orderclose.PathSweep, requests("a"))
	got := fmt.Sprint(verdicts(out), err)
	expect.That(t, strings.Contains(got, "stock_row_missing"), "without a row of stock: %s", got)
	section, _ := runbook.At("an-order-cannot-be-closed")
	insert, remove, _ := strings.Cut(strings.ReplaceAll(strings.Join(section.Commands("Act", "sql"), " "), "'SKU'", "'pen'"), ";")
	s.exec(insert)
	want(t, "verdicts", verdicts(s.close("a")), []string{"a closed"})
	s.exec(strings.TrimSuffix(remove, ";"))
	want(t, "ink in stock", s.count("SELECT available FROM stock WHERE sku_id = 'ink'"), 1000)
	want(t, "rows of the pen", s.count("SELECT COUNT(*) FROM stock WHERE sku_id = 'pen'"), 0)
	want(t, "findings", s.wrongStock(), nil)
}
