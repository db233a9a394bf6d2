// Package pipeline runs the pipeline, or any of its parts, in a program of yours. No other
// package knows all parts.
//
//	app, err := pipeline.New(pipeline.Options{
//		TopicsFile: "topics.yaml",
//		Servers:    pipeline.Servers{Brokers: []string{"127.0.0.1:9092"}},
//		Store:      bookings, // closes orders; without one, the SQL store does
//	})
//	defer app.Close()
//	err = app.Run(ctx, pipeline.Relay, pipeline.Closer)
//
// A role is a part that a process can run. Any number of processes may run each role, together
// or apart. Each role waits for its servers and for the one topic that it cannot work without.
// It uses every other topic as soon as the topic exists. Run returns when everything that it
// started has stopped. Handler serves metrics, health and reloads.
//
//	options.go      what a program chooses, and Connections
//	app.go          New, Run, and what runs beside the roles
//	roles.go        the list of roles, the roles relay, closer, outbox and webhook
//	life.go         how Run begins and ends, Close, Ready and WaitReady
//	await.go        what a role waits for, and a stage whose topic does not exist yet
//	clock.go        the clocks of brokers and database, and what the brokers cannot do
//	buckets.go      keeps the buckets of the parts up to date with topics.yaml
//	reload.go       reads topics.yaml again
//	guard.go        compares the topics with topics.yaml, each minute
//	closing.go      the configured method of closing orders
//	name.go         the name of this process
//	compensator.go  the role that sweeps, its tasks, and the role Sweeper, which closes orders without Kafka
//	console.go      Host, and the role Console, which package webconsole serves
//	pauses.go       pauses of closing
//	measure.go      overdue records and orders, and writes that fail: what is measured beside the roles
//	metrics.go      the metrics of the process, and of calls of services
//	health.go       /metrics, /-/healthy, /-/ready, and their listener
//
// Package eventreader reads the events. Package pipelinetest has embedded servers for tests.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/reload"
	"github.com/orderclose/orderclose/internal/topics"
)

// Role is a part of the pipeline that a process can run.
type Role string

// The roles of AllRoles. Any number of processes may run each of them.
const (
	Relay       Role = "relay"       // moves records through the delay topics to the close topic
	Closer      Role = "closer"      // closes the orders of the close topic
	Compensator Role = "compensator" // sweeps for orders that the pipeline missed
	Outbox      Role = "outbox"      // publishes the rows of the outbox tables
)

// Sweeper is a compensator that closes all orders by itself, at the period of topics.yaml, without Kafka and Redis. No
// other role may run beside it, but Console. See docs/sweeper.md.
const Sweeper Role = "sweeper"

// Webhook posts each event to the URL in topics.yaml, for those who have no Kafka. Any number of processes may run it, beside Sweeper or
// Compensator. See docs/webhook.md.
const Webhook Role = "webhook"

// AllRoles returns the roles of a pipeline: Relay, Closer, Compensator and Outbox. Console, which people open, Sweeper and
// Webhook are not among them. The order of the roles has no meaning.
func AllRoles() []Role { return []Role{Relay, Closer, Compensator, Outbox} }

// App runs roles, once. Make it with New.
type App struct {
	o        Options
	gatherer prometheus.Gatherer // of the metrics that Handler serves; nil: none
	conns    Connections
	own      Connections  // conns, if New made them
	clock    *clock.Clock // relays, closers and compensators keep it
	skews    *clock.Skews // what the roles know of the clocks of checkouts
	metrics  *appMetrics
	ready    readiness

	reloader    *reload.Reloader              // nil: no TopicsFile
	live        atomic.Pointer[config.Config] // the configuration in effect
	picked      atomic.Pointer[orderclose.Buckets]
	changed     chan struct{} // a token: live has changed
	subscribers []func(serve, pick orderclose.Buckets)

	life    context.Context // until Close
	endLife func()

	mu    sync.Mutex
	stop  func() // ends Run; nil: it does not run
	ended error  // why it will not run any more; nil: it does, or it may

	fenced atomic.Bool // the log says that another process has the instance of this one

	closeMethodOnce func() (closeMethod, error)
	closers         []io.Closer // the clients that buildCloseMethod made

	alone bool // the role Sweeper runs
}

