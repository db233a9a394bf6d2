package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// appendTimeout is how long one attempt may stay unanswered before the bucket is
	// picked again.
	appendTimeout = 5 * time.Second
	// orderTimeout is how long one order is tried before scheduling is interrupted
	// and continued later: enough for four unanswered attempts, each in a smaller
	// bucket.
	orderTimeout = 20 * time.Second
	// avoidDuration is how long a bucket is avoided after an append failed.
	avoidDuration = time.Minute
)

// avoided holds the buckets whose last append failed, and until when each is avoided.
// Until then records go to the next smaller bucket. The relay of that bucket forwards
// them as soon as the right bucket accepts records. It is safe for concurrent use.
type avoided struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// pick returns the bucket for the remaining time, or the largest smaller bucket that is
// not avoided. If all of them are avoided, it returns the bucket for the remaining time.
func (a *avoided) pick(buckets orderclose.Buckets, remaining time.Duration) orderclose.Bucket {
	a.mu.Lock()
	defer a.mu.Unlock()
	best := buckets.Pick(remaining)
	for _, b := range slices.Backward(buckets.Open()) {
		if b.Length <= best.Length && time.Now().After(a.until[b.Topic]) {
			return b
		}
	}
	return best
}

func (a *avoided) add(topic string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[string]time.Time{}
	}
	a.until[topic] = time.Now().Add(avoidDuration)
}

// DueStore is a Store that also returns orders that are not due yet.
type DueStore interface {
	// DueBetween returns up to limit unpaid orders due between from and to, ordered
	// and paged as in Store.Overdue.
	DueBetween(ctx context.Context, from, to time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
}

// databaseClock tells the database's time without asking it again. It adds the local
// monotonic time since the last reading, so a wrong local clock does not matter.
type databaseClock struct{ at, read time.Time }

func (c databaseClock) now() time.Time { return c.at.Add(time.Since(c.read)) }

// reschedule appends a record for each unpaid order that the sweep may not find,
// since it is due later than the sweep's cutoff, as far ahead as the losses reach. An
// order whose record was not lost gets a duplicate, which is harmless. It polls the
// control topic meanwhile, and begins again after another loss.
func (l *listener) reschedule(ctx context.Context, clock databaseClock) error {
	from, begin := clock.at.Add(-l.o.Grace), time.Now()
	polled, appended, refused := begin, 0, 0
	defer func() {
		if appended+refused > 0 {
			l.o.Logger.Info("scheduled orders again", "orders", appended, "refused", refused, "due up to", l.lost.after.Due.UTC(), "took", time.Since(begin))
		}
	}()
	for {
		if l.lost.until.IsZero() {
			l.lost.after, l.lost.until = orderclose.Order{}, clock.now().Add(l.lost.reach)
		}
		page, err := l.k.Store.DueBetween(ctx, from, l.lost.until, l.lost.after, l.o.PageSize)
		if err != nil || len(page) == 0 {
			return err
		}
		last := page[len(page)-1]
		page = slices.DeleteFunc(page, func(o orderclose.Order) bool { return l.lost.unaffected(o, clock.now()) })
		if err := l.rescheduleLimiter.WaitN(ctx, len(page)); err != nil {
			return err
		}
		n, err := l.appendAll(ctx, page, clock.now)
		if err != nil {
			return err
		}
		l.lost.after = last
		appended += len(page) - n
		refused += n
		l.o.Metrics.Rescheduled(len(page) - n)
		if time.Since(polled) >= controlPollInterval {
			_ = l.poll(ctx) // listen logs an error that lasts
			polled = time.Now()
		}
	}
}

// appendAll appends the records of a page concurrently. It returns how many orders
// cannot be scheduled.
func (l *listener) appendAll(ctx context.Context, page []orderclose.Order, now func() time.Time) (int, error) {
	var refused atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	for _, o := range page {
		all.Go(func() error {
			err := l.append(ctx, o, now)
			final := (*orderclose.OrderError)(nil)
			if errors.As(err, &final) || errors.Is(err, wire.ErrRefused) {
				l.o.Logger.Error("order not scheduled again, a sweep will close it after its due time", "order", o.ID, "err", err)
				refused.Add(1)
				return nil
			}
			return err
		})
	}
	err := all.Wait()
	return int(refused.Load()), err
}

// append schedules one order as a producer does: it picks the bucket for each
// attempt.
func (l *listener) append(ctx context.Context, o orderclose.Order, now func() time.Time) error {
	if err := o.Validate(now(), wire.MaxDelayLimit); err != nil {
		return err
	}
	m, err := wire.Record{Order: o, Release: o.Due}.Encode()
	if err != nil {
		return err
	}
	var last error
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		trying, cancel := context.WithTimeout(ctx, appendTimeout)
		defer cancel()
		topic := l.k.CloseTopic
		if remaining := o.Due.Sub(now()); remaining > 0 {
			topic = l.avoided.pick(l.k.Buckets(), remaining).Topic
		}
		last = l.k.Appender.Append(trying, topic, m)
		if errors.Is(last, wire.ErrRefused) {
			return struct{}{}, backoff.Permanent(last)
		}
		if last != nil {
			l.avoided.add(topic)
		}
		return struct{}{}, last
	}, backoff.WithMaxElapsedTime(orderTimeout))
	if err != nil {
		return fmt.Errorf("order %q: %w", o.ID, errors.Join(last, context.Cause(ctx)))
	}
	return nil
}
