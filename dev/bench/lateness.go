package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

// tick is how often the producer sends the records whose turn it is.
const tick = 10 * time.Millisecond

// warmUpStream is for how long a stream runs before the lateness of its records counts. In the first
// second of a stream the broker and the relay open connections, and the broker compiles code; that is
// the row "cold". Records that arrive early always count.
const warmUpStream = 5 * time.Second

// coldSpell is how long lateness is measured on a broker that has just started. With a minute, most
// of its code would be compiled by then.
const coldSpell = 8 * time.Second

// measureCold measures lateness at the first rate on a broker that runs code that is not compiled
// yet, for coldSpell.
func measureCold(ctx context.Context, p *workspace, pl plan) (lateness, error) {
	return measureLateness(ctx, p, pl.rates[0], 0, coldSpell)
}

// measureRates measures lateness at each rate.
func measureRates(ctx context.Context, p *workspace, pl plan) (all []lateness, err error) {
	// The disk must not write gigabytes of the throughput measurement while lateness is measured.
	syscall.Sync()
	for _, rate := range pl.rates {
		l, err := measureLateness(ctx, p, rate, warmUpStream, pl.spell)
		if err != nil {
			return nil, fmt.Errorf("lateness at %d/s: %w", rate, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// measureLateness measures the lateness of a stream that runs for the spell, after a warm-up.
func measureLateness(ctx context.Context, p *workspace, rate int, warmUp, spell time.Duration) (lateness, error) {
	l, err := openPipeline(ctx, p, 0, func(*job) {})
	if err != nil {
		return lateness{}, err
	}
	uncounted := int(warmUp.Seconds()) * rate
	records := uncounted + int(spell.Seconds())*rate
	fmt.Fprintf(os.Stderr, "lateness: %d records a second for %v, after a warm-up of %v\n", rate, spell, warmUp)
	got, err := l.stream(ctx, time.Now(), rate, records)
	used, stopped := l.close(ctx)
	if err == nil {
		err = stopped
	}
	if err != nil {
		return lateness{}, err
	}
	return summarize(rate, uncounted, got, used), nil
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

// stream sends records at an even rate, from begin on, and returns when all are received.
func (l *pipeline) stream(ctx context.Context, begin time.Time, rate, records int) (got []received, err error) {
	both, running := errgroup.WithContext(ctx)
	both.Go(func() error { return l.sendSteadily(running, begin, rate, records) })
	both.Go(func() error {
		var err error
		got, err = l.receive(running, records)
		return err
	})
	return got, both.Wait()
}

// summarize leaves out the lateness of records with numbers below uncounted. Early records always count.
func summarize(rate, uncounted int, got []received, used process.Used) lateness {
	l := lateness{Rate: rate, CPU: measure.Number(used.CPU.Seconds()), RSSMB: megabytes(used.Peak)}
	var late []time.Duration
	for _, r := range got {
		if r.late < 0 {
			l.Early++
		}
		if r.number >= uncounted {
			late = append(late, r.late)
		}
	}
	l.Spread = measure.SpreadOf(late)
	l.P999 = measure.Millis(measure.Percentile(late, 0.999))
	return l
}

// megabytes returns bytes in units of 2^20.
func megabytes(bytes int64) measure.Number { return measure.Number(bytes) / (1 << 20) }
