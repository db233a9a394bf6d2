package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
)

// tick is how often the producer sends the records whose turn it is.
const tick = 10 * time.Millisecond

// lateness is the distribution of received − due for the records of one rate.
type lateness struct {
	rate           int
	p50, p99, p999 time.Duration
	worst          time.Duration
	early          int
	used           usage // resources of the relay
}

// measureTiming measures lateness at each rate, and the burst.
func measureTiming(ctx context.Context, p *workspace, pl plan) ([]lateness, burst, error) {
	var all []lateness
	for _, rate := range pl.rates {
		l, err := measureLateness(ctx, p, rate, pl.spell)
		if err != nil {
			return nil, burst{}, fmt.Errorf("lateness at %d/s: %w", rate, err)
		}
		all = append(all, l)
	}
	b, err := measureBurst(ctx, p, pl.burst)
	if err != nil {
		return nil, burst{}, fmt.Errorf("burst: %w", err)
	}
	return all, b, nil
}

func measureLateness(ctx context.Context, p *workspace, rate int, spell time.Duration) (lateness, error) {
	l, err := openPipeline(ctx, p, 0, func(*job) {})
	if err != nil {
		return lateness{}, err
	}
	records := int(spell.Seconds()) * rate
	fmt.Fprintf(os.Stderr, "lateness: %d records, %d a second\n", records, rate)
	var got []received
	both, running := errgroup.WithContext(ctx)
	both.Go(func() error { return l.sendSteadily(running, time.Now(), rate, records) })
	both.Go(func() error {
		var err error
		got, err = l.receive(running, records)
		return err
	})
	err = both.Wait()
	used, stopped := l.close(ctx)
	if err == nil {
		err = stopped
	}
	if err != nil {
		return lateness{}, err
	}
	return summarize(rate, got, used), nil
}

// dueAt returns the due time of a record in a steady stream: bucketLength after it is
// to be sent.
func dueAt(begin time.Time, rate, number int) time.Time {
	return orderclose.CeilMilli(begin.Add(time.Duration(number)*time.Second/time.Duration(rate) + bucketLength))
}

// sendSteadily sends records at an even rate, from begin on.
func (l *pipeline) sendSteadily(ctx context.Context, begin time.Time, rate, records int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var behind time.Duration
	for sent := 0; sent < records; {
		for ; sent < records; sent++ {
			planned := begin.Add(time.Duration(sent) * time.Second / time.Duration(rate))
			lag := time.Since(planned)
			if lag < 0 {
				break
			}
			behind = max(behind, lag)
			if err := l.send(ctx, sent, dueAt(begin, rate, sent), func(err error) { cancel(err) }); err != nil {
				return err
			}
		}
		if !sleep(ctx, tick) {
			return context.Cause(ctx)
		}
	}
	if behind > time.Second {
		fmt.Fprintf(os.Stderr, "the producer itself fell behind by %v: this machine was busy\n", behind)
	}
	return l.producer.Flush(ctx)
}

func summarize(rate int, got []received, used usage) lateness {
	late := make([]time.Duration, len(got))
	early := 0
	for i, r := range got {
		if late[i] = r.late; r.late < 0 {
			early++
		}
	}
	slices.Sort(late)
	return lateness{rate, percentile(late, 0.5), percentile(late, 0.99), percentile(late, 0.999), late[len(late)-1], early, used}
}
