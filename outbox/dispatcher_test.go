package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// fakeStore holds rows and gives each row to one dispatcher at a time.
type fakeStore struct {
	mu    sync.Mutex
	rows  map[int64]wire.OutboxRow
	ids   []int64 // assigned ids, lowest first
	held  map[int64]bool
	looks int  // calls of Dispatch
	polls int  // calls of Waiting
	away  bool // the database is unreachable
	full  bool // the database accepts no writes
}

func newStore(ids ...string) *fakeStore {
	s := &fakeStore{rows: map[int64]wire.OutboxRow{}, held: map[int64]bool{}}
	for _, id := range ids {
		s.add(id)
	}
	return s
}

// add adds a row.
func (s *fakeStore) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(len(s.ids) + 1)
	s.ids = append(s.ids, n)
	s.rows[n] = wire.OutboxRow{ID: n, OrderID: id, Payload: []byte("about " + id)}
}

func (s *fakeStore) take(after int64, limit int) (rows []wire.OutboxRow, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.away {
		return nil, orderclose.ErrUnavailable
	}
	for _, id := range s.ids[after:] {
		if row, is := s.rows[id]; is && !s.held[id] && len(rows) < limit {
			s.held[id] = true
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (s *fakeStore) Dispatch(ctx context.Context, _ wire.Outbox, after int64, limit int, publish func(context.Context, []wire.OutboxRow) []int64) (int, error) {
	rows, err := s.take(after, limit)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	done := publish(ctx, rows)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		delete(s.held, r.ID)
	}
	if ctx.Err() != nil {
		return len(rows), ctx.Err()
	}
	if s.full && len(done) > 0 {
		return len(rows), orderclose.ErrUnavailable
	}
	for _, id := range done {
		delete(s.rows, id)
	}
	return len(rows), nil
}

func (s *fakeStore) Waiting(_ context.Context, boxes ...wire.Outbox) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls++
	if s.away {
		return nil, orderclose.ErrUnavailable
	}
	return slices.Repeat([]bool{len(s.rows) > 0}, len(boxes)), nil
}

func (s *fakeStore) Backlog(context.Context, wire.Outbox) (wire.OutboxBacklog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return wire.OutboxBacklog{}, orderclose.ErrUnavailable
	}
	return wire.OutboxBacklog{Rows: len(s.rows)}, nil
}

// looked returns the number of calls of Dispatch since the last call of looked.
func (s *fakeStore) looked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, s.looks = s.looks, 0
	return n
}

// polled returns the number of calls of Waiting.
func (s *fakeStore) polled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls
}

func (s *fakeStore) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *fakeStore) setFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func (s *fakeStore) left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		ids = append(ids, s.rows[id].OrderID)
	}
	return ids
}

// newLog returns a log with three partitions in every topic.
func newLog() *testkit.Log { return &testkit.Log{Count: 3} }

// keys returns the order ids that were appended to a topic, sorted.
func keys(l *testkit.Log, topic string) []string { return slices.Sorted(slices.Values(l.Keys(topic))) }

// silence is a Kafka that does not answer until back is closed.
func silence(ctx context.Context, back <-chan struct{}) error {
	select {
	case <-back:
		return nil
	default:
		retry.Sleep(ctx, 5*time.Second)
		return wire.ErrUnanswered
	}
}

// counts are the metrics of a dispatcher.
type counts struct{ testkit.Metrics }

func newCounts() counts { return counts{testkit.NewMetrics()} }

func (c counts) dispatched() int { return int(c.Value("outbox_dispatched_total")) }

func (c counts) dead(cause string) int {
	return int(c.Value("dead_letters_total", "stage", "outbox", "cause", cause))
}

// run starts a dispatcher, which runs until stop is called. Call both in a synctest bubble.
func run(t *testing.T, s *fakeStore, l *testkit.Log, m prometheus.Registerer, batch int) (stop func()) {
	t.Helper()
	return runKind(t, s, l, m, batch, Events("events"))
}

func runKind(t *testing.T, s *fakeStore, l *testkit.Log, m prometheus.Registerer, batch int, k Kind) (stop func()) {
	t.Helper()
	d := must.Get(New(Options{Store: s, Kafka: l, Kinds: []Kind{k}, DeadLetterTopic: "dead", Batch: batch, Registerer: m}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		began := time.Now()
		expect.NoError(t, <-done)
		expect.AtMost(t, time.Since(began), publishTimeout, "the time that the dispatcher took to stop")
	}
}

func orders(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("order-%03d", i))
	}
	return ids
}

