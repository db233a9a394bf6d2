package pipeline

import (
	"cmp"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/delayrelay"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/outbox"
	"github.com/orderclose/orderclose/webhook"
)

// Requirements are what a role cannot work without. It runs only if the process has their clients.
type Requirements struct {
	Role            Role
	Kafka, Database bool
	// Variables returns the environment variables that the role requires, besides those of Kafka and the database; nil: none.
	Variables func(*Config) []string

	buckets bool // it puts records into buckets, and starts when it is known which delay topics exist
}

// Roles returns what each role requires, in the order of their help.
func Roles() []Requirements {
	return []Requirements{
		{Role: Relay, Kafka: true, buckets: true},
		{Role: Closer, Kafka: true, buckets: true, Variables: func(c *Config) []string { return environ.OfClosing(c.Closer) }},
		{Role: Compensator, Variables: sweepVariables},
		{Role: Outbox, Kafka: true, Database: true, buckets: true},
		{Role: Sweeper, Variables: sweepVariables},
		{Role: Webhook, Database: true, Variables: func(*Config) []string { return []string{environ.EnvWebhookSecret} }},
		{Role: Console},
	}
}

// RoleNames returns the names of all roles.
func RoleNames() (names []string) {
	for _, r := range Roles() {
		names = append(names, string(r.Role))
	}
	return names
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

// requirements returns those of a role.
func requirements(role Role) (r Requirements, known bool) {
	all := Roles()
	i := slices.IndexFunc(all, func(r Requirements) bool { return r.Role == role })
	if i < 0 {
		return r, false
	}
	return all[i], true
}

// requiresKafka reports whether a role cannot work without Kafka.
func requiresKafka(role Role) bool {
	r, _ := requirements(role)
	return r.Kafka
}

// usesBuckets reports whether a role puts records into buckets.
func usesBuckets(role Role) bool {
	r, _ := requirements(role)
	return r.buckets
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
	return part{Closer, append([]need{a.needKafka(), a.needTopic(c.Topics.Close)}, method.needs...), cl.Run}, nil
}

func (a *App) buildOutbox() (part, error) {
	c := a.o.Config
	kinds := []outbox.Kind{outbox.Schedules(a.scheduling)}
	if c.Webhook.URL == "" { //mutant:two-readers-of-events
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
	return part{Outbox, []need{a.needKafka(), a.needDatabase()}, d.Run}, err
}

func (a *App) buildWebhook() (part, error) {
	s, err := webhook.New(webhook.Options{
		Config:     a.o.Config,
		Store:      a.conns.Store,
		Secrets:    a.o.Secrets.Webhook,
		Transport:  a.o.Services,
		Logger:     a.o.Logger.With("stage", webhook.Stage),
		Registerer: a.o.Registerer,
	})
	if err != nil {
		return part{}, err
	}
	return part{Webhook, []need{a.needDatabase(), {"outbox_events", s.Alone}}, s.Run}, nil
}

// scheduling returns the settings for publishing schedules now.
func (a *App) scheduling() outbox.Scheduling {
	c := a.o.Config
	return outbox.Scheduling{Buckets: a.ActiveBuckets(), CloseTopic: c.Topics.Close, Now: a.o.Now}
}
