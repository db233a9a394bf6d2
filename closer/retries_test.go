package closer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// A retry waits for a bucket, and its offset stays open. When its release time has passed, its order is tried from memory.
func TestCloser_FailingBucketsDelayNoDueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		log.Fail = testkit.Rejects(30 * time.Minute)
		store := &testkit.Store{On: testkit.FailsOn("bad"), Verdict: testkit.Gives(orderclose.PaymentPending, "pending")}
		log.add(t, "bad")
		log.add(t, "pending")
		due := map[string]time.Time{}
		for i := range 28 {
			id := fmt.Sprint("due-", i)
			due[id] = begin.Add(time.Duration(i+1) * time.Minute)
			log.addAt(t, 0, id, due[id])
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(29 * time.Minute)
		for id, at := range due {
			expect.Between(t, store.ClosedAt(id).Sub(at), 0, 200*time.Millisecond, "the time from the due time to the close of %s", id)
		}
		expect.Equal(t, log.doneBelow(), 0, "committed before the retry was acked")
		time.Sleep(17 * time.Minute)
		expect.Same(t, log.Keys("dead"), []string{"bad"}, "dead letters, after three retries")
		expect.Same(t, slices.Concat(log.Keys("delay_10s"), log.Keys("delay_1m")), []string{"pending"}, "in a bucket")
		expect.Equal(t, log.doneBelow(), int64(2+len(due)), "done below")
	})
}

// Above the bound of retries the partition is not read on. Large records reach it soon.
func TestCloser_RetriesInMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const orders, bytes = 300, 40_000
		log, begin := &orderLog{}, time.Now()
		log.Fail = testkit.Rejects(10 * time.Minute)
		var mu sync.Mutex
		tried := map[string]bool{}
		store := &testkit.Store{Verdict: testkit.Gives(orderclose.PaymentPending, ""), On: func(_ context.Context, requests []orderclose.CloseRequest) error {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range requests {
				tried[r.OrderID] = true
			}
			return nil
		}}
		for i := range orders {
			o := orderclose.Order{ID: fmt.Sprint(i), CreatedAt: begin, Due: begin, Attributes: map[string]any{"a": strings.Repeat("x", bytes)}}
			log.put(t, toClose, wire.Record{Order: o, Release: begin})
		}
		defer runCloser(t, log, store, 500)()
		time.Sleep(9 * time.Minute)
		mu.Lock()
		const fetch = 1 << 20
		expect.Between(t, len(tried), maxRetryBytes/bytes, (maxRetryBytes+fetch)/bytes+1, "orders that were tried, a fetch above the bound")
		mu.Unlock()
		time.Sleep(25 * time.Minute)
		if n := len(log.Keys("delay_10s")) + len(log.Keys("delay_1m")); n != orders || log.doneBelow() != orders {
			t.Errorf("%d appended, done below %d", n, log.doneBelow())
		}
	})
}

func TestRetries_AreFullAtEitherBound(t *testing.T) {
	for name, r := range map[string]retries{
		"records": {records: maxRetriesWaiting - 1},
		"bytes":   {bytes: maxRetryBytes - 1},
	} {
		record := []wire.RawRecord{{Body: make([]byte, 1)}}
		expect.That(t, !r.full(), "%s: full below the bound", name)
		r.count(record, 1)
		expect.That(t, r.full(), "%s: not full at the bound", name)
		r.count(record, -1)
		expect.That(t, !r.full(), "%s: full after the record is gone", name)
	}
}

// A relay reads a bucket only as often as its whole length needs, so a record with five minutes left must not be appended to a bucket of half an hour.
func TestCloser_ARetryPicksItsBucketAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		longest, all := testkit.Rejects(25*time.Minute, "delay_30m"), testkit.Rejects(10*time.Minute)
		log.Fail = func(topic string) error { return errors.Join(longest(topic), all(topic)) }
		due := begin.Add(30 * time.Minute)
		log.add(t, "moved")
		log.add(t, "pending") // it is asked for again from memory while no bucket works
		buckets := orderclose.Buckets{{Topic: "delay_1m", Length: time.Minute}, {Topic: "delay_5m", Length: 5 * time.Minute},
			{Topic: "delay_30m", Length: 30 * time.Minute}}
		store := &testkit.Store{Due: map[string]time.Time{"moved": due}, Verdict: testkit.Gives(orderclose.PaymentPending, "pending")}
		defer startCloser(t, Options{Log: log, Store: store, Buckets: buckets})()
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		sent := 0
		for _, b := range buckets {
			for _, m := range log.Appended()[b.Topic] {
				sent++
				release, err := m.Due()
				if left := release.Sub(m.Appended); err != nil || buckets.Pick(left).Length < b.Length { // a shorter one will do
					t.Errorf("%s got the record of %s with %v left, want it in %s; %v", b.Topic, m.Key, left, buckets.Pick(left).Topic, err)
				}
			}
		}
		expect.That(t, sent == 2 && log.doneBelow() == 2, "%d records were appended, done below %d; want 2 and 2", sent, log.doneBelow())
	})
}

// The first call returns three quarters of a minute after its context has ended. The loop starts again from its commit.
func TestCloser_RestartsALoopWhoseStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		log, metrics := &orderLog{}, testkit.NewMetrics()
		store := &testkit.Store{On: func(ctx context.Context, _ []orderclose.CloseRequest) error {
			if calls.Add(1) == 1 {
				<-ctx.Done()
				time.Sleep(45 * time.Second)
			}
			return ctx.Err()
		}}
		log.add(t, "a")
		defer startCloser(t, Options{Log: log, Store: store, Batch: 10, Registerer: metrics})()
		time.Sleep(bisect.CallTimeout)
		expect.Equal(t, metrics.Value("partition_stuck_total"), 0, "times stuck after %v", bisect.CallTimeout)
		time.Sleep(time.Minute)
		synctest.Wait()
		stuck := metrics.Value("partition_stuck_total", "stage", "closer", "topic", "order-close", "partition", "0")
		expect.That(t, stuck == 1 && metrics.Value("partition_stuck_total") == 1 && len(store.Closed()) == 1 && log.doneBelow() == 1,
			"closed %v, done %d, %v times stuck", store.Closed(), log.doneBelow(), stuck)
	})
}

