package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"orderclose"
	"orderclose/internal/store"
)

var outboxClaims = []claim{
	{"DispatchDeletesWhatIsDoneAndKeepsTheRest", dispatchDeletesWhatIsDone},
	{"DispatchersShareTheRows", dispatchersShareTheRows},
	{"NoRowIsDispatchedTwiceUnderLoad", noRowIsDispatchedTwice},
	{"RowsComeBackWhenADispatcherFails", rowsComeBack},
	{"ALowerIdThatCommitsLaterIsFound", lowerIDCommitsLater},
	{"OthersGoOnWhileADispatcherPublishes", othersGoOnMeanwhile},
	{"BacklogTellsTheOldest", backlogTellsTheOldest},
	{"NobodyKnowsTheOutbox", nobodyKnowsTheOutbox},
}

// event puts a row into the outbox as if it had been written a while ago.
func (s *shop) event(id int, ago time.Duration) {
	s.Helper()
	s.exec("INSERT INTO outbox_events (id, order_id, payload, created_at) VALUES (?, ?, ?, ?)",
		id, fmt.Sprintf("o%d", id), fmt.Sprintf(`{"n":%d}`, id), s.time(s.now().Add(-ago)))
}

// dispatch takes up to limit rows and has those deleted whose ids publish returns.
func (s *shop) dispatch(limit int, publish func(ids []int64) []int64) []int64 {
	s.Helper()
	var ids []int64
	n, err := s.Dispatch(s.Context(), orderclose.EventOutbox, limit, func(_ context.Context, rows []orderclose.OutboxRow) []int64 {
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		return publish(ids)
	})
	s.must(err)
	want(s, "rows that there were", n, len(ids))
	return ids
}

func all(ids []int64) []int64  { return ids }
func none(ids []int64) []int64 { return nil }

func dispatchDeletesWhatIsDone(t *testing.T, s *shop) {
	s.migrated()
	for id := range 5 {
		s.event(id+1, 0)
	}
	want(t, "the first", s.dispatch(3, func([]int64) []int64 { return []int64{1, 3} }), []int64{1, 2, 3})
	want(t, "what is left", s.dispatch(9, none), []int64{2, 4, 5})
	_, err := s.Dispatch(t.Context(), orderclose.EventOutbox, 1, func(_ context.Context, rows []orderclose.OutboxRow) []int64 {
		want(t, "row", rows, []orderclose.OutboxRow{{ID: 2, OrderID: "o2", Payload: []byte(`{"n":2}`)}})
		return nil
	})
	s.must(err)
	s.dispatch(9, all)
	want(t, "what is left at last", s.dispatch(9, all), nil)
}

func dispatchersShareTheRows(t *testing.T, s *shop) {
	s.migrated()
	for id := range 6 {
		s.event(id+1, 0)
	}
	first := s.dispatch(2, func(ids []int64) []int64 {
		want(t, "the second's rows", s.dispatch(3, all), []int64{3, 4, 5})
		want(t, "the third's rows", s.dispatch(3, none), []int64{6})
		return ids
	})
	want(t, "the first's rows", first, []int64{1, 2})
	want(t, "what is left", s.dispatch(9, all), []int64{6})
}

func noRowIsDispatchedTwice(t *testing.T, s *shop) {
	s.migrated()
	const n = 400
	for id := range n {
		s.event(id+1, 0)
	}
	var mu sync.Mutex
	var published []int64
	var dispatchers sync.WaitGroup
	for range 4 {
		dispatchers.Go(func() {
			for {
				rows, err := s.Dispatch(t.Context(), orderclose.EventOutbox, 13, func(_ context.Context, rows []orderclose.OutboxRow) (done []int64) {
					for _, r := range rows {
						done = append(done, r.ID)
					}
					mu.Lock()
					defer mu.Unlock()
					published = append(published, done...)
					return done
				})
				if err != nil {
					t.Error(err)
				}
				if rows == 0 || err != nil {
					return
				}
			}
		})
	}
	dispatchers.Wait()
	slices.Sort(published)
	want(t, "rows published", len(published), n)
	want(t, "different ones", len(slices.Compact(published)), n)
	want(t, "rows left", s.count("SELECT COUNT(*) FROM outbox_events"), 0)
}

func rowsComeBack(t *testing.T, s *shop) {
	s.migrated()
	s.event(1, 0)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Dispatch(ctx, orderclose.EventOutbox, 9, func(context.Context, []orderclose.OutboxRow) []int64 {
		cancel() // as a process that dies after publishing
		return []int64{1}
	})
	if !errors.Is(err, orderclose.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled dispatch says %v", err)
	}
	want(t, "rows handed over again", s.dispatch(9, all), []int64{1})
}

func lowerIDCommitsLater(t *testing.T, s *shop) {
	s.migrated()
	s.event(10, 0)
	want(t, "rows", s.dispatch(9, all), []int64{10})
	s.event(5, 0)
	want(t, "rows", s.dispatch(9, all), []int64{5})
}

// A publish that waits for Kafka must delay no checkout and no close.
func othersGoOnMeanwhile(t *testing.T, s *shop) {
	s.migrated("ink")
	s.event(1, 0)
	s.order("a", -time.Minute, store.Item{SKU: "ink", Quantity: 1})
	s.dispatch(9, func(ids []int64) []int64 {
		want(t, "verdict", verdicts(s.close("a")), []string{"a closed"})
		s.order("b", time.Minute, store.Item{SKU: "ink", Quantity: 1})
		return ids
	})
	want(t, "orders of what is left", s.texts("SELECT order_id FROM outbox_events"), []string{"a"})
}

func backlogTellsTheOldest(t *testing.T, s *shop) {
	s.migrated()
	look := func() orderclose.OutboxBacklog {
		b, err := s.Backlog(t.Context(), orderclose.EventOutbox)
		s.must(err)
		return b
	}
	want(t, "backlog of an empty outbox", look(), orderclose.OutboxBacklog{})
	s.event(7, time.Second)
	s.event(3, time.Hour)
	b := look()
	if b.Rows != 2 || b.Oldest < time.Hour || b.Oldest > time.Hour+time.Minute {
		t.Errorf("backlog is %+v, want 2 rows, the one of the lowest id an hour old", b)
	}
}

func nobodyKnowsTheOutbox(t *testing.T, s *shop) {
	s.migrated()
	for _, box := range []orderclose.Outbox{"", "orders", "events;"} {
		if _, err := s.Dispatch(t.Context(), box, 1, nil); err == nil {
			t.Errorf("outbox %q is dispatched", box)
		}
		if _, err := s.Backlog(t.Context(), box); err == nil {
			t.Errorf("outbox %q has a backlog", box)
		}
	}
}
