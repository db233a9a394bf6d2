package closer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderclose"
)

// fakeLog hands out its records once and keeps what is appended.
type fakeLog struct {
	records []orderclose.Message

	mu       sync.Mutex
	appended map[string][]orderclose.Message
	done     int64
}

func (f *fakeLog) Consume(ctx context.Context, _, topic string, serve func(context.Context, orderclose.Claim)) error {
	serve(ctx, orderclose.Claim{Topic: topic, Done: func(offset int64, _ string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.done = offset
	}})
	return nil
}

func (f *fakeLog) Fetch(ctx context.Context, _ string, _ int, offset int64) (orderclose.Fetched, error) {
	if offset < int64(len(f.records)) {
		fetched := orderclose.Fetched{Next: int64(len(f.records))}
		for _, m := range f.records[offset:] {
			fetched.Records = append(fetched.Records, m.Raw())
		}
		return fetched, nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return orderclose.Fetched{Next: offset}, ctx.Err()
}

func (f *fakeLog) Spread(_ context.Context, _ orderclose.Claim, _ string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error) {
	return map[int][]orderclose.RawRecord{0: records}, nil
}

func (f *fakeLog) Idempotent(func(), func(int)) orderclose.AppendFunc {
	return func(_ context.Context, topic string, _ int, records []orderclose.RawRecord) (time.Time, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.appended == nil {
			f.appended = map[string][]orderclose.Message{}
		}
		for _, r := range records {
			m, err := r.Message()
			if err != nil {
				return time.Time{}, err
			}
			f.appended[topic] = append(f.appended[topic], m)
		}
		return time.Now(), nil
	}
}

func (f *fakeLog) doneBelow() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

func (f *fakeLog) add(t *testing.T, id string) {
	t.Helper()
	o := orderclose.Order{ID: id, CreatedAt: time.Now(), Due: time.Now()}
	m, err := orderclose.Record{Order: o, Release: o.Due}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m.Offset, m.Appended = int64(len(f.records)), time.Now()
	f.records = append(f.records, m)
}

// fakeStore closes what is due by its own clock.
type fakeStore struct {
	due  map[string]time.Time // absent: due long ago
	bad  map[string]bool      // cannot be closed
	held map[string]time.Time // its row is held until then
	away func() bool

	mu      sync.Mutex
	closed  []string
	batches []int
}

func (s *fakeStore) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if s.away != nil && s.away() {
		return nil, fmt.Errorf("%w: no connection", orderclose.ErrUnavailable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, len(requests))
	for _, r := range requests {
		if s.bad[r.OrderID] {
			return nil, errors.New("no stock row")
		}
		if time.Now().Before(s.held[r.OrderID]) {
			return nil, fmt.Errorf("%w: lock wait", orderclose.ErrContended)
		}
	}
	now := time.Now()
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed, Due: s.due[r.OrderID], At: now}
		if now.Before(s.due[r.OrderID]) {
			outcomes[i].Verdict = orderclose.NotDue
			continue
		}
		s.closed = append(s.closed, r.OrderID)
	}
	return outcomes, nil
}

func (s *fakeStore) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.closed...)
}

func runCloser(t *testing.T, log *fakeLog, store *fakeStore, batch int) (stop func()) {
	t.Helper()
	c, err := New(Options{
		Log: log, Store: store, Group: "g", CloseTopic: "order-close", DeadLetterTopic: "dead", ControlTopic: "control", Batch: batch,
		Buckets: orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: "delay_1m", Length: time.Minute}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestCloser_ClosesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &fakeLog{}, &fakeStore{}
		for i := range 25 {
			log.add(t, fmt.Sprint(i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until it has told how far it is
		synctest.Wait()
		if diff := cmp.Diff([]int{10, 10, 5}, store.batches); diff != "" || log.doneBelow() != 25 {
			t.Errorf("done below %d, batches (-want +got):\n%s", log.doneBelow(), diff)
		}
	})
}

func TestCloser_OneBadOrderCostsNobodyElseTheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &fakeLog{}, &fakeStore{bad: map[string]bool{"2": true}}
		for i := range 5 {
			log.add(t, fmt.Sprint(i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until it has told how far it is
		synctest.Wait()
		if diff := cmp.Diff([]string{"0", "1", "3", "4"}, store.ids()); diff != "" {
			t.Errorf("closed (-want +got):\n%s", diff)
		}
		if dead := log.appended["dead"]; len(dead) != 1 || string(dead[0].Key) != "2" || log.doneBelow() != 5 {
			t.Errorf("dead letters %v, done below %d; want order 2, and 5", dead, log.doneBelow())
		}
	})
}

func TestCloser_OneHeldRowStopsNobodyElseAndIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		store := &fakeStore{held: map[string]time.Time{"2": time.Now().Add(time.Minute)}}
		for i := range 5 {
			log.add(t, fmt.Sprint(i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until it has told how far it is
		synctest.Wait()
		if diff := cmp.Diff([]string{"0", "1", "3", "4"}, store.ids()); diff != "" || log.doneBelow() != 2 {
			t.Errorf("done below %d, closed (-want +got):\n%s", log.doneBelow(), diff)
		}
		time.Sleep(65 * time.Second)
		synctest.Wait()
		if n := len(store.ids()); n != 5 || log.doneBelow() != 5 || len(log.appended) != 0 {
			t.Errorf("%d closed, done below %d, appended %v", n, log.doneBelow(), log.appended)
		}
	})
}

func TestCloser_NothingIsDoneWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		log, store := &fakeLog{}, &fakeStore{away: func() bool { return time.Since(begin) < time.Minute }}
		log.add(t, "a")
		defer runCloser(t, log, store, 10)()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if log.doneBelow() != 0 || len(log.appended) != 0 {
			t.Errorf("done below %d, appended %v; want nothing", log.doneBelow(), log.appended)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if log.doneBelow() != 1 || len(store.ids()) != 1 {
			t.Errorf("done below %d, closed %v", log.doneBelow(), store.ids())
		}
	})
}

func TestCloser_AnOrderNearlyDueIsParkedWhileOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		log.add(t, "nearly")
		log.add(t, "due")
		store := &fakeStore{due: map[string]time.Time{"nearly": time.Now().Add(7 * time.Second)}}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until it has told how far it is
		synctest.Wait()
		if diff := cmp.Diff([]string{"due"}, store.ids()); diff != "" || log.doneBelow() != 0 {
			t.Errorf("done below %d, closed (-want +got):\n%s", log.doneBelow(), diff)
		}
		time.Sleep(7*time.Second + 250*time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]string{"due", "nearly"}, store.ids()); diff != "" || log.doneBelow() != 2 {
			t.Errorf("7 s later: done below %d, closed (-want +got):\n%s", log.doneBelow(), diff)
		}
	})
}

func TestCloser_AnOrderWhoseDueMovedIsScheduledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		log.add(t, "moved")
		due := time.Now().Add(70 * time.Second)
		defer runCloser(t, log, &fakeStore{due: map[string]time.Time{"moved": due}}, 10)()
		synctest.Wait()
		again := log.appended["delay_1m"]
		if len(again) != 1 || log.doneBelow() != 1 {
			t.Fatalf("appended %v, done below %d", log.appended, log.doneBelow())
		}
		r, err := again[0].Decode()
		if err != nil || !r.Release.Equal(due) || !r.Order.Due.Equal(due) || r.NotDue != 1 {
			t.Errorf("%+v, %v; want it released when it is due, %v", r, err, due)
		}
	})
}
