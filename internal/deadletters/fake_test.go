package deadletters

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/testkit"
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
	rules   = Rules{Buckets: buckets, Events: "events"}
)

// fakeLog has topics of two partitions.
type fakeLog struct {
	sender  testkit.Appends
	mu      sync.Mutex
	records map[string][2][]wire.RawRecord
	start   [2]int64 // of the dead-letter topic: lower offsets are deleted
	refuse  func(topic string, key string) error
	appends int
	waits   int // fetches that found no record
	most    int // the largest number of records of a fetch
	little  int // the number of records that small fetches returned
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
		f.little += len(all)
	}
	answer.Records, answer.Next = all, offset+int64(len(all))
	return answer, nil
}

func (f *fakeLog) Send(ctx context.Context, topic string, records []wire.RawRecord, done func(send.Result)) {
	f.sender.By(f).Send(ctx, topic, records, done)
}

func (f *fakeLog) SendTo(ctx context.Context, topic string, partition int, records []wire.RawRecord, done func(send.Result)) {
	f.sender.By(f).SendTo(ctx, topic, partition, records, done)
}

func (f *fakeLog) Failing(topic string) (time.Time, time.Duration) {
	return f.sender.By(f).Failing(topic)
}

func (f *fakeLog) Idempotent(func(int)) wire.AppendFunc {
	return func(_ context.Context, topic string, p int, records []wire.RawRecord) (time.Time, error) {
		f.mu.Lock()
		f.appends++
		f.mu.Unlock()
		if f.refuse != nil {
			for _, r := range records {
				if err := f.refuse(topic, string(r.Key())); err != nil {
					return time.Time{}, err
				}
			}
		}
		for _, r := range records {
			f.put(topic, p, r, now)
		}
		return now, nil
	}
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

// keys returns the keys of the records of a topic.
func (f *fakeLog) keys(topic string) (keys []string) {
	for _, records := range f.records[topic] {
		for _, r := range records {
			keys = append(keys, string(r.Key()))
		}
	}
	return keys
}

func (f *fakeLog) topic() *Topic { return &Topic{Log: f, Name: deadTopic} }

func redrive(f Filter) Options {
	return Options{Filter: f, How: Redriven, Rules: rules, Now: func() time.Time { return now }}
}

func (f *fakeLog) pending(t *testing.T) string {
	t.Helper()
	x, err := f.topic().List(t.Context(), Filter{}, false)
	must.Do(t, err)
	counts := x.Pending()
	for cause, n := range counts {
		if n == 0 {
			delete(counts, cause)
		}
	}
	return fmt.Sprint(counts)
}
