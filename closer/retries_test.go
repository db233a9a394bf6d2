package closer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/wire"
)

// A retry waits for a bucket, and its offset stays open. Its release time has passed by then, so it
// goes to the smallest bucket.
func TestCloser_FailingBucketsDelayNoDueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		log.Fail = func(string) error {
			if time.Since(begin) < 30*time.Minute {
				return errors.New("no leader")
			}
			return nil
		}
		store := &fakeStore{bad: map[string]bool{"bad": true}}
		log.add(t, "bad")
		due := map[string]time.Time{}
		for i := range 5 {
			id := fmt.Sprint("due-", i)
			due[id] = begin.Add(time.Duration(i+1) * time.Minute)
			o := orderclose.Order{ID: id, CreatedAt: begin, Due: due[id]}
			log.putAt(t, toClose, wire.Record{Order: o, Release: due[id]}, due[id])
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(29 * time.Minute)
		for id, at := range due {
			if late := store.at(id).Sub(at); late < 0 || late > 200*time.Millisecond {
				t.Errorf("%s was closed %v after it was due", id, late)
			}
		}
		if done := log.doneBelow(); done != 0 {
			t.Errorf("committed %d before the retry was acked", done)
		}
		time.Sleep(2 * time.Minute)
		if diff := cmp.Diff([]string{"bad"}, log.Keys("delay_10s")); diff != "" || log.doneBelow() != 6 {
			t.Errorf("done %d, in delay_10s (-want +got):\n%s", log.doneBelow(), diff)
		}
	})
}

// Above the bound the partition is not read on.
func TestCloser_RetriesInMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		log.Fail = func(string) error {
			if time.Since(begin) < 10*time.Minute {
				return errors.New("no leader")
			}
			return nil
		}
		const orders = 20_000
		store := &fakeStore{pending: map[string]bool{}}
		for i := range orders {
			id := fmt.Sprint(i)
			store.pending[id] = true
			log.add(t, id)
		}
		defer runCloser(t, log, store, 500)()
		time.Sleep(9 * time.Minute)
		store.mu.Lock()
		tried := 0
		for _, n := range store.batches {
			tried += n
		}
		store.mu.Unlock()
		if tried < maxRetriesWaiting || tried > maxRetriesWaiting+3000 { // a fetch
			t.Errorf("%d orders were tried", tried)
		}
		time.Sleep(5 * time.Minute)
		if n := len(log.Keys("delay_10s")) + len(log.Keys("delay_1m")); n != orders || log.doneBelow() != orders {
			t.Errorf("%d appended, done below %d", n, log.doneBelow())
		}
	})
}

// A relay reads a bucket only as often as its whole length needs, so a record with five minutes
// left must not be appended to a bucket of half an hour.
func TestCloser_ARetryPicksItsBucketAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		log.Fail = func(topic string) error {
			if topic == "delay_30m" && time.Since(begin) < 25*time.Minute || time.Since(begin) < 10*time.Minute {
				return errors.New("no leader")
			}
			return nil
		}
		due := begin.Add(30 * time.Minute)
		log.add(t, "postponed")
		log.add(t, "bad") // its retry is due after a minute, when no bucket works
		buckets := orderclose.Buckets{{Topic: "delay_1m", Length: time.Minute}, {Topic: "delay_5m", Length: 5 * time.Minute}, {Topic: "delay_30m", Length: 30 * time.Minute}}
		store := &fakeStore{due: map[string]time.Time{"postponed": due}, bad: map[string]bool{"bad": true}}
		c, err := New(Options{Log: log, Store: store, Group: "g", CloseTopic: "order-close", DeadLetterTopic: "dead", ControlTopic: "control", Buckets: buckets})
		if err != nil {
			t.Fatal(err)
		}
		defer testkit.Start(t, c.Run)()
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"bad"}, log.Keys("delay_1m")); diff != "" {
			t.Errorf("in the smallest bucket (-want +got):\n%s", diff)
		}
		sent := 0
		for _, b := range buckets {
			for _, m := range log.Appended()[b.Topic] {
				sent++
				release, err := m.Due()
				if left := release.Sub(m.Appended); err != nil || buckets.Pick(left).Topic != b.Topic {
					t.Errorf("%s got the record of %s with %v left, want it in %s; %v", b.Topic, m.Key, left, buckets.Pick(left).Topic, err)
				}
			}
		}
		if sent != 2 || log.doneBelow() != 2 {
			t.Errorf("%d records were appended, done below %d; want 2 and 2", sent, log.doneBelow())
		}
	})
}

// hangingStore returns from its first call three quarters of a minute after the context has ended.
type hangingStore struct {
	fakeStore
	calls atomic.Int64
}

func (s *hangingStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if s.calls.Add(1) == 1 {
		<-ctx.Done()
		time.Sleep(45 * time.Second)
		return nil, ctx.Err()
	}
	return s.fakeStore.CloseOrders(ctx, path, requests)
}

// The loop starts again from its commit.
func TestCloser_RestartsALoopWhoseStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, metrics := &orderLog{}, &hangingStore{}, testkit.NewMetrics()
		log.add(t, "a")
		defer runCloserWith(t, log, store, 10, metrics)()
		time.Sleep(bisect.CallTimeout)
		if n := metrics.Value("partition_stuck_total"); n != 0 {
			t.Errorf("%v times stuck after %v", n, bisect.CallTimeout)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		stuck := metrics.Value("partition_stuck_total", "stage", "closer", "topic", "order-close", "partition", "0")
		if stuck != 1 || metrics.Value("partition_stuck_total") != 1 || len(store.ids()) != 1 || log.doneBelow() != 1 {
			t.Errorf("closed %v, done %d, %v times stuck", store.ids(), log.doneBelow(), stuck)
		}
	})
}

// Jobs that wait for a transaction keep calling Beat.
func TestCloser_ASlowStoreIsNotAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, metrics := &orderLog{}, testkit.NewMetrics()
		store := &fakeStore{slow: func(int) time.Duration { return 50 * time.Second }}
		for p := range 8 {
			at := testkit.TopicPartition{Topic: toClose.Topic, Partition: p}
			o := orderclose.Order{ID: fmt.Sprint(p), CreatedAt: time.Now(), Due: time.Now()}
			log.put(t, at, wire.Record{Order: o, Release: o.Due})
		}
		defer runCloserWith(t, log, store, 1, metrics)()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := metrics.Value("partition_stuck_total"); n != 0 || len(store.ids()) != 8 {
			t.Errorf("closed %v, %v times stuck", store.ids(), n)
		}
	})
}
