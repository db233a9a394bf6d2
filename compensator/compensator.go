// Package compensator sweeps the database for orders that are overdue and still
// unpaid, and closes them by the same transaction as the pipeline does. It is
// the proof that nothing is missed: whatever Kafka lost, whoever died between
// commit and publish, the next sweep finds the order.
//
// Any number of Compensators may run. Each minute every one asks the database when
// the last sweep was finished, by the database's clock (period.go says when one is
// due; nobody's own clock matters). If one is due it takes a lock in Redis
// (lock.go), asks again, sweeps, and notes at the end that it has. So one sweeps in
// each period, and one that is killed is taken over within two minutes: a minute
// until its lock expires, and a minute until somebody asks.
//
// A sweep pages over what is overdue by more than a grace, oldest first, at a
// bounded rate (sweep.go). What it has closed is no longer found, so one that was
// cut short goes on where it was when it is begun again. Its correctness rests on
// the transaction alone: two sweeps at once change nothing, and without Redis it
// sweeps all the same, and says so.
//
// Where it has a Kafka it listens on the control topic too (lost.go): when a part
// tells that records are gone it sweeps at once, and schedules again what they may
// have been of (reschedule.go).
package compensator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"orderclose"
	"orderclose/internal/closing"
	"orderclose/internal/loglimit"
	"orderclose/internal/partition"
)

// Stage is what logs call a compensator.
const Stage = "compensator"

// Defaults of Options.
const (
	DefaultPeriod   = time.Hour
	DefaultGrace    = time.Minute
	DefaultPageSize = 500
	// DefaultRate is a fifth of what a database of two cores closes (25 k orders/s,
	// make bench-sweep): a sweep after days off leaves the closers, and the
	// checkout, the rest. It lets out 18 million orders an hour.
	DefaultRate = 5000
)

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

// Log of sweeps: who has one shares it with every process that sweeps the same
// orders.
type Log interface {
	// LastSweep returns when the sweep of that name was last finished, zero if never,
	// and the present, both by the same clock.
	LastSweep(ctx context.Context, name string) (finished, now time.Time, err error)
	// SweepFinished notes that it was finished now.
	SweepFinished(ctx context.Context, name string) error
}

// Lock keeps sweeps from doing the same work twice. Hold calls work while the
// lock is held; the context it passes on ends when the lock may be lost. It
// returns ErrHeld if another process has the lock, an error that is
// ErrLockUnavailable if nobody can tell, or ErrLockStuck if no process has it and it
// cannot be had all the same, each without having called work; and ErrLockLost if the
// lock went while work was under way.
type Lock interface {
	Hold(ctx context.Context, work func(ctx context.Context) error) error
}

// What can become of a lock.
var (
	ErrHeld            = errors.New("another process is sweeping")
	ErrLockUnavailable = errors.New("the lock's server is unavailable")
	ErrLockStuck       = errors.New("the lock is held by no process")
	ErrLockLost        = errors.New("the lock was lost during the sweep")
)

// errNotWanted says that a sweep was not begun because another has been finished.
var errNotWanted = errors.New("it has been done meanwhile")

// Metrics takes what there is to count; internal/obs has one for Prometheus. Its
// methods must not block.
type Metrics interface {
	// Sweeping says since when this process has been sweeping; zero: it is not.
	Sweeping(since time.Time)
	// Swept reports a sweep that was finished.
	Swept(r Report)
	// LastSweep says when any process last finished one, by the database's clock.
	LastSweep(finished time.Time)
	// SweepFailed counts a sweep that could not be finished.
	SweepFailed()
	// SweepSkipped counts a sweep that was due and not begun: another process held
	// the lock, or this one was still sweeping.
	SweepSkipped(reason string)
	// LockAvailable says whether the lock can be asked for.
	LockAvailable(ok bool)
	// LockStuck says whether the lock is held by no process, and cannot be had.
	LockStuck(stuck bool)
	// Missed counts orders that a sweep closed, by why the pipeline had not.
	Missed(cause Cause, orders int)
	// ScheduledAgain counts orders that were, after records were lost.
	ScheduledAgain(orders int)
	// Verdict counts one order.
	Verdict(path orderclose.Path, v orderclose.Verdict)
	// Lateness is how long after its due time an order was closed.
	Lateness(path orderclose.Path, d time.Duration)
}

