package ops

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

var due = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// row is an order of a state with what belongs to one that is as it should be; change
// plants a difference.
func row(state store.AuditState, change func(r *store.AuditRow)) store.AuditRow {
	r := store.AuditRow{Order: orderclose.Order{ID: "o", Due: due}, Part: store.AuditPart{Status: string(state), State: state}, LineQuantities: map[string]int64{}}
	if state == store.AuditClosed {
		r.Receipt = &store.ReceiptRow{Due: due, ClosedAt: due.Add(time.Second), Path: orderclose.PathPipeline}
		r.LineQuantities = map[string]int64{"ink": 2, "nib": 1}
		r.Ledger = []store.LedgerRow{{SKU: "ink", Kind: "close", Quantity: 2}, {SKU: "nib", Kind: "close", Quantity: 1}}
	}
	if change != nil {
		change(&r)
	}
	return r
}

// factsWith returns facts of a shop with the reference schema, an hour after the due time,
// where every order has an event.
func factsWith(change func(f *facts)) facts {
	f := facts{
		rules: store.AuditRules{Exclusive: true, Lines: true}, receipts: true, now: due.Add(time.Hour), bound: 30 * time.Minute,
		eventsFrom: due.Add(-time.Hour), eventsTo: due.Add(59 * time.Minute), event: true,
	}
	if change != nil {
		change(&f)
	}
	return f
}

