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
)

var stockPromises = []promise[shop]{
	{name: "AnAuditAndAQueryFindWrongStock", test: wrongStockFound},
	{name: "ClosesOfEarlierProgramsAreReadAlike", test: earlierCloses},
	{name: "AFailedCloseNamesOneCause", test: failureNamed},
	{name: "AnOrderClosesWithoutStockThatCannotComeBack", test: withoutStock},
}

// wrongStock returns what an audit finds in the stock of closed orders, and the SKUs that the query of the runbook finds.
func (s *shop) wrongStock() (found []string) {
	s.Helper()
	parts, err := s.AuditParts(s.Context())
	s.must(err)
	for _, p := range parts {
		if p.State != store.AuditClosed {
			continue
		}
		rows, err := s.AuditPage(s.Context(), p, s.now().Add(-24*time.Hour), s.now().Add(24*time.Hour), orderclose.Order{}, 100)
		s.must(err)
		for _, r := range rows {
			for _, f := range store.JudgeStock(r.LineQuantities, r.Ledger, "close") {
				found = append(found, fmt.Sprint(f.Kind, " ", r.ID, " ", f.SKU))
			}
		}
	}
	section, _ := runbook.At("is-everything-well")
	query := strings.Join(section.Commands("Look", "sql"), " ")
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
	_, err := s.Cancel(s.Context(), "cancelled")
	s.must(err)
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

// earlierCloses reads a close by a program before version 26 of the schema like one by this program. Such a program writes rows of the
// ledger in place of the column returned. Neither program closes an order that the other has closed.
func earlierCloses(t *testing.T, s *shop) {
	s.everything()
	all := func() []any {
		s.Helper()
		history, err := s.OrderHistory(s.Context(), "closed")
		s.must(err)
		s.exec("DELETE FROM outbox_events")
		_, _, err = s.ClosedAgain(s.Context(), s.now().Add(-time.Hour), s.now().Add(time.Hour), store.ReceiptKey{}, 10)
		s.must(err)
		return []any{s.ledger(), history.Ledger, s.texts("SELECT CONCAT_WS(' ', order_id, payload) FROM outbox_events ORDER BY order_id"), s.wrongStock()}
	}
	now := all()
	for sku, quantity := range map[string]int{"ink": 5, "nib": 1} {
		s.exec("INSERT INTO stock_ledger (order_id, sku_id, kind, quantity, created_at) SELECT order_id, ?, 'close', ?, closed_at FROM receipts"+
			" WHERE order_id = 'closed'", sku, quantity)
	}
	want(t, "findings of a close in both forms", s.wrongStock(), []string{"ledger_double closed ink", "ledger_double closed nib"})
	s.exec("UPDATE receipts SET returned = NULL WHERE order_id = 'closed'")
	want(t, "a close by an earlier program", all(), now)

	s.exec("UPDATE orders SET status = 0 WHERE id IN ('closed', 'closed too')")
	s.failing("closed")
	const earlier = "INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms, try) SELECT order_id, verdict, due, closed_at, path, " +
		"attempts, lateness_ms, try FROM receipts WHERE order_id = 'closed too'"
	if _, err := s.DB().ExecContext(s.Context(), earlier); err == nil {
		t.Error("an earlier program writes a second receipt of an order that this program has closed")
	}
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
		look, err := s.WhyOpen(s.Context(), orderclose.CloseRequest{OrderID: "a"}, false)
		s.must(err)
		if _, seen := look.Why(); why != c.says || seen != c.says {
			t.Errorf("%s: the close says %s and the look %s, want %s", c.query, why, seen, c.says)
		}
	}
}

// withoutStock closes an order whose product was deleted, once, and leaves out no other stock.
func withoutStock(t *testing.T, s *shop) {
	s.migrated("ink", "pen")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2}, shopdb.Item{SKU: "pen", Quantity: 3})
	without := func(says string, skus ...string) {
		t.Helper()
		ctx := store.WithoutStock(s.Context(), store.Without{SKUs: skus, Reason: "product deleted"})
		out, err := s.CloseOrders(ctx, orderclose.PathSweep, requests("a"))
		if got := fmt.Sprint(verdicts(out), err); !strings.Contains(got, says) {
			t.Errorf("%s, want %s", got, says)
		}
	}
	without(`SKU "pen" has a row in table stock`, "pen")
	s.exec("UPDATE stock SET reserved = 0 WHERE sku_id = 'pen'") // which a person can correct
	without(`SKU "pen" has a row in table stock`, "pen")
	s.exec("DELETE FROM stock WHERE sku_id = 'pen'")
	without(`the order has 1 of the SKUs ["pen" "nib"]`, "pen", "nib")
	without(`SKU "ink" has a row in table stock`, "pen", "ink")
	s.exec("UPDATE orders SET status = 1")
	without("already_paid", "pen")
	s.exec("UPDATE orders SET status = 0, expire_at = ?", s.time(s.now().Add(time.Hour)))
	without("not_due", "pen")
	s.exec("UPDATE orders SET expire_at = ?", s.time(s.now().Add(-time.Minute)))
	without("a closed", "pen")
	history, err := s.OrderHistory(s.Context(), "a")
	s.must(err)
	var ledger []string
	for _, l := range history.Ledger {
		ledger = append(ledger, fmt.Sprint(l.SKU, " ", l.Kind, " ", l.Quantity, " ", l.Reason))
	}
	slices.Sort(ledger)
	want(t, "ledger", ledger, []string{"ink close 2 ", "pen close 0 product deleted"})
	want(t, "ink in stock", s.count("SELECT available FROM stock WHERE sku_id = 'ink'"), 1000)
	want(t, "events with the pen", s.count("SELECT COUNT(*) FROM outbox_events WHERE payload LIKE '%pen%'"), 0)
	want(t, "findings", s.wrongStock(), nil)
	s.must(s.PutStock(s.Context(), "pen", 7)) // the product is back, and the order is opened again
	s.exec("UPDATE orders SET status = 0")
	_, err = s.CloseOrders(s.Context(), orderclose.PathSweep, requests("a"))
	if err == nil || !strings.Contains(err.Error(), "closed_before: order \"a\" has a receipt") {
		t.Errorf("a second close: %v", err)
	}
	want(t, "pens in stock", s.count("SELECT available FROM stock WHERE sku_id = 'pen'"), 7)
}
