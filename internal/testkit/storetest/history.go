package storetest

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var historyPromises = []promise[shop]{
	{name: "HistoryHasEverythingAboutAnOrder", test: historyHasAll, tags: Settings},
	{name: "HistoryOfAnUnknownOrderIsEmpty", test: historyOfUnknownOrder},
}

func historyHasAll(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	s.order("other", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 1})
	o := s.order("a", -time.Minute, shopdb.Item{SKU: "nib", Quantity: 2}, shopdb.Item{SKU: "ink", Quantity: 1})
	at := s.close("a", "other")[0].At
	got := must.Get(s.OrderHistory(t.Context(), "a"))(t)
	expect.That(t, len(got.PendingEvents) == 1 && got.PendingEvents[0].At.Equal(at) && !got.At.Before(at),
		"outgoing %+v, at %v; want the event of %v", got.PendingEvents, got.At, at)
	got.At, got.PendingEvents = time.Time{}, nil
	want(t, "history", got, store.OrderHistory{
		Order:   &store.OrderRow{ID: "a", Category: "book", Status: store.Closed, State: "closed", CreatedAt: o.CreatedAt, Due: o.Due, ClosedAt: at, Version: 2},
		Items:   []store.ItemRow{{Line: 1, SKU: "nib", Quantity: 2}, {Line: 2, SKU: "ink", Quantity: 1}},
		Receipt: &store.ReceiptRow{Verdict: orderclose.Closed, Due: o.Due, ClosedAt: at, Path: orderclose.PathPipeline, LatenessMS: at.Sub(o.Due).Milliseconds()},
		Ledger:  []store.LedgerRow{{SKU: "ink", Kind: "close", Quantity: 1, At: at}, {SKU: "nib", Kind: "close", Quantity: 2, At: at}},
	})
}

func historyOfUnknownOrder(t *testing.T, s *shop) {
	s.migrated()
	got := must.Get(s.OrderHistory(t.Context(), "nobody"))(t)
	expect.That(t, !got.Known(), "%+v", got)
	expect.That(t, expect.Err(s.OrderHistory(t.Context(), "no id ")) != nil, "the history of an invalid id was returned")
}
