package realtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// The audit finds nothing before that.
func TestReal_AnAuditFindsPlantedFaults(t *testing.T) {
	r := parallelRig(t)
	orders, batch := inRing(100, 10_000), inRing(50, 500)
	r.passedOver(orders)
	// The audit checks events only of orders that were closed more than a minute ago.
	r.exec("UPDATE orders SET created_at = created_at - INTERVAL 1 HOUR, expire_at = expire_at - INTERVAL 1 HOUR")
	for first := 0; first < orders; first += batch {
		requests := make([]orderclose.CloseRequest, batch)
		for i := range requests {
			requests[i].OrderID = fmt.Sprintf("replayed-%d", first+i)
		}
		must.Get(r.store.CloseOrders(t.Context(), orderclose.PathPipeline, requests))(t)
	}
	r.exec("UPDATE receipts SET closed_at = due + INTERVAL 1 SECOND")
	r.exec("DELETE FROM outbox_events WHERE order_id = 'replayed-9'")
	r.start("outbox")
	r.drain()

	run := func(wantCode int) (map[ops.FindingKind][]string, ops.AuditSummary) {
		t.Helper()
		out, code := r.cli("audit", "--from", "1d", "-o", "jsonl")
		found, sum := map[ops.FindingKind][]string{}, ops.AuditSummary{}
		for line := range strings.Lines(out) {
			var l struct {
				Finding *ops.Finding
				Summary *ops.AuditSummary
			}
			must.Do(t, json.Unmarshal([]byte(line), &l))
			if l.Finding != nil {
				found[l.Finding.Kind] = append(found[l.Finding.Kind], l.Finding.Order)
			} else {
				sum = *l.Summary
			}
		}
		expect.That(t, code == wantCode, "it exits with %d, want %d:\n%s", code, wantCode, out)
		return found, sum
	}
	want := map[ops.FindingKind][]string{ops.NoEvent: {"replayed-9"}}
	found, sum := run(3)
	// A busy broker's answer may come too late, and records are then in the topic twice.
	if diff := cmp.Diff(want, found); diff != "" || sum.Orders != orders || sum.ClosedBy[orderclose.PathPipeline] != orders || sum.EventsRead < int64(orders)-1 ||
		len(sum.NotRead) != 0 {
		t.Errorf("%+v (-want +got):\n%s", sum, diff)
	}
	payload := must.Get(orderclose.OrderClosed{OrderID: "replayed-9", Path: orderclose.PathPipeline}.Encode())(t)
	r.append(r.cfg.Topics.Events, 0, wire.Message{Key: []byte("replayed-9"), Value: payload})
	found, sum = run(0)
	expect.That(t, len(found) == 0 && sum.FindingCount == 0, "%v", found)

	for id, change := range map[string]string{
		"replayed-1": "DELETE FROM receipts WHERE order_id = ?",
		"replayed-2": "UPDATE receipts SET returned = '{}' WHERE order_id = ?",
		"replayed-3": "UPDATE receipts SET returned = REPLACE(returned, ':', ':9') WHERE order_id = ?",
		"replayed-4": "INSERT INTO stock_ledger (order_id, sku_id, kind, quantity, created_at) SELECT order_id, sku_id, 'cancel', quantity, UTC_TIMESTAMP(3) FROM " +
			"order_items WHERE order_id = ?",
		"replayed-5": "UPDATE orders SET status = 1 WHERE id = ?",
		"replayed-6": "UPDATE orders SET status = 3 WHERE id = ?",
		"replayed-7": "UPDATE receipts SET closed_at = due - INTERVAL 1 MINUTE WHERE order_id = ?",
		"replayed-8": "UPDATE orders SET paid_at = created_at WHERE id = ?",
	} {
		r.exec(change, id)
	}
	open := orderclose.Order{ID: "open", CreatedAt: time.Now().Add(-2 * time.Hour), Due: time.Now().Add(-time.Hour)}
	must.Do(t, r.shop.Orders.CreateOrder(t.Context(), open, nil))
	want = map[ops.FindingKind][]string{
		ops.StillOpen: {"open"}, ops.NoReceipt: {"replayed-1"}, ops.LedgerMissing: {"replayed-2"}, ops.LedgerWrong: {"replayed-3"},
		ops.LedgerDouble: {"replayed-4"}, ops.PaidButClosed: {"replayed-8", "replayed-5"}, ops.StrayReceipt: {"replayed-6"}, ops.ClosedEarly: {"replayed-7"},
	}
	found, sum = run(3)
	diff := cmp.Diff(want, found)
	expect.That(t, diff == "" && sum.Orders == orders+1, "%+v (-want +got):\n%s", sum, diff)
}
