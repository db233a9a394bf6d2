package closer

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
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
		return nil, fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrStoreDown, orderclose.ErrPaused)
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
		if log.doneBelow() != 0 || len(log.Appended()) != 0 {
			t.Errorf("while paused: done below %d, appended %v; want nothing", log.doneBelow(), log.Appended())
		}
		if calls := store.calls.Load(); calls > 2*3600/2 {
			t.Errorf("the store was asked %d times in an hour", calls)
		}
		store.all.Store(false)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if log.doneBelow() != 100 || len(store.ids()) != 100 {
			t.Errorf("resumed: done below %d, %d orders closed; want 100", log.doneBelow(), len(store.ids()))
		}
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
		if got := store.ids(); len(got) != 2 || log.doneBelow() != 2 {
			t.Errorf("resumed: closed %v, done below %d", got, log.doneBelow())
		}
	})
}

// An order for which memory has no room returns from a bucket, as often as needed.
func TestDecide_APausedOrderWithoutRoomGoesThroughABucket(t *testing.T) {
	r := wire.Record{Order: orderclose.Order{ID: "a"}, Attempt: 2, Cause: causeFailed}
	d := decide(r, orderclose.Outcome{OrderID: "a", Verdict: orderclose.Paused}, time.Now(), 0)
	if d.action != park || d.wait != pausedWait || d.retry {
		t.Errorf("%+v; want it to be parked", d)
	}
	d = d.inBucket(0)
	if d.action != schedule || d.wait != blockedWait || d.retry || d.record.Attempt != 2 || d.record.Cause != causeFailed {
		t.Errorf("%+v; want it to be scheduled without an attempt", d)
	}
}
