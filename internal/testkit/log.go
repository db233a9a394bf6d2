package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// A fetch has at most maxFetch records, and ends with the record that reaches maxFetchBytes.
	maxFetch, maxFetchBytes = 3000, 1 << 20
	// fetchWait is how long a fetch waits for records.
	fetchWait = 2 * time.Second
	// pollPause is the pause of a waiting fetch between two looks.
	pollPause = 100 * time.Millisecond
)

// Log serves the records that were put into it, from the committed offset on, and keeps appended records apart. A consumer of a topic is assigned all
// its partitions that have records or a start offset. Set the fields before use. The methods are safe for concurrent use.
type Log struct {
	Fail func(topic string) error                // the answer to an append; nil is an ack
	Hang func(ctx context.Context, topic string) // called at the start of each append
	// Answer is as Fail, and knows more of the append.
	Answer  func(ctx context.Context, topic string, partition int, keys []string) error
	Count   int                                          // partitions of each topic to which records are appended; default 1
	Missing func(topic string) bool                      // the topic does not exist
	OnRead  func(at wire.Position)                       // called at the start of each fetch
	Reads   func(at wire.Position) (wire.Fetched, error) // answers the fetches in place of the records
	Lost    bool                                         // every claim belongs to another owner, which Confirm reports
	// Clock is the clock of a topic's leader, which sets append times; default time.Now.
	Clock func(topic string) time.Time
	// Forgets reports whether a record that was appended is not kept, so that a run of many records needs no memory for them; may be nil.
	Forgets func(topic string, r wire.RawRecord) bool
	// Silent makes appends return no append time.
	Silent bool
	// Loop makes records that are appended to the first partition of a topic readable there.
	Loop bool

	appends   Appends
	confirms  atomic.Int32
	upTo      atomic.Int64
	fetched   atomic.Int64
	mu        sync.Mutex
	records   map[TopicPartition][]entry
	starts    map[TopicPartition]int64 // offset of the first record; default 0
	recreated map[TopicPartition]byte  // how often the topic was recreated
	committed map[TopicPartition]position
	appended  map[string][]wire.Message // by topic
}

// Rejects returns a Log.Fail: for so long from now, topics whose names begin with one of the prefixes accept no records; without prefixes, all topics.
func Rejects(d time.Duration, prefixes ...string) func(topic string) error {
	until := time.Now().Add(d)
	return func(topic string) error {
		of := len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(topic, prefix) })
		if of && time.Now().Before(until) {
			return errors.New("no leader")
		}
		return nil
	}
}

// TopicPartition is a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int
}

// entry is a record and the time from which it can be read.
type entry struct {
	wire.Message
	visible time.Time
}

// position is a committed position.
type position struct {
	offset int64
	acked  string
}

// Put appends a record to the partition. It can be read from its append time on, or at once if it has none.
func (l *Log) Put(at TopicPartition, m wire.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	visible := m.Appended
	if m.Appended.IsZero() {
		m.Appended = l.now(at.Topic)
	}
	l.add(at, m, visible)
}

// now is the time of the clock of a topic's leader.
func (l *Log) now(topic string) time.Time {
	if l.Clock == nil {
		return time.Now()
	}
	return l.Clock(topic)
}

func (l *Log) add(at TopicPartition, m wire.Message, visible time.Time) {
	if l.records == nil {
		l.records = map[TopicPartition][]entry{}
	}
	m.Topic, m.Partition, m.Offset = at.Topic, at.Partition, l.starts[at]+int64(len(l.records[at]))
	l.records[at] = append(l.records[at], entry{m, visible})
}

// SetStart sets the start offset of an empty partition, as after a loss.
func (l *Log) SetStart(at TopicPartition, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.starts == nil {
		l.starts = map[TopicPartition]int64{}
	}
	l.starts[at] = offset
}

// Recreate deletes the topic of a partition and recreates it with the given records.
func (l *Log) Recreate(at TopicPartition, all ...wire.Message) {
	l.mu.Lock()
	l.records[at] = nil
	if l.recreated == nil {
		l.recreated = map[TopicPartition]byte{}
	}
	l.recreated[at]++
	l.mu.Unlock()
	for _, m := range all {
		l.Put(at, m)
	}
}

// Commit sets the committed position of a partition, as a claim does.
func (l *Log) Commit(at TopicPartition, offset int64, acked string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.committed == nil {
		l.committed = map[TopicPartition]position{}
	}
	l.committed[at] = position{offset, acked}
}

// DoneBelow is the committed offset of a partition.
func (l *Log) DoneBelow(at TopicPartition) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed[at].offset
}

// ReadUpTo is the largest offset up to which a partition was read.
func (l *Log) ReadUpTo() int64 { return l.upTo.Load() }

// Fetched is the number of records that fetches have returned.
func (l *Log) Fetched() int64 { return l.fetched.Load() }

// Confirms is the number of calls of Confirm.
func (l *Log) Confirms() int { return int(l.confirms.Load()) }

// Appended returns the appended records by topic.
func (l *Log) Appended() map[string][]wire.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.appended)
}

// Keys returns the keys of the records that were appended to a topic.
func (l *Log) Keys(topic string) (keys []string) {
	for _, m := range l.Appended()[topic] {
		keys = append(keys, string(m.Key))
	}
	return keys
}

