package closer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// pausableStore is a fakeStore with pauses.
type pausableStore struct {
	fakeStore
	all      atomic.Bool // no order is closed
	category atomic.Bool // no order with an id of more than one letter is closed
	calls    atomic.Int32
}

func (s *pausableStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	s.calls.Add(1)
	if s.all.Load() {
		return nil, fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, fmt.Errorf("%w until noon: maintenance", orderclose.ErrPaused))
	}
	if !s.category.Load() {
		return s.fakeStore.CloseOrders(ctx, path, requests)
	}
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Paused, At: time.Now()}
		if len(r.OrderID) == 1 {
			one, err := s.fakeStore.CloseOrders(ctx, path, requests[i:i+1])
			if err != nil {
				return nil, err
			}
			outcomes[i] = one[0]
		}
	}
	return outcomes, nil
}

// During an hour's pause a closer asks every two seconds, and spends no attempt.
func TestCloser_APauseSpendsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &pausableStore{}
		store.all.Store(true)
		for i := range 100 {
			log.add(t, fmt.Sprint("order-", i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(time.Hour)
		synctest.Wait()
		expect.That(t, log.doneBelow() == 0 && len(log.Appended()) == 0, "while paused: done below %d, appended %v; want nothing", log.doneBelow(), log.Appended())
		expect.AtMost(t, store.calls.Load(), 2*3600/2, "questions to the store in an hour")
		store.all.Store(false)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		expect.That(t, log.doneBelow() == 100 && len(store.ids()) == 100, "resumed: done below %d, %d orders closed; want 100", log.doneBelow(), len(store.ids()))
	})
}

func TestCloser_APausedCategoryDelaysNoOtherOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &pausableStore{}
		store.category.Store(true)
		log.add(t, "paused")
		log.add(t, "a")
		defer runCloser(t, log, store, 10)()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := store.ids(); len(got) != 1 || got[0] != "a" || len(log.Appended()) != 0 {
			t.Errorf("while paused: closed %v, appended %v; want a closed, and nothing appended", got, log.Appended())
		}
		store.category.Store(false)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		expect.That(t, len(store.ids()) == 2 && log.doneBelow() == 2, "resumed: closed %v, done below %d", store.ids(), log.doneBelow())
	})
}

// An order for which memory has no room returns from a bucket, as often as needed.
func TestDecide_APausedOrderWithoutRoomGoesThroughABucket(t *testing.T) {
	now := time.Now()
	for overdue, wait := range map[time.Duration]time.Duration{0: blockedWait, 5 * time.Minute: 5 * time.Minute, 5 * time.Hour: pausedMax} {
		r := wire.Record{Order: orderclose.Order{ID: "a", Due: now.Add(-overdue)}, Attempt: 2, Cause: causeFailed}
		d := decide(r, orderclose.Outcome{OrderID: "a", Verdict: orderclose.Paused}, now, 0)
		expect.That(t, d.action == park && d.wait == wait && !d.retry, "%+v; want it to be parked for %v", d, wait)
		d = d.inBucket(0)
		expect.That(t, d.action == schedule && d.wait == wait && !d.retry && d.record.Attempt == 2 && d.record.Cause == causeFailed,
			"%+v; want it to be scheduled after %v without an attempt", d, wait)
	}
}

// flashSale pauses the orders of some categories, one of which has no category in its records. It
// counts the orders that it is asked about.
type flashSale struct {
	fakeStore
	mu      sync.Mutex
	paused  map[string]bool // by the first letter of the id
	askedOf int
}

func (s *flashSale) set(paused ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = map[string]bool{}
	for _, p := range paused {
		s.paused[p] = true
	}
}

func (s *flashSale) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.askedOf
}

func (s *flashSale) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	s.mu.Lock()
	paused := s.paused
	s.askedOf += len(requests)
	s.mu.Unlock()
	var open []orderclose.CloseRequest
	for _, r := range requests {
		if !paused[r.OrderID[:1]] {
			open = append(open, r)
		}
	}
	closed, err := s.fakeStore.CloseOrders(ctx, path, open)
	if err != nil {
		return nil, err
	}
	outcomes := make([]orderclose.Outcome, 0, len(requests))
	for _, r := range requests {
		if paused[r.OrderID[:1]] {
			outcomes = append(outcomes, orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Paused, Due: r.Due, At: time.Now()})
			continue
		}
		outcomes, closed = append(outcomes, closed[0]), closed[1:]
	}
	return outcomes, nil
}

