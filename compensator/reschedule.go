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

	"orderclose"
)

const (
	// appendTimeout is how long one try may stay unanswered before the bucket is
	// picked anew.
	appendTimeout = 5 * time.Second
	// appendPatience is how long one order is tried, before all that is left is tried
	// again later: four tries that get no answer, each in a smaller bucket.
	appendPatience = 20 * time.Second
	// avoidTime is for how long a bucket is avoided that accepted nothing.
	avoidTime = time.Minute
)

// avoided holds the topics of buckets that recently accepted no append, and until when
// each is avoided. Until then a record goes to the next smaller bucket. The relay of that
// bucket forwards the record as soon as the right bucket accepts it. Safe for concurrent
// use.
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
	a.until[topic] = time.Now().Add(avoidTime)
}

// DueStore is a Store that knows what is not due yet, too.
type DueStore interface {
	// DueBetween returns up to limit unpaid orders due from one moment to another, in
	// the order of Store.Overdue, after the given one; the zero Order begins.
	DueBetween(ctx context.Context, from, to time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
}

// databaseClock is the database's clock, as it was read at a moment by ours: ours may
// be wrong.
type databaseClock struct{ at, read time.Time }

func (c databaseClock) now() time.Time { return c.at.Add(time.Since(c.read)) }

// scheduleAgain appends a record for each order that is unpaid and was due at the
// earliest when a sweep that begins now ends, as far ahead as the losses reach. Orders
// whose record was not lost get another one, which is harmless. It listens meanwhile,
// and begins again if it hears of another loss.
func (l *listener) scheduleAgain(ctx context.Context, clock databaseClock) error {
	from, begin := clock.at.Add(-l.o.Grace), time.Now()
	looked, appended, refused := begin, 0, 0
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
		page = slices.DeleteFunc(page, func(o orderclose.Order) bool { return l.lost.spared(o, clock.now()) })
		if err := l.again.WaitN(ctx, len(page)); err != nil {
			return err
		}
		n, err := l.appendAll(ctx, page, clock.now)
		if err != nil {
			return err
		}
		l.lost.after = last
		appended += len(page) - n
		refused += n
		l.o.Metrics.ScheduledAgain(len(page) - n)
		if time.Since(looked) >= listenEvery {
			_ = l.look(ctx) // listen tells if that fails for longer
			looked = time.Now()
		}
	}
}

// appendAll appends the records of a page at once, and returns how many orders
// cannot be scheduled.
func (l *listener) appendAll(ctx context.Context, page []orderclose.Order, now func() time.Time) (int, error) {
	var refused atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	for _, o := range page {
		all.Go(func() error {
			err := l.append(ctx, o, now)
			final := (*orderclose.OrderError)(nil)
			if errors.As(err, &final) || errors.Is(err, orderclose.ErrRefused) {
				l.o.Logger.Error("an order cannot be scheduled again; the next sweep after its due time closes it", "order", o.ID, "err", err)
				refused.Add(1)
				return nil
			}
			return err
		})
	}
	err := all.Wait()
	return int(refused.Load()), err
}

// append schedules one order as a producer does: the bucket is picked at each try.
func (l *listener) append(ctx context.Context, o orderclose.Order, now func() time.Time) error {
	if err := o.Validate(now(), orderclose.MaxDelayLimit); err != nil {
		return err
	}
	m, err := orderclose.Record{Order: o, Release: o.Due}.Encode()
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
		if errors.Is(last, orderclose.ErrRefused) {
			return struct{}{}, backoff.Permanent(last)
		}
		if last != nil {
			l.avoided.add(topic)
		}
		return struct{}{}, last
	}, backoff.WithMaxElapsedTime(appendPatience))
	if err != nil {
		return fmt.Errorf("order %q: %w", o.ID, errors.Join(last, context.Cause(ctx)))
	}
	return nil
}
