package deadletters

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// Follower knows the pending dead letters of a topic. Run fills it. Its methods are safe for concurrent use.
type Follower struct {
	log    Log
	topic  string
	logger *slog.Logger

	mu    sync.Mutex
	index *Index
	state State

	// These belong to Run.
	id   [16]byte              // of the topic; zero: not known, or the brokers have no topic ids
	next map[int]wire.Position // by partition: the position of the next read
}

// State is the state of the topic as its Follower knows it. Its map must not be changed.
type State struct {
	At time.Time `json:"at,omitzero"` // when the topic was read to its end; zero: never
	// Pending is the number of pending dead letters by cause, as Index.Pending returns it.
	Pending Counts    `json:"pending"`
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest pending dead letter was appended; zero if there is none
	// Unlisted is the number of pending dead letters that Letters does not return, because there are too many.
	Unlisted int `json:"unlisted"`
	// Problem says why the topic, or one of its partitions, cannot be read, and FailingSince when
	// that began. What could be read since At is in the other fields.
	Problem      string    `json:"problem,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
}

// NewFollower returns a Follower that knows nothing yet.
func NewFollower(log Log, topic string, logger *slog.Logger) *Follower {
	return &Follower{log: log, topic: topic, logger: logger, index: newIndex(false, maxLetters), next: map[int]wire.Position{}}
}

// Run reads the topic from its beginning, without a group, and then at each interval what was appended, until ctx ends. It calls caughtUp, if that is
// not nil, each time it has read to the end. If the topic is missing or may not be read, Run logs that once, and keeps trying.
func (f *Follower) Run(ctx context.Context, interval time.Duration, caughtUp func(State)) {
	for failing := false; ; {
		began := time.Now()
		err := f.read(ctx)
		if ctx.Err() != nil {
			return
		}
		s := f.note(err, began)
		switch {
		case err == nil && caughtUp != nil:
			caughtUp(s)
		case err != nil && !failing:
			f.logger.Warn("reading dead letters failed, their numbers are out of date", "topic", f.topic, "err", err)
		}
		if failing = err != nil; !retry.Sleep(ctx, interval) {
			return
		}
	}
}

// note sets the state after a read that began then.
func (f *Follower) note(err error, began time.Time) State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.state
	s.Pending, s.Oldest, s.Unlisted = f.index.Pending(), f.index.Oldest(), f.index.Unlisted()
	switch {
	case err == nil:
		s.At, s.Problem, s.FailingSince = time.Now(), "", time.Time{}
	case s.Problem == "":
		s.FailingSince = began
		fallthrough
	default:
		s.Problem = err.Error()
	}
	return *s
}

// State returns the state of the topic. It does no work and does not wait for Kafka.
func (f *Follower) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Letters returns the pending dead letters of a filter, without their records, the oldest first. It reads nothing from Kafka.
func (f *Follower) Letters(of Filter) []Letter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.index.Letters(of)
}

// read reads each partition to its present end. A partition that fails does not hold up the others. read returns the first error.
func (f *Follower) read(ctx context.Context) error {
	n, err := f.log.Partitions(ctx, f.topic)
	if err != nil {
		return err
	}
	switch id, err := f.log.TopicID(ctx, f.topic); {
	case err != nil:
		return err
	case id != f.id: // the new topic may have as many records as the old one //mutant:recreated-dead-letters
		for p := range f.next {
			f.restart(p)
		}
		f.id = id
	}
	answers := f.log.Offsets(ctx, kafka.OffsetQueries(f.topic, n, kafka.LogStart, kafka.LogEnd))
	var failed error
	for p, bounds := range answers {
		failed = cmp.Or(failed, f.catchUp(ctx, p, bounds))
	}
	for failed == nil {
		f.mu.Lock()
		from := f.index.again()
		f.mu.Unlock()
		if len(from) == 0 {
			break
		}
		for p, offset := range from {
			f.next[p] = wire.Position{Offset: offset, Log: f.next[p].Log}
		}
		for p := range from {
			failed = cmp.Or(failed, f.catchUp(ctx, p, answers[p]))
		}
	}
	return failed
}

// catchUp reads a partition to its end, and removes what retention deleted.
func (f *Follower) catchUp(ctx context.Context, p int, bounds kafka.OffsetAnswer) error {
	if bounds.Err != nil {
		return bounds.Err
	}
	first, end := bounds.Offsets[0], bounds.Offsets[1]
	if end < f.next[p].Offset {
		f.restart(p)
	}
	f.mu.Lock()
	lost := f.index.forget(p, first)
	f.mu.Unlock()
	if lost > 0 {
		f.logger.Error("retention deleted pending dead letters", "topic", f.topic, "partition", p, "letters", lost)
	}
	next, known := f.next[p]
	if !known { // report missing access now, and not with the first dead letter
		if _, err := f.log.Read(ctx, wire.Position{Topic: f.topic, Partition: p, Offset: end, NoWait: true, MaxBytes: reads.LittleBytes}); err != nil {
			return err
		}
		f.next[p] = next
	}
	span := reads.Span{Partition: p, First: max(first, next.Offset), End: end, Log: next.Log}
	_, err := reads.Scan(ctx, f.log, f.topic, span, func(read wire.Fetched) error {
		batch := messages(read.Records)
		f.mu.Lock()
		f.index.read(p, batch, Filter{})
		f.mu.Unlock()
		if read.Free != nil {
			read.Free()
		}
		f.next[p] = wire.Position{Offset: min(read.Next, end), Log: read.Log}
		return nil
	})
	if errors.Is(err, reads.ErrRecreated) {
		f.restart(p) // the next read begins at its start
	}
	return err
}

// restart forgets a partition: its offsets belong to other records now.
func (f *Follower) restart(p int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index.forget(p, math.MaxInt64)
	delete(f.index.begin, p)
	delete(f.next, p)
}
