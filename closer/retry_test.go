package closer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestCloser_AFailedOrderIsRetriedInAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{bad: map[string]bool{"2": true}}
		for i := range 5 {
			log.add(t, fmt.Sprint(i))
		}
		begin := time.Now()
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until the position is committed
		synctest.Wait()
		if diff := cmp.Diff([]string{"0", "1", "3", "4"}, store.ids()); diff != "" || log.doneBelow() != 5 {
			t.Errorf("done below %d, closed (-want +got):\n%s", log.doneBelow(), diff)
		}
		retried := log.Appended()["delay_1m"]
		if len(retried) != 1 || len(log.Appended()) != 1 {
			t.Fatalf("appended %v, want order 2 to delay_1m", log.Appended())
		}
		r, err := retried[0].Decode()
		wait := r.Release.Sub(begin)
		if err != nil || r.Order.ID != "2" || r.Attempt != 1 || r.Cause != "failed" || wait < time.Minute || wait > 66*time.Second+time.Millisecond ||
			r.Origin != (wire.Origin{Topic: "order-close", Offset: 2}) || !r.Order.Due.Equal(begin) {
			t.Errorf("%+v after %v, %v", r, wait, err)
		}
	})
}

// The headers hold the coordinates of the first failure and of the last.
func TestCloser_TheDeadLetterOfAnOrderHasAllCoordinates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{bad: map[string]bool{"bad": true}}
		log.put(t, testkit.TopicPartition{Topic: "order-close-replay", Partition: 4}, wire.Record{
			Order: orderclose.Order{ID: "bad", CreatedAt: time.Now(), Due: time.Now()}, Release: time.Now(),
			Attempt: 3, Cause: "not_found", Origin: wire.Origin{Topic: "order-close", Partition: 7, Offset: 1234},
		})
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		dead := log.Appended()["dead"]
		if len(dead) != 1 || len(log.Appended()) != 1 {
			t.Fatalf("appended %v, want a dead letter", log.Appended())
		}
		for header, want := range map[string]string{
			"cause": "failed", "detail": "no stock row", "stage": "closer", "attempt": "3",
			"origin-topic": "order-close", "origin-partition": "7", "origin-offset": "1234",
			"source-topic": "order-close-replay", "source-partition": "4", "source-offset": "0",
		} {
			if got, _ := dead[0].Header(header); got != want {
				t.Errorf("%s is %q, want %q", header, got, want)
			}
		}
	})
}

// This includes a record on the replay topic that lacks the lane header.
func TestCloser_ARetryOfAReplayStaysOnItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{bad: map[string]bool{"bad": true}}
		log.put(t, testkit.TopicPartition{Topic: "order-close-replay", Partition: 0}, wire.Record{Order: orderclose.Order{ID: "bad", CreatedAt: time.Now(), Due: time.Now()}, Release: time.Now()})
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		retried := log.Appended()["delay_1m"]
		if len(retried) != 1 {
			t.Fatalf("appended %v", log.Appended())
		}
		if lane, _ := retried[0].Header("lane"); lane != "replay" {
			t.Errorf("lane is %q", lane)
		}
	})
}

// reversedStore returns the outcomes of a batch in the reverse order, as a SELECT without ORDER BY
// may do.
type reversedStore struct{ fakeStore }

func (s *reversedStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes, err := s.fakeStore.CloseOrders(ctx, path, requests)
	slices.Reverse(outcomes)
	return outcomes, err
}

// No order gets the outcome of another.
func TestCloser_OutcomesInAnotherOrderAreNotMixedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &reversedStore{fakeStore{bad: map[string]bool{}}}
		for i := range 5 {
			log.add(t, fmt.Sprint(i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(time.Second)
		synctest.Wait()
		closed := store.ids()
		slices.Sort(closed)
		if closed = slices.Compact(closed); len(closed) != 5 || log.doneBelow() != 5 || len(log.Appended()) != 0 {
			t.Errorf("closed %v, done below %d, appended %v", closed, log.doneBelow(), log.Appended())
		}
	})
}

// The order is not asked for again and again without a pause.
func TestCloser_ANotDueInThePastIsAFailure(t *testing.T) {
	now := time.Now()
	for _, o := range []orderclose.Outcome{
		{Verdict: orderclose.NotDue},
		{Verdict: orderclose.NotDue, Due: now.Add(-time.Hour), At: now},
		{Verdict: orderclose.NotDue, Due: now, At: now},
	} {
		d := decide(wire.Record{Order: orderclose.Order{ID: "a", Due: now}}, o, now, 0)
		if d.action != schedule || !d.retry || d.wait < time.Minute || !strings.Contains(d.detail, "the store returned not_due") {
			t.Errorf("%+v: %+v", o, d)
		}
	}
}
