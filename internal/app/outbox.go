package app

import (
	"fmt"
	"time"

	"orderclose/internal/config"
	"orderclose/outbox"
	"orderclose/release"
)

// Release is for shops that keep their stock in a service: it is played only where
// that is configured.
const Release Role = "release"

func (a *App) buildOutbox() (part, error) {
	if a.o.Kafka == nil || a.o.Store == nil {
		return part{}, fmt.Errorf("set %s and %s", config.EnvBrokers, config.EnvDSN)
	}
	c := a.o.Config
	d, err := outbox.New(outbox.Options{
		Store:           a.o.Store,
		Log:             a.o.Kafka,
		Kinds:           []outbox.Kind{outbox.Schedules(a.scheduling), outbox.Events(c.Topics.Events)},
		DeadLetterTopic: c.Topics.DeadLetter,
		Batch:           c.Outbox.Batch,
		InFlight:        c.Outbox.InFlight,
		Logger:          a.o.Logger.With("stage", outbox.Stage),
		Metrics:         a.metrics,
	})
	if err != nil {
		return part{}, err
	}
	return part{Outbox, []need{a.needKafka(), a.needDatabase()}, d.Run}, nil
}

// scheduling is how orders are scheduled now.
func (a *App) scheduling() outbox.Scheduling {
	c := a.o.Config
	return outbox.Scheduling{Buckets: a.Picked(), CloseTopic: c.Topics.Close, Now: a.o.Now}
}

// maxDelay is how far ahead an order may be due. A maximum that became smaller is not
// for what was accepted before.
func (a *App) maxDelay() time.Duration { return max(a.o.Config.MaxDelay, a.config().MaxDelay) }

func (a *App) buildRelease() (part, error) {
	if a.o.Kafka == nil || a.o.Releaser == nil {
		return part{}, fmt.Errorf("set %s and %s", config.EnvBrokers, config.EnvReleaseURL)
	}
	c := a.o.Config
	event := ""
	if c.Orders != nil {
		event = c.Orders.Event
	}
	w, err := release.New(release.Options{
		Log:             appearing{a.o.Kafka, a},
		Releaser:        a.o.Releaser,
		Group:           c.ReleaseGroup(),
		EventsTopic:     c.Topics.Events,
		DeadLetterTopic: c.Topics.DeadLetter,
		Event:           event,
		Now:             a.o.Now,
		Abandon:         a.abandon,
		Logger:          a.o.Logger.With("stage", release.Stage),
		Metrics:         a.metrics,
	})
	if err != nil {
		return part{}, err
	}
	return part{Release, []need{a.needKafka(), a.needTopic(c.Topics.Events)}, w.Run}, nil
}

// Releaser is the service that the environment names; nil if it names none.
func Releaser(s config.Servers) release.Releaser {
	if s.Release.URL == "" {
		return nil
	}
	return release.NewHTTP(s.Release.URL, s.Release.Token)
}
