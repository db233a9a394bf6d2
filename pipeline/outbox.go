package pipeline

import (
	"fmt"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/outbox"
	"github.com/orderclose/orderclose/release"
)

// Release is the role that releases stock in a service. Only shops whose stock is in a
// service need it.
const Release Role = "release"

func (a *App) buildOutbox() (part, error) {
	c := a.o.Config
	d, err := outbox.New(outbox.Options{
		Store:           a.conns.Store,
		Kafka:           a.conns.Kafka,
		Kinds:           []outbox.Kind{outbox.Schedules(a.scheduling), outbox.Events(c.Topics.Events)},
		DeadLetterTopic: c.Topics.DeadLetter,
		Batch:           c.Outbox.Batch,
		InFlight:        c.Outbox.InFlight,
		Logger:          a.o.Logger.With("stage", outbox.Stage),
		Registerer:      a.o.Registerer,
	})
	return part{Outbox, []need{a.needKafka(), a.needDatabase()}, d.Run}, err
}

// scheduling returns the settings for publishing schedules now.
func (a *App) scheduling() outbox.Scheduling {
	c := a.o.Config
	return outbox.Scheduling{Buckets: a.ActiveBuckets(), CloseTopic: c.Topics.Close, Now: a.o.Now}
}

// maxDelay returns how far ahead an order may be due: the larger of the maximum at the
// start and the present one, since a smaller maximum does not apply to accepted orders.
func (a *App) maxDelay() time.Duration { return max(a.o.Config.MaxDelay, a.config().MaxDelay) }

// eventType returns the type of the events that a close writes; "" means
// orderclose.EventOrderClosed.
func (a *App) eventType() string {
	if a.o.Config.Orders == nil {
		return ""
	}
	return a.o.Config.Orders.Event
}

func (a *App) buildRelease() (part, error) {
	if a.o.Releaser == nil {
		return part{}, fmt.Errorf("there is no service that keeps stock: set %s, or Options.Releaser", config.EnvReleaseURL)
	}
	c := a.o.Config
	w, err := release.New(release.Options{
		Log:             topicWaiter{a.conns.Kafka, a},
		Releaser:        a.o.Releaser,
		Group:           c.ReleaseGroup(),
		EventsTopic:     c.Topics.Events,
		DeadLetterTopic: c.Topics.DeadLetter,
		Event:           a.eventType(),
		Now:             a.o.Now,
		OnHang:          a.o.OnHang,
		Logger:          a.o.Logger.With("stage", release.Stage),
		Registerer:      a.o.Registerer,
	})
	return part{Release, []need{a.needKafka(), a.needTopic(c.Topics.Events)}, w.Run}, err
}