func TestDispatcher_PublishesAndDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, m := newStore(orders(95)...), newLog(), newCounts()
		defer run(t, s, l, m, 10)()
		time.Sleep(time.Second)
		if diff := cmp.Diff(orders(95), keys(l, "events")); diff != "" || len(s.left()) > 0 || m.dispatched() != 95 {
			t.Errorf("%d counted, left %v, published (-want +got):\n%s", m.dispatched(), s.left(), diff)
		}
		first := l.Appended()["events"][0]
		v, _ := first.Header(orderclose.HeaderContentType)
		expect.That(t, v == orderclose.EventContentType && string(first.Value) == "about "+string(first.Key), "a record is %+v", first)
	})
}

func TestDispatcher_ARejectedRowDelaysNoOtherRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newStore(orders(20)...), newCounts()
		l := &testkit.Log{Count: 3, Answer: func(_ context.Context, topic string, _ int, ids []string) error {
			if topic == "events" && slices.Contains(ids, "order-007") {
				return wire.ErrRefused
			}
			return nil
		}}
		defer run(t, s, l, m, 10)()
		time.Sleep(time.Second)
		want := slices.DeleteFunc(orders(20), func(id string) bool { return id == "order-007" })
		if diff := cmp.Diff(want, keys(l, "events")); diff != "" || len(s.left()) > 0 {
			t.Errorf("left %v, published (-want +got):\n%s", s.left(), diff)
		}
		dead := l.Appended()["dead"]
		if len(dead) != 1 || string(dead[0].Key) != "order-007" || m.dead("refused") != 1 || m.dispatched() != 19 {
			t.Fatalf("dead letters %v, counted %v and %d", dead, m.Value("dead_letters_total"), m.dispatched())
		}
		for header, want := range map[string]string{
			wire.HeaderCause: "refused", wire.HeaderStage: Stage, wire.HeaderSourceTopic: "outbox_events", wire.HeaderSourceOffset: "8",
		} {
			v, _ := dead[0].Header(header)
			expect.That(t, v == want, "header %s is %q, want %q", header, v, want)
		}
	})
}

// While the dead-letter topic rejects the dead letter, its row stays and is tried again now and then. Other rows are published.
func TestDispatcher_ARowWithoutItsDeadLetterDelaysNoOtherRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newStore(orders(30)...), newCounts()
		var mu sync.Mutex
		attempts, failures := 0, -1 // without end
		l := &testkit.Log{Count: 3, Answer: func(ctx context.Context, topic string, _ int, ids []string) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case topic == "dead" && failures != 0:
				attempts, failures = attempts+1, failures-1
				return errors.New("unknown topic")
			case topic == "events" && slices.Contains(ids, "order-000"):
				return wire.ErrRefused
			}
			return nil
		}}
		defer run(t, s, l, m, 1)()
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"order-000"}, s.left()); diff != "" || len(keys(l, "events")) != 29 || attempts > 30 {
			t.Errorf("%d attempts to write the dead letter, %d published, left (-want +got):\n%s", attempts, len(keys(l, "events")), diff)
		}
		mu.Lock()
		failures = 1 // the next request but one succeeds
		mu.Unlock()
		time.Sleep(quarantineTime + time.Second)
		expect.That(t, len(s.left()) == 0 && m.dead("refused") == 1, "left %v, dead letters %v", s.left(), m.Value("dead_letters_total"))
	})
}

func TestDispatcher_AnOutageLosesNothingAndIsRetriedWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newStore(orders(20)...), newCounts()
		back := make(chan struct{})
		l := &testkit.Log{Count: 3, Answer: func(ctx context.Context, _ string, _ int, _ []string) error { return silence(ctx, back) }}
		stop := run(t, s, l, m, 10)
		time.Sleep(10 * time.Minute)
		if n := s.looked(); len(s.left()) != 20 || n > 2000 {
			t.Errorf("%d left, %d polls in 10 minutes", len(s.left()), n)
		}
		stop() // while rows are being published
		s.setAway(true)
		defer run(t, s, l, m, 10)()
		close(back)
		s.looked()
		time.Sleep(10 * time.Minute)
		if n := s.looked(); len(s.left()) != 20 || n > 2000 {
			t.Errorf("without a database %d left, %d polls in 10 minutes", len(s.left()), n)
		}
		s.setAway(false)
		time.Sleep(5 * time.Second)
		if len(s.left()) != 0 || m.dispatched() != 20 {
			t.Errorf("%d left, %d counted", len(s.left()), m.dispatched())
		}
	})
}

