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

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// controlPollInterval is the time between two polls of the control topic.
	controlPollInterval = 5 * time.Second
	// gatherTime is how long further losses are awaited after the first. A process
	// that loses one partition often loses more, and one sweep is enough for all.
	gatherTime = 10 * time.Second
	// controlCommitInterval is the time between two commits of the position in the
	// control topic while there are no losses.
	controlCommitInterval = 10 * time.Minute
)

// Control connects a Compensator to the control topic and lets it schedule orders
// again. All fields but ReplayTopic and Lock are required.
type Control struct {
	Kafka    Kafka
	Store    DueStore
	Appender Appender
	Group    string                    // consumer group that holds the position in Topic
	Topic    string                    // the control topic, with one partition
	Buckets  func() orderclose.Buckets // the buckets in use now
	// CloseTopic and ReplayTopic hold records of orders that were due already.
	CloseTopic, ReplayTopic string
	MaxDelay                func() time.Duration // the current maximum delay
	// Lock keeps other processes from acting on the same losses. It must not be the
	// lock for sweeps, because regular sweeps go on meanwhile. Without one every
	// process acts, which is harmless but costs database time.
	Lock Lock
}

// Kafka is the part of Kafka that a Compensator uses to read the control topic;
// kafka.Cluster implements it. A Compensator is not a member of its group, because a
// membership costs heartbeats. Any process may act on a loss; the lock selects one.
type Kafka interface {
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	Read(ctx context.Context, at wire.Position) (wire.Fetched, error)
	// Position returns the committed offset of the group, negative if there is none.
	Position(ctx context.Context, group, topic string, partition int) (int64, error)
	// SetPosition commits an offset for a group without members.
	SetPosition(ctx context.Context, group, topic string, partition int, offset int64) error
}

// Appender appends a record to the partition for its key, and returns when all
// in-sync replicas have it. An error that wraps wire.ErrRefused is final.
type Appender interface {
	Append(ctx context.Context, topic string, m wire.Message) error
}

func (k *Control) check() error {
	if k.Kafka == nil || k.Store == nil || k.Appender == nil || k.Group == "" || k.Topic == "" || k.Buckets == nil || k.CloseTopic == "" || k.MaxDelay == nil {
		return errors.New("compensator: Control needs Kafka, Store, Appender, Group, Topic, Buckets, CloseTopic and MaxDelay")
	}
	return nil
}

// reach returns how far ahead an order may have been due if its record was in the
// topic. For a bucket this is the length of the next larger bucket, and for the
// largest bucket the maximum delay. Orders in the close and the replay topic were due
// already. For an unknown topic it is the maximum delay. Pure.
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

// inUse reports whether records are appended to the topic at present.
func (k *Control) inUse(topic string) bool {
	return topic == k.CloseTopic || topic == k.ReplayTopic ||
		slices.ContainsFunc(k.Buckets(), func(b orderclose.Bucket) bool { return b.Topic == topic })
}

// losses are the reported losses that were not yet acted on.
type losses struct {
	n          int
	empty      int // losses of empty logs that were not yet logged
	since      time.Time
	reach      time.Duration
	reportedAt time.Time // append time of the last loss, by the brokers' clock; zero if unknown
	// Orders due up to until were scheduled again, up to the order after. until is
	// zero if scheduling has not begun, or must begin again because of another loss.
	after           orderclose.Order
	until           time.Time
	next            int64 // offset behind the last record with a loss
	control         bool  // one of the losses is of the control topic itself
	controlPosition int64 // the position when that loss was noticed
}

// listener reads the control topic. It belongs to the goroutine of listen.
type listener struct {
	*Compensator
	k           *Control
	started     bool       // a position was read before
	next        int64      // offset of the next read
	log         wire.LogID // the log that next is an offset of; zero: the current log
	committedAt time.Time  // when the position was last committed
	lost        losses
	lossCount   atomic.Int64 // number of losses so far; a sweep is due after each
	handled     int64        // the losses among them that were dealt with
	// wake has one element after a new loss.
	wake    chan struct{}
	retryAt time.Time // no new attempt to act before this time
	avoided avoided
}

func newListener(c *Compensator) *listener {
	return &listener{Compensator: c, k: c.o.Control, wake: make(chan struct{}, 1)}
}

// listen reads the control topic until ctx ends. If Kafka is unavailable it retries,
// and regular sweeps go on.
func (c *Compensator) listen(ctx context.Context) {
	l := newListener(c)
	for failing := false; ctx.Err() == nil; {
		err := l.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failing = false
		case !failing:
			failing = true
			c.o.Logger.Warn("control topic read failed, will retry: lost records start no sweep meanwhile", "topic", l.k.Topic, "err", err)
		}
		wait := controlPollInterval
		if l.lost.n > 0 {
			ready := l.lost.since.Add(gatherTime)
			if l.retryAt.After(ready) {
				ready = l.retryAt
			}
			if time.Until(ready) <= 0 {
				l.act(ctx)
			} else {
				wait = min(wait, time.Until(ready))
			}
		}
		retry.Sleep(ctx, wait)
	}
}