// New returns an App, or an error that names what is missing or wrong in the options, in
// topics.yaml or in an address. It does not wait for the servers. Call Close in the end.
func New(o Options) (*App, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	a := &App{clock: clock.New(o.Now), skews: clock.NewSkews(o.Config.Delays)}
	a.life, a.endLife = context.WithCancel(context.Background())
	a.gatherer, _ = o.Registerer.(prometheus.Gatherer)
	var err error
	if a.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	if a.conns = o.Connections; a.conns == (Connections{}) {
		if a.own, err = connect(o.Servers, o.Config, o.Logger); err != nil {
			return nil, fmt.Errorf("pipeline: %w", err)
		}
		a.conns = a.own
	}
	if a.conns.Kafka != nil && o.Instance != "" {
		a.conns.Kafka.NameInstance(o.Instance)
	}
	if a.conns.Kafka != nil && a.conns.Store == nil {
		a.conns.Kafka.OnAck(a.clock.LearnFromAck)
	}
	if db := a.conns.Store; db != nil {
		if o.Store != nil && o.Config.Orders == nil {
			db.UseOwnStore()
		}
		if db.Warning() != "" {
			o.Logger.Warn(db.Warning())
		}
	}
	a.o = o
	a.ready.waiting.add(needRun, "was not called yet")
	if a.conns.Kafka != nil {
		a.ready.waiting.addFunc("groups", a.conns.Kafka.NotJoined)
	}
	a.closeMethodOnce = sync.OnceValues(a.buildCloseMethod)
	a.changed = make(chan struct{}, 1)
	a.live.Store(o.Config)
	a.picked.Store(&o.Config.Buckets)
	a.metrics.Delays(o.Config.Delays)
	if o.TopicsFile != "" {
		a.reloader = a.newReloader()
	}
	return a, nil
}

// CreateTopics creates the missing topics, adds missing partitions, and corrects settings on
// which the pipeline depends. It deletes nothing, and may be called again. It returns an error if Kafka
// does not answer or refuses a change, and if differences remain that it may not correct.
func (a *App) CreateTopics(ctx context.Context) error {
	if a.conns.Kafka == nil {
		return errNoBrokers
	}
	_, left, err := a.conns.Kafka.Apply(ctx, topics.Specs(a.config()))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d differences remain, such as topic %s: %s; %s", len(left), left[0].Topic, left[0].What, left[0].Fix)
	}
	return err
}

// CreateTables creates the tables of the pipeline in the database, or brings them up to date: outboxes, receipts, pauses and
// the like. It also creates the reference tables of orders, unless topics.yaml maps orders to tables of the shop, or
// Options.Store is set. Several processes may call it at once. It returns an error if the database does not answer or refuses
// a statement.
func (a *App) CreateTables(ctx context.Context) error {
	if a.conns.Store == nil {
		return errNoDatabase
	}
	return a.conns.Store.Migrate(ctx)
}

// Run runs the roles until ctx ends, and then returns nil. It returns when everything that it
// started has stopped. Each role first waits for its servers, for as long as it takes; WaitReady says
// when they run. An error of one role stops the others. Run returns an error
//
//   - if an option, a role or an address is missing or wrong, or a role is named twice
//   - after Close: it wraps ErrClosed
//   - if a listener of the role Console fails
//   - if another process has the same Options.Instance: it wraps ErrFenced
//
// All other failures of servers are retried, refused passwords and missing privileges too, since
// both may be changed meanwhile. The log has a warning every 30 s.
//
// An App runs once: a second Run returns an error. If a loop hangs and does not stop, Run calls
// Options.OnHang, which by default exits the process.
func (a *App) Run(ctx context.Context, roles ...Role) error {
	if err := a.checkRoles(roles); err != nil {
		return err
	}
	// Without its deadline: the requests in flight would fail with it, and be logged, before ctx ends.
	endless, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := a.beginRun(cancel); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, cancel)()
	return a.endRun(a.runRoles(endless, cancel, roles))
}

