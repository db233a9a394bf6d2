package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// The numbers of the orders whose records do not wait.
const (
	firstClosed = 100_000_000
	firstLetter = 200_000_000
	firstTimed  = 300_000_000
	// sweepsOfAWeek is one for each hour.
	sweepsOfAWeek = 7 * 24
	// parkedAtLeast is the length of the smallest bucket in which records wait. None may leave
	// while the console is measured.
	parkedAtLeast = 30 * time.Minute
)

// consoleState is the pipeline that the console shows.
type consoleState struct {
	*served
	plan plan
}

// parks returns the buckets with waiting records.
func (s consoleState) parks() (long []orderclose.Bucket) {
	for _, b := range s.cfg.Buckets {
		if b.Length >= parkedAtLeast {
			long = append(long, b)
		}
	}
	return long
}

// parkedIn returns how many records wait in a bucket.
func (s consoleState) parkedIn(bucket int) int {
	n := len(s.parks())
	return s.plan.shown*(bucket+1)/n - s.plan.shown*bucket/n
}

// fill fills the topics, and the tables with some of the orders that wait.
func (s consoleState) fill(ctx context.Context, shop *shop) error {
	now := time.Now()
	first := 0
	for i, b := range s.parks() {
		l := load{first: first, records: s.parkedIn(i), partitions: partitions, batch: parkedBatch, size: recordSize, due: now.Add(b.Length)}
		if err := s.workspace.fill(ctx, b.Topic, l); err != nil {
			return err
		}
		first += l.records
	}
	due := now.Add(s.parks()[0].Length)
	if err := shop.fill(ctx, lot{orders: fillBatch, skus: manySKUs, due: func(int) time.Time { return due }}); err != nil {
		return err
	}
	closed := load{first: firstClosed, records: s.plan.closed, partitions: partitions, batch: parkedBatch, size: recordSize, due: now}
	if err := s.workspace.fill(ctx, s.cfg.Topics.Close, closed); err != nil {
		return err
	}
	s.workspace.groups = append(s.workspace.groups, s.cfg.CloserGroup())
	// A broker that has just started has no coordinator of groups yet.
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := process.Await(limited, s.closeAll); err != nil {
		return err
	}
	for topic, l := range map[string]load{
		s.cfg.Topics.Events: {records: s.plan.closed, partitions: partitions,
			message: func(n int) (wire.Message, error) { return closedEvent(firstClosed+n, now) }},
		s.cfg.Topics.DeadLetter: {records: s.plan.letters, partitions: 1, message: func(n int) (wire.Message, error) { return letter(n, now) }},
		s.cfg.Topics.Control:    {records: sweepsOfAWeek, partitions: 1, message: func(n int) (wire.Message, error) { return sweepNotice(n, now) }},
	} {
		l.batch = parkedBatch
		if err := s.workspace.fill(ctx, topic, l); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "%d records wait, %d orders are closed, %d dead letters are pending\n", s.plan.shown, s.plan.closed, s.plan.letters)
	return nil
}

// closedEvent returns the event of an order that was closed in time.
func closedEvent(number int, due time.Time) (wire.Message, error) {
	id := idOf(number)
	value, err := orderclose.OrderClosed{
		OrderID: id, Category: "virtual", Due: due, ClosedAt: due.Add(15 * time.Millisecond), Path: orderclose.PathPipeline, Version: 2,
	}.Encode()
	return wire.Message{Key: []byte(id), Value: value}, err
}

// letter returns a dead letter. There are five causes.
func letter(number int, due time.Time) (wire.Message, error) {
	m, err := message(firstLetter+number, due, recordSize)
	if err != nil {
		return m, err
	}
	m.Topic, m.Partition, m.Offset = "order-close", number%partitions, int64(number)
	cause := []string{"close_failed", "bad_due", "bad_value", "unknown_order", "too_many_attempts"}[number%5]
	return wire.DeadLetter(m, "closer", cause, "Error 1205 (HY000): Lock wait timeout exceeded; try restarting transaction"), nil
}

