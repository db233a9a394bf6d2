package compensator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// manyOpen is a control topic, and a database with many open orders that are due far
// ahead.
type manyOpen struct {
	mu sync.Mutex
	fakeControl
	n        int
	begin    time.Time
	appended map[string]int
	refusing string // a topic that accepts no records
}

func (k *manyOpen) Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fakeControl.Bounds(ctx, topic, partition)
}

func (k *manyOpen) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fakeControl.Read(ctx, at)
}

func (k *manyOpen) Position(context.Context, string, string, int) (int64, error) { return k.at(), nil }

func (k *manyOpen) SetPosition(_ context.Context, _, _ string, _ int, offset int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.position = offset
	return nil
}

// at returns the committed position.
func (k *manyOpen) at() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.position
}

// lose reports another loss.
func (k *manyOpen) lose(l wire.Lost) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, l)
}

func (k *manyOpen) order(i int) orderclose.Order {
	return orderclose.Order{ID: fmt.Sprintf("x%09d", i), CreatedAt: k.begin.Add(-time.Hour), Due: k.begin.Add(240 * time.Hour)}
}

func (k *manyOpen) DueBetween(_ context.Context, _, to time.Time, after orderclose.Order, limit int) (page []orderclose.Order, _ error) {
	next := 0
	if after.ID != "" {
		_, _ = fmt.Sscanf(after.ID, "x%d", &next)
		next++
	}
	for ; len(page) < limit && next < k.n && !k.order(next).Due.After(to); next++ {
		page = append(page, k.order(next))
	}
	return page, nil
}

func (k *manyOpen) Idempotent(func(int)) wire.AppendFunc {
	return func(ctx context.Context, topic string, _ int, records []wire.RawRecord) (time.Time, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if topic == k.refusing {
			k.mu.Unlock()
			<-ctx.Done()
			k.mu.Lock()
			return time.Time{}, ctx.Err()
		}
		for _, r := range records {
			k.appended[string(r.Key())]++
		}
		return time.Now(), nil
	}
}

// times returns how many orders were scheduled exactly n times.
func (k *manyOpen) times(n int) (orders int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, often := range k.appended {
		if often == n {
			orders++
		}
	}
	return orders
}

