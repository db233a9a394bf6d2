// Package compensator sweeps the database for orders that are overdue and still
// unpaid, and closes them by the same transaction as the pipeline does. It is
// the proof that nothing is missed: whatever Kafka lost, whoever died between
// commit and publish, the next sweep finds the order.
//
// A Compensator sweeps when it starts and every period after that (run in this
// file), under a lock in Redis so that one process does it at a time (lock.go).
// A sweep pages over what is overdue by more than a grace, oldest first
// (sweep.go). Its correctness rests on the transaction alone: two sweeps at once
// change nothing, and without Redis it sweeps all the same, and says so.
package compensator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"orderclose"
)

// Defaults of Options.
const (
	DefaultPeriod   = time.Hour
	DefaultGrace    = time.Minute
	DefaultPageSize = 500
)

// retryAfter is how soon a sweep that failed is tried again, if the period is
// longer.
const retryAfter = time.Minute

// Store is what a Compensator needs of the database.
type Store interface {
	// Now is the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Overdue returns up to limit unpaid orders due at or before the cutoff, in the
	// order of due time and id, after the given one; the zero Order begins.
	Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
	// CloseOrders closes what is unpaid and due; see package closer.
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Lock keeps sweeps from doing the same work twice. Hold calls work while the
// lock is held; the context it passes on ends when the lock may be lost. It
// returns ErrHeld if another process has the lock, an error that is
// ErrLockUnavailable if nobody can tell, both without having called work, and
// ErrLockLost if the lock went while work was under way.
type Lock interface {
	Hold(ctx context.Context, work func(ctx context.Context) error) error
}

// What can become of a lock.
var (
	ErrHeld            = errors.New("another process is sweeping")
	ErrLockUnavailable = errors.New("the lock's server is unavailable")
	ErrLockLost        = errors.New("the lock was lost during the sweep")
)

// Metrics takes what there is to count; internal/obs has one for Prometheus. Its
// methods must not block.
type Metrics interface {
	// Swept reports a sweep that was finished.
	Swept(r Report)
	// SweepFailed counts a sweep that could not be finished.
	SweepFailed()
	// SweepSkipped counts a sweep that was not begun: another process held the lock,
	// or the one before was still under way.
	SweepSkipped(reason string)
	// LockAvailable says whether the lock could be asked for.
	LockAvailable(ok bool)
	// Verdict counts one order.
	Verdict(path orderclose.Path, v orderclose.Verdict)
	// Lateness is how long after its due time an order was closed.
	Lateness(path orderclose.Path, d time.Duration)
}

// Options for a Compensator. Store must be set.
type Options struct {
	Store Store
	// Lock keeps other processes from sweeping at the same time. Without one every
	// process sweeps, which changes nothing but costs.
	Lock   Lock
	Period time.Duration // from the start of one sweep to the next; default DefaultPeriod
	// Investigator finds out why the pipeline missed what is found; nil: nobody asks.
	Investigator Investigator
	Grace        time.Duration // how far overdue an order must be; default DefaultGrace; negative is none
	PageSize     int           // orders per transaction; default DefaultPageSize
	Logger       *slog.Logger  // default: discard
	Metrics      Metrics       // default: none
}

// Compensator sweeps. Make it with New.
type Compensator struct {
	o Options
}

// New returns a Compensator, or says what is wrong with the options.
func New(o Options) (*Compensator, error) {
	if o.Store == nil {
		return nil, errors.New("compensator: Options need a Store")
	}
	if o.Period < 0 || o.PageSize < 0 {
		return nil, fmt.Errorf("compensator: Period is %v and PageSize %d, both must be positive", o.Period, o.PageSize)
	}
	if o.Period == 0 {
		o.Period = DefaultPeriod
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	o.Grace = max(o.Grace, 0)
	if o.PageSize == 0 {
		o.PageSize = DefaultPageSize
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	return &Compensator{o}, nil
}

// Run sweeps now and then once every period until ctx ends. A sweep that fails,
// or that finds the lock held, is tried again within a minute: so one that was
// killed is taken over as soon as its lock has expired. It always returns nil.
func (c *Compensator) Run(ctx context.Context) error {
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		_, err := c.Sweep(ctx, false)
		next = c.following(next, time.Now(), err)
		timer.Reset(time.Until(next))
	}
}

// following returns when the sweep after the one that was to begin at begun is
// to begin, and counts the periods that it took as skipped.
func (c *Compensator) following(begun, now time.Time, err error) time.Time {
	if err != nil { // also ErrHeld: its holder may be dead, and its sweep unfinished
		return now.Add(min(retryAfter, c.o.Period))
	}
	next := begun.Add(c.o.Period)
	for next.Before(now) {
		c.o.Metrics.SweepSkipped("running")
		next = next.Add(c.o.Period)
	}
	return next
}

// Sweep sweeps once, now. With dryRun it only finds and changes nothing. The
// report tells what was done also if an error cut it short; the error is ErrHeld
// if another process is sweeping.
func (c *Compensator) Sweep(ctx context.Context, dryRun bool) (Report, error) {
	var r Report
	work := func(ctx context.Context) (err error) {
		r, err = c.sweep(ctx, dryRun, "held")
		return err
	}
	err := ErrLockUnavailable
	if c.o.Lock != nil && !dryRun {
		err = c.o.Lock.Hold(ctx, work)
		c.o.Metrics.LockAvailable(!errors.Is(err, ErrLockUnavailable) || ctx.Err() != nil)
	}
	if errors.Is(err, ErrLockUnavailable) && ctx.Err() == nil {
		lock := "none"
		if c.o.Lock != nil && !dryRun {
			lock = "unavailable"
			c.o.Logger.Warn("sweeping without the lock: repeats are harmless, but cost", "err", err)
		}
		r, err = c.sweep(ctx, dryRun, lock)
	}
	c.tell(r, err)
	return r, err
}

// tell logs and counts how a sweep went.
func (c *Compensator) tell(r Report, err error) {
	switch {
	case errors.Is(err, context.Canceled):
		c.o.Logger.Info("the sweep was stopped", "report", r)
	case errors.Is(err, ErrHeld):
		c.o.Logger.Info("not sweeping: another process is")
		c.o.Metrics.SweepSkipped("held")
	case err != nil:
		c.o.Logger.Error("the sweep was not finished", "err", err, "report", r)
		c.o.Metrics.SweepFailed()
	default:
		c.o.Logger.Info("swept", "report", r)
		if !r.DryRun {
			c.o.Metrics.Swept(r)
		}
	}
}

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) Swept(Report)                                {}
func (noMetrics) SweepFailed()                                {}
func (noMetrics) SweepSkipped(string)                         {}
func (noMetrics) LockAvailable(bool)                          {}
func (noMetrics) Verdict(orderclose.Path, orderclose.Verdict) {}
func (noMetrics) Lateness(orderclose.Path, time.Duration)     {}
