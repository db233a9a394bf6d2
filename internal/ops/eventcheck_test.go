package ops

import (
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// A part of the pipeline may write any dead letter. Only an event of what has happened is sent again.
func TestHappened_AnInventedEventIsRefused(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	known := store.OrderHistory{
		Order: &store.OrderRow{ID: "a", Status: store.Closed}, Receipt: &store.ReceiptRow{ClosedAt: at},
		Ledger:       []store.LedgerRow{{SKU: "ink", Kind: "close", Quantity: 2}, {SKU: "left out", Kind: "close"}},
		LatePayments: []store.LatePayment{{OrderID: "a", PaymentID: "p", Amount: 100, Currency: "EUR"}},
	}
	paid, unpaid := store.OrderHistory{Order: &store.OrderRow{Status: store.Paid}}, store.OrderHistory{Order: &store.OrderRow{Status: -1, Meaning: "unpaid"}}
	type encoder interface{ Encode() ([]byte, error) }
	closed := orderclose.OrderClosed{OrderID: "a", ClosedAt: at, Release: []orderclose.Release{{SKU: "ink", Quantity: 2}}}
	later, more, none, other := closed, closed, closed, closed
	later.ClosedAt, more.Release, none.Release, other.Type = at.Add(time.Second), []orderclose.Release{{SKU: "ink", Quantity: 1e6}}, nil, "order.shipped"
	late := orderclose.OrderPaidLate{OrderID: "a", PaymentID: "p", Amount: 100, Currency: "EUR", FoundAt: at}
	dearer := late
	dearer.Amount = 1e6
	for name, c := range map[string]struct {
		e     encoder
		known store.OrderHistory
		want  string
	}{
		"a close":                     {closed, known, ""},
		"a close at another time":     {later, known, "does not know"},
		"a close that releases more":  {more, known, "does not know"},
		"a close that releases none":  {none, known, "does not know"},
		"a close of an open order":    {closed, unpaid, "does not know"},
		"an event of another program": {other, known, "no events of this type"},
		"late money":                  {late, known, ""},
		"more late money":             {dearer, known, "does not know"},
		"a paid order":                {orderclose.OrderPaid{OrderID: "a", PaidAt: at}, paid, ""},
		"a closed order that is paid": {orderclose.OrderPaid{OrderID: "a", PaidAt: at}, known, "does not know"},
		"a reminder":                  {orderclose.OrderReminder{OrderID: "a", Due: at}, unpaid, ""},
		"a late reminder":             {orderclose.OrderReminder{OrderID: "a", Due: at}, paid, "does not know"},
	} {
		value := must.Get(c.e.Encode())(t)
		kind := strings.Split(string(value[strings.Index(string(value), `"type":"`)+8:]), `"`)[0]
		err := happened(kind, "a", value, c.known, orderclose.EventOrderClosed)
		expect.That(t, (err == nil) == (c.want == "") && (err == nil || strings.Contains(err.Error(), c.want)), "%s: %v", name, err)
		for from, to := range map[string]string{`"id":"`: `"id":"x`, `"order_id":"a"`: `"order_id":"b"`} {
			forged := strings.Replace(string(value), from, to, 1)
			expect.That(t, happened(kind, "a", []byte(forged), c.known, orderclose.EventOrderClosed) != nil, "%s with %s is taken", name, to)
		}
	}
}