// runRoles runs the roles until ctx ends. An error of one role calls cancel, which ends ctx.
func (a *App) runRoles(ctx context.Context, cancel context.CancelFunc, roles []Role) error {
	roles, err := a.sweepAlone(roles)
	if err != nil {
		return err
	}
	if a.conns.Kafka != nil {
		a.conns.Kafka.NameMember(a.o.ProcessName(roles))
	}
	parts, err := a.buildParts(roles)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	errs := make([]error, len(parts))
	for i, p := range parts {
		running.Go(func() {
			if errs[i] = a.runPart(ctx, p); errs[i] != nil {
				cancel()
			}
		})
	}
	beside, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	for _, watch := range a.watches(roles) {
		if watch.wanted {
			watching.Go(func() { watch.run(beside) })
		}
	}
	defer watching.Wait()
	defer stop()
	running.Wait()
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// lettersInterval is the interval between reads of the dead-letter topic, about the interval at which metrics are collected.
const lettersInterval = 15 * time.Second

// deadLetters returns the topic of dead letters, and the database if it has the orders.
func (a *App) deadLetters() deadletters.Topic {
	c := a.o.Config
	topic := deadletters.Topic{Log: a.conns.Kafka, Name: c.Topics.DeadLetter, Events: c.Topics.Events}
	if a.closesInDatabase() || a.conns.Store != nil && a.o.Store == nil && c.Orders != nil {
		topic.Orders = a.conns.Store
	}
	return topic
}

// watch is what may run beside the roles, until its context ends. No role depends on it.
type watch struct {
	wanted bool
	run    func(ctx context.Context)
}

func (a *App) watches(roles []Role) []watch {
	has := func(role Role) bool { return slices.Contains(roles, role) }
	kafka, sweeps, closes := a.conns.Kafka != nil, has(Compensator), has(Compensator) || has(Closer)
	return []watch{
		{kafka && slices.ContainsFunc(roles, requiresKafka), a.guard},
		{kafka && (has(Relay) || closes), a.keepClock},
		{has(Relay) || has(Outbox) || closes, a.watchSkews},
		{kafka && slices.ContainsFunc(roles, usesBuckets), func(ctx context.Context) { a.keepBuckets(ctx, has(Relay)) }},
		{kafka && closes, func(ctx context.Context) {
			letters := deadletters.NewFollower(a.deadLetters(), a.o.Logger)
			letters.Run(ctx, lettersInterval, a.metrics.DeadLettersOpen)
		}},
		{kafka && sweeps, a.watchRecords},
		{closes, a.watchPauses},
		{closes && a.closesInDatabase(), a.watchWrites},
		{a.alone, a.dropOutbox},
		{a.reloader != nil && a.o.Watch, func(ctx context.Context) { a.reloader.Run(ctx) }},
	}
}

// part is a role that is ready to run.
type part struct {
	role  Role
	needs []need
	run   func(ctx context.Context) error
}

// runPart waits for what the part needs, and runs it.
func (a *App) runPart(ctx context.Context, p part) error {
	for _, n := range p.needs {
		switch err := a.await(ctx, n, &a.ready.waiting, "waiting for a dependency", 0); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", p.role, err)
		}
	}
	started := []any{"role", p.role}
	if name := a.database(); name != "" {
		started = append(started, "database", name)
	}
	if p.role == Relay {
		started = append(started, "topics", topics.Durability(a.config()))
	}
	a.o.Logger.Info("started", started...)
	defer a.o.Logger.Info("stopped", "role", p.role)
	err := p.run(ctx)
	if errors.Is(err, ErrFenced) && !a.fenced.Swap(true) {
		a.o.Logger.Error("another process has the same instance, so this one ends: give each process an instance of its own",
			"instance", a.o.Instance, "at", hostAndPID(), "err", err)
	}
	return err
}

// database names the database of this process, as host:port/database; "" if it has none, or if
// its name is not known.
func (a *App) database() string {
	if a.conns.Store == nil {
		return ""
	}
	return a.conns.Store.Database()
}

func (a *App) build(name Role) (part, error) {
	role, known := requirements(name)
	switch {
	case !known:
		return part{}, fmt.Errorf("unknown role; the roles are %v", RoleNames())
	case a.conns.Kafka == nil && role.Kafka:
		return part{}, errNoBrokers
	case a.conns.Store == nil && role.Database:
		return part{}, errNoDatabase
	}
	return map[Role]func() (part, error){
		Relay: a.buildRelay, Closer: a.buildCloser, Compensator: a.buildCompensator, Outbox: a.buildOutbox, Webhook: a.buildWebhook,
		Console: a.buildConsole,
	}[name]()
}
