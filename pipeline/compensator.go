package pipeline

import (
	"context"
	"fmt"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
)

// buildCompensator does not require Kafka: a sweep works without it. With Kafka the
// compensator also handles losses.
func (a *App) buildCompensator() (part, error) {
	o, err := a.sweepOptions()
	if err != nil {
		return part{}, err
	}
	after := func() {}
	if c := a.o.Config; a.o.Kafka != nil {
		again := kafka.NewCoalescer(a.o.Kafka)
		after = again.Close
		o.Control = &compensator.Control{
			Kafka:       a.o.Kafka,
			Store:       a.o.Store,
			Appender:    again,
			Group:       c.CompensatorGroup(),
			Topic:       c.Topics.Control,
			Buckets:     a.ActiveBuckets,
			CloseTopic:  c.Topics.Close,
			ReplayTopic: c.Topics.Replay,
			MaxDelay:    a.maxDelay,
		}
		if o.Control.Lock, err = a.sweepLock("-schedule-again"); err != nil {
			return part{}, err
		}
	}
	c, err := compensator.New(o)
	if err != nil {
		return part{}, err
	}
	a.metrics.SweepPeriod(o.Period)
	return part{Compensator, []need{a.needDatabase()}, func(ctx context.Context) error {
		defer after()
		return c.Run(ctx)
	}}, nil
}

// Compensator returns a compensator with the configured settings, for a sweep on demand.
// It reports its progress to progress, if that is not nil.
func (a *App) Compensator(progress func(compensator.Report)) (*compensator.Compensator, error) {
	o, err := a.sweepOptions()
	if err != nil {
		return nil, err
	}
	o.Progress = progress
	return compensator.New(o)
}

// sweepOptions returns the configured options of a compensator.
func (a *App) sweepOptions() (compensator.Options, error) {
	if a.o.Store == nil {
		return compensator.Options{}, fmt.Errorf("set %s: a sweep searches the database for overdue orders, also if a service closes them", config.EnvDSN)
	}
	method, err := a.closeMethodOnce()
	if err != nil {
		return compensator.Options{}, err
	}
	c := a.o.Config.Compensator
	o := compensator.Options{
		Store:        sweepStore{a.o.Store, method.store},
		Investigator: a.investigator(),
		Missed:       a.o.Missed,
		Name:         a.o.Config.Topics.Close, // distinguishes pipelines that share a database
		Log:          a.o.Store,
		Period:       c.Period,
		Grace:        c.Grace,
		PageSize:     method.batch(c.PageSize),
		Rate:         c.Rate,
		Logger:       a.o.Logger.With("stage", compensator.Stage),
		Metrics:      a.metrics,
	}
	o.Lock, err = a.sweepLock("")
	return o, err
}

// sweepLock returns the lock in Redis with this suffix of the key; nil without Redis.
func (a *App) sweepLock(suffix string) (compensator.Lock, error) {
	c := a.o.Config.Compensator.Lock
	if a.o.Redis == nil {
		return nil, nil
	}
	return compensator.NewLock(compensator.LockOptions{Client: a.o.Redis, Key: c.Key + suffix, Expiry: c.Expiry, Extend: c.Extend})
}