// clockSkewTolerance is the largest expected difference between the clock that wrote
// created_at and the brokers' clock. A larger difference raises an alert.
const clockSkewTolerance = time.Second

// unaffected reports that the order's record cannot have been lost: the order was created
// after the last loss was reported. A creation time after now, by the database's
// clock, comes from a clock that is ahead. Such an order may have been created much
// earlier, so it counts as affected. Pure.
func (l losses) unaffected(o orderclose.Order, now time.Time) bool {
	return !l.reportedAt.IsZero() && !o.CreatedAt.IsZero() && o.CreatedAt.After(l.reportedAt.Add(clockSkewTolerance)) && !o.CreatedAt.After(now.Add(clockSkewTolerance))
}

// poll reads the new records of the control topic.
func (l *listener) poll(ctx context.Context) error {
	position, err := l.k.Kafka.Position(ctx, l.k.Group, l.k.Topic, 0)
	if err != nil {
		return err
	}
	first, end, err := l.k.Kafka.Bounds(ctx, l.k.Topic, 0)
	if err != nil {
		return err
	}
	switch {
	case !l.started && position >= 0:
		l.next = position
	case !l.started:
		l.next = first
	case position < 0 && !(l.lost.control && l.lost.controlPosition < 0): // a position was committed, and is gone with its topic
		l.next, l.log = first, wire.LogID{}
		l.noteTopic("the control topic was deleted and recreated", position)
	}
	l.started = true
	if l.next > end || l.next < first {
		l.next, l.log = first, wire.LogID{}
		l.noteTopic("the control topic was deleted and recreated, or has lost records", position)
	}
	if position < 0 && !l.lost.control { // so that a deletion is noticed later; act commits if the topic itself had a loss
		if err := l.commit(ctx, l.next); err != nil {
			return err
		}
	}
	for l.next < end {
		f, err := l.k.Kafka.Read(ctx, wire.Position{Topic: l.k.Topic, Offset: l.next, Log: l.log})
		if err != nil {
			return err
		}
		if f.Lost != nil {
			l.noteTopic(f.Lost.Err.Error(), position)
		}
		l.log = f.Log
		if f.Next == l.next && f.Lost == nil {
			break // the records exist but cannot be read yet
		}
		l.next = f.Next
		for _, record := range f.Records {
			if string(record.Key()) == wire.KeyLost {
				l.handle(record)
			}
		}
	}
	if l.lost.n == 0 && time.Since(l.committedAt) > controlCommitInterval {
		return l.commit(ctx, l.next)
	}
	return nil
}

// handle handles the record of a loss.
func (l *listener) handle(record wire.RawRecord) {
	lost := wire.Lost{Reason: "the record of the loss is unreadable"}
	if m, err := record.Message(); err == nil {
		_ = json.Unmarshal(m.Value, &lost) // an unreadable record counts as a loss of unknown extent
	}
	l.note(lost, record.AppendedAt())
	l.lost.next = record.Offset + 1
}

func (l *listener) note(lost wire.Lost, reportedAt time.Time) {
	if lost.Last < lost.First { // one for each partition, at a first start
		l.lost.empty++
	} else {
		l.o.Logger.Warn("records lost, will sweep", "topic", lost.Topic, "partition", lost.Partition, "first", lost.First, "last", lost.Last, "reason", lost.Reason)
	}
	if l.lost.n == 0 {
		l.lost.since, l.lost.reportedAt = time.Now(), reportedAt
	}
	if reportedAt.IsZero() || !l.lost.reportedAt.IsZero() && reportedAt.After(l.lost.reportedAt) {
		l.lost.reportedAt = reportedAt
	}
	l.lost.n++
	l.lost.until = time.Time{} // orders that were scheduled again may be lost now
	l.lossCount.Add(1)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	if lost.Last < lost.First && !l.k.inUse(lost.Topic) {
		return // relays serve a new bucket before it is used: it has no records
	}
	l.lost.reach = max(l.lost.reach, l.k.reach(lost.Topic))
}

// noteTopic records that the control topic itself lost records while the position was
// the given one. The position stays until a process has acted on the loss.
func (l *listener) noteTopic(reason string, position int64) {
	l.note(wire.Lost{Topic: l.k.Topic, Reason: reason}, time.Time{})
	l.lost.control, l.lost.controlPosition, l.lost.next = true, position, 0
}

