package compensator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// orderTimeout is how long one order is tried before scheduling is interrupted and
// continued later: enough for four unanswered attempts, each in a smaller bucket.
const orderTimeout = 20 * time.Second

// databaseClock computes the database's time without asking the database again. It adds the local
// monotonic time since the last reading, so a wrong local clock does not matter.
type databaseClock struct{ at, read time.Time }

func (c databaseClock) now() time.Time { return c.at.Add(time.Since(c.read)) }

// rescheduler schedules again the orders whose records may be lost. It belongs to one
// goroutine.
type rescheduler struct {
	store      DueStore
	appender   Appender
	buckets    func() orderclose.Buckets
	closeTopic string
	limiter    *rate.Limiter // for orders
	grace      time.Duration // orders that are overdue for longer are left to the sweep
	pageSize   int
	logger     *slog.Logger
	count      func(orders int) // counts the orders that were scheduled

	avoided  avoided
	progress progress
}

// progress is how far the orders are scheduled again.
type progress struct {
	after    orderclose.Order // the last order that was scheduled
	until    time.Time        // orders due up to this time are scheduled; zero: scheduling has not begun
	complete bool
}

// restart makes the next page the first one.
func (s *rescheduler) restart() { s.progress = progress{} }

// run appends a record for each unpaid order whose record may be lost. Those are the orders
// that are due later than the sweep's cutoff, since the sweep closes the others, and no
// further ahead than the losses reach. An order whose record was not lost gets a duplicate,
// which is harmless. run calls refresh before each page. refresh returns the losses, and may
// call restart. After an error the next run continues after the last page. If all orders are
// scheduled, run does nothing.
func (s *rescheduler) run(ctx context.Context, clock databaseClock, refresh func(context.Context) losses) error {
	from, begin := clock.at.Add(-s.grace), time.Now()
	appended, refused := 0, 0
	defer func() {
		if appended+refused > 0 {
			s.logger.Info("scheduled orders again", "orders", appended, "refused", refused, "due_up_to", s.progress.after.Due.UTC(), "took", time.Since(begin))
		}
	}()
	for !s.progress.complete {
		lost := refresh(ctx)
		if s.progress.until.IsZero() {
			s.progress.until = clock.now().Add(lost.reach)
		}
		page, err := s.store.DueBetween(ctx, from, s.progress.until, s.progress.after, s.pageSize)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			s.progress.complete = true
			break
		}
		last := page[len(page)-1]
		page = slices.DeleteFunc(page, func(o orderclose.Order) bool { return lost.unaffected(o, clock.now()) })
		if err := s.limiter.WaitN(ctx, len(page)); err != nil {
			return err
		}
		n, err := s.publishAll(ctx, page, clock)
		if err != nil {
			return err
		}
		s.progress.after = last
		appended += len(page) - n
		refused += n
		s.count(len(page) - n)
	}
	return nil
}

// publishAll publishes the orders of a page concurrently. It returns how many orders
// cannot be scheduled.
func (s *rescheduler) publishAll(ctx context.Context, page []orderclose.Order, clock databaseClock) (int, error) {
	var refused atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	for _, o := range page {
		all.Go(func() error {
			err := s.publish(ctx, o, clock)
			final := (*orderclose.OrderError)(nil)
			if errors.As(err, &final) || errors.Is(err, wire.ErrRefused) {
				s.logger.Error("order not scheduled again, a sweep will close it after its due time", "order", o.ID, "err", err)
				refused.Add(1)
				return nil
			}
			return err
		})
	}
	err := all.Wait()
	return int(refused.Load()), err
}

// publish publishes one order as a producer does, but avoids buckets that accept no
// records.
func (s *rescheduler) publish(ctx context.Context, o orderclose.Order, clock databaseClock) error {
	if err := o.Validate(clock.now(), wire.MaxDelayLimit); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	topic := func(due time.Time) string {
		if remaining := due.Sub(clock.now()); remaining > 0 {
			return s.avoided.pick(s.buckets(), remaining).Topic
		}
		return s.closeTopic
	}
	return wire.Publisher{Appender: s.appender, Topic: topic, Failed: s.avoided.add}.Publish(ctx, o)
}
