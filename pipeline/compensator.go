package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/room"
)

// buildCompensator does not require Kafka: a sweep works without it.
func (a *App) buildCompensator() (part, error) {
	o, source, err := a.sweepOptions()
	if err != nil {
		return part{}, err
	}
	var needs []room.Need
	if a.conns.Store != nil {
		needs = append(needs, a.needDatabase(), a.needOrders())
	}
	if o.Recheck, err = a.recheck(source); err != nil {
		return part{}, err
	}
	if o.KeeperLock, err = a.sweepLock("-keeper", compensator.KeeperLockExpiry); err != nil {
		return part{}, err
	}
	o.Works, o.Pauses, o.Backlog = append(a.countOrders(), a.remind()...), a.knownPauses, a.backlog
	sweeps, err := compensator.New(o)
	if err != nil {
		return part{}, err
	}
	role := Compensator
	if a.alone {
		role = Sweeper
	}
	return part{role, needs, sweeps.Run}, nil
}

// Compensator returns a compensator with the configured settings, for a sweep on demand.
// It reports its progress to progress, if that is not nil.
func (a *App) Compensator(progress func(compensator.Report)) (*compensator.Compensator, error) {
	o, _, err := a.sweepOptions()
	if err != nil {
		return nil, err
	}
	o.Progress = progress
	return compensator.New(o)
}

// CloseOrder closes one order that is unpaid and due, by the configured method: a payment provider is asked first, and pauses of sweeps
// apply. The errors are those of closer.Store.
func (a *App) CloseOrder(ctx context.Context, id string) (orderclose.Outcome, error) {
	method, err := a.closeMethodOnce()
	if err != nil {
		return orderclose.Outcome{}, err
	}
	requests := []orderclose.CloseRequest{{OrderID: id}}
	outcomes, err := method.store.CloseOrders(ctx, orderclose.PathSweep, requests)
	if err == nil {
		err = bisect.CheckOutcomes(requests, outcomes)
	}
	if err != nil {
		return orderclose.Outcome{}, err
	}
	return outcomes[0], nil
}

// sweepOptions returns the configured options of a compensator, and where it finds orders.
func (a *App) sweepOptions() (compensator.Options, sweepSource, error) {
	source, err := a.sweepSource()
	if err != nil {
		return compensator.Options{}, nil, err
	}
	method, err := a.closeMethodOnce()
	if err != nil {
		return compensator.Options{}, nil, err
	}
	c := a.sweepSettings()
	o := compensator.Options{
		Store:        sweepStore{source, bisect.Wrapped{Store: method.store}},
		Investigator: a.investigator(source),
		Missed:       a.o.Missed,
		Name:         a.o.Config.Topics.Close, // distinguishes pipelines that share a database
		Period:       c.Period,
		Grace:        cmp.Or(c.Grace, -1), // 0s in topics.yaml means none
		PageSize:     method.batch(c.PageSize),
		Rate:         c.Rate,
		Alone:        a.alone,
		// The database has pauses of categories. A service or a Store of the program may answer paused on one order.
		PausesCategories: a.o.Store == nil && a.o.Config.Closer.Kind != config.KindHTTP,
		Logger:           a.o.Logger.With("stage", compensator.Stage),
		Category:         a.category,
		OnHang:           a.o.OnHang,
		LockChecked:      a.lockChecked,
		Registerer:       a.o.Registerer,
	}
	if log, ok := source.(compensator.SweepLog); ok { // otherwise each process remembers its own sweeps
		o.SweepLog = log
	}
	if a.conns.Kafka != nil {
		o.History = &compensator.History{Appender: a.conns.Kafka, Topic: a.o.Config.Topics.Control, Holder: a.o.ProcessName([]Role{Compensator})}
	}
	o.Lock, err = a.sweepLock("", config.Never)
	return o, source, err
}

// lockChecked shows in /-/ready why the lock of the sweep cannot be taken.
func (a *App) lockChecked(err error) {
	if err == nil {
		a.ready.hints.remove(a.lockHint())
		return
	}
	a.ready.hints.add(a.lockHint(), err.Error()+"; sweeps go on without the lock")
}

// lockHint is the name of the lock of the sweep in /-/ready.
func (a *App) lockHint() string {
	if a.sweepSettings().Lock.Kind == config.LockDatabase {
		return "lock"
	}
	return "redis"
}

// sweepLock returns the lock with this suffix of the key, which expires after longest at most; nil if it is in Redis, and
// none is named.
func (a *App) sweepLock(suffix string, longest time.Duration) (compensator.Lock, error) {
	c := a.sweepSettings().Lock
	if c.Kind == config.LockDatabase && a.conns.Store == nil {
		return nil, fmt.Errorf("compensator.lock is database: %w", errNoDatabase)
	}
	return a.conns.SweepLock(c, suffix, longest)
}

// investigator returns what says why orders were missed.
func (a *App) investigator(source sweepSource) *ops.Investigator {
	i := &ops.Investigator{Logger: a.o.Logger.With("stage", "compensator")}
	if schedules, ok := source.(ops.Schedules); ok {
		i.Schedules = schedules
	}
	if a.conns.Kafka == nil {
		return i
	}
	i.Status = func(ctx context.Context) ops.Status { return a.waitingRecords(ctx) }
	i.Letters = func(ctx context.Context) (*deadletters.Index, error) {
		_, index, err := (&deadletters.Topic{Log: a.conns.Kafka, Name: a.config().Topics.DeadLetter}).Index(ctx, deadletters.Filter{})
		return index, err
	}
	return i
}
