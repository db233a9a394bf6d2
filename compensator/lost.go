package compensator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

const (
	// listenEvery is how often the control topic is looked at.
	listenEvery = 5 * time.Second
	// gatherFor is how long more losses are waited for after the first: who loses one
	// partition often loses more, and one sweep is enough for all.
	gatherFor = 10 * time.Second
	// keepEvery is how often it is noted how far the control topic was read, where
	// there was nothing to do.
	keepEvery = 10 * time.Minute
)

// Control is where a Compensator hears of losses, and how it schedules again what
// was lost. All but ReplayTopic and Lock must be set.
type Control struct {
	Kafka    Kafka
	Store    DueStore
	Appender Appender
	Group    string                    // in whose name it is kept how far the topic was read
	Topic    string                    // of one partition
	Buckets  func() orderclose.Buckets // those that records are put into at present
	// CloseTopic and ReplayTopic hold what is due already.
	CloseTopic, ReplayTopic string
	MaxDelay                func() time.Duration // how far ahead an order may be due, at present
	// Lock keeps other processes from acting on the same losses. It must not be the lock
	// of sweeps, which go on meanwhile. Without one every process acts, which changes
	// nothing but costs.
	Lock Lock
}

// Kafka is what a Compensator needs to hear of losses; kafka.Cluster has it. It is
// no member of its group, which would cost heartbeats: any process may act, and the
// lock has one of them do it.
type Kafka interface {
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	Read(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error)
	// Position returns the group's commit, negative if there is none.
	Position(ctx context.Context, group, topic string, partition int) (int64, error)
	// SetPosition commits for a group without members.
	SetPosition(ctx context.Context, group, topic string, partition int, offset int64) error
}

// Appender appends a record to the partition of the topic that its key belongs
// to, and returns when all in-sync replicas have it. An error that is
// orderclose.ErrRefused is final.
type Appender interface {
	Append(ctx context.Context, topic string, m orderclose.Message) error
}

func (k *Control) check() error {
	if k.Kafka == nil || k.Store == nil || k.Appender == nil || k.Group == "" || k.Topic == "" || k.Buckets == nil || k.CloseTopic == "" || k.MaxDelay == nil {
		return errors.New("compensator: Control needs Kafka, Store, Appender, Group, Topic, Buckets, CloseTopic and MaxDelay")
	}
	return nil
}

// reach is how far ahead an order may have been due whose record was in the topic.
// Who picked a bucket had less than the next one to wait, or anything at all if it
// is the largest. What is due already is not ahead. Of a topic that nobody knows
// anything is believed. Pure.
func (k *Control) reach(topic string) time.Duration {
	if topic == k.CloseTopic || topic == k.ReplayTopic {
		return 0
	}
	buckets := k.Buckets()
	for i, b := range buckets[:len(buckets)-1] {
		if b.Topic == topic {
			return buckets[i+1].Length
		}
	}
	return k.MaxDelay()
}

// knows says whether records are put into the topic at present.
func (k *Control) knows(topic string) bool {
	return topic == k.CloseTopic || topic == k.ReplayTopic ||
		slices.ContainsFunc(k.Buckets(), func(b orderclose.Bucket) bool { return b.Topic == topic })
}

// losses are those that were told of and not yet acted on.
type losses struct {
	n     int
	empty int // of logs in which nothing was ever seen, not yet logged
	since time.Time
	reach time.Duration
	told  time.Time // the last one, by the brokers' clock; zero: who knows
	// Orders were scheduled again up to after, of those due up to until; until is zero
	// if that is to begin, or to begin again because of another loss.
	after orderclose.Order
	until time.Time
	past  int64 // the offset behind the last record that told of one
	topic bool  // one of them is of the control topic itself
	was   int64 // and what its position was when that was noticed
}

// listener follows the control topic. It belongs to the goroutine of listen.
type listener struct {
	*Compensator
	k     *Control
	known bool             // it has been read before
	next  int64            // where to read on
	log   orderclose.LogID // that next is an offset of; zero: the present one
	kept  time.Time        // when it was last noted how far it was read
	lost  losses
	heard atomic.Int64 // losses ever heard of: a sweep is due after each
	done  int64        // those of them that were made up for
	// another has one element after a loss was heard of.
	another chan struct{}
	retry   time.Time // not to act again before
	avoided avoided
}

func newListener(c *Compensator) *listener {
	return &listener{Compensator: c, k: c.o.Control, another: make(chan struct{}, 1)}
}

