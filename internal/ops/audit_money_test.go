package ops

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// closedOrders is a store without orders that are due in the window. Its orders were closed in it.
type closedOrders struct {
	manyOrders
	rows []store.AuditRow
}

func (c closedOrders) AuditClosed(_ context.Context, _, _ time.Time, after store.ReceiptKey, _ int) (rows []store.AuditRow, last store.ReceiptKey, err error) {
	if after.OrderID == "" {
		return c.rows[:1], store.ReceiptKey{OrderID: "o"}, nil
	}
	return c.rows[1:], last, nil
}

// A paid order without a deadline, and an order that is open again: both were closed in the window.
func TestAudit_JudgesTheOrdersThatWereClosedInTheWindow(t *testing.T) {
	elsewhere := func(state store.AuditState, at time.Time) store.AuditRow {
		return row(state, func(r *store.AuditRow) {
			r.Due, r.Receipt = at, &store.ReceiptRow{Due: due, ClosedAt: due.Add(time.Second), Path: orderclose.PathPipeline}
		})
	}
	db := closedOrders{manyOrders{each: func(int) {}}, []store.AuditRow{elsewhere(store.AuditPaid, orderclose.NeverDue),
		elsewhere(store.AuditOpen, due.Add(72*time.Hour)), row(store.AuditPaid, nil)}}
	var found []string
	sum, err := Audit(t.Context(), AuditOptions{Store: db, Config: &config.Config{}, From: due, To: due.Add(time.Hour), Bound: time.Hour,
		OnFinding: func(f Finding) error {
			found = append(found, string(f.Kind))
			return nil
		}})
	got := fmt.Sprint(found, sum.ClosedElsewhere, sum.FindingCount, sum.Orders)
	expect.That(t, err == nil && got == "[paid_but_closed stray_receipt] 2 2 0", "%s, %v", got, err)
}

// The event of a close without a close: readers of the event give back points of a paid order.
func TestAudit_FindsAnEventWithoutAReceipt(t *testing.T) {
	a := audit{common: factsWith(nil)}
	a.kafka.events = newHashes()
	a.kafka.events.add(a.eventID("o"))
	a.kafka.events.seal()
	for state, want := range map[store.AuditState]string{store.AuditPaid: "[stray_event]", store.AuditOther: "[stray_event]", store.AuditClosed: "[]"} {
		var kinds []FindingKind
		r := row(state, nil)
		for _, f := range judge(r, a.facts(r)) {
			kinds = append(kinds, f.Kind)
		}
		expect.That(t, fmt.Sprint(kinds) == want, "an order that is %s: %v, want %s", state, kinds, want)
	}
}
