package closer

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// pausableStore is a Store with pauses.
type pausableStore struct {
	testkit.Store
	all      atomic.Bool // no order is closed
	category atomic.Bool // no order with an id of more than one letter is closed
	err      error       // of the outcome of such an order
}

func newPausable() *pausableStore {
	s := &pausableStore{}
	s.On = func(context.Context, []orderclose.CloseRequest) error {
		if s.all.Load() {
			return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, fmt.Errorf("%w until noon: maintenance", orderclose.ErrPaused))
		}
		return nil
	}
	s.Verdict = func(id string) orderclose.Verdict {
		if s.category.Load() && len(id) > 1 {
			return orderclose.Paused
		}
		return ""
	}
	s.Answers = func(_ []orderclose.CloseRequest, outcomes []orderclose.Outcome) {
		for i, o := range outcomes {
			if o.Verdict == orderclose.Paused {
				outcomes[i].Err = s.err
			}
		}
	}
	return s
}

// During an hour's pause a closer asks every two seconds, and spends no attempt.
func TestCloser_APauseSpendsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, newPausable()
		store.all.Store(true)
		for i := range 100 {
			log.add(t, fmt.Sprint("order-", i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(time.Hour)
		synctest.Wait()
		expect.That(t, log.doneBelow() == 0 && len(log.Appended()) == 0, "while paused: done below %d, appended %v; want nothing", log.doneBelow(), log.Appended())
		expect.AtMost(t, len(store.Batches()), 2*3600/2, "questions to the store in an hour")
		store.all.Store(false)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		expect.Equal(t, len(store.Closed()), 100, "closed when it was resumed")
		expect.Equal(t, log.doneBelow(), 100, "done below")
	})
}

func TestCloser_APausedCategoryDelaysNoOtherOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, newPausable()
		store.category.Store(true)
		log.add(t, "paused")
		log.add(t, "a")
		defer runCloser(t, log, store, 10)()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := store.Closed(); len(got) != 1 || got[0] != "a" || len(log.Appended()) != 0 {
			t.Errorf("while paused: closed %v, appended %v; want a closed, and nothing appended", got, log.Appended())
		}
		store.category.Store(false)
		time.Sleep(blockedWait + blockedWait/jitterDivisor + time.Second)
		synctest.Wait()
		expect.That(t, len(store.Closed()) == 2 && log.doneBelow() == 2, "resumed: closed %v, done below %d", store.Closed(), log.doneBelow())
	})
}

// An order for which memory has no room returns from a bucket, as often as needed.
func TestDecide_APausedOrderWithoutRoomGoesThroughABucket(t *testing.T) {
	now := time.Now()
	r := wire.Record{Order: orderclose.Order{ID: "a", Due: now.Add(-time.Hour)}, Attempt: 2, Cause: causeFailed}
	d := decide(r, orderclose.Outcome{OrderID: "a", Verdict: orderclose.Paused}, now, 0)
	expect.That(t, d.action == park && d.wait == blockedWait && !d.retry, "%+v; want it to be parked for %v", d, blockedWait)
	d = d.inBucket(0)
	expect.That(t, d.action == schedule && d.wait == blockedWait && !d.retry && d.record.Attempt == 2 && d.record.Cause == causeFailed,
		"%+v; want it to be scheduled after %v without an attempt", d, blockedWait)
}

// The compensator closes the order when the pause ends. A service that answers paused is asked again.
func TestCloser_ARecordOfAPausedCategoryIsSettledIfACompensatorClosesItsOrder(t *testing.T) {
	for _, c := range []struct{ swept, byRow, settled bool }{{true, true, true}, {true, false, false}, {false, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			log, store := &orderLog{}, newPausable()
			if store.category.Store(true); c.byRow {
				store.err = pausing.ErrPausedCategory
			}
			log.add(t, "paused")
			defer startCloser(t, Options{Log: log, Store: store, Swept: c.swept})()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			expect.Equal(t, log.doneBelow() == 1, c.settled, "%+v: the record is settled", c)
			expect.Equal(t, len(store.Closed())+len(log.Appended()), 0, "%+v: orders that were closed, and topics with records", c)
		})
	}
}

func TestCloser_APauseIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, logs := &orderLog{}, newPausable(), &testkit.LogBuffer{}
		store.all.Store(true)
		for p := range 12 {
			log.addAt(t, p, fmt.Sprint("order-", p), time.Now())
		}
		defer runHostile(t, log, store, logs, nil)()
		time.Sleep(10*time.Minute + time.Second) // between two calls of the store
		store.all.Store(false)
		time.Sleep(10 * time.Second)
		out := logs.String()
		if strings.Count(out, "\n") != strings.Count(out, "Options.Category")+2 ||
			!strings.Contains(out, `level=INFO msg="closing is paused" pause="until noon: maintenance"`) ||
			!strings.Contains(out, `level=INFO msg="closing is no longer paused"`) {
			t.Errorf("want one line when the pause begins, and one when it ends:\n%s", out)
		}
	})
}
