// Package compensator sweeps the database for unpaid orders that are overdue, and
// closes them by the same Store as the pipeline. It is the safety net of the
// pipeline: if Kafka lost a record, or a process died between commit and publish, the
// next sweep closes the order. Create a Compensator with New and call Run, or call
// Sweep for a single sweep.
//
// Any number of Compensators may run. Each asks the database once a minute when the
// last sweep finished, by the database's clock. If a sweep is due, the Compensator takes
// a lock in Redis or in the database, asks again, sweeps, and stores that it has finished. So one Compensator sweeps in each period.
// If it is killed, another takes over within two minutes: one minute until the lock
// expires, and one until the next poll.
//
// A sweep pages over the orders that are overdue by more than a grace, oldest first,
// at a limited rate. Closed orders are not found again, so a sweep that is
// restarted continues where it stopped.
//
// One of all Compensators is the keeper, which has works beside the sweeps:
//
//   - It looks for orders that are overdue by more than 5 s, each 15 s, and sweeps at once if nothing explains such an order: whatever
//     lost its record, the order is closed within half a minute, or a minute where reading all open orders takes long.
//   - With a Recheck, it asks the payment provider again about orders that were closed, some time after the close. The late payments
//     that it finds are recorded.
//   - It does the Works of the options.
//
// Sweeps need no keeper: the database says when the last one has finished, so a keeper that hangs holds up none.
//
//	compensator.go    options, start and stop, and one sweep under the lock
//	period.go         when a sweep is due; ownLog
//	sweep.go          a sweep: its pages, and what is tried again
//	keeper.go         the works that one of all Compensators does
//	overdue.go        looks for overdue orders, and the series of sweeps that they start
//	resting.go        orders that such sweeps leave out for a while
//	paused.go         categories that are paused: a sweep asks about few of their orders
//	lock.go           work under the lock, and without it
//	locks.go          the lock in Redis, and the lock in the database
//	report.go         the result of a sweep, and why orders were missed
//	calls.go          calls of the user's code: time limits, panics, checks of the pages of a Store
//	history.go        appends a record of each sweep to the control topic
//	metrics.go        metrics
//	recheck.go        asks the payment provider again about closed orders
//
// Code of the user may hang, panic or break its contract. Each call has a time limit, and a panic is an
// error; the pages of a Store are checked. With a History, a Compensator appends a record of each sweep
// to the control topic.
//
// Correctness depends only on the Store, which closes each order once: two sweeps at the
// same time close the same orders as one sweep. If the server of the lock does not answer, a Compensator
// sweeps without the lock, and logs a warning.
package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// Stage is the name of a compensator in logs.
const Stage = "compensator"

// Defaults of Options.
const (
	DefaultPeriod   = time.Hour
	DefaultGrace    = time.Minute
	DefaultPageSize = 500
	// DefaultRate is a fifth to a third of what a database with two cores closes (16 to 25 k orders/s,
	// make bench-sweep). A sweep after days of outage leaves the rest of the capacity
	// to closers and checkout. It allows 18 million orders an hour.
	DefaultRate = 5000
)

