package closer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// toClose is a partition of the close topic.
var toClose = testkit.TopicPartition{Topic: "order-close"}

// orderLog is a log of order records.
type orderLog struct{ testkit.Log }

// doneBelow is the committed offset of the first partition of the close topic.
func (l *orderLog) doneBelow() int64 { return l.DoneBelow(toClose) }

// add appends the record of a due order to the close topic.
func (l *orderLog) add(t *testing.T, id string) {
	t.Helper()
	o := orderclose.Order{ID: id, CreatedAt: time.Now(), Due: time.Now()}
	l.put(t, toClose, wire.Record{Order: o, Release: o.Due})
}

func (l *orderLog) put(t *testing.T, at testkit.TopicPartition, r wire.Record) {
	t.Helper()
	l.putAt(t, at, r, time.Now())
}

// putAt appends a record that becomes visible at the append time.
func (l *orderLog) putAt(t *testing.T, at testkit.TopicPartition, r wire.Record, appended time.Time) {
	t.Helper()
	m := must.Get(r.Encode())(t)
	m.Appended = appended
	l.Put(at, m)
}

// fakeStore closes orders that are due by its own clock.
type fakeStore struct {
	due      map[string]time.Time // absent: due long ago
	bad      map[string]bool      // cannot be closed
	lockWait map[string]time.Time // the row is locked until then: the call fails with ErrContended
	pending  map[string]bool      // the payment is pending
	// locked rows get the verdict Contended at once.
	locked map[string]bool
	down   func() bool
	slow   func(inFlight int) time.Duration // duration of a transaction while so many orders are in flight

	mu       sync.Mutex
	closed   []string
	closedAt map[string]time.Time
	batches  []int
	inFlight int
	took     []time.Duration // durations of the transactions, in the order of their end
}

func (s *fakeStore) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if s.down != nil && s.down() {
		return nil, fmt.Errorf("%w: no connection", orderclose.ErrUnavailable)
	}
	if s.slow != nil {
		s.mu.Lock()
		s.inFlight += len(requests)
		took := s.slow(s.inFlight)
		s.mu.Unlock()
		time.Sleep(took)
		s.mu.Lock()
		s.inFlight -= len(requests)
		s.took = append(s.took, took)
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, len(requests))
	for _, r := range requests {
		if s.bad[r.OrderID] {
			return nil, errors.New("no stock row")
		}
		if time.Now().Before(s.lockWait[r.OrderID]) {
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
		if s.locked[r.OrderID] {
			outcomes[i].Verdict = orderclose.Contended
			continue
		}
		if s.pending[r.OrderID] {
			outcomes[i].Verdict = orderclose.PaymentPending
			continue
		}
		s.closed = append(s.closed, r.OrderID)
		if s.closedAt == nil {
			s.closedAt = map[string]time.Time{}
		}
		s.closedAt[r.OrderID] = now
	}
	return outcomes, nil
}

func (s *fakeStore) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.closed...)
}

// at is the time when an order was closed.
func (s *fakeStore) at(id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closedAt[id]
}

func runCloser(t *testing.T, log partition.Log, store Store, batch int) (stop func()) {
	t.Helper()
	return runCloserWith(t, log, store, batch, nil)
}

func runCloserWith(t *testing.T, log partition.Log, store Store, batch int, metrics prometheus.Registerer) (stop func()) {
	t.Helper()
	return startCloser(t, Options{
		Registerer: metrics, Log: log, Store: store, Batch: batch,
		Buckets: orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: "delay_1m", Length: time.Minute}},
	})
}

// startCloser starts a closer with the groups and topics of the tests. By default it has one bucket of a minute, and OnHang fails
// the test.
func startCloser(t *testing.T, o Options) (stop func()) {
	t.Helper()
	o.Group, o.CloseTopic, o.DeadLetterTopic = "g", "order-close", "dead"
	if o.Buckets == nil {
		o.Buckets = orderclose.Buckets{{Topic: "delay_1m", Length: time.Minute}}
	}
	if o.OnHang == nil {
		o.OnHang = func(why string) { t.Errorf("OnHang: %s", why) }
	}
	return testkit.Start(t, must.Get(New(o))(t).Run)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