// Options for a Compensator. Store must be set.
type Options struct {
	Store Store
	// Name says what is swept. Compensators of one name, on one Log, sweep once in a
	// period between them. At most 249 letters of ASCII.
	Name string
	// Log of sweeps. Without one each Compensator remembers its own, and sweeps when
	// it starts.
	Log Log
	// Lock keeps other processes from sweeping at the same time. Without one every
	// process sweeps, which changes nothing but costs.
	Lock     Lock
	Period   time.Duration // how often it is swept; default DefaultPeriod
	Grace    time.Duration // how far overdue an order must be; default DefaultGrace; negative is none
	PageSize int           // orders per transaction; default DefaultPageSize
	// Rate is how many orders a sweep closes in a second, and how many are scheduled
	// again in a second after a loss; default DefaultRate; negative is no bound.
	Rate int
	// Investigator finds out why orders were missed; nil: nobody does.
	Investigator Investigator
	// Control is where losses are heard of; nil: nowhere.
	Control *Control
	// Progress is told after each page how far a sweep has come; may be nil.
	Progress func(Report)
	// Missed is told of the orders of each page that were closed, all of them, where a
	// report names a hundred; may be nil.
	Missed  func([]Miss)
	Logger  *slog.Logger // default: discard
	Metrics Metrics      // default: none
}

// Compensator sweeps. Make it with New.
type Compensator struct {
	o        Options
	schedule schedule
	limiter  *rate.Limiter // of sweeps
	again    *rate.Limiter // of orders that are scheduled again
	culprits *closing.Culprits

	busy   sync.Mutex       // held while this process sweeps; only ever tried. It guards:
	from   orderclose.Order // behind which the next sweep begins; zero: at the beginning
	failed map[string]bool  // orders that failed in the last sweep
}