// Store is the part of the database that a Compensator uses. A call that takes two minutes counts as
// failed, and its context ends. A panic is an error.
type Store interface {
	// Now returns the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Overdue returns up to limit unpaid orders that are due at or before cutoff,
	// ordered by due time and id, after the given order. The zero Order starts at the
	// beginning. A page that breaks this contract ends the sweep with an error.
	Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
	// CloseOrders closes the requested orders that are unpaid and due; see closer.Store,
	// also for the optional methods Probe and MaxBatch.
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// SweepLog stores when sweeps finished. All processes that sweep the same orders share one
// SweepLog.
type SweepLog interface {
	// LastSweep returns when the last sweep of that name finished, zero if never, and
	// the current time, both by the same clock.
	LastSweep(ctx context.Context, name string) (finished, now time.Time, err error)
	// SweepFinished stores that a sweep of that name finished now.
	SweepFinished(ctx context.Context, name string) error
}

// Lock keeps two processes from sweeping at the same time. Hold calls work while it
// holds the lock; the context of work ends when the lock may be lost. Hold returns,
// without calling work, an error that wraps ErrHeld if another process has the lock,
// ErrLockUnavailable if the lock server does not answer, or ErrLockStuck if no
// process has the lock and it cannot be taken. It returns ErrLockLost if the lock was
// lost while work ran.
type Lock interface {
	Hold(ctx context.Context, work func(ctx context.Context) error) error
}

// Errors of a Lock.
var (
	ErrHeld            = errors.New("another process is sweeping")
	ErrLockUnavailable = errors.New("the lock server is unavailable")
	ErrLockStuck       = errors.New("the lock is held by no process")
	ErrLockLost        = errors.New("the lock was lost during the sweep")
)

// errAlreadyDone means that no sweep was begun because another process had finished
// one.
var errAlreadyDone = errors.New("another process has finished it")

// Options configure a Compensator. Store is required.
type Options struct {
	Store Store
	// Name identifies the orders that are swept. Compensators with the same Name and
	// SweepLog share one sweep per period. At most 249 ASCII characters.
	Name string
	// SweepLog stores when sweeps finished. Without one each Compensator remembers its own
	// sweeps, and sweeps when it starts.
	SweepLog SweepLog
	// Lock keeps other processes from sweeping at the same time. Without one every
	// process sweeps, which is harmless but costs database time.
	Lock Lock
	// KeeperLock keeps other processes from the Works, from asking the payment provider again, and from looking for overdue orders. It
	// must not be Lock. A process keeps it for as long as it lives. Without one every process does them.
	KeeperLock Lock
	// Works are what one of all Compensators does beside the sweeps.
	Works []Work
	// Pauses returns the pauses that are on, by any path: their orders start no sweep. An error means that they are not
	// known. Default: there are none.
	Pauses func(ctx context.Context) ([]Pause, error)
	// Backlog returns how far the pipeline is, within 5 s: orders of a pipeline that is late start no sweep for two minutes.
	// Default: the zero value.
	Backlog  func(ctx context.Context) Backlog
	Period   time.Duration // time between sweeps; default DefaultPeriod
	Grace    time.Duration // minimum time that an order is overdue; default DefaultGrace; negative: none
	PageSize int           // orders per transaction; default DefaultPageSize
	// Rate limits the orders per second that a sweep closes. Default DefaultRate; negative: no limit.
	Rate int
	// Investigator finds out why orders were missed. Without one the cause is
	// Unknown.
	Investigator Investigator
	Recheck      *Recheck // how the payment provider is asked again about closed orders; nil: it is not
	History      *History // where the Compensator records its sweeps; nil: nowhere
	// Alone says that no pipeline closes orders beside the sweeps, which may follow each other within seconds. So the
	// orders that a sweep finds were not missed: it counts no causes, and logs only sweeps that closed orders or failed to.
	// An order that a sweep could not close is left out of the next sweeps, longer each time, up to 5 minutes. Overdue orders start
	// no other sweeps.
	Alone bool
	// PausesCategories says that the Store pauses whole categories: if it answers Paused on an order, it would on every
	// order of that category. Then a sweep asks about few of them. Otherwise Paused says nothing about other orders.
	PausesCategories bool
	// Progress is called after each page with the report so far; may be nil.
	Progress func(Report)
	// Missed is called with all orders of a page that were closed; a report names
	// only a hundred. It is not called without an Investigator, nor if the Investigator
	// could not begin. May be nil.
	Missed func([]Miss)
	// Category returns the label value for an order's category in the metric of lateness. Each
	// value adds a histogram, so it must return few. Several goroutines call it at once. Default: all
	// orders have the value "default".
	Category func(category string) string
	// OnHang is called with the reason when a call of the Store, SweepLog or Lock ignores the end of its
	// context. The process should end then, because the call cannot be stopped. OnHang may return: the
	// sweep fails, and its lock is released. Default: panic.
	OnHang func(why string)
	// LockChecked, if not nil, is called each 15 s with the result of the method Available of the Lock,
	// if the Lock has one; nil: it can be taken.
	LockChecked func(err error)
	Logger      *slog.Logger // default: warnings and errors, to slog.Default
	// Registerer gets the metrics (orderclose_…). Compensators of one process may share it.
	// Default: no metrics.
	Registerer prometheus.Registerer
}

// Compensator sweeps. Create it with New.
type Compensator struct {
	o           Options
	metrics     *sweepMetrics
	calls       *calls
	schedule    schedule
	limiter     *rate.Limiter // for sweeps
	slowLimiter *rate.Limiter // for sweeps of a series beside closers that are behind
	culprits    *bisect.Culprits
	recorder    recorder

	busy       chan struct{}                       // holds a token while this process sweeps or looks for overdue orders; protects the fields below
	looking    atomic.Bool                         // the keeper has busy
	failedAt   time.Time                           // when a sweep of this process last failed. The keeper leaves the lock to others for lookAtRest
	from       orderclose.Order                    // the next sweep starts after this order; zero: at the beginning
	lastFailed map[string]failing                  // orders that failed in the last finished sweep, or before and rest since
	named      map[orderclose.FailureCause]failing // the failure that was logged last
	resting    resting
	paused     pauses // that the last sweep met
}

// New returns a Compensator, or an error if the options are invalid.
func New(o Options) (*Compensator, error) {
	if o.Store == nil {
		return nil, errors.New("compensator: Options need a Store")
	}
	if o.Period < 0 || o.PageSize < 0 {
		return nil, fmt.Errorf("compensator: Period is %v and PageSize %d, neither may be negative", o.Period, o.PageSize)
	}
	if err := cmp.Or(o.Recheck.check(), o.History.check()); err != nil {
		return nil, err
	}
	if o.SweepLog == nil {
		o.SweepLog = &ownLog{clock: o.Store, finished: map[string]time.Time{}}
	}
	if o.LockChecked == nil {
		o.LockChecked = func(error) {}
	}
	if o.OnHang == nil {
		o.OnHang = func(why string) { panic("compensator: " + why) }
	}
	o.Period = cmp.Or(o.Period, DefaultPeriod)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.Grace = max(o.Grace, 0)
	o.PageSize = cmp.Or(o.PageSize, DefaultPageSize)
	o.Rate = cmp.Or(o.Rate, DefaultRate)
	o.Logger = retry.LimitLogs(o.Logger)
	m, err := newMetrics(o.Registerer, o.Period, o.Category)
	if err != nil {
		return nil, fmt.Errorf("compensator: %w", err)
	}
	calls := &calls{store: o.Store, log: o.SweepLog, onHang: o.OnHang, logger: o.Logger}
	o.Store, o.SweepLog = calls, calls
	if o.Pauses == nil {
		o.Pauses = func(context.Context) ([]Pause, error) { return nil, nil }
	}
	if o.Backlog == nil {
		o.Backlog = func(context.Context) Backlog { return Backlog{} }
	}
	limit := rate.Limit(o.Rate)
	if o.Rate < 0 {
		limit = rate.Inf
	}
	return &Compensator{
		o: o, metrics: m, calls: calls, schedule: newSchedule(o.Period, o.Name),
		limiter: rate.NewLimiter(limit, o.PageSize), slowLimiter: rate.NewLimiter(limit/shareBesideClosers, o.PageSize),
		culprits: &bisect.Culprits{Limited: true, Logger: o.Logger},
		recorder: recorder{history: o.History, logger: o.Logger}, busy: make(chan struct{}, 1), resting: resting{}, named: map[orderclose.FailureCause]failing{},
	}, nil
}

// Run sweeps whenever a sweep is due, until ctx ends. A sweep that failed, or that
// found the lock held, is tried again within a minute if it is still due then. Run returns nil when all
// its goroutines have stopped.
func (c *Compensator) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	beside.Go(func() { c.watchLock(ctx) })
	beside.Go(func() { c.keep(ctx) })
	for ctx.Err() == nil {
		wait := c.tick(ctx)
		_ = c.recorder.flush(ctx) // the failure is logged already
		retry.Sleep(ctx, wait)
	}
	beside.Wait()
	return nil
}