// listen goes on until ctx ends, whatever happens: Kafka may be away, and sweeps
// go on.
func (c *Compensator) listen(ctx context.Context) {
	l := newListener(c)
	for failing := false; ctx.Err() == nil; {
		err := l.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failing = false
		case !failing:
			failing = true
			c.o.Logger.Warn("the control topic cannot be read; sweeps go on, but not at once when records are lost", "topic", l.k.Topic, "err", err)
		}
		wait := listenEvery
		if l.lost.n > 0 {
			ready := l.lost.since.Add(gatherFor)
			if l.retry.After(ready) {
				ready = l.retry
			}
			if time.Until(ready) <= 0 {
				l.act(ctx)
			} else {
				wait = min(wait, time.Until(ready))
			}
		}
		partition.Sleep(ctx, wait)
	}
}

// clockSkewTolerance is the largest difference expected between the clock that wrote
// created_at and the brokers' clock. A larger difference raises an alert.
const clockSkewTolerance = time.Second

// spared says whether the order's record cannot have been lost: it was created after
// the last loss was told of. A time after now, by the database's clock, is of a clock
// that is ahead: it may have been created long before. Pure.
func (l losses) spared(o orderclose.Order, now time.Time) bool {
	return !l.told.IsZero() && !o.CreatedAt.IsZero() && o.CreatedAt.After(l.told.Add(clockSkewTolerance)) && !o.CreatedAt.After(now.Add(clockSkewTolerance))
}

// look reads what has come.
func (l *listener) look(ctx context.Context) error {
	position, err := l.k.Kafka.Position(ctx, l.k.Group, l.k.Topic, 0)
	if err != nil {
		return err
	}
	first, end, err := l.k.Kafka.Bounds(ctx, l.k.Topic, 0)
	if err != nil {
		return err
	}
	switch {
	case !l.known && position >= 0:
		l.next = position
	case !l.known:
		l.next = first
	case position < 0 && !(l.lost.topic && l.lost.was < 0): // it was noted, and is gone with its topic
		l.next, l.log = first, orderclose.LogID{}
		l.noteTopic("the control topic was deleted and recreated", position)
	}
	l.known = true
	if l.next > end || l.next < first {
		l.next, l.log = first, orderclose.LogID{}
		l.noteTopic("the control topic was deleted and recreated, or has lost records", position)
	}
	if position < 0 && !l.lost.topic { // so that it is noticed if it goes; act does it where that was
		if err := l.keep(ctx, l.next); err != nil {
			return err
		}
	}
	for l.next < end {
		f, err := l.k.Kafka.Read(ctx, orderclose.Position{Topic: l.k.Topic, Offset: l.next, Log: l.log})
		if err != nil {
			return err
		}
		if f.Lost != nil {
			l.noteTopic(f.Lost.Err.Error(), position)
		}
		l.log = f.Log
		if f.Next == l.next && f.Lost == nil {
			break // the records are there, and cannot be read yet
		}
		l.next = f.Next
		for _, record := range f.Records {
			if string(record.Key()) == orderclose.KeyLost {
				l.hear(record)
			}
		}
	}
	if l.lost.n == 0 && time.Since(l.kept) > keepEvery {
		return l.keep(ctx, l.next)
	}
	return nil
}

// hear notes a record that tells of a loss.
func (l *listener) hear(record orderclose.RawRecord) {
	lost := orderclose.Lost{Reason: "it cannot be read what"}
	if m, err := record.Message(); err == nil {
		_ = json.Unmarshal(m.Value, &lost) // of what cannot be read anything is believed
	}
	l.note(lost, record.AppendedAt())
	l.lost.past = record.Offset + 1
}

func (l *listener) note(lost orderclose.Lost, told time.Time) {
	if lost.Last < lost.First { // as many as there are partitions, at each first start
		l.lost.empty++
	} else {
		l.o.Logger.Warn("records are lost: sweeping soon", "topic", lost.Topic, "partition", lost.Partition, "first", lost.First, "last", lost.Last, "reason", lost.Reason)
	}
	if l.lost.n == 0 {
		l.lost.since, l.lost.told = time.Now(), told
	}
	if told.IsZero() || !l.lost.told.IsZero() && told.After(l.lost.told) {
		l.lost.told = told
	}
	l.lost.n++
	l.lost.until = time.Time{} // what was scheduled again may be lost now
	l.heard.Add(1)
	select {
	case l.another <- struct{}{}:
	default:
	}
	if lost.Last < lost.First && !l.k.knows(lost.Topic) {
		return // relays serve a new bucket before anybody picks it: it has no records
	}
	l.lost.reach = max(l.lost.reach, l.k.reach(lost.Topic))
}

// noteTopic notes that the control topic itself lost records, where the position was
// that. Until somebody has acted on it the position stays.
func (l *listener) noteTopic(reason string, position int64) {
	l.note(orderclose.Lost{Topic: l.k.Topic, Reason: reason}, time.Time{})
	l.lost.topic, l.lost.was, l.lost.past = true, position, 0
}

