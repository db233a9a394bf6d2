// Package partitiontest has a log in memory, for the tests of the parts that serve
// partitions.
package partitiontest

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

const (
	// fetchMost is how many records one fetch brings at most, as those of a megabyte
	// would.
	fetchMost = 3000
	// fetchWait is how long a fetch waits for something to bring.
	fetchWait = 2 * time.Second
	// pause is how soon a fetch looks again, and an append is tried again.
	pause = 100 * time.Millisecond
)

// Log hands out what was put into it, from where it was committed, and keeps what is
// appended apart. Who consumes a topic has all its partitions that have records.
type Log struct {
	Fail func(topic string) error                // an append's answer; nil is an ack
	Hang func(ctx context.Context, topic string) // what an append does first
	Lost bool                                    // every claim is somebody else's; Confirm finds out

	confirms  atomic.Int32
	mu        sync.Mutex
	records   map[Place][]orderclose.Message
	begins    map[Place]int64 // offset of the first record
	committed map[Place]position
	appended  map[string][]orderclose.Message // by topic
}

// Place is a partition.
type Place struct {
	Topic     string
	Partition int
}

// position is how far a claim is done.
type position struct {
	offset int64
	acked  string
}

// Put appends a record to what is handed out: from its own append time on, if it has
// one, else at once.
func (l *Log) Put(at Place, m orderclose.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[Place][]orderclose.Message{}
	}
	if m.Appended.IsZero() {
		m.Appended = time.Now()
	}
	m.Topic, m.Partition, m.Offset = at.Topic, at.Partition, l.begins[at]+int64(len(l.records[at]))
	l.records[at] = append(l.records[at], m)
}

// Begin has a partition without records begin at an offset, as after a loss.
func (l *Log) Begin(at Place, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begins == nil {
		l.begins = map[Place]int64{}
	}
	l.begins[at] = offset
}

// Remake deletes the records of a partition and makes it again with one.
func (l *Log) Remake(at Place, m orderclose.Message) {
	l.mu.Lock()
	l.records[at] = nil
	l.mu.Unlock()
	l.Put(at, m)
}

// Commit notes how far a partition is done, as a claim does.
func (l *Log) Commit(at Place, offset int64, acked string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.committed == nil {
		l.committed = map[Place]position{}
	}
	l.committed[at] = position{offset, acked}
}

// DoneBelow is how far a partition is done.
func (l *Log) DoneBelow(at Place) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed[at].offset
}

// Confirms is how often it was asked whether a claim is still its owner's.
func (l *Log) Confirms() int { return int(l.confirms.Load()) }

// Appended is what was appended, by topic.
func (l *Log) Appended() map[string][]orderclose.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.appended)
}

// Keys are those of what was appended to a topic.
func (l *Log) Keys(topic string) (keys []string) {
	for _, m := range l.Appended()[topic] {
		keys = append(keys, string(m.Key))
	}
	return keys
}

// Consume has each partition of the topic served until ctx ends.
func (l *Log) Consume(ctx context.Context, _, topic string, serve func(context.Context, orderclose.Claim)) error {
	var serves sync.WaitGroup
	for _, at := range l.places(topic) {
		serves.Go(func() { l.serve(ctx, at, serve) })
	}
	serves.Wait()
	<-ctx.Done()
	return nil
}

func (l *Log) places(topic string) (all []Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := range l.records {
		if at.Topic == topic {
			all = append(all, at)
		}
	}
	return all
}

func (l *Log) serve(ctx context.Context, at Place, serve func(context.Context, orderclose.Claim)) {
	ctx, revoke := context.WithCancel(ctx)
	defer revoke()
	l.mu.Lock()
	from := l.committed[at]
	l.mu.Unlock()
	serve(ctx, orderclose.Claim{
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

// Fetch brings what is there, or waits for it.
func (l *Log) Fetch(ctx context.Context, topic string, p int, offset int64) (orderclose.Fetched, error) {
	for end := time.Now().Add(fetchWait); time.Now().Before(end); {
		f, wait := l.read(Place{topic, p}, offset)
		if len(f.Records) > 0 || f.Lost != nil {
			f.Free = func() { scribble(f.Records) }
			return f, nil
		}
		if !partition.Sleep(ctx, wait) {
			return f, ctx.Err()
		}
	}
	return orderclose.Fetched{Next: offset}, nil
}

// read is what there is now, and if there is nothing, when to look again.
func (l *Log) read(at Place, offset int64) (f orderclose.Fetched, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begin := l.begins[at]
	end := begin + int64(len(l.records[at]))
	switch {
	case offset > end:
		return orderclose.Fetched{Next: begin, Anew: true, Lost: &orderclose.Range{First: begin, Last: offset - 1, Err: errors.New("ends early")}}, 0
	case offset < begin:
		return orderclose.Fetched{Next: begin, Lost: &orderclose.Range{First: offset, Last: begin - 1, Err: errors.New("gone")}}, 0
	}
	f.Next = offset
	for _, m := range l.records[at][offset-begin:] {
		if later := time.Until(m.Appended); later > 0 {
			return f, min(pause, later)
		}
		if len(f.Records) == fetchMost {
			break
		}
		f.Records, f.Next = append(f.Records, m.Raw()), f.Next+1
	}
	return f, pause
}

// scribble writes over records that were given back, so that it shows who reads them
// still.
func scribble(records []orderclose.RawRecord) {
	for i, r := range records {
		for b := range r.Body {
			r.Body[b] = 0xdb
		}
		records[i] = orderclose.RawRecord{}
	}
}

// Spread has everything go to the first partition.
func (l *Log) Spread(_ context.Context, _ orderclose.Claim, _ string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error) {
	return map[int][]orderclose.RawRecord{0: records}, nil
}

// Idempotent gives appends that try until they are acked, like the real ones.
func (l *Log) Idempotent(trying func(), _ func(int)) orderclose.AppendFunc {
	return func(ctx context.Context, topic string, _ int, records []orderclose.RawRecord) (time.Time, error) {
		if l.Hang != nil {
			l.Hang(ctx, topic)
		}
		for l.Fail != nil {
			if trying != nil {
				trying()
			}
			err := l.Fail(topic)
			if err == nil {
				break
			}
			if !partition.Sleep(ctx, pause) {
				return time.Time{}, err
			}
		}
		return time.Now(), l.keep(topic, records)
	}
}

func (l *Log) keep(topic string, records []orderclose.RawRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.appended == nil {
		l.appended = map[string][]orderclose.Message{}
	}
	for _, r := range records {
		m, err := r.Message()
		if err != nil {
			return err
		}
		m.Topic, m.Appended = topic, time.Now()
		l.appended[topic] = append(l.appended[topic], m)
	}
	return nil
}