// Consume serves each partition of the topic until ctx ends.
func (l *Log) Consume(ctx context.Context, _, topic string, serve func(context.Context, wire.Claim)) error {
	var serves sync.WaitGroup
	for _, at := range l.partitions(topic) {
		serves.Go(func() { l.serve(ctx, at, serve) })
	}
	serves.Wait()
	<-ctx.Done()
	return nil
}

func (l *Log) partitions(topic string) (all []TopicPartition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := range l.records {
		if at.Topic == topic {
			all = append(all, at)
		}
	}
	for at := range l.starts {
		if at.Topic == topic && l.records[at] == nil {
			all = append(all, at)
		}
	}
	return all
}

func (l *Log) serve(ctx context.Context, at TopicPartition, serve func(context.Context, wire.Claim)) {
	ctx, revoke := context.WithCancel(ctx)
	defer revoke()
	l.mu.Lock()
	from := l.committed[at]
	l.mu.Unlock()
	serve(ctx, wire.Claim{
		Topic: at.Topic, Partition: at.Partition, Offset: from.offset, Acked: from.acked,
		Done: func(offset int64, acked string) { l.Commit(at, offset, acked) },
		Confirm: func(context.Context) error {
			l.confirms.Add(1)
			if !l.Lost {
				return nil
			}
			revoke()
			return errors.New("unknown member")
		},
	})
}

// Read returns the records from the position on, or waits for them, unless at.NoWait is set.
func (l *Log) Read(ctx context.Context, at wire.Position) (f wire.Fetched, err error) {
	if l.OnRead != nil {
		l.OnRead(at)
	}
	if l.Reads != nil {
		return l.Reads(at)
	}
	defer func() {
		l.upTo.Store(max(l.upTo.Load(), f.Next))
		l.fetched.Add(int64(len(f.Records)))
	}()
	f, wait := l.read(at)
	for end := time.Now().Add(fetchWait); time.Now().Before(end); f, wait = l.read(at) {
		if len(f.Records) > 0 || f.Lost != nil || at.NoWait {
			f.Free = poisonsMemory(f.Records)
			return f, nil
		}
		if !retry.Sleep(ctx, wait) {
			return f, ctx.Err()
		}
	}
	return f, nil
}

// read returns the records that can be read now, and if there are none, when to look again.
func (l *Log) read(position wire.Position) (f wire.Fetched, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, offset := TopicPartition{position.Topic, position.Partition}, position.Offset
	f.Log.Topic[0] = l.recreated[at] + 1
	begin := l.starts[at]
	end := begin + int64(len(l.records[at]))
	recreated := position.Log.Topic[0] != 0 && position.Log.Topic != f.Log.Topic
	switch {
	case recreated, offset > end:
		f.Next, f.Replaced = begin, true
		f.Lost = &wire.Range{First: begin, Last: offset - 1, Err: errors.New("recreated")}
		return f, 0
	case offset < begin:
		f.Next, f.Lost = begin, &wire.Range{First: offset, Last: begin - 1, Err: errors.New("gone")}
		return f, 0
	}
	f.Next, f.End = offset, end
	bytes := 0
	for _, m := range l.records[at][offset-begin:] {
		if later := time.Until(m.visible); later > 0 {
			f.AtEnd = len(f.Records) == 0 // as the high watermark of a broker says
			return f, min(pollPause, later)
		}
		if len(f.Records) == maxFetch || bytes >= maxFetchBytes {
			break
		}
		f.Records, f.Next = append(f.Records, m.Raw()), f.Next+1
		bytes += f.Records[len(f.Records)-1].Size()
	}
	f.AtEnd = f.Next == end
	return f, pollPause
}

// poisonsMemory returns a function that overwrites the records and their bodies, so that a use of
// them after they were freed shows. The owner of the records may have moved them in their slice.
func poisonsMemory(records []wire.RawRecord) func() {
	whole := slices.Clone(records)
	return func() {
		for _, r := range whole {
			for b := range r.Body {
				r.Body[b] = 0xdb
			}
		}
		clear(records)
	}
}

// Idempotent implements send.Log.
func (l *Log) Idempotent(func(int)) wire.AppendFunc {
	return func(ctx context.Context, topic string, p int, records []wire.RawRecord) (time.Time, error) {
		if l.Hang != nil {
			l.Hang(ctx, topic)
		}
		if l.Fail != nil {
			if err := l.Fail(topic); err != nil {
				return time.Time{}, err
			}
		}
		if l.Answer != nil {
			keys := make([]string, len(records))
			for i, r := range records {
				keys[i] = string(r.Key())
			}
			if err := l.Answer(ctx, topic, p, keys); err != nil {
				return time.Time{}, err
			}
		}
		at := l.now(topic)
		err := l.record(topic, records, at)
		if l.Silent {
			at = time.Time{}
		}
		return at, err
	}
}

func (l *Log) record(topic string, records []wire.RawRecord, at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.appended == nil {
		l.appended = map[string][]wire.Message{}
	}
	for _, r := range records {
		if l.Forgets != nil && l.Forgets(topic, r) {
			continue
		}
		m, err := r.Message()
		if err != nil { // for example a body in freed memory: a retry would fail too
			return fmt.Errorf("%w: %w", wire.ErrRefused, err)
		}
		m.Topic, m.Appended = topic, at
		l.appended[topic] = append(l.appended[topic], m)
		if l.Loop {
			l.add(TopicPartition{Topic: topic}, m, time.Time{})
		}
	}
	return nil
}