// listening runs a compensator that reads the control topic and schedules two orders
// a second again.
func listening(t *testing.T, n int, told wire.Lost, test func(k *manyOpen, s *fakeStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &manyOpen{n: n, begin: time.Now(), appended: map[string]int{}, fakeControl: fakeControl{told: []wire.Lost{told}}}
		s := newStore(0)
		c := newCompensator(t, Options{
			Store: s, Rate: 2, PageSize: 20, Name: "order-close",
			Control: &Control{
				Kafka: k, Store: k, Producers: k, Group: "g", Topic: "control", CloseTopic: "close", MaxDelay: func() time.Duration { return 30 * 24 * time.Hour },
				Buckets: func() orderclose.Buckets {
					return orderclose.Buckets{{Topic: "delay_5m", Length: 5 * time.Minute}, {Topic: "delay_12h", Length: 12 * time.Hour}}
				},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		test(k, s)
		cancel()
		<-done
	})
}

// A smaller bucket takes the orders, and its relay forwards them.
func TestListen_AFailingBucketDoesNotStopRescheduling(t *testing.T) {
	listening(t, 100, wire.Lost{Topic: "delay_12h", First: 0, Last: 5}, func(k *manyOpen, _ *fakeStore) {
		k.mu.Lock()
		k.refusing = "delay_12h"
		k.mu.Unlock()
		time.Sleep(3 * time.Minute)
		n := k.times(1)
		expect.That(t, n == k.n && k.at() == 1, "%d of %d orders are scheduled again; position %d", n, k.n, k.at())
	})
}

// Scheduling takes three hours in this test, as long as 54 million open orders take
// at 5,000 a second.
func TestListen_SweepsRunWhileOrdersAreScheduledAgain(t *testing.T) {
	listening(t, 21_600, wire.Lost{Topic: "delay_12h", Partition: 1, First: 0, Last: 5}, func(k *manyOpen, s *fakeStore) {
		time.Sleep(30 * time.Minute)
		due := time.Now()
		s.mu.Lock()
		s.orders = append(s.orders, orderclose.Order{ID: "missed", Due: due})
		s.mu.Unlock()
		time.Sleep(DefaultPeriod + DefaultGrace + 2*time.Minute)
		expect.That(t, s.open() <= 0, "an order that the pipeline missed is still open an hour after it was due")
		if n := k.times(1); n == 0 || n == k.n {
			t.Errorf("%d orders are scheduled again by then", n)
		}
		time.Sleep(3 * time.Hour)
		if n := k.times(1); n != k.n || k.at() != 1 {
			t.Errorf("%d of %d orders are scheduled again, once; position %d", n, k.n, k.at())
		}
	})
}

// The loss is handled by a sweep at once, and scheduling begins again, because the
// records that were appended before may be lost.
func TestListen_ALossDuringReschedulingRestartsIt(t *testing.T) {
	listening(t, 7_200, wire.Lost{Topic: "delay_12h", Partition: 1, First: 0, Last: 5}, func(k *manyOpen, s *fakeStore) {
		time.Sleep(30 * time.Minute)
		before := k.times(1)
		s.mu.Lock()
		s.orders = append(s.orders, orderclose.Order{ID: "overdue", Due: time.Now().Add(-DefaultGrace)})
		s.mu.Unlock()
		k.lose(wire.Lost{Topic: "delay_5m", Partition: 1, First: 0, Last: 5})
		time.Sleep(2 * time.Minute)
		expect.That(t, s.open() <= 0, "no sweep handles the loss")
		time.Sleep(2 * time.Hour)
		if n := k.times(1) + k.times(2); n != k.n || k.times(2) < before || k.at() != 2 {
			t.Errorf("%d of %d orders are scheduled again, %d of them twice, want %d; position %d", n, k.n, k.times(2), before, k.at())
		}
	})
}

// Relays serve a new bucket before records are appended to it.
func TestListen_ANewBucketIsNoLoss(t *testing.T) {
	listening(t, 100, wire.Lost{Topic: "delay_1h", Partition: 1, First: 0, Last: -1}, func(k *manyOpen, s *fakeStore) {
		time.Sleep(30 * time.Minute)
		n := k.times(1)
		expect.That(t, n == 0 && k.at() == 1, "%d orders are scheduled again, position %d", n, k.at())
	})
}

// appenderFunc is a send.KeyedProducers with three partitions in every topic.
type appenderFunc func(topic string, records []wire.RawRecord) error

func (f appenderFunc) GroupByKey(_ context.Context, _ string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
	parts := map[int][]wire.RawRecord{}
	for i, r := range records {
		parts[i%3] = append(parts[i%3], r)
	}
	return parts, nil
}

func (f appenderFunc) Idempotent(func(int)) wire.AppendFunc {
	return func(_ context.Context, topic string, _ int, records []wire.RawRecord) (time.Time, error) {
		return time.Now(), f(topic, records)
	}
}

func TestRescheduler_PicksTheNextSmallerBucketForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := map[string]bool{}
		log := appenderFunc(func(topic string, _ []wire.RawRecord) error {
			if failing[topic] {
				return errors.New("no leader")
			}
			return nil
		})
		s := rescheduler{sender: newSender(log, slog.New(slog.DiscardHandler)), buckets: func() orderclose.Buckets {
			return orderclose.Buckets{
				{Topic: "5m", Length: 5 * time.Minute}, {Topic: "30m", Length: 30 * time.Minute, Draining: true},
				{Topic: "1h", Length: time.Hour}, {Topic: "12h", Length: 12 * time.Hour},
			}
		}}
		fail := func(topic string) {
			failing[topic] = true
			m := wire.Message{Key: []byte("k")}
			s.sender.Append(t.Context(), send.Destination{Topic: topic, Partition: 2}, []wire.RawRecord{m.Raw()})
		}
		want := func(topic string) {
			t.Helper()
			expect.Equal(t, s.topic(2*time.Hour), topic, "the topic")
		}
		want("1h")
		fail("12h")
		want("1h")
		fail("1h")
		want("5m")
		time.Sleep(bucketRest / 2)
		fail("5m")
		want("1h") // no bucket is left: the suitable one
		time.Sleep(bucketRest/2 + time.Second)
		want("1h")
		fail("1h")
		want("1h") // 5m rests, too
		time.Sleep(bucketRest/2 + time.Second)
		want("5m")
	})
}

