package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/reminders"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// buildCompensator does not require Kafka: the loop works without it.
func (a *App) buildCompensator() (part, error) {
	o, source, err := a.sweepOptions()
	if err != nil {
		return part{}, err
	}
	var needs []need
	if a.conns.Store != nil {
		needs = append(needs, a.needDatabase())
	}
	if _, inDatabase := source.(*store.Store); inDatabase {
		needs = append(needs, a.needOrders())
	}
	if o.Tasks, err = a.tasks(source); err != nil {
		return part{}, err
	}
	if err := a.useLocks(&o); err != nil {
		return part{}, err
	}
	o.LockChecked, o.TurnEnded = a.lockChecked, a.turnEnded
	loop, err := compensator.New(o)
	if err != nil {
		return part{}, err
	}
	role := Compensator
	if a.alone {
		role = Sweeper
	}
	return part{role, needs, loop.Run}, nil
}

// tasks returns what the holder of the lock does beside the loop.
func (a *App) tasks(source sweepSource) ([]compensator.Task, error) {
	tasks := a.databaseTasks()
	o, err := a.recheckOptions(source)
	if err != nil || o == nil {
		return tasks, err
	}
	recheck, err := payment.NewRecheck(*o)
	if err != nil {
		return nil, err
	}
	return append(tasks, compensator.Task{Do: recheck.Do, Idle: recheck.Idle}), nil
}

// databaseTasks returns the tasks for orders in the database. Others are neither counted nor reminded of.
func (a *App) databaseTasks() []compensator.Task {
	db, delays := a.conns.Store, func() orderclose.Delays { return a.config().Delays }
	if _, own := a.o.Store.(sweepSource); own || db == nil {
		if reminders.Wanted(delays().Rules) {
			a.o.Logger.Warn("no reminders are written: the rules of delays.rules with remind need the orders in the database")
		}
		return nil
	}
	listed := func() map[string]time.Duration { return delays().ByCategory }
	return []compensator.Task{
		countOrders(db, listed, a.metrics.OverdueOrders, a.metrics.LatePayments, a.o.Logger),
		reminders.New(db, delays, a.metrics.Reminders, a.o.Logger),
	}
}

// Compensator returns a compensator with the configured settings, for a pass by hand.
func (a *App) Compensator() (*compensator.Compensator, error) {
	o, _, err := a.sweepOptions()
	if err != nil {
		return nil, err
	}
	return compensator.New(o)
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
	c := a.config().Compensator
	o := compensator.Options{
		Store:      sweepStore{source, bisect.Wrapped{Store: method.store}},
		Name:       a.o.Config.Topics.Close, // distinguishes pipelines that share a database
		Period:     c.Period,
		Rate:       c.Rate,
		Alone:      a.alone || a.o.SweepsAlone,
		Logger:     a.o.Logger.With("stage", compensator.Stage),
		Category:   a.category,
		OnHang:     a.o.OnHang,
		Registerer: a.o.Registerer,
		Skews:      a.skews,
	}
	if a.alone {
		o.Every = cmp.Or(a.o.SweepEvery, DefaultSweepEvery)
	}
	if s, ok := source.(*store.Store); ok {
		o.Reader, o.SweepLog = s, s
	}
	return o, source, nil
}

// lockReason and turnsReason are the names of the lock and of the turns of the loop in /-/ready.
const lockReason, turnsReason = "lock", "compensator"

// lockChecked shows in /-/ready why the lock of the loop cannot be taken. A process that may not use it is not ready.
func (a *App) lockChecked(err error) {
	a.ready.hints.remove(lockReason)
	a.ready.waiting.remove(lockReason)
	switch {
	case errors.Is(err, lock.ErrRefused):
		a.ready.waiting.add(lockReason, err.Error())
	case err != nil:
		a.ready.hints.add(lockReason, err.Error()+"; the loop runs under another lock or without one, perhaps in several processes at once")
	}
}

// turnEnded shows in /-/ready why turns of the loop have closed nothing for failingFor.
func (a *App) turnEnded(err error) {
	if err == nil {
		a.ready.waiting.remove(turnsReason)
		return
	}
	a.ready.waiting.addFunc(turnsReason, func() string {
		since, _ := a.ready.waiting.since(turnsReason)
		return failsSince(since, "no overdue order could be read or closed", err.Error())
	})
}

// useLocks sets the lock of the loop: that in Redis, unless compensator.lock is database, and the row of the database for while Redis does not
// answer. Its name has a digest of what decides which orders a loop finds: the database, the mapping, and if orders are due by rule the delays.
// So a process never waits for a loop that does not find its orders. The holder writes the reminders, by its own delays.
func (a *App) useLocks(o *compensator.Options) error {
	c := a.o.Config.Compensator.Lock
	if a.alone {
		c.Kind = config.LockDatabase
	}
	if c.Kind == config.LockDatabase && a.conns.Store == nil {
		return fmt.Errorf("compensator.lock is database: %w", errNoDatabase)
	}
	decides := []any{a.database(), a.o.Config.Orders}
	if a.o.Config.ByRule() {
		decides = append(decides, a.o.Config.Delays)
	}
	version, err := json.Marshal(decides)
	digest := sha256.Sum256(version)
	o.LockKey, o.Process = fmt.Sprintf("%s-%x", c.Key, digest[:4]), a.o.ProcessName([]Role{Compensator})
	if c.Kind == config.LockRedis && a.conns.Redis != nil {
		o.Redis = a.conns.Redis
	}
	if a.conns.Store != nil {
		o.Leases = a.conns.Store
	}
	return err
}

