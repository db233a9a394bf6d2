package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
)

const (
	countAtRest   = 15 * time.Second // between two counts while no order is overdue
	countInterval = 5 * time.Second  // between two counts while some are
	countTimeout  = 10 * time.Second // of one count
	// countLockExpiry is how long a process that was killed keeps others from counting, and the interval
	// between two attempts of the others: together a minute.
	countLockExpiry = 30 * time.Second
)

// countOrders counts, beside a compensator, the overdue orders and the late payments in the database, until ctx ends. One
// compensator of all counts; without a lock each does.
func (a *App) countOrders(ctx context.Context) {
	lock, err := a.sweepLock("-count-overdue", countLockExpiry)
	if _, own := a.o.Store.(sweepSource); own || err != nil || a.conns.Store == nil {
		return // the role reports the error
	}
	asked := ops.Pipeline{Store: a.conns.Store}
	if a.conns.Kafka != nil {
		asked.Control = ops.NewControl(a.conns.Kafka, a.o.Config.Topics.Control)
	}
	var late *store.LateSummary // nil: not known
	count := func(ctx context.Context) (ops.OverdueOrders, error) {
		asked.Config, late = a.config(), nil
		if sum, err := asked.CountLate(ctx); err == nil {
			late = &sum
		} else {
			a.o.Logger.Warn("late payments cannot be counted, will retry", "err", err)
		}
		return asked.OverdueOrders(ctx)
	}
	report := func(o ops.OverdueOrders) {
		if o.At.IsZero() {
			late = nil
		}
		a.metrics.OverdueOrders(o)
		a.metrics.LatePayments(late)
	}
	orderCounter{lock, count, report, a.o.Logger}.run(ctx)
}

// orderCounter counts overdue orders while it has the lock.
type orderCounter struct {
	lock   compensator.Lock // nil: there is none
	count  func(context.Context) (ops.OverdueOrders, error)
	report func(ops.OverdueOrders) // the zero value: they are not known, or another process counts
	logger *slog.Logger
}

// run counts until ctx ends.
func (c orderCounter) run(ctx context.Context) {
	defer c.report(ops.OverdueOrders{})
	for ctx.Err() == nil {
		next, err := countLockExpiry, compensator.ErrLockUnavailable
		if c.lock != nil {
			err = c.lock.Hold(ctx, c.countOn)
		}
		if errors.Is(err, compensator.ErrLockUnavailable) || errors.Is(err, compensator.ErrLockStuck) {
			next, err = c.once(ctx)
		}
		if errors.Is(err, compensator.ErrHeld) { // another process counts; after a failed count the last one holds
			c.report(ops.OverdueOrders{})
		}
		retry.Sleep(ctx, next)
	}
}

// countOn counts until ctx ends or a count fails: then another process may have the lock.
func (c orderCounter) countOn(ctx context.Context) error {
	for {
		if next, err := c.once(ctx); err != nil || !retry.Sleep(ctx, next) {
			return err
		}
	}
}

// once counts once, and returns the time until the next count.
func (c orderCounter) once(ctx context.Context) (next time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	o, err := c.count(limited)
	switch {
	case ctx.Err() != nil:
		return countAtRest, ctx.Err()
	case err != nil:
		c.logger.Warn("overdue orders in the database cannot be counted, will retry", "err", err)
		return countAtRest, err
	}
	c.report(o)
	if o.Orders+o.Paused > 0 {
		return countInterval, nil
	}
	return countAtRest, nil
}
