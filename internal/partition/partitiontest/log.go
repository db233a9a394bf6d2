// Package partitiontest has a log in memory, for the tests of the parts that serve
// partitions.
package partitiontest

import (
	"context"
	"errors"
	"fmt"
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
// appended apart. Who consumes a topic has all its partitions that have records or a
// beginning.
type Log struct {
	Fail func(topic string) error                // an append's answer; nil is an ack
	Hang func(ctx context.Context, topic string) // what an append does first
	Lost bool                                    // every claim is somebody else's; Confirm finds out
	// Clock is the clock of a topic's leader, which appends are stamped by; default
	// time.Now.
	Clock func(topic string) time.Time
	// Silent has the answers to appends leave the append time out.
	Silent bool
	// Loop has what is appended to the first partition of a topic read from there again.
	Loop bool

	confirms  atomic.Int32
	mu        sync.Mutex
	records   map[Place][]entry
	begins    map[Place]int64 // offset of the first record
	remade    map[Place]byte  // how often it was remade
	committed map[Place]position
	appended  map[string][]orderclose.Message // by topic
}

// Place is a partition.
type Place struct {
	Topic     string
	Partition int
}

// entry is a record and when it can be read.
type entry struct {
	orderclose.Message
	from time.Time
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
	from := m.Appended
	if m.Appended.IsZero() {
		m.Appended = l.now(at.Topic)
	}
	l.put(at, m, from)
}

// now is the time by the clock of a topic's leader.
func (l *Log) now(topic string) time.Time {
	if l.Clock == nil {
		return time.Now()
	}
	return l.Clock(topic)
}

func (l *Log) put(at Place, m orderclose.Message, from time.Time) {
	if l.records == nil {
		l.records = map[Place][]entry{}
	}
	m.Topic, m.Partition, m.Offset = at.Topic, at.Partition, l.begins[at]+int64(len(l.records[at]))
	l.records[at] = append(l.records[at], entry{m, from})
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

// Remake deletes the topic of a partition and makes it again with records.
func (l *Log) Remake(at Place, all ...orderclose.Message) {
	l.mu.Lock()
	l.records[at] = nil
	if l.remade == nil {
		l.remade = map[Place]byte{}
	}
	l.remade[at]++
	l.mu.Unlock()
	for _, m := range all {
		l.Put(at, m)
	}
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
	for at := range l.begins {
		if at.Topic == topic && l.records[at] == nil {
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

// Verify says whether the log is still the position's.
func (l *Log) Verify(_ context.Context, at orderclose.Position) (orderclose.Fetched, error) {
	f, _ := l.read(at)
	if f.Lost == nil {
		f.Records, f.Next = nil, at.Offset
	}
	return f, nil
}

// Read brings what is there, or waits for it.
func (l *Log) Read(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error) {
	f, wait := l.read(at)
	for end := time.Now().Add(fetchWait); time.Now().Before(end); f, wait = l.read(at) {
		if len(f.Records) > 0 || f.Lost != nil {
			f.Free = func() { scribble(f.Records) }
			return f, nil
		}
		if !partition.Sleep(ctx, wait) {
			return f, ctx.Err()
		}
	}
	return f, nil
}

// read is what there is now, and if there is nothing, when to look again.
func (l *Log) read(position orderclose.Position) (f orderclose.Fetched, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, offset := Place{position.Topic, position.Partition}, position.Offset
	f.Log.Topic[0] = l.remade[at] + 1
	begin := l.begins[at]
	end := begin + int64(len(l.records[at]))
	recreated := position.Log.Topic[0] != 0 && position.Log != f.Log
	switch {
	case recreated, offset > end:
		f.Next, f.Replaced = begin, true
		f.Lost = &orderclose.Range{First: begin, Last: offset - 1, Err: errors.New("recreated")}
		return f, 0
	case offset < begin:
		f.Next, f.Lost = begin, &orderclose.Range{First: offset, Last: begin - 1, Err: errors.New("gone")}
		return f, 0
	}
	f.Next = offset
	for _, m := range l.records[at][offset-begin:] {
		if later := time.Until(m.from); later > 0 {
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
		at := l.now(topic)
		err := l.keep(topic, records, at)
		if l.Silent {
			at = time.Time{}
		}
		return at, err
	}
}

func (l *Log) keep(topic string, records []orderclose.RawRecord, at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.appended == nil {
		l.appended = map[string][]orderclose.Message{}
	}
	for _, r := range records {
		m, err := r.Message()
		if err != nil { // as when its memory was given back: to try again would be in vain
			return fmt.Errorf("%w: %w", orderclose.ErrRefused, err)
		}
		m.Topic, m.Appended = topic, at
		l.appended[topic] = append(l.appended[topic], m)
		if l.Loop {
			l.put(Place{Topic: topic}, m, time.Time{})
		}
	}
	return nil
}