func (l *listener) keep(ctx context.Context, offset int64) error {
	l.kept = time.Now()
	return l.k.Kafka.SetPosition(ctx, l.k.Group, l.k.Topic, 0, offset)
}

// act sweeps, schedules again what the lost records may have been of, and then
// notes that it was done. If that fails, or somebody else is at it, it is tried
// again.
func (l *listener) act(ctx context.Context) {
	if l.lost.empty > 0 {
		l.o.Logger.Info("partitions begin without a commit and without records, as at a first start: sweeping, to be sure", "partitions", l.lost.empty)
		l.lost.empty = 0
	}
	err := l.guarded(ctx, l.k.Lock, true, func(ctx context.Context, _ string) error {
		if wanted, err := l.notDone(ctx); err != nil || !wanted {
			return err
		}
		return l.makeUp(ctx)
	})
	switch {
	case err == nil:
		l.lost, l.done = losses{}, l.heard.Load()
		return
	case ctx.Err() != nil:
	case errors.Is(err, ErrHeld):
		l.o.Logger.Info("another process acts on the losses")
	default:
		l.o.Logger.Error("losses are not made up for yet, trying again", "in", l.schedule.ask(), "err", err)
	}
	l.retry = time.Now().Add(l.schedule.ask())
}

// makeUp sweeps and schedules orders again, both at once: neither waits for the other,
// and regular sweeps go on beside what may take hours. It listens meanwhile, and does
// both again if it hears of another loss.
func (l *listener) makeUp(ctx context.Context) error {
	at, err := l.o.Store.Now(ctx)
	if err != nil {
		return fmt.Errorf("asking the database for its clock: %w", err)
	}
	clock := databaseClock{at, time.Now()}
	swept, scheduled := make(chan sweptFor, 1), make(chan struct{})
	sweep := func() { go func() { swept <- l.sweepFor(ctx, scheduled) }() }
	sweep()
	once := sync.OnceFunc(func() { close(scheduled) })
	for failed, again := error(nil), true; ; again = failed != nil || l.lost.until.IsZero() {
		if again {
			failed = l.scheduleAgain(ctx, clock)
			once()
		}
		wait := listenEvery
		if failed != nil {
			failed, wait = fmt.Errorf("scheduling orders again: %w", failed), l.schedule.ask()
		}
		select {
		case s := <-swept:
			switch err := errors.Join(failed, s.err); {
			case err != nil:
				return err
			case s.heard == l.heard.Load():
				return l.keep(ctx, l.next)
			}
			sweep()
		case <-time.After(wait):
			_ = l.look(ctx) // listen tells if that fails for longer
		}
	}
}

// sweptFor is how a sweep went, and how many losses had been heard of when it began.
type sweptFor struct {
	heard int64
	err   error
}

// sweepFor sweeps because of losses, and again for each that is heard of until orders
// are scheduled. While somebody else is sweeping, who began before, it waits.
func (l *listener) sweepFor(ctx context.Context, scheduled <-chan struct{}) sweptFor {
	for {
		select {
		case <-l.another: // this sweep is for it
		default:
		}
		heard := l.heard.Load()
		_, err := l.hold(ctx, false, nil, func(ctx context.Context, r *Report) error {
			r.Lost = int(heard - l.done)
			return l.sweep(ctx, r)
		})
		switch {
		case errors.Is(err, ErrHeld) && partition.Sleep(ctx, l.schedule.ask()):
			continue
		case err != nil:
			return sweptFor{heard, err}
		}
		select {
		case <-l.another:
		case <-scheduled:
			return sweptFor{heard, nil}
		case <-ctx.Done():
			return sweptFor{heard, ctx.Err()}
		}
	}
}

// notDone asks, under the lock, whether another process has acted meanwhile: it has
// noted that it read past what told of the losses. Of a topic that is a new one, and
// maybe empty, the position must have moved.
func (l *listener) notDone(ctx context.Context) (bool, error) {
	position, err := l.k.Kafka.Position(ctx, l.k.Group, l.k.Topic, 0)
	if err != nil {
		return false, err
	}
	_, end, err := l.k.Kafka.Bounds(ctx, l.k.Topic, 0) // by now: who has acted may have read further than we have
	unmoved := l.lost.topic && position == l.lost.was
	wanted := position < l.lost.past || position > end || unmoved
	if err == nil && !wanted && l.lost.topic {
		// Who acted read the present log, which may not be the one that we noticed: the
		// topic may have been recreated once more while we waited.
		l.next, l.log = position, orderclose.LogID{}
	}
	return err == nil && wanted, err
}