// A third of the rows, several batches of them at the lowest ids, are for a partition that accepts no records.
func TestDispatcher_APartitionWithoutALeaderDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck, others []string
		for i := range 500 { // many batches
			stuck = append(stuck, fmt.Sprintf("stuck-%03d", i)) // all in partition 0, because of their length
			others = append(others, fmt.Sprintf("other-a%03d", i), fmt.Sprintf("other-bb%03d", i))
		}
		s, m := newStore(slices.Concat(stuck, others)...), newCounts()
		back := make(chan struct{})
		l := &testkit.Log{Count: 3, Answer: func(ctx context.Context, topic string, _ int, ids []string) error {
			if len(ids[0])%3 != 0 {
				return nil
			}
			return silence(ctx, back)
		}}
		defer run(t, s, l, m, 10)()
		time.Sleep(time.Minute)
		expect.Same(t, s.left(), stuck, "left")
		s.looked()
		time.Sleep(time.Minute)
		expect.AtMost(t, s.looked(), 800, "polls in a minute while nothing can be published")
		s.add("other-fresh")
		time.Sleep(publishTimeout + 2*time.Second) // an append to the partition may be in flight just then
		expect.Same(t, s.left(), stuck, "with a new row, left")
		close(back)
		time.Sleep(time.Minute)
		if left := s.left(); len(left) > 0 || m.dispatched() != 1501 {
			t.Errorf("%d counted, left %v", m.dispatched(), left)
		}
	})
}

// After the small probes the partition gets full requests again.
func TestDispatcher_ASlowPartitionRecovers(t *testing.T) {
	for _, answer := range []time.Duration{700 * time.Millisecond, 2500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var ids []string
			for i := range 1000 {
				ids = append(ids, fmt.Sprintf("slow-%04d", i)) // all in one partition
			}
			s, m := newStore(ids...), newCounts()
			began := time.Now()
			l := &testkit.Log{Count: 3, Answer: func(ctx context.Context, topic string, _ int, ids []string) error {
				if time.Since(began) < 10*time.Second {
					return silence(ctx, nil)
				}
				if !retry.Sleep(ctx, answer) {
					return ctx.Err()
				}
				return nil
			}}
			defer run(t, s, l, m, 400)()
			time.Sleep(2 * time.Minute) // with answers after 2.5 s it takes half of it, and at times a little more
			left := len(s.left())
			expect.That(t, left == 0 && len(keys(l, "events")) == 1000, "answers after %v: %d are left, %d were written", answer, left, len(keys(l, "events")))
		})
	}
}

// If that fails, one log line reports it.
func TestDispatcher_ManyRejectedRowsShareDeadLetterAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newStore(orders(600)...), newCounts()
		l := &testkit.Log{Count: 3, Answer: func(_ context.Context, topic string, _ int, _ []string) error {
			time.Sleep(5 * time.Millisecond)
			if topic == "events" {
				return wire.ErrRefused
			}
			return nil
		}}
		defer run(t, s, l, m, 999)()
		time.Sleep(30 * time.Second)
		expect.That(t, len(s.left()) == 0 && m.dead("refused") == 600, "%d are left, dead letters %v", len(s.left()), m.Value("dead_letters_total"))
	})
}

func TestDispatcher_FinishesBatchesInFlightWhenStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newStore(orders(5)...), newCounts()
		begun := make(chan struct{}, 10)
		l := &testkit.Log{Count: 3, Answer: func(ctx context.Context, _ string, _ int, _ []string) error {
			begun <- struct{}{}
			time.Sleep(time.Second)
			return nil
		}}
		stop := run(t, s, l, m, 10)
		<-begun
		stop()
		expect.That(t, len(s.left()) == 0 && len(keys(l, "events")) == 5, "published %v, left %v", keys(l, "events"), s.left())
	})
}

func TestDispatcher_AQuietOutboxCostsOneStatementASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore("o")
		defer run(t, s, newLog(), nil, 10)()
		time.Sleep(time.Minute)
		s.looked()
		polled := s.polled()
		time.Sleep(time.Minute)
		if n, polls := s.looked(), s.polled()-polled; n != 0 || polls < 50 || polls > 75 {
			t.Errorf("a quiet minute has %d transactions and %d polls, want none and 60", n, polls)
		}
		s.add("late")
		time.Sleep(2 * time.Second)
		expect.That(t, len(s.left()) == 0, "%v wait after two seconds", s.left())
	})
}

