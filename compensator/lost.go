package compensator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
// was lost. All but ReplayTopic must be set.
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
}

// Kafka is what a Compensator needs to hear of losses; kafka.Cluster has it. It is
// no member of its group, which would cost heartbeats: any process may act, and the
// lock has one of them do it.
type Kafka interface {
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	Fetch(ctx context.Context, topic string, partition int, offset int64) (orderclose.Fetched, error)
	// Position returns the group's commit, negative if there is none.
	Position(ctx context.Context, group, topic string, partition int) (int64, error)
	// SetPosition commits for a group without members.
	SetPosition(ctx context.Context, group, topic string, partition int, offset int64) error
}

// Appender appends a record to the partition of the topic that its key belongs
// to, and returns when all in-sync replicas have it. An error that is
// orderclose.ErrTooLarge or orderclose.ErrRefused is final.
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

// losses are those that were told of and not yet acted on.
type losses struct {
	n     int
	empty int // of logs in which nothing was ever seen, not yet logged
	since time.Time
	reach time.Duration
	told  time.Time        // the last one, by the brokers' clock; zero: who knows
	after orderclose.Order // up to which the orders were scheduled again by a try that failed
	until time.Time        // and how far that was to go; zero: there was none
	past  int64            // the offset behind the last record that told of one
	topic bool             // one of them is of the control topic itself
	was   int64            // and what its position was when that was noticed
}

// listener follows the control topic. It belongs to the goroutine of listen.
type listener struct {
	*Compensator
	k     *Control
	known bool      // it has been read before
	next  int64     // where to read on
	kept  time.Time // when it was last noted how far it was read
	lost  losses
	retry time.Time // not to act again before
}

// listen goes on until ctx ends, whatever happens: Kafka may be away, and sweeps
// go on.
func (c *Compensator) listen(ctx context.Context) {
	l := &listener{Compensator: c, k: c.o.Control}
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

// clocksApart is by how much the clock that wrote when an order was created and the
// brokers' may differ; more is an alert.
const clocksApart = time.Second

// spared says whether the order's record cannot have been lost: it was created after
// the last loss was told of. A time after now, by the database's clock, is of a clock
// that is ahead: it may have been created long before. Pure.
func (l losses) spared(o orderclose.Order, now time.Time) bool {
	return !l.told.IsZero() && !o.CreatedAt.IsZero() && o.CreatedAt.After(l.told.Add(clocksApart)) && !o.CreatedAt.After(now.Add(clocksApart))
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
		l.next = first
		l.noteTopic("the control topic was made anew", position)
	}
	l.known = true
	if l.next > end || l.next < first {
		l.next = first
		l.noteTopic("the control topic was made anew, or has lost records", position)
	}
	if position < 0 && !l.lost.topic { // so that it is noticed if it goes; act does it where that was
		if err := l.keep(ctx, l.next); err != nil {
			return err
		}
	}
	for l.next < end {
		f, err := l.k.Kafka.Fetch(ctx, l.k.Topic, 0, l.next)
		if err != nil {
			return err
		}
		if f.Next == l.next {
			break // it is there, and not to be had yet
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
	if reach := l.k.reach(lost.Topic); reach > l.lost.reach {
		l.lost.reach, l.lost.until = reach, time.Time{} // a try that failed did not go so far
	}
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
	_, err := l.hold(ctx, false, l.notDone, func(ctx context.Context, r *Report) error {
		r.Lost = l.lost.n
		if err := l.sweep(ctx, r); err != nil {
			return err
		}
		if err := l.scheduleAgain(ctx, r); err != nil {
			return fmt.Errorf("scheduling orders again: %w", err)
		}
		return l.keep(ctx, l.next)
	})
	if err == nil || errors.Is(err, errNotWanted) {
		l.lost = losses{}
		return
	}
	l.retry = time.Now().Add(l.schedule.ask())
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
	return err == nil && (position < l.lost.past || position > end || unmoved), err
}