// keep does the works of the keeper until ctx ends.
func (c *Compensator) keep(ctx context.Context) {
	k, works := &keeper{c: c, resign: make(chan struct{})}, slices.Clone(c.o.Works)
	if c.o.Recheck != nil {
		works = append(works, c.recheck())
	}
	if !c.o.Alone {
		l := &lookout{Compensator: c, keeper: k}
		works = append(works, Work{l.do, l.idle})
	}
	if len(works) > 0 {
		k.run(ctx, works)
	}
}

// tick sweeps if a sweep is due, and returns the time until the next call.
func (c *Compensator) tick(ctx context.Context) time.Duration {
	finished, now, err := c.o.SweepLog.LastSweep(ctx, c.o.Name)
	if err != nil {
		if ctx.Err() == nil {
			c.o.Logger.Error("last sweep unknown, will retry", "in", c.schedule.pollInterval(), "err", err)
			c.metrics.failed.Inc()
		}
		return c.schedule.pollInterval()
	}
	c.metrics.lastSweep.Set(metrics.Timestamp(finished))
	if !c.schedule.due(finished, now) {
		return c.schedule.wait(now)
	}
	began := time.Now()
	r, err := c.workOnce(ctx, false, c.stillDue, c.sweep)
	if err == nil {
		c.metrics.lastSweep.Set(metrics.Timestamp(r.StartedAt.Add(r.Took())))
	}
	now = now.Add(time.Since(began))
	c.metrics.skipped.WithLabelValues(skippedRunning).Add(float64(c.schedule.passed(now.Add(-r.Took()), now)))
	c.record(ctx, wire.SweepPeriod, r, err)
	return c.schedule.wait(now)
}

