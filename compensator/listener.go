package compensator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// controlPollInterval is the time between two polls of the control topic.
const controlPollInterval = 5 * time.Second

// listener deals with losses: it reads their notices, decides when to act, sweeps, and
// schedules orders again. Its methods but sweepForLosses belong to the goroutine of
// listen.
type listener struct {
	c           *Compensator
	k           *Control
	topic       controlTopic
	polledAt    time.Time
	used        usedBuckets
	lost        losses           // read and not dealt with yet
	lossCount   atomic.Int64     // count of lost, for sweepForLosses
	swept       chan sweepResult // of the sweep that startSweep started; capacity 1
	rescheduler rescheduler
	retryAt     time.Time // no new attempt to act before this time
}

func newListener(c *Compensator) *listener {
	k := c.o.Control
	return &listener{
		c: c, k: k, used: usedBuckets{}, swept: make(chan sweepResult, 1),
		topic: controlTopic{kafka: k.Kafka, group: k.Group, name: k.Topic},
		rescheduler: rescheduler{
			store: c.calls, sender: newSender(k.Producers, c.o.Logger), buckets: k.Buckets, closeTopic: k.CloseTopic,
			limiter: c.rescheduleLimiter, grace: c.o.Grace, pageSize: c.o.PageSize,
			logger: c.o.Logger, count: c.metrics.rescheduled.Add,
		},
	}
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
		c.metrics.lossesOpen.Set(zeroOrOne(err != nil || l.lost.count > 0))
		wait := controlPollInterval
		if l.lost.count > 0 {
			ready := max(time.Until(l.lost.since.Add(gatherTime)), time.Until(l.retryAt))
			if ready <= 0 {
				l.act(ctx)
			} else {
				wait = min(wait, ready)
			}
		}
		retry.Sleep(ctx, wait)
	}
}

// poll reads the new notices of the control topic.
func (l *listener) poll(ctx context.Context) error {
	l.polledAt = time.Now()
	buckets := l.k.Buckets()
	l.used.update(l.k, buckets, l.polledAt)
	notices, err := l.topic.poll(ctx)
	for _, n := range notices {
		if !n.empty() { // act logs the empty logs, in one line
			l.c.o.Logger.Warn("records lost, will sweep", "topic", n.Topic, "partition", n.Partition, "first", n.First, "last", n.Last, "reason", n.Reason)
		}
		l.setLost(l.lost.with(n, l.used.dueWithin(l.k, n, buckets, l.polledAt), time.Now()))
	}
	return err
}

// setLost changes the losses. Orders that were scheduled again before a loss may be
// lost again.
func (l *listener) setLost(lost losses) {
	l.lost = lost
	l.lossCount.Store(int64(lost.count))
	l.rescheduler.restart() //mutant:loss-no-restart
}

// act sweeps, schedules again all orders whose records may be lost, and then commits
// the position. If that fails, or another process is doing it, act is called again
// later.
func (l *listener) act(ctx context.Context) {
	if l.lost.empty > 0 {
		l.c.o.Logger.Info("partitions without commit and without records, as at a first start: sweeping to be safe", "partitions", l.lost.empty)
		l.lost.empty = 0
	}
	err := l.c.withLock(ctx, l.k.Lock, true, func(ctx context.Context, _ string) error { //mutant:reschedule-blocks-sweep
		if wanted, err := l.topic.stillUnhandled(ctx); err != nil || !wanted {
			return err
		}
		return l.handleLosses(ctx)
	})
	switch {
	case err == nil:
		l.topic.unhandled = unhandled{}
		l.setLost(losses{})
		return
	case ctx.Err() != nil:
	case errors.Is(err, ErrHeld):
		l.c.o.Logger.Info("another process handles the losses")
	default:
		l.c.o.Logger.Error("handling of losses failed, will retry", "in", l.c.schedule.pollInterval(), "err", err)
	}
	l.retryAt = time.Now().Add(l.c.schedule.pollInterval())
}

// handleLosses sweeps and schedules orders again, both at the same time, and then
// commits the position. Scheduling may take hours; neither waits for the other, and
// regular sweeps go on. Meanwhile handleLosses polls the control topic, and does both
// again after another loss. It returns when the sweep has ended.
func (l *listener) handleLosses(ctx context.Context) error {
	at, err := l.c.o.Store.Now(ctx)
	if err != nil {
		return fmt.Errorf("read the database clock: %w", err)
	}
	clock := databaseClock{at, time.Now()}
	l.startSweep(ctx)
	for {
		wait := controlPollInterval
		failed := l.rescheduler.run(ctx, clock, l.refresh)
		if failed != nil {
			failed, wait = fmt.Errorf("schedule orders again: %w", failed), l.c.schedule.pollInterval()
		}
		select {
		case s := <-l.swept:
			switch err := errors.Join(failed, s.err); {
			case err != nil:
				return err
			case s.losses == l.lost.count:
				return l.topic.commit(ctx)
			}
			l.startSweep(ctx)
		case <-time.After(wait):
			_ = l.poll(ctx) // listen logs an error that lasts
		}
	}
}

// refresh is called while orders are scheduled. It polls the control topic every few
// seconds, sweeps again if there was another loss, and returns the losses.
func (l *listener) refresh(ctx context.Context) losses {
	if time.Since(l.polledAt) >= controlPollInterval {
		_ = l.poll(ctx) // listen logs an error that lasts
	}
	select {
	case s := <-l.swept:
		if s.err == nil && s.losses != l.lost.count {
			l.startSweep(ctx)
		} else {
			l.swept <- s // handleLosses receives it when the orders are scheduled
		}
	default: // the sweep goes on
	}
	return l.lost
}

// sweepResult is the result of a sweep, and the number of losses when it began.
type sweepResult struct {
	losses int
	err    error
}

// startSweep sweeps in another goroutine. The last sweep must have ended.
func (l *listener) startSweep(ctx context.Context) {
	go func() { l.swept <- l.sweepForLosses(ctx) }()
}

// sweepForLosses sweeps because of losses. It waits while another process is sweeping,
// because that sweep began before the loss.
func (l *listener) sweepForLosses(ctx context.Context) sweepResult {
	for {
		count := int(l.lossCount.Load())
		r, err := l.c.workOnce(ctx, false, nil, func(ctx context.Context, r *Report) error {
			r.Lost = count
			return l.c.sweep(ctx, r)
		})
		l.c.record(ctx, wire.SweepLosses, r, err)
		if !errors.Is(err, ErrHeld) || !retry.Sleep(ctx, l.c.schedule.pollInterval()) {
			return sweepResult{count, err}
		}
	}
}