// Jobs that wait for a transaction keep calling Beat.
func TestCloser_ASlowStoreIsNotAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, metrics := &orderLog{}, testkit.NewMetrics()
		store := &testkit.Store{Takes: always(9 * time.Second)}
		for p := range 32 { // the last ones wait for over half a minute
			log.addAt(t, p, fmt.Sprint(p), time.Now())
		}
		defer startCloser(t, Options{Log: log, Store: store, Batch: 1, Registerer: metrics})()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		n := metrics.Value("partition_stuck_total")
		expect.That(t, n == 0 && len(store.Closed()) == 32, "closed %v, %v times stuck", store.Closed(), n)
	})
}

func TestCloser_AFailedOrderIsRetriedInAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &testkit.Store{On: testkit.FailsOn("2")}
		for i := range 5 {
			log.add(t, fmt.Sprint(i))
		}
		begin := time.Now()
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until the position is committed
		synctest.Wait()
		expect.Same(t, store.Closed(), []string{"0", "1", "3", "4"}, "closed")
		expect.Equal(t, log.doneBelow(), 5, "done below")
		retried := log.Appended()["delay_1m"]
		must.That(t, len(retried) == 1 && len(log.Appended()) == 1, "appended %v, want order 2 to delay_1m", log.Appended())
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
		log, store := &orderLog{}, &testkit.Store{On: testkit.FailsOn("bad")}
		log.put(t, testkit.TopicPartition{Topic: "order-close", Partition: 4}, wire.Record{
			Order: orderclose.Order{ID: "bad", CreatedAt: time.Now(), Due: time.Now()}, Release: time.Now(),
			Attempt: 3, Cause: "not_found", Origin: wire.Origin{Topic: "order-close", Partition: 7, Offset: 1234},
		})
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		dead := log.Appended()["dead"]
		must.That(t, len(dead) == 1 && len(log.Appended()) == 1, "appended %v, want a dead letter", log.Appended())
		for header, want := range map[string]string{
			"cause": "failed", "detail": "no stock row", "stage": "closer", "attempt": "3",
			"origin-topic": "order-close", "origin-partition": "7", "origin-offset": "1234",
			"source-topic": "order-close", "source-partition": "4", "source-offset": "0",
		} {
			got, _ := dead[0].Header(header)
			expect.That(t, got == want, "%s is %q, want %q", header, got, want)
		}
	})
}

// No order gets the outcome of another, though a SELECT without ORDER BY returns them in any order.
func TestCloser_OutcomesInAnotherOrderAreNotMixedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &testkit.Store{Answers: func(_ []orderclose.CloseRequest, all []orderclose.Outcome) { slices.Reverse(all) }}
		for i := range 5 {
			log.add(t, fmt.Sprint(i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(time.Second)
		synctest.Wait()
		closed := store.Closed()
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
		expect.That(t, d.action == schedule && d.retry && d.wait >= time.Minute && strings.Contains(d.detail, "the store returned not_due"), "%+v: %+v", o, d)
	}
}

// The waiting orders are counted.
func TestCloser_APendingPaymentWaitsAndUsesUpNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, metrics, begin := &orderLog{}, testkit.NewMetrics(), time.Now()
		store := &testkit.Store{Verdict: func(id string) orderclose.Verdict {
			if id == "answered" {
				return ""
			}
			return orderclose.PaymentPending
		}}
		log.add(t, "new")
		for id, since := range map[string]time.Duration{"old": 3 * time.Minute, "ancient": 25 * time.Hour, "answered": time.Hour} {
			log.put(t, testkit.TopicPartition{Topic: "order-close", Partition: 1}, wire.Record{
				Order: orderclose.Order{ID: id, CreatedAt: begin, Due: begin}, Release: begin,
				PendingSince: begin.Add(-since), Origin: wire.Origin{Topic: "order-close", Offset: 99},
			})
		}
		defer startCloser(t, Options{Log: log, Store: store, Batch: 10, Registerer: metrics})()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		waits := map[string]time.Duration{}
		for _, m := range log.Appended()["delay_1m"] {
			r, err := m.Decode()
			expect.That(t, err == nil && r.Attempt == 0 && r.Cause == "payment_pending" && !r.PendingSince.IsZero() && r.Origin.Topic == "order-close",
				"%+v, %v", r, err)
			waits[r.Order.ID] = r.Release.Sub(begin).Truncate(time.Minute)
		}
		expect.Same(t, waits, map[string]time.Duration{"new": time.Minute, "old": 4 * time.Minute}, "asked again after")
		if dead := log.Appended()["dead"]; len(dead) != 1 || string(dead[0].Key) != "ancient" {
			t.Errorf("dead letters %v, want the order that has waited for more than a day", dead)
		} else if cause, _ := dead[0].Header("cause"); cause != "payment_unresolved" {
			t.Errorf("cause %q", cause)
		}
		began, ended := metrics.Value("payment_pending_began_total"), metrics.Value("payment_pending_ended_total")
		if began != 1 || ended != 2 { // ancient and answered, which another closer had counted
			t.Errorf("%v orders began to wait for the provider and %v ended, want 1 and 2", began, ended)
		}
	})
}
