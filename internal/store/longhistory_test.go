package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// An order has 1,000 or 1,001 rows in each table that its history reads.
func TestOrderHistory_ReadsAThousandRowsOfEachTable(t *testing.T) { eachDatabase(t, longHistory) }

func longHistory(t *testing.T) {
	s := openMigrated(t, store.Options{})
	overdue(t, s, "thousand", "more")
	for id, rows := range map[string]int{"thousand": 1000, "more": 1001} {
		exec(t, s.DB(), "DELETE FROM order_items WHERE order_id = '"+id+"'")
		exec(t, s.DB(), "DELETE FROM outbox_schedules WHERE order_id = '"+id+"'")
		for table, row := range map[string]string{
			"order_items (order_id, line_no, sku_id, quantity)":           "('%s', %d, 'ink', 1)",
			"stock_ledger (order_id, sku_id, kind, quantity, created_at)": "('%s', '%d', 'cancel', 1, '2026-01-01')",
			"late_payments (order_id, payment_id, source, found_at)":      "('%s', '%d', 'callback', '2026-01-01')",
			"outbox_events (order_id, payload, created_at)":               "('%s', '{\"n\": %d}', '2026-01-01')",
			"outbox_schedules (order_id, payload, created_at)":            "('%s', '{\"n\": %d}', '2026-01-01')",
		} {
			var values []string
			for n := range rows {
				values = append(values, fmt.Sprintf(row, id, n+1))
			}
			exec(t, s.DB(), "INSERT INTO "+table+" VALUES "+strings.Join(values, ", "))
		}
		h := must.Get(s.OrderHistory(t.Context(), id))(t)
		for what, n := range map[string]int{"lines": len(h.Items), "ledger": len(h.Ledger), "late payments": len(h.LatePayments), "events": len(h.PendingEvents),
			"schedules": len(h.PendingSchedules)} {
			expect.Equal(t, n, 1000, "%s: %s", id, what)
		}
		expect.That(t, len(h.More) == map[string]int{"thousand": 0, "more": 5}[id], "%s: %q", id, h.More)
	}
}