// sweepNotice returns the notice of a sweep of the last week, the oldest first. Each found nothing.
func sweepNotice(number int, now time.Time) (wire.Message, error) {
	at := now.Add(time.Duration(number+1-sweepsOfAWeek) * time.Hour).UTC()
	return wire.Sweep{StartedAt: at, Cutoff: at.Add(-5 * time.Second), TookMillis: 40, Lock: "held", Holder: "bench/1", Why: wire.SweepPeriod}.Encode()
}

// closeAll commits the close topic to its end, as closers do that have closed everything.
func (s consoleState) closeAll(ctx context.Context) error {
	ends, err := s.workspace.admin.ListEndOffsets(ctx, s.cfg.Topics.Close)
	if err = errors.Join(err, ends.Error()); err != nil {
		return err
	}
	return s.workspace.admin.CommitAllOffsets(ctx, s.cfg.CloserGroup(), ends.Offsets())
}

// allWait returns an error if a waiting record has left its bucket. Then the pages showed less
// than they should.
func (s consoleState) allWait(ctx context.Context) error {
	n, err := s.workspace.length(ctx, s.cfg.Topics.Close)
	if err == nil && n != s.plan.closed {
		err = fmt.Errorf("%s holds %d records, want %d: records left their bucket while the console was measured", s.cfg.Topics.Close, n, s.plan.closed)
	}
	return err
}

// measureLateness measures the relay at 1,000 records a second with delays of 5 s, in turns
// without a console and with one that is open on Now.
func (s consoleState) measureLateness(ctx context.Context) (without, with stream, err error) {
	l := &pipeline{workspace: s.workspace, job: job{Source: s.cfg.Buckets[0].Topic, Target: s.cfg.Topics.Close}}
	if err := l.connect(); err != nil {
		return without, with, err
	}
	defer l.producer.Close()
	defer l.consumer.Close()
	if _, err := l.receive(ctx, s.plan.closed); err != nil {
		return without, with, err
	}
	if err := l.warmUp(ctx, firstTimed); err != nil {
		return without, with, err
	}
	measured := func() (lateness, error) { return s.stream(ctx, l) }
	var alone, beside []lateness
	for round := range s.plan.rounds {
		a, err := measured()
		if err != nil {
			return without, with, err
		}
		c, err := s.openConsole(ctx)
		if err != nil {
			return without, with, err
		}
		var b lateness
		err = c.hold(ctx, func() error { b, err = measured(); return err })
		if err := errors.Join(err, c.stop()); err != nil {
			return without, with, err
		}
		fmt.Fprintf(os.Stderr, "round %d  p99 without a console %v, with one %v\n", round+1, time.Duration(a.P99), time.Duration(b.P99))
		alone, beside = append(alone, a), append(beside, b)
	}
	return streamOf(alone), streamOf(beside), nil
}

// stream sends records for the spell, after a warm-up, and commits the close topic meanwhile.
func (s consoleState) stream(ctx context.Context, l *pipeline) (lateness, error) {
	rate := s.plan.rates[0]
	uncounted := int(warmUpStream.Seconds()) * rate
	records := uncounted + int(s.plan.spell.Seconds())*rate
	all, running := errgroup.WithContext(ctx)
	streaming, done := context.WithCancel(running)
	defer done()
	var got []received
	all.Go(func() (err error) {
		defer done()
		got, err = l.stream(running, time.Now(), rate, records)
		return err
	})
	all.Go(func() error {
		for sleep(streaming, time.Second) {
			if err := s.closeAll(running); err != nil && running.Err() == nil {
				return err
			}
		}
		return nil
	})
	if err := all.Wait(); err != nil {
		return lateness{}, err
	}
	return summarize(rate, uncounted, got, process.Used{}), nil
}