// stillDue is called under the lock, because another process may have swept
// meanwhile.
func (c *Compensator) stillDue(ctx context.Context) (bool, error) {
	finished, now, err := c.o.SweepLog.LastSweep(ctx, c.o.Name)
	return err == nil && c.schedule.due(finished, now), err
}

// Sweep sweeps once, now. With dryRun it only looks for orders and changes nothing.
// The report is valid also if an error ended the sweep early. The error wraps ErrHeld
// if another process is sweeping.
func (c *Compensator) Sweep(ctx context.Context, dryRun bool) (Report, error) {
	r, err := c.workOnce(ctx, dryRun, nil, c.sweep)
	c.record(ctx, wire.SweepOnce, r, err)
	return r, err
}

// workOnce runs work under the lock, or without the lock if it is unavailable, and
// reports the result. If wanted is set, workOnce calls it under the lock and does nothing
// if it returns false.
func (c *Compensator) workOnce(ctx context.Context, dryRun bool, wanted func(context.Context) (bool, error),
	work func(context.Context, *Report) error) (Report, error) {
	if !c.begin(ctx) {
		c.metrics.skipped.WithLabelValues(skippedRunning).Inc()
		return Report{}, fmt.Errorf("%w: it is this process", ErrHeld)
	}
	defer func() { <-c.busy }()
	r, err := c.underLock(ctx, dryRun, wanted, work)
	c.report(r, err)
	return r, err
}

// begin takes busy, and reports whether it could. It waits while the keeper has it. After a failed sweep of the keeper it is
// the turn of another process.
func (c *Compensator) begin(ctx context.Context) bool {
	select {
	case c.busy <- struct{}{}:
		return true
	default:
	}
	if c.looking.Load() {
		select {
		case c.busy <- struct{}{}:
			if time.Since(c.failedAt) >= lookAtRest {
				return true
			}
			<-c.busy
		case <-ctx.Done():
		}
	}
	return false
}

// fail notes that a sweep has failed. The caller has busy.
func (c *Compensator) fail() {
	c.failedAt = time.Now()
	c.metrics.failed.Inc()
}

// underLock is workOnce for a caller that has busy. It does not report the result.
func (c *Compensator) underLock(ctx context.Context, dryRun bool, wanted func(context.Context) (bool, error),
	work func(context.Context, *Report) error) (Report, error) {
	r := Report{DryRun: dryRun}
	do := func(ctx context.Context, lockState string) error {
		if wanted != nil {
			if ok, err := wanted(ctx); err != nil {
				return err
			} else if !ok {
				return errAlreadyDone
			}
		}
		r.Lock = lockState
		began := time.Now()
		c.metrics.runningSince.Set(metrics.Timestamp(began))
		defer c.metrics.runningSince.Set(0)
		err := work(ctx, &r)
		r.TookMillis = time.Since(began).Milliseconds()
		return err
	}
	lock := c.o.Lock
	if dryRun {
		lock = nil
	}
	err := c.withLock(ctx, lock, wanted != nil, do)
	return r, err
}

// logRoutine logs what a sweep says that closed nothing. If Alone, there is one each few seconds.
func (c *Compensator) logRoutine(msg string, attrs ...any) {
	level := slog.LevelInfo
	if c.o.Alone {
		level = slog.LevelDebug
	}
	c.o.Logger.Log(context.Background(), level, msg, attrs...)
}

// report logs and counts the result of a sweep.
func (c *Compensator) report(r Report, err error) {
	switch {
	case errors.Is(err, context.Canceled) && !errors.Is(err, ErrLockLost):
		c.o.Logger.Info("sweep stopped", "report", r)
	case errors.Is(err, ErrHeld):
		c.logRoutine("not sweeping, another process holds the lock")
		c.metrics.skipped.WithLabelValues(skippedHeld).Inc()
	case errors.Is(err, orderclose.ErrPaused):
		c.o.Logger.Debug("not sweeping", "reason", err, "report", r) // notePauses has logged it
		c.metrics.skipped.WithLabelValues(skippedPaused).Inc()
	case errors.Is(err, errAlreadyDone):
		c.o.Logger.Debug("not sweeping", "reason", err)
	case err != nil:
		c.o.Logger.Error("sweep failed", "err", err, "report", r)
		c.fail()
	default:
		if r.Closed+r.Failed == 0 {
			c.logRoutine("swept", "report", r)
		} else {
			c.o.Logger.Info("swept", "report", r)
		}
		if !r.DryRun {
			c.metrics.seconds.Observe(r.Took().Seconds())
		}
	}
}
