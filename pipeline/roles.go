package pipeline

import (
	"cmp"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/delayrelay"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/outbox"
	"github.com/orderclose/orderclose/room"
)

// Roles returns the roles that a process with these rooms can run, in the order of their help.
func Roles(rooms []room.Room) []room.Role {
	all := []room.Role{
		{Name: string(Relay), Kafka: true, Buckets: true},
		{Name: string(Closer), Kafka: true, Buckets: true, Variables: func(c *Config) []string { return environ.OfClosing(c.Closer) }},
		{Name: string(Compensator), Variables: sweepVariables},
		{Name: string(Outbox), Kafka: true, Database: true, Buckets: true},
		{Name: string(Sweeper), Variables: sweepVariables},
	}
	for _, r := range rooms {
		all = append(all, r.Roles...)
	}
	return append(all, room.Role{Name: string(Console)})
}

// sweepVariables returns the variables that a sweep requires. It finds overdue orders in the
// database, also if a service closes them.
func sweepVariables(c *Config) []string {
	needs := environ.OfClosing(c.Closer)
	if !slices.Contains(needs, environ.EnvDSN) {
		needs = append(needs, environ.EnvDSN)
	}
	return needs
}

// role returns a role of this App by its name.
func (a *App) role(name Role) (r room.Role, known bool) {
	all := Roles(a.o.Rooms)
	i := slices.IndexFunc(all, func(r room.Role) bool { return r.Name == string(name) })
	if i < 0 {
		return r, false
	}
	return all[i], true
}

// requiresKafka reports whether a role cannot work without Kafka.
func (a *App) requiresKafka(name Role) bool {
	r, _ := a.role(name)
	return r.Kafka
}

// usesBuckets reports whether a role puts records into buckets.
func (a *App) usesBuckets(name Role) bool {
	r, _ := a.role(name)
	return r.Buckets
}

// host returns what this App gives to its rooms.
func (a *App) host() room.Host {
	o := a.o
	return room.Host{
		Config: o.Config, Live: a.config, Buckets: a.ActiveBuckets, Servers: o.Environment, Services: o.Services,
		Kafka: a.conns.Kafka, Log: topicWaiter{a.conns.Kafka, a}, NeedTopic: a.needTopic, Store: a.conns.Store,
		Now: o.Now, OnHang: o.OnHang, Logger: o.Logger, Registerer: o.Registerer,
	}
}

func (a *App) buildRelay() (part, error) {
	c := a.o.Config
	r, err := delayrelay.New(delayrelay.Options{
		Log:             topicWaiter{a.conns.Kafka, a},
		Buckets:         c.Buckets,
		Group:           c.RelayGroup,
		CloseTopic:      c.Topics.Close,
		DeadLetterTopic: c.Topics.DeadLetter,
		OnHang:          a.o.OnHang,
		Clock:           a.clock,
		Skews:           a.skews,
		Logger:          a.o.Logger.With("stage", delayrelay.Stage),
		Registerer:      a.o.Registerer,
		Exemplars:       a.o.TracerProvider != nil,
	})
	if err != nil {
		return part{}, err
	}
	a.subscribers = append(a.subscribers, r.SetBuckets)
	return part{Relay, []room.Need{a.needKafka(), a.needTopic(c.Topics.Close)}, r.Run}, nil //mutant:optional-topic-needed
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
		DeadLetterTopic: c.Topics.DeadLetter,
		Swept:           a.searched(),
		Batch:           min(cmp.Or(method.maxBatch, closer.DefaultBatch), closer.DefaultBatch),
		TargetLatency:   method.target(c.Closer.TargetLatency),
		Clock:           a.clock,
		Skews:           a.skews,
		Category:        a.category,
		OnHang:          a.o.OnHang,
		Logger:          a.o.Logger.With("stage", closer.Stage),
		Registerer:      a.o.Registerer,
		TracerProvider:  a.o.TracerProvider,
	})
	if err != nil {
		return part{}, err
	}
	a.subscribers = append(a.subscribers, func(_, pick orderclose.Buckets) { cl.SetBuckets(pick) })
	a.lowestLimitSince = cl.LowestLimitSince
	return part{Closer, append([]room.Need{a.needKafka(), a.needTopic(c.Topics.Close)}, method.needs...), cl.Run}, nil
}

func (a *App) buildOutbox() (part, error) {
	c := a.o.Config
	kinds := []outbox.Kind{outbox.Schedules(a.scheduling)}
	if room.TakerOfEvents(a.o.Rooms, c) == "" { //mutant:two-readers-of-events
		kinds = append(kinds, outbox.Events(c.Topics.Events))
	}
	d, err := outbox.New(outbox.Options{
		Store:           a.conns.Store,
		Kafka:           a.conns.Kafka,
		Kinds:           kinds,
		Skews:           a.skews,
		DeadLetterTopic: c.Topics.DeadLetter,
		Logger:          a.o.Logger.With("stage", outbox.Stage),
		Registerer:      a.o.Registerer,
		TracerProvider:  a.o.TracerProvider,
	})
	return part{Outbox, []room.Need{a.needKafka(), a.needDatabase()}, d.Run}, err
}

// scheduling returns the settings for publishing schedules now.
func (a *App) scheduling() outbox.Scheduling {
	c := a.o.Config
	return outbox.Scheduling{Buckets: a.ActiveBuckets(), CloseTopic: c.Topics.Close, Now: a.o.Now}
}
