package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

var postponePromises = []promise[shop]{
	{name: "PostponeMovesOnlyOpenOrdersWithTheirDueTime", test: postponeMoves},
	{name: "AnOrderIsPostponedOrClosedAndNeverBoth", test: postponeRace, tags: Dialect},
}

// postponed calls Postpone.
func (s *shop) postponed(by time.Duration, orders ...orderclose.Order) []store.PostponeResult {
	s.Helper()
	out, err := s.Postpone(s.Context(), orders, by)
	s.must(err)
	return out
}

func postponeMoves(t *testing.T, s *shop) {
	s.migrated()
	s.must(s.CheckPostpone(t.Context()))
	late, later, paid, closed := s.order("late", -time.Minute), s.order("later", time.Hour), s.order("paid", time.Hour), s.order("closed", -time.Minute)
	moved, gone := s.order("moved", time.Hour), orderclose.Order{ID: "gone", Due: s.now()}
	s.answer(s.Pay(t.Context(), "paid", "p"))
	s.close("closed")
	moved.Due = moved.Due.Add(-time.Millisecond) // not the due time that it has
	all := []orderclose.Order{moved, late, gone, paid, later, closed}
	for _, round := range []store.PostponeResult{store.Postponed, store.PostponedBefore} {
		want(t, "results", s.postponed(20*time.Minute, all...),
			[]store.PostponeResult{store.PostponeMoved, round, store.PostponeGone, store.PostponeNotOpen, round, store.PostponeNotOpen})
		want(t, "changed orders", s.texts("SELECT id FROM orders WHERE version > 1 AND status = 0 ORDER BY id"), []string{"late", "later"})
	}
	want(t, "versions", s.count("SELECT MAX(version) FROM orders WHERE status = 0"), 2)

	// The records that are on their way arrive before the new due time.
	out := s.close("late", "later")
	want(t, "verdicts", verdicts(out), []string{"late not_due", "later not_due"})
	want(t, "due times", []time.Time{out[0].Due, out[1].Due}, []time.Time{late.Due.Add(20 * time.Minute), later.Due.Add(20 * time.Minute)})
	overdue, err := s.Overdue(t.Context(), s.now(), orderclose.Order{}, 10)
	s.must(err)
	want(t, "orders that a sweep finds", len(overdue), 0)

	s.exec("UPDATE orders SET expire_at = ? WHERE id = 'late'", s.time(late.Due))
	want(t, "verdict after its due time", verdicts(s.close("late")), []string{"late closed"})
	if out, err := s.Postpone(t.Context(), nil, time.Minute); err != nil || len(out) != 0 {
		t.Errorf("no orders: %v, %v", out, err)
	}
}

// Closers and a person work on the same overdue orders at once.
func postponeRace(t *testing.T, s *shop) {
	s.migrated()
	const n, page = 120, 20
	var orders []orderclose.Order
	for i := range n {
		orders = append(orders, s.order(fmt.Sprintf("o-%03d", i), -time.Minute))
	}
	var both sync.WaitGroup
	var errs [2]error
	results := make([]store.PostponeResult, 0, n)
	closed := map[string]bool{}
	both.Go(func() {
		for i := 0; i < n && errs[0] == nil; i += page {
			var some []store.PostponeResult
			some, errs[0] = s.Postpone(t.Context(), orders[i:i+page], time.Hour)
			results = append(results, some...)
		}
	})
	both.Go(func() {
		for i := n - page; i >= 0 && errs[1] == nil; i -= page {
			var out []orderclose.Outcome
			out, errs[1] = s.CloseOrders(t.Context(), orderclose.PathPipeline, ask(orders[i:i+page]...))
			for _, o := range out {
				closed[o.OrderID] = o.Verdict == orderclose.Closed
			}
		}
	})
	both.Wait()
	s.must(errors.Join(errs[:]...))
	for i, o := range orders {
		if result := results[i]; closed[o.ID] && result != store.PostponeNotOpen || !closed[o.ID] && result != store.Postponed {
			t.Errorf("order %s: %s, closed: %v", o.ID, result, closed[o.ID])
		}
	}
}

func postponeMapped(t *testing.T, s *mapped) {
	s.begin()
	if err := s.CheckCreated(); errors.Is(err, store.ErrNoCreated) != (s.Mapping.Created == nil) {
		t.Errorf("with the column %v for the creation: %v", s.Mapping.Created, err)
	}
	if s.DueFrom != "" && !s.Mapping.ByRule {
		s.refusesGenerated()
		return
	}
	s.must(s.CheckPostpone(t.Context()))
	late, later, paid, old := s.an(1, -time.Minute), s.an(2, time.Hour), s.an(3, time.Hour), s.an(4, -time.Minute)
	old.CreatedAt = s.monthsAgo(3)
	s.put(s.Mapping.Status.From, late, later, old)
	s.put(s.Paid, paid)
	const by = 36 * time.Hour
	for _, round := range []store.PostponeResult{store.Postponed, store.PostponedBefore} {
		want(t, "results", s.postponed(by, old, paid, late, later), []store.PostponeResult{round, store.PostponeNotOpen, round, round})
	}
	for i, o := range s.closing(late, later, old) {
		from := []orderclose.Order{late, later, old}[i]
		if o.Verdict != orderclose.NotDue || !o.Due.Equal(from.Due.Add(by)) {
			t.Errorf("order %s is %s, due at %v; want %v later than %v", o.OrderID, o.Verdict, o.Due, by, from.Due)
		}
	}
	for _, o := range []orderclose.Order{late, later, old} {
		o.Due = o.Due.Add(by)
		want(t, "results back", s.postponed(-2*by, o), []store.PostponeResult{store.Postponed})
	}
	for _, o := range s.closing(late, later, old) {
		want(t, "verdict on "+o.OrderID, o.Verdict, orderclose.Closed)
	}
	s.checkReach(late)
}

// refusesGenerated checks that due times which the database computes are not changed.
func (s *mapped) refusesGenerated() {
	s.Helper()
	err := s.CheckPostpone(s.Context())
	if s.lacks(describedTables) {
		o := s.an(1, time.Hour)
		s.put(s.Mapping.Status.From, o)
		if _, err := s.Postpone(s.Context(), []orderclose.Order{o}, time.Hour); err == nil {
			s.Error("a generated due time was postponed")
		}
	} else if !errors.Is(err, store.ErrDueGenerated) {
		s.Errorf("a generated due column: %v", err)
	}
}

// checkReach checks that an order cannot be due after its month's table is read for the last time.
func (s *mapped) checkReach(o orderclose.Order) {
	s.Helper()
	s.must(s.InReach(o, o.Due.Add(time.Hour)))
	err := s.InReach(o, o.CreatedAt.AddDate(0, mapping.DefaultMonths-1, 0))
	if sharded := s.Mapping.Shards != nil; errors.Is(err, store.ErrOutOfReach) != sharded {
		s.Errorf("due a year after its month: %v, with shards: %v", err, sharded)
	}
}