// The rows wait for an hour and then go to the bucket for the time that remains.
func TestSchedules_PickTheBucketWhenTheRecordIsProduced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newStore("later", "soon", "due", "far", "odd"), newCounts()
		for i, delay := range []time.Duration{90 * time.Minute, 61 * time.Minute, 30 * time.Minute, wire.MaxDelayLimit + 2*time.Hour} {
			row := s.rows[int64(i+1)]
			var err error
			if row.Payload, err = (wire.Record{Order: orderclose.Order{ID: row.OrderID, CreatedAt: time.Now(),
				Due: time.Now().Add(delay)}}).SchedulePayload(); err != nil {
				t.Fatal(err)
			}
			s.rows[int64(i+1)] = row
		}
		back := make(chan struct{})
		l := &testkit.Log{Count: 3, Answer: func(ctx context.Context, _ string, _ int, _ []string) error { return silence(ctx, back) }}
		d := must.Get(New(Options{Store: s, Kafka: l, DeadLetterTopic: "dead", Registerer: m, Kinds: []Kind{Schedules(func() Scheduling {
			return Scheduling{Buckets: orderclose.Buckets{{Topic: "1m", Length: time.Minute}, {Topic: "30m", Length: 30 * time.Minute},
				{Topic: "2h", Length: 2 * time.Hour}},
				CloseTopic: "close"}
		})}}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- d.Run(ctx) }()
		time.Sleep(time.Hour)
		expect.That(t, len(s.left()) == 5, "without Kafka %v are left", s.left())
		close(back)
		time.Sleep(quarantineTime + 10*time.Second) // dead letters could not be written before
		cancel()
		expect.NoError(t, <-ran)
		got := map[string]string{}
		for _, topic := range []string{"1m", "30m", "2h", "close", "dead"} {
			got[topic] = strings.Join(keys(l, topic), " ")
		}
		want := map[string]string{"1m": "soon", "30m": "later", "2h": "", "close": "due", "dead": "far odd"}
		if diff := cmp.Diff(want, got); diff != "" || len(s.left()) > 0 || m.dead("due_too_far") != 1 || m.dead("bad_value") != 1 {
			t.Errorf("left %v, dead %v, (-want +got):\n%s", s.left(), m.Value("dead_letters_total"), diff)
		}
		if first := l.Appended()["30m"][0]; first.Key == nil || len(l.Appended()["30m"]) != 1 {
			t.Errorf("%+v", l.Appended()["30m"])
		} else if r, err := first.Decode(); err != nil || r.Order.ID != "later" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Nobody knows what waits meanwhile, and an alert looks at the age of the oldest row.
func TestDispatcher_WhileTheOutboxCannotBeReadRowsMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newStore(), testkit.NewMetrics()
		d := must.Get(New(Options{Store: s, Kafka: newLog(), Kinds: []Kind{Events("events")}, DeadLetterTopic: "dead", Registerer: m}))(t)
		defer testkit.Start(t, d.Run)()
		oldest := func() float64 { return m.Value("outbox_oldest_unpublished_seconds", "outbox", "events") }
		time.Sleep(time.Hour)
		s.setAway(true)
		time.Sleep(10 * time.Minute)
		expect.Between(t, oldest(), 590, 605, "the age of the oldest row after ten minutes")
		s.setAway(false)
		time.Sleep(2 * time.Second)
		expect.Equal(t, oldest(), 0, "the age of the oldest row after another read")
	})
}

// A row that is too large, with the beginning of its payload, becomes a dead letter of its name. The rows behind it are published.
func TestDispatcher_ARowThatIsTooLargeIsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, m := newStore(orders(5)...), newLog(), newCounts()
		large := s.rows[2]
		large.TooLarge = 14_000_000
		s.rows[2] = large
		defer run(t, s, l, m, 10)()
		time.Sleep(time.Second)
		dead := l.Appended()["dead"]
		must.That(t, len(dead) == 1 && string(dead[0].Key) == "order-001" && m.dead("refused") == 1, "dead letters: %+v", dead)
		detail, _ := dead[0].Header(wire.HeaderDetail)
		expect.That(t, strings.Contains(detail, "14000000 bytes"), "the detail is %q", detail)
		expect.That(t, len(s.left()) == 0 && len(keys(l, "events")) == 4, "left %v", s.left())
	})
}