// The only bucket that fits fails for some seconds. It is tried again within a second.
func TestRescheduler_TriesTheOnlyBucketAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		sender := newSender(appenderFunc(func(string, []wire.RawRecord) error {
			if time.Since(began) < 6*time.Second {
				return errors.New("no leader")
			}
			return nil
		}), slog.New(slog.DiscardHandler))
		m := wire.Message{Key: []byte("k")}
		for {
			r := sender.Append(t.Context(), send.Destination{Topic: "5m", Partition: 2}, []wire.RawRecord{m.Raw()})
			if len(r.Left) == 0 {
				break
			}
			time.Sleep(r.Pause)
		}
		expect.AtMost(t, time.Since(began), 7*time.Second, "the time until the record was appended")
	})
}

// Kafka refuses one order of a page for good. The others are scheduled.
func TestRescheduler_LeavesARefusedOrderToTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheduled := 0
		s := rescheduler{
			store: &manyOpen{n: 50, begin: time.Now()},
			sender: newSender(appenderFunc(func(_ string, records []wire.RawRecord) error {
				for _, r := range records {
					if string(r.Key()) == "x000000007" {
						return wire.ErrRefused
					}
				}
				return nil
			}), slog.New(slog.DiscardHandler)),
			buckets: func() orderclose.Buckets { return orderclose.Buckets{{Topic: "delay_12h", Length: 12 * time.Hour}} },
			limiter: rate.NewLimiter(rate.Inf, 0), pageSize: 20, logger: slog.New(slog.DiscardHandler),
			count: func(orders float64) { scheduled += int(orders) },
		}
		err := s.run(t.Context(), databaseClock{time.Now(), time.Now()}, func(context.Context) losses { return losses{dueWithin: 240 * time.Hour} })
		expect.That(t, err == nil && scheduled == 49, "%d orders scheduled, %v; want 49", scheduled, err)
	})
}

func TestRescheduler_ContinuesAfterAnErrorAndBeginsAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working, scheduled := false, 0
		s := rescheduler{
			store: &manyOpen{n: 50, begin: time.Now()},
			sender: newSender(appenderFunc(func(string, []wire.RawRecord) error {
				if scheduled >= 20 && !working {
					return errors.New("the broker is away")
				}
				return nil
			}), slog.New(slog.DiscardHandler)),
			buckets: func() orderclose.Buckets { return orderclose.Buckets{{Topic: "delay_12h", Length: 12 * time.Hour}} },
			limiter: rate.NewLimiter(rate.Inf, 0), pageSize: 10, logger: slog.New(slog.DiscardHandler),
			count: func(orders float64) { scheduled += int(orders) },
		}
		run := func() error {
			return s.run(t.Context(), databaseClock{time.Now(), time.Now()}, func(context.Context) losses { return losses{dueWithin: 240 * time.Hour} })
		}
		if err := run(); err == nil || scheduled != 20 {
			t.Fatalf("%d orders scheduled, %v; want 20 and an error", scheduled, err)
		}
		working = true
		for range 2 { // the second run has nothing left to do
			if err := run(); err != nil || scheduled != 50 {
				t.Fatalf("%d orders scheduled, %v; want 50", scheduled, err)
			}
		}
		s.restart()
		if err := run(); err != nil || scheduled != 100 {
			t.Errorf("%d orders scheduled, %v; want all 50 again", scheduled, err)
		}
	})
}