func TestJudge_EachDifferenceIsFound(t *testing.T) {
	receipt := func(r *store.AuditRow) { r.Receipt = &store.ReceiptRow{Due: due, ClosedAt: due.Add(time.Second)} }
	mapped := factsWith(func(f *facts) { f.rules.Exclusive, f.rules.Overwritten = false, true })
	for what, c := range map[string]struct {
		r    store.AuditRow
		f    facts
		want string // the kinds
	}{
		"closed, and complete":          {row(store.AuditClosed, nil), factsWith(nil), ""},
		"paid":                          {row(store.AuditPaid, nil), factsWith(nil), ""},
		"cancelled":                     {row(store.AuditOther, func(r *store.AuditRow) { r.Ledger = []store.LedgerRow{{SKU: "ink", Kind: "cancel", Quantity: 2}} }), factsWith(nil), ""},
		"shipped":                       {row(store.AuditPaid, func(r *store.AuditRow) { r.Ledger = []store.LedgerRow{{SKU: "ink", Kind: "ship", Quantity: 2}} }), factsWith(nil), ""},
		"open within the bound":         {row(store.AuditOpen, nil), factsWith(func(f *facts) { f.now = due.Add(30 * time.Minute) }), ""},
		"open beyond it":                {row(store.AuditOpen, nil), factsWith(nil), "still_open"},
		"open beyond it, by a service":  {row(store.AuditOpen, nil), facts{now: due.Add(time.Hour)}, "still_open"},
		"closed by a service":           {row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt, r.Ledger = nil, nil }), facts{now: due}, ""},
		"no receipt":                    {row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt = nil }), factsWith(nil), "no_receipt"},
		"no receipt, by the shop":       {row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt, r.Ledger = nil, nil }), mapped, ""},
		"a receipt, and open":           {row(store.AuditOpen, receipt), factsWith(func(f *facts) { f.now = due }), "stray_receipt"},
		"a receipt, and cancelled":      {row(store.AuditOther, receipt), factsWith(nil), "stray_receipt"},
		"a receipt, and another status": {row(store.AuditOther, receipt), mapped, "overwritten"},
		"the same, and accepted":        {row(store.AuditOther, receipt), factsWith(func(f *facts) { f.rules.Exclusive = false }), ""},
		"a receipt, and paid":           {row(store.AuditPaid, receipt), factsWith(nil), "paid_but_closed"},
		"a receipt, paid, and reopened": {row(store.AuditPaid, func(r *store.AuditRow) { receipt(r); r.Late, r.Reopened = 1, true }), factsWith(nil), ""},
		"a receipt, paid, and refunded": {row(store.AuditPaid, func(r *store.AuditRow) { receipt(r); r.Late = 1 }), factsWith(nil), "paid_but_closed"},
		"closed, and paid before":       {row(store.AuditClosed, func(r *store.AuditRow) { r.PaidAt = true }), factsWith(nil), "paid_but_closed"},
		"early":                         {row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt.ClosedAt = due.Add(-time.Millisecond) }), factsWith(nil), "closed_early"},
		"early, by its row":             {row(store.AuditClosed, func(r *store.AuditRow) { r.Due = due.Add(time.Minute) }), factsWith(nil), "closed_early"},
		"nothing was released":          {row(store.AuditClosed, func(r *store.AuditRow) { r.Ledger = nil }), factsWith(nil), "ledger_missing ledger_missing"},
		"one SKU was not released":      {row(store.AuditClosed, func(r *store.AuditRow) { r.Ledger = r.Ledger[1:] }), factsWith(nil), "ledger_missing"},
		"released twice": {row(store.AuditClosed, func(r *store.AuditRow) {
			r.Ledger = append(r.Ledger, store.LedgerRow{SKU: "ink", Kind: "cancel", Quantity: 2})
		}), factsWith(nil), "ledger_double"},
		"too much was released":             {row(store.AuditClosed, func(r *store.AuditRow) { r.Ledger[0].Quantity = 3 }), factsWith(nil), "ledger_wrong"},
		"closed, and shipped":               {row(store.AuditClosed, func(r *store.AuditRow) { r.Ledger[0].Kind = "ship" }), factsWith(nil), "ledger_wrong"},
		"released a SKU that it never held": {row(store.AuditClosed, func(r *store.AuditRow) { delete(r.LineQuantities, "nib") }), factsWith(nil), "ledger_wrong"},
		"released, and paid":                {row(store.AuditPaid, func(r *store.AuditRow) { r.Ledger = []store.LedgerRow{{SKU: "ink", Kind: "close", Quantity: 2}} }), factsWith(nil), "ledger_wrong"},
		"no lines":                          {row(store.AuditClosed, func(r *store.AuditRow) { r.Ledger = nil }), factsWith(func(f *facts) { f.rules.Lines = false }), ""},
		"no event":                          {row(store.AuditClosed, nil), factsWith(func(f *facts) { f.event = false }), "no_event"},
		"no event, from before topics":      {row(store.AuditClosed, nil), factsWith(func(f *facts) { f.event, f.eventsFrom = false, due.Add(2*time.Second) }), ""},
		"no event yet":                      {row(store.AuditClosed, nil), factsWith(func(f *facts) { f.event, f.eventsTo = false, due }), ""},
		"no event, and no Kafka":            {row(store.AuditClosed, nil), factsWith(func(f *facts) { f.event, f.eventsFrom, f.eventsTo = false, time.Time{}, time.Time{} }), ""},
		"no event of a close by the shop":   {row(store.AuditClosed, func(r *store.AuditRow) { r.Receipt, r.Ledger = nil, nil }), factsWith(func(f *facts) { f.event, f.rules.Exclusive = false, false }), ""},
	} {
		var kinds []string
		for _, f := range judge(c.r, c.f) {
			kinds = append(kinds, string(f.Kind))
			if f.Order != "o" || f.What == "" || f.Fix == "" {
				t.Errorf("%s: %+v", what, f)
			}
		}
		slices.Sort(kinds)
		if got := strings.Join(kinds, " "); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

func TestJudge_AStatusThatTheMappingDoesNotNameIsReported(t *testing.T) {
	r := row(store.AuditPaid, func(r *store.AuditRow) { r.Receipt = &store.ReceiptRow{Due: due, ClosedAt: due.Add(time.Second)} })
	r.Part.Status, r.Part.Unlisted = "REFUNDED", true
	if f := judge(r, factsWith(nil)); len(f) == 0 || !strings.Contains(f[0].What, "REFUNDED, which orders.status does not name") {
		t.Errorf("%+v", f)
	}
}

func TestJudge_AnOpenOrderIsReportedWithItsDeadLetter(t *testing.T) {
	f := judge(row(store.AuditOpen, nil), factsWith(func(f *facts) { f.letter = "0/17" }))
	if len(f) != 1 || !strings.Contains(f[0].What, "dead letter 0/17") {
		t.Errorf("%+v", f)
	}
}

func TestJudge_AnOpenOrderMayWaitForThePaymentProvider(t *testing.T) {
	for pays, want := range map[bool]string{
		false: "orderclose order o shows why; orderclose compensate --once closes it",
		true:  "orderclose order o shows why; orderclose compensate --once asks the payment provider, and closes it unless the provider says paid or has no answer",
	} {
		f := judge(row(store.AuditOpen, nil), factsWith(func(f *facts) { f.pays = pays }))
		if len(f) != 1 || f[0].Fix != want {
			t.Errorf("%+v", f)
		}
	}
}

func TestJudge_AnEventThatIsADeadLetterIsRedriven(t *testing.T) {
	f := judge(row(store.AuditClosed, nil), factsWith(func(f *facts) { f.event, f.eventLetter = false, "0/17" }))
	if len(f) != 1 || f[0].Kind != NoEvent || !strings.Contains(f[0].What, "dead letter 0/17") || !strings.Contains(f[0].Fix, "dlq redrive --order o") {
		t.Errorf("%+v", f)
	}
}