// New returns a Compensator, or says what is wrong with the options.
func New(o Options) (*Compensator, error) {
	if o.Store == nil {
		return nil, errors.New("compensator: Options need a Store")
	}
	if o.Period < 0 || o.PageSize < 0 {
		return nil, fmt.Errorf("compensator: Period is %v and PageSize %d, both must be positive", o.Period, o.PageSize)
	}
	if o.Control != nil {
		if err := o.Control.check(); err != nil {
			return nil, err
		}
	}
	if o.Log == nil {
		o.Log = &ownLog{clock: o.Store}
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
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	bound := rate.Limit(o.Rate)
	if o.Rate < 0 {
		bound = rate.Inf
	}
	return &Compensator{
		o: o, schedule: newSchedule(o.Period, o.Name),
		limiter: rate.NewLimiter(bound, o.PageSize), again: rate.NewLimiter(bound, o.PageSize),
		culprits: closing.NewCulprits(o.Store, closing.ProofSweep),
	}, nil
}

// Run sweeps whenever a sweep is due, until ctx ends. One that fails, or finds the
// lock held, is tried again within a minute if it is still due then. It returns
// nil when all it started has stopped.
func (c *Compensator) Run(ctx context.Context) error {
	var listening sync.WaitGroup
	if c.o.Control != nil {
		listening.Go(func() { c.listen(ctx) })
	}
	for ctx.Err() == nil {
		partition.Sleep(ctx, c.tick(ctx))
	}
	listening.Wait()
	return nil
}

// tick sweeps if a sweep is due, and returns how long to wait until the next.
func (c *Compensator) tick(ctx context.Context) time.Duration {
	c.lookAtLock(ctx)
	finished, now, err := c.o.Log.LastSweep(ctx, c.o.Name)
	if err != nil {
		if ctx.Err() == nil {
			c.o.Logger.Error("it cannot be told whether a sweep is due, asking again", "in", c.schedule.ask(), "err", err)
			c.o.Metrics.SweepFailed()
		}
		return c.schedule.ask()
	}
	c.o.Metrics.LastSweep(finished)
	if !c.schedule.due(finished, now) {
		return c.schedule.wait(now)
	}
	began := time.Now()
	r, err := c.hold(ctx, false, c.stillDue, func(ctx context.Context, r *Report) error { return c.sweep(ctx, r) })
	if err == nil {
		c.o.Metrics.LastSweep(r.StartedAt.Add(r.Took()))
	}
	now = now.Add(time.Since(began))
	for range c.schedule.passed(now.Add(-r.Took()), now) {
		c.o.Metrics.SweepSkipped("running")
	}
	return c.schedule.wait(now)
}

// stillDue asks again, under the lock: another process may have swept meanwhile.
func (c *Compensator) stillDue(ctx context.Context) (bool, error) {
	finished, now, err := c.o.Log.LastSweep(ctx, c.o.Name)
	return err == nil && c.schedule.due(finished, now), err
}

// Sweep sweeps once, now, whenever the last one was. With dryRun it only finds and
// changes nothing. The report tells what was done also if an error cut it short; the
// error is ErrHeld if another process is sweeping.
func (c *Compensator) Sweep(ctx context.Context, dryRun bool) (Report, error) {
	return c.hold(ctx, dryRun, nil, func(ctx context.Context, r *Report) error { return c.sweep(ctx, r) })
}

// hold does work under the lock, or without where there is none to be had, and
// tells how it went. If wanted, asked under the lock, says no, nothing is done.
func (c *Compensator) hold(ctx context.Context, dryRun bool, wanted func(context.Context) (bool, error), work func(context.Context, *Report) error) (Report, error) {
	if !c.busy.TryLock() {
		c.o.Metrics.SweepSkipped("running")
		return Report{}, fmt.Errorf("%w: this one", ErrHeld)
	}
	defer c.busy.Unlock()
	r := Report{DryRun: dryRun}
	do := func(ctx context.Context, lock string) error {
		if wanted != nil {
			if ok, err := wanted(ctx); err != nil {
				return err
			} else if !ok {
				return errNotWanted
			}
		}
		r.Lock = lock
		began := time.Now()
		c.o.Metrics.Sweeping(began)
		defer c.o.Metrics.Sweeping(time.Time{})
		err := work(ctx, &r)
		r.TookMillis = time.Since(began).Milliseconds()
		return err
	}
	lock := c.o.Lock
	if dryRun {
		lock = nil
	}
	err := c.guarded(ctx, lock, wanted != nil, do)
	c.tell(r, err)
	return r, err
}

// tell logs and counts how a sweep went.
func (c *Compensator) tell(r Report, err error) {
	switch {
	case errors.Is(err, context.Canceled) && !errors.Is(err, ErrLockLost):
		c.o.Logger.Info("the sweep was stopped", "report", r)
	case errors.Is(err, ErrHeld):
		c.o.Logger.Info("not sweeping: another process is")
		c.o.Metrics.SweepSkipped("held")
	case errors.Is(err, errNotWanted):
		c.o.Logger.Debug("not sweeping", "why", err)
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

// ownLog remembers the sweeps of one process.
type ownLog struct {
	clock interface {
		Now(ctx context.Context) (time.Time, error)
	}
	mu       sync.Mutex
	finished time.Time
}

// LastSweep implements Log.
func (l *ownLog) LastSweep(ctx context.Context, _ string) (finished, now time.Time, err error) {
	now, err = l.clock.Now(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished, now, err
}

// SweepFinished implements Log.
func (l *ownLog) SweepFinished(ctx context.Context, _ string) error {
	now, err := l.clock.Now(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = now
	return nil
}

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) Sweeping(time.Time)                          {}
func (noMetrics) Swept(Report)                                {}
func (noMetrics) LastSweep(time.Time)                         {}
func (noMetrics) SweepFailed()                                {}
func (noMetrics) SweepSkipped(string)                         {}
func (noMetrics) LockAvailable(bool)                          {}
func (noMetrics) LockStuck(bool)                              {}
func (noMetrics) Missed(Cause, int)                           {}
func (noMetrics) ScheduledAgain(int)                          {}
func (noMetrics) Verdict(orderclose.Path, orderclose.Verdict) {}
func (noMetrics) Lateness(orderclose.Path, time.Duration)     {}