func (l *listener) commit(ctx context.Context, offset int64) error {
	l.committedAt = time.Now()
	return l.k.Kafka.SetPosition(ctx, l.k.Group, l.k.Topic, 0, offset)
}

// act sweeps, schedules again all orders whose records may be lost, and then commits
// the position. If that fails, or another process is doing it, act is called again
// later.
func (l *listener) act(ctx context.Context) {
	if l.lost.empty > 0 {
		l.o.Logger.Info("partitions without commit and without records, as at a first start: sweeping to be safe", "partitions", l.lost.empty)
		l.lost.empty = 0
	}
	err := l.withLock(ctx, l.k.Lock, true, func(ctx context.Context, _ string) error {
		if wanted, err := l.stillNeeded(ctx); err != nil || !wanted {
			return err
		}
		return l.handleLosses(ctx)
	})
	switch {
	case err == nil:
		l.lost, l.handled = losses{}, l.lossCount.Load()
		return
	case ctx.Err() != nil:
	case errors.Is(err, ErrHeld):
		l.o.Logger.Info("another process handles the losses")
	default:
		l.o.Logger.Error("handling of losses failed, will retry", "in", l.schedule.pollInterval(), "err", err)
	}
	l.retryAt = time.Now().Add(l.schedule.pollInterval())
}

// handleLosses sweeps and schedules orders again, both at the same time. Scheduling
// may take hours; neither waits for the other, and regular sweeps go on. Meanwhile
// handleLosses polls the control topic, and does both again after another loss.
func (l *listener) handleLosses(ctx context.Context) error {
	at, err := l.o.Store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the database clock: %w", err)
	}
	clock := databaseClock{at, time.Now()}
	swept, scheduled := make(chan sweepResult, 1), make(chan struct{})
	sweep := func() { go func() { swept <- l.sweepForLosses(ctx, scheduled) }() }
	sweep()
	once := sync.OnceFunc(func() { close(scheduled) })
	for failed, again := error(nil), true; ; again = failed != nil || l.lost.until.IsZero() {
		if again {
			failed = l.reschedule(ctx, clock)
			once()
		}
		wait := controlPollInterval
		if failed != nil {
			failed, wait = fmt.Errorf("schedule orders again: %w", failed), l.schedule.pollInterval()
		}
		select {
		case s := <-swept:
			switch err := errors.Join(failed, s.err); {
			case err != nil:
				return err
			case s.lossCount == l.lossCount.Load():
				return l.commit(ctx, l.next)
			}
			sweep()
		case <-time.After(wait):
			_ = l.poll(ctx) // listen logs an error that lasts
		}
	}
}

// sweepResult is the result of a sweep, and the number of losses when it began.
type sweepResult struct {
	lossCount int64
	err       error
}

// sweepForLosses sweeps because of losses, and again after each further loss until orders
// are scheduled. It waits while another process is sweeping, because that sweep began
// before the loss.
func (l *listener) sweepForLosses(ctx context.Context, scheduled <-chan struct{}) sweepResult {
	for {
		select {
		case <-l.wake: // this sweep handles it
		default:
		}
		count := l.lossCount.Load()
		_, err := l.hold(ctx, false, nil, func(ctx context.Context, r *Report) error {
			r.Lost = int(count - l.handled)
			return l.sweep(ctx, r)
		})
		switch {
		case errors.Is(err, ErrHeld) && retry.Sleep(ctx, l.schedule.pollInterval()):
			continue
		case err != nil:
			return sweepResult{count, err}
		}
		select {
		case <-l.wake:
		case <-scheduled:
			return sweepResult{count, nil}
		case <-ctx.Done():
			return sweepResult{count, ctx.Err()}
		}
	}
}

// stillNeeded reports, under the lock, whether the losses still have to be handled:
// whether no other process has committed a position behind them. If the control topic
// itself was recreated, and may be empty, an unchanged position means that none has.
func (l *listener) stillNeeded(ctx context.Context) (bool, error) {
	position, err := l.k.Kafka.Position(ctx, l.k.Group, l.k.Topic, 0)
	if err != nil {
		return false, err
	}
	_, end, err := l.k.Kafka.Bounds(ctx, l.k.Topic, 0) // read after the position: another process may have read further than this one
	if err != nil {
		return false, err
	}
	unmoved := l.lost.control && position == l.lost.controlPosition
	wanted := position < l.lost.next || position > end || unmoved
	if !wanted && l.lost.control {
		// The other process read the current log, which may not be the log that this
		// one noticed: the topic may have been recreated once more since.
		l.next, l.log = position, wire.LogID{}
	}
	return wanted, nil
}