// recheckOptions returns how the payment provider is asked again about closed orders; nil if there is
// no provider, if closer.payment.recheck is empty, or if the orders that were closed are not in source.
func (a *App) recheckOptions(source sweepSource) (*payment.RecheckOptions, error) {
	method, err := a.closeMethodOnce()
	c := a.o.Config.Closer.Payment
	closed, ok := source.(closedStore)
	if err != nil || method.provider == nil || len(c.Recheck) == 0 || !ok {
		return nil, err
	}
	ask := func(ctx context.Context, ids []string) ([]payment.Answer, error) {
		answers, err := method.provider.Ask(ctx, ids)
		for i, answer := range answers {
			if answer == payment.Cancelled {
				answers[i] = payment.Unpaid
			}
		}
		return answers, err
	}
	logger := a.o.Logger.With("stage", compensator.Stage, "asked_again", true)
	asker, err := payment.New(payment.Options{
		Store: lateStore{closedStore: closed, logger: logger}, Provider: payment.ProviderFunc(ask), Batch: c.Batch, // a ProviderFunc cannot cancel
		Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	return &payment.RecheckOptions{
		Name: a.o.Config.Topics.Close, Store: closed, Asker: asker, Steps: c.Recheck, Batch: c.Batch, Rate: c.RecheckRate,
		Logger: a.o.Logger.With("stage", compensator.Stage), Metrics: a.metrics,
	}, nil
}

// closedStore is a store that knows which orders were closed, and records their late payments.
type closedStore interface {
	payment.ClosedStore
	RecordLate(ctx context.Context, payments []store.LatePayment) (int, error)
}

// lateStore is the payment.Store of a recheck. It closes no order. An order that is paid gets a late payment.
type lateStore struct {
	closedStore
	logger *slog.Logger
}

// PreviewClose implements payment.Store: the provider is asked about all of the orders.
func (lateStore) PreviewClose(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return outcomesOf(requests, orderclose.Closed), nil
}

// CloseOrders implements payment.Store: the orders are closed already.
func (lateStore) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return outcomesOf(requests, orderclose.AlreadyClosed), nil
}

// PayOrders implements payment.Store: it records late payments, and marks no order as paid.
func (s lateStore) PayOrders(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes := outcomesOf(requests, orderclose.AlreadyClosed)
	for i, r := range requests { //mutant:recheck-unrecorded
		recorded, err := s.RecordLate(ctx, []store.LatePayment{{OrderID: r.OrderID, Source: store.SourceRecheck}})
		switch {
		case errors.Is(err, orderclose.ErrUnavailable):
			return nil, err
		case err != nil: // the next step asks again, and the others go on
			s.logger.Error("late payment could not be recorded, the order is asked about again", "err", err)
			outcomes[i].Verdict = orderclose.PaymentPending
		case recorded > 0:
			outcomes[i].Verdict = orderclose.AlreadyPaid
		}
	}
	return outcomes, nil
}

func outcomesOf(requests []orderclose.CloseRequest, verdict orderclose.Verdict) []orderclose.Outcome {
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: verdict}
	}
	return outcomes
}

// DefaultSweepEvery is the default of Options.SweepEvery.
const DefaultSweepEvery = 5 * time.Second

// sweepAlone returns the roles with a compensator in place of a sweeper.
func (a *App) sweepAlone(roles []Role) ([]Role, error) {
	i := slices.Index(roles, Sweeper)
	if i < 0 {
		return roles, nil
	}
	if slices.ContainsFunc(roles, func(r Role) bool { return r != Sweeper && r != Console && r != Webhook }) {
		return nil, errors.New("the role sweeper closes all orders by itself: run no other role beside it but console and webhook")
	}
	if a.conns.Kafka != nil {
		return nil, errors.New("the role sweeper does not use Kafka: name no brokers, or run the roles of the pipeline")
	}
	if a.o.SweepEvery != 0 && a.o.SweepEvery < time.Second {
		return nil, fmt.Errorf("Options.SweepEvery is %v: want 1s or more", a.o.SweepEvery)
	}
	a.alone = true
	roles = slices.Clone(roles)
	roles[i] = Compensator
	return roles, nil
}

const (
	// keepOutbox is how long a sweeper keeps rows of the outboxes, which nobody publishes: as long as the topic of the
	// events keeps an event. A program of the shop may read and delete them earlier.
	keepOutbox = 7 * 24 * time.Hour
	// dropInterval is the interval between two searches for older rows.
	dropInterval = time.Minute
)

// dropOutbox deletes, beside a sweeper, the rows of the outboxes that are older than keepOutbox, until ctx ends.
func (a *App) dropOutbox(ctx context.Context) {
	db := a.conns.Store
	if db == nil {
		return
	}
	boxes := []wire.Outbox{wire.ScheduleOutbox}
	if a.o.Config.Webhook.URL == "" { //mutant:unsent-events-dropped
		boxes = append(boxes, wire.EventOutbox)
	}
	for retry.Sleep(ctx, dropInterval) {
		for _, box := range boxes {
			dropped, err := db.DropOutbox(ctx, box, keepOutbox)
			if err != nil && ctx.Err() == nil {
				a.o.Logger.Warn("old rows of an outbox cannot be deleted, will retry", "outbox", box, "err", err)
			}
			if dropped > 0 {
				a.o.Logger.Info("deleted rows of an outbox that nobody has read", "outbox", box, "rows", dropped, "older_than", keepOutbox)
			}
		}
	}
}
