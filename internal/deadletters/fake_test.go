package deadletters

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	deadTopic = "dead"
	shortest  = "delay_1m" // from which an order that is due goes on at once
)

var (
	now     = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	buckets = orderclose.Buckets{{Topic: "delay_1m", Length: time.Minute}, {Topic: "delay_1h", Length: time.Hour}}
)

// fakeLog has topics of two partitions.
type fakeLog struct {
	mu      sync.Mutex
	records map[string][2][]wire.RawRecord
	start   [2]int64 // of the dead-letter topic: lower offsets are deleted
	waits   int      // fetches that found no record
	most    int      // the largest number of records of a fetch
	id      [16]byte
	fail    func(partition int) error // the answer to requests about a partition, or -1: about the topic
}

// error returns the error of a request about a partition of the dead-letter topic.
func (f *fakeLog) error(partition int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		return nil
	}
	return f.fail(partition)
}

func (f *fakeLog) Partitions(context.Context, string) (int, error) { return 2, nil }

func (f *fakeLog) TopicID(context.Context, string) ([16]byte, error) {
	if err := f.error(-1); err != nil {
		return [16]byte{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id, nil
}

func (f *fakeLog) Bounds(_ context.Context, topic string, p int) (first, end int64, err error) {
	if err := f.error(p); err != nil {
		return 0, 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if topic == deadTopic {
		first = f.start[p]
	}
	return first, int64(len(f.records[topic][p])), nil
}

func (f *fakeLog) OffsetAt(_ context.Context, topic string, p int, t time.Time) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.records[topic][p] {
		if !r.AppendedAt().Before(t) {
			return r.Offset, nil
		}
	}
	return int64(len(f.records[topic][p])), nil
}

func (f *fakeLog) Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	answers := make([]kafka.OffsetAnswer, len(queries))
	for i, q := range queries {
		a := &answers[i]
		first, end, err := f.Bounds(ctx, q.Topic, q.Partition)
		a.Err = err
		for _, m := range q.At {
			switch m {
			case kafka.LogStart:
				a.Offsets = append(a.Offsets, first)
			case kafka.LogEnd:
				a.Offsets = append(a.Offsets, end)
			default:
				offset, err := f.OffsetAt(ctx, q.Topic, q.Partition, time.UnixMilli(int64(m)))
				a.Offsets, a.Err = append(a.Offsets, offset), cmp.Or(a.Err, err)
			}
		}
	}
	return answers
}

func (f *fakeLog) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	topic, p, offset := at.Topic, at.Partition, at.Offset
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := wire.Fetched{Log: wire.LogID{Topic: f.id}}
	if at.Log.Topic != f.id && at.Log != (wire.LogID{}) {
		answer.Lost, answer.Replaced = &wire.Range{}, true
		return answer, nil
	}
	if topic == deadTopic && offset < f.start[p] {
		answer.Lost, answer.Next = &wire.Range{First: offset, Last: f.start[p] - 1}, f.start[p]
		return answer, nil
	}
	all := f.records[topic][p]
	all = all[min(offset, int64(len(all))):]
	f.waits += 1 - min(len(all), 1) // a fetch without records waits
	if f.most > 0 {
		all = all[:min(len(all), f.most)]
	}
	if at.MaxBytes > 0 && !at.NoWait { // a small fetch
		all = all[:min(len(all), 3)]
	}
	answer.Records, answer.Next = all, offset+int64(len(all))
	return answer, nil
}

func (f *fakeLog) put(topic string, p int, r wire.RawRecord, at time.Time) Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.records == nil {
		f.records = map[string][2][]wire.RawRecord{}
	}
	partitions := f.records[topic]
	r.Offset, r.Appended = int64(len(partitions[p])), at.UnixMilli()
	partitions[p] = append(partitions[p], r)
	f.records[topic] = partitions
	return Position{p, r.Offset}
}

// addDeadLetter appends a dead letter of an order's record.
func (f *fakeLog) addDeadLetter(t *testing.T, p int, id, cause string, due time.Time) Position {
	t.Helper()
	m := dead(t, id, cause, due)
	return f.put(deadTopic, p, m.Raw(), now.Add(-time.Hour))
}

func dead(t *testing.T, id, cause string, due time.Time) wire.Message {
	t.Helper()
	m := recordOf(t, id, due)
	m.Topic, m.Partition, m.Offset = "order-close", 1, 99
	return wire.DeadLetter(m, "closer", cause, "in words")
}

func recordOf(t *testing.T, id string, due time.Time) wire.Message {
	t.Helper()
	r := wire.Record{
		Order:   orderclose.Order{ID: id, Category: "book", CreatedAt: now.Add(-2 * time.Hour), Due: due, Attributes: map[string]any{"shop": "eu"}},
		Release: due.Add(time.Minute), Attempt: 3, Cause: "failed", NotDue: 2, Traceparent: "00-ab-cd-01",
	}
	m := must.Get(r.Encode())(t)
	return m
}

func (f *fakeLog) topic() *Topic { return &Topic{Log: f, Name: deadTopic, Events: "events"} }

// fakeOrders is a database.
type fakeOrders struct {
	mu     sync.Mutex
	unpaid map[string]bool // by id of each order that exists
	err    error
	asked  int
}

func (f *fakeOrders) Unpaid(_ context.Context, reqs []orderclose.CloseRequest) (map[string]bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := map[string]bool{}
	for _, r := range reqs {
		f.asked++
		if unpaid, known := f.unpaid[r.OrderID]; known {
			found[r.OrderID] = unpaid
		}
	}
	return found, f.err
}

// end closes orders.
func (f *fakeOrders) end(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.unpaid[id] = false
	}
}

func rawOf(m wire.Message) wire.RawRecord { return m.Raw() }