// Each partition asks for one order of a category every two seconds. When the pause of one category
// ends, its orders are closed at once, and those of the other are not.
func TestCloser_PausedOrdersDoNotLoadTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, logs, begin := &orderLog{}, &flashSale{}, &testkit.LogBuffer{}, time.Now()
		const partitions, each = 4, 500
		for p := range partitions {
			for i := range each {
				for _, category := range []string{"flash", "gifts"} {
					o := orderclose.Order{ID: fmt.Sprint(category, p, i), Category: category, CreatedAt: begin, Due: begin}
					log.put(t, testkit.TopicPartition{Topic: "order-close", Partition: p}, wire.Record{Order: o, Release: begin})
				}
			}
		}
		store.set("f", "g")
		defer runHostile(t, log, store, logs, nil)()
		time.Sleep(5 * time.Second)
		asked := store.asked()
		expect.That(t, asked >= 2*partitions*each, "%d orders were asked for, want each once", asked)
		time.Sleep(50 * time.Second)
		if n := store.asked() - asked; n > 2*partitions*26 {
			t.Errorf("in 50 s the store was asked about %d paused orders, want one every 2 s for each of %d partitions and 2 categories", n, partitions)
		}
		store.set("g")
		time.Sleep(4 * time.Second)
		expect.That(t, len(store.ids()) == partitions*each && len(log.Appended()) == 0,
			"4 s after the pause of a category %d of its %d orders are closed; appended %v", len(store.ids()), partitions*each, log.Appended())
		store.set()
		time.Sleep(4 * time.Second)
		expect.That(t, len(store.ids()) == 2*partitions*each && log.doneBelow() == 2*each,
			"4 s after both pauses %d orders are closed, done below %d", len(store.ids()), log.doneBelow())
		out := logs.String()
		if n, m := strings.Count(out, "closing is paused"), strings.Count(out, "closing is no longer paused"); n != 2 || m != 2 {
			t.Errorf("%d lines about begun pauses, %d about ended ones, want 2 and 2:\n%s", n, m, out)
		}
	})
}

// Paid orders show nothing about the pause, and records may lack the category that the database has.
func TestCloser_APauseEndsForOrdersWithoutACategory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &flashSale{}
		for i := range 50 {
			log.add(t, fmt.Sprint("f", i))
			log.add(t, fmt.Sprint("g", i))
		}
		store.set("f", "g")
		defer runCloser(t, log, store, 10)()
		time.Sleep(10 * time.Minute)
		store.set("g")
		time.Sleep(pausedMax + time.Minute)
		expect.Equal(t, len(store.ids()), 50, "closed of 50 orders")
		store.set()
		time.Sleep(4 * time.Second)
		expect.That(t, len(store.ids()) == 100 && log.doneBelow() == 100, "%d of 100 orders are closed, done below %d", len(store.ids()), log.doneBelow())
	})
}

func TestCloser_APauseIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, logs := &orderLog{}, &pausableStore{}, &testkit.LogBuffer{}
		store.all.Store(true)
		for p := range 12 {
			o := orderclose.Order{ID: fmt.Sprint("order-", p), CreatedAt: time.Now(), Due: time.Now()}
			log.put(t, testkit.TopicPartition{Topic: "order-close", Partition: p}, wire.Record{Order: o, Release: o.Due})
		}
		defer runHostile(t, log, store, logs, nil)()
		time.Sleep(10*time.Minute + time.Second) // between two calls of the store
		store.all.Store(false)
		time.Sleep(10 * time.Second)
		out := logs.String()
		if strings.Count(out, "\n") != strings.Count(out, "Options.Category")+2 ||
			!strings.Contains(out, `level=INFO msg="closing is paused" orders=all pause="until noon: maintenance"`) ||
			!strings.Contains(out, `level=INFO msg="closing is no longer paused" orders=all`) {
			t.Errorf("want one line when the pause begins, and one when it ends:\n%s", out)
		}
	})
}
