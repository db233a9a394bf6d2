package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/delayrelay"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/intake"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/shadow"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/outbox"
	"github.com/orderclose/orderclose/release"
)

func (a *App) buildRelay() (part, error) {
	c := a.o.Config
	r, err := delayrelay.New(delayrelay.Options{
		Log:             topicWaiter{a.conns.Kafka, a},
		Buckets:         c.Buckets,
		Group:           c.RelayGroup,
		CloseTopic:      c.Topics.Close,
		ReplayTopic:     c.Topics.Replay,
		DeadLetterTopic: c.Topics.DeadLetter,
		ControlTopic:    c.Topics.Control,
		OnHang:          a.o.OnHang,
		Now:             a.clock.DatabaseNow, //mutant:relay-broker-clock,relay-local-clock
		Brokers:         a.clock.Now,
		Logger:          a.o.Logger.With("stage", delayrelay.Stage),
		Registerer:      a.o.Registerer,
		Exemplars:       a.o.TracerProvider != nil,
	})
	if err != nil {
		return part{}, err
	}
	a.subscribers = append(a.subscribers, r.SetBuckets)
	return part{Relay, []need{a.needKafka(), a.needTopic(c.Topics.Close)}, r.Run}, nil //mutant:optional-topic-needed
}

func (a *App) buildCloser() (part, error) {
	method, err := a.closeMethodOnce()
	if err != nil {
		return part{}, err
	}
	c := a.o.Config
	cl, err := closer.New(closer.Options{
		Log:             topicWaiter{a.conns.Kafka, a},
		Store:           method.store,
		Buckets:         c.Buckets,
		Group:           c.CloserGroup(),
		CloseTopic:      c.Topics.Close,
		ReplayGroup:     c.ReplayGroup(),
		ReplayTopic:     c.Topics.Replay,
		DeadLetterTopic: c.Topics.DeadLetter,
		ControlTopic:    c.Topics.Control,
		Batch:           method.batch(c.Closer.Batch),
		TargetLatency:   method.target(c.Closer.TargetLatency),
		Now:             a.o.Now,
		Clock:           a.clock.DatabaseNow,
		Brokers:         a.clock.Now,
		Category:        a.category,
		OnHang:          a.o.OnHang,
		Logger:          a.o.Logger.With("stage", closer.Stage),
		Registerer:      a.o.Registerer,
		TracerProvider:  a.o.TracerProvider,
		ContinueTrace:   c.Tracing.AfterDelay == config.ContinueTrace,
	})
	if err != nil {
		return part{}, err
	}
	a.subscribers = append(a.subscribers, func(_, pick orderclose.Buckets) { cl.SetBuckets(pick) })
	a.lowestLimitSince = cl.LowestLimitSince
	return part{Closer, append([]need{a.needKafka(), a.needTopic(c.Topics.Close)}, method.needs...), cl.Run}, nil
}

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
		TracerProvider:  a.o.TracerProvider,
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
	if r, ok := a.o.Releaser.(*release.HTTP); ok && !config.Private(r.URL) && !c.Accepts(config.WithoutTLS) {
		return part{}, fmt.Errorf("%s is http:// of another machine: anybody on the way can read its token, and answer in place of the service; write https://, or add %s to accept", config.EnvReleaseURL, config.WithoutTLS)
	}
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
		TracerProvider:  a.o.TracerProvider,
	})
	return part{Release, []need{a.needKafka(), a.needTopic(c.Topics.Events)}, w.Run}, err
}

// Intake is the role that schedules orders from the change records of their table, which a connector such as
// Debezium writes to a topic of the shop (topics.yaml: intake). It needs Kafka only.
const Intake Role = "intake"

func (a *App) buildIntake() (part, error) {
	c := a.o.Config
	if c.Intake.Topic == "" {
		return part{}, errors.New("topics.yaml does not say where the change records are: write intake: {topic: shop.orders, format: debezium}")
	}
	zone, err := mapping.ParseZone(cmp.Or(c.Intake.Zone, "UTC"))
	if err != nil {
		return part{}, err
	}
	i, err := intake.New(intake.Options{
		Log:             topicWaiter{a.conns.Kafka, a},
		Group:           c.IntakeGroup(),
		Topic:           c.Intake.Topic,
		Format:          intake.Format(c.Intake.Format),
		Zone:            zone,
		Orders:          cmp.Or(c.Orders, mapping.Reference()),
		Current:         a.ActiveBuckets,
		Delays:          func() orderclose.Delays { return a.config().Delays },
		CloseTopic:      c.Topics.Close,
		DeadLetterTopic: c.Topics.DeadLetter,
		LeaveOverdue:    max(2*c.Compensator.Period, intake.DefaultLeaveOverdue),
		Now:             a.o.Now,
		OnHang:          a.o.OnHang,
		Logger:          a.o.Logger.With("stage", intake.Stage),
		Registerer:      a.o.Registerer,
	})
	return part{Intake, []need{a.needKafka(), a.needTopic(c.Intake.Topic)}, i.Run}, err
}

// Shadow is the role that decides what closes would do, and closes nothing: a shadow run beside the
// job that closes the orders today. It reads the orders in the database, and needs neither the
// tables of CreateTables nor the right to write. It creates its topic, which no other role uses.
const Shadow Role = "shadow"

// errNoShadow is the error of a shadow run of orders that are not closed in the database.
var errNoShadow = errors.New("a shadow run reads the orders in the database: it works with closer.kind sql, and without Options.Store")

func (a *App) buildShadow() (part, error) {
	if !a.closesInDatabase() {
		return part{}, errNoShadow
	}
	c := a.o.Config
	s, err := shadow.New(shadow.Options{
		Log:        topicWaiter{a.conns.Kafka, a},
		Store:      a.conns.Store,
		Group:      c.ShadowGroup(),
		CloseTopic: c.Topics.Close,
		Topic:      c.Topics.Shadow,
		OnHang:     a.o.OnHang,
		Logger:     a.o.Logger.With("stage", shadow.Stage),
		Registerer: a.o.Registerer,
	})
	return part{Shadow, []need{a.needKafka(), a.needTopic(c.Topics.Close), a.needShadowTopic(), a.needReadable()}, s.Run}, err
}

// needShadowTopic creates the topic of a shadow run if it does not exist. The topic is not among
// those of topics apply: it would be a difference in each cluster without a shadow run.
func (a *App) needShadowTopic() need {
	spec := ops.ShadowSpec(a.o.Config)
	return need{"topic " + spec.Name, func(ctx context.Context) error {
		there, err := a.conns.Kafka.Exists(ctx, spec.Name)
		if err == nil && !there {
			_, _, err = a.conns.Kafka.Apply(ctx, []kafka.TopicSpec{spec})
		}
		return err
	}}
}

// needReadable is needDatabase for a role that only reads the orders: the database answers, and the
// orders' tables fit the mapping.
func (a *App) needReadable() need {
	return need{"database", func(ctx context.Context) error {
		if err := a.conns.Store.Ping(ctx); err != nil {
			return err
		}
		return a.conns.Store.CheckTables(ctx)
	}}
}
