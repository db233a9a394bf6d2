package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
)

var faultPromises = []promise[shop]{
	{name: "OneBadOrderFailsItsBatchAndChangesNothing", test: oneBadOrder, tags: Dialect},
	{name: "LessReservedThanOrderedFails", test: lessReservedThanOrdered},
	{name: "StockThatWasReleasedBeforeFails", test: stockReleasedBefore},
	{name: "ACancelledContextBlamesNoOrder", test: cancelledContext, tags: Dialect},
	{name: "AMissingSchemaBlamesNoOrder", test: withoutSchema, tags: Dialect | Empty},
	{name: "TheStoreWorksAfterACancel", test: worksAfterCancel, tags: Dialect | File},
	{name: "ProbeReportsAFailingDatabaseAndChangesNothing", test: probe, tags: Dialect},
}

// failing checks that closing ids fails with an error of an order, and changes nothing.
func (s *shop) failing(ids ...string) {
	s.Helper()
	before := s.state()
	out, err := s.CloseOrders(s.Context(), orderclose.PathPipeline, requests(ids...))
	if err == nil || errors.Is(err, orderclose.ErrUnavailable) {
		s.Errorf("closing %q: error %v, outcomes %v; want an error that is no ErrUnavailable", ids, err, out)
	}
	want(s, "state after the failed close", s.state(), before)
}

func oneBadOrder(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	s.order("good", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	s.order("bad", -time.Minute, shopdb.Item{SKU: "nib", Quantity: 2})
	s.exec("DELETE FROM stock WHERE sku_id = 'nib'")
	s.failing("good", "bad")
	s.failing("bad")
	want(t, "verdict of the good order alone", verdicts(s.close("good")), []string{"good closed"})
}

func lessReservedThanOrdered(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	s.exec("UPDATE stock SET reserved = 1")
	s.failing("a")
}

func stockReleasedBefore(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	s.order("b", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	at := s.time(s.now())
	s.exec("INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES ('a', 'closed', ?, ?, 'sweep', 0, 0)", at, at)
	s.failing("a", "b")
}

func cancelledContext(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	before := s.state()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, closing := s.CloseOrders(ctx, orderclose.PathPipeline, requests("a"))
	_, paging := s.Overdue(ctx, s.now(), orderclose.Order{}, 10)
	_, paying := s.Pay(ctx, "a", "p")
	for _, err := range []error{closing, paging, paying} {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, orderclose.ErrUnavailable) {
			t.Errorf("with a cancelled context: %v; want context.Canceled and ErrUnavailable", err)
		}
	}
	want(t, "state", s.state(), before)
}

func withoutSchema(t *testing.T, s *shop) {
	_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, requests("a"))
	if s.Dialect() == store.MySQL && !errors.Is(err, orderclose.ErrUnavailable) || err == nil {
		t.Errorf("closing without tables: %v; want an error that blames no order", err)
	}
}

// A transaction that is cancelled half-way costs its connection. The database must survive it,
// also in memory.
func worksAfterCancel(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := s.DB().BeginTx(ctx, nil)
	s.must(err)
	_, err = tx.ExecContext(ctx, "UPDATE stock SET available = 0")
	s.must(err)
	cancel()
	_ = tx.Rollback() // it may be rolled back already
	want(t, "stock", s.stock(), []string{"ink 998 2"})
	want(t, "verdict", verdicts(s.close("a")), []string{"a closed"})
}

// Many probes run at once, as of closers whose orders fail. Orders stay as they are, and a
// database that accepts no writes is reported.
func probe(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 2})
	before := s.state()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				if err := s.Probe(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	want(t, "state", s.state(), before)
	s.exec("DROP TABLE receipts")
	if err := s.Probe(t.Context()); !errors.Is(err, orderclose.ErrUnavailable) {
		t.Errorf("without a table to write to: %v; want ErrUnavailable", err)
	}
}
