// Package pipeline builds the parts of the pipeline from a configuration, runs them and stops
// them. No other package knows all parts.
//
// Connect makes the clients of the servers, New makes an App, and Run runs roles until its
// context ends. Handler serves metrics, health and reloads.
//
// Each role waits for its servers and for the one topic that it cannot work without. It
// uses every other topic as soon as the topic exists. Run returns when everything that it
// started has stopped.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/delayrelay"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/loglimit"
	"github.com/orderclose/orderclose/internal/obs"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/release"
)

// Role is a part of the pipeline that a process can run.
type Role string

// The roles. Any number of processes may run each of them.
const (
	Relay       Role = "relay"
	Closer      Role = "closer"
	Compensator Role = "compensator"
	Outbox      Role = "outbox"
)

// AllRoles returns the roles that every shop needs, in the order in which an order passes them.
func AllRoles() []Role { return []Role{Relay, Closer, Compensator, Outbox} }

// Options for an App. Config is required. Every role except the compensator needs Kafka;
// closer, compensator and outbox need Store; release needs Releaser.
type Options struct {
	Config   *config.Config
	Kafka    *kafka.Cluster
	Store    *store.Store
	Redis    redis.UniversalClient    // nil: sweeps run without a lock
	Releaser release.Releaser         // releases stock that a service holds
	Missed   func([]compensator.Miss) // called with the orders that a sweep closed, page by page; may be nil
	Secrets  config.Secrets           // of the user's services
	Services http.RoundTripper        // the transport to the user's services; default: the network
	// TopicsFile is the file from which Config was read. Reload reads it again. "": no
	// reload is possible. With Watch the file is also read when it changes, and on Hangup.
	TopicsFile   string
	Watch        bool
	Hangup       <-chan os.Signal
	RolloutDelay time.Duration        // the delay before changed buckets are used; default reload.DefaultRolloutDelay
	Registry     *prometheus.Registry // gets the metrics of the roles, the Go runtime and the process; default: a new one
	Now          func() time.Time     // the clock of this machine; default time.Now
	Logger       *slog.Logger         // default: discard
}

// App runs roles. Make it with New.
type App struct {
	o       Options
	clock   *kafka.BrokerClock // the brokers' clock, for relays and closers
	metrics *obs.Metrics
	ready   obs.Readiness

	reloader     *config.Reloader              // nil: no TopicsFile
	live         atomic.Pointer[config.Config] // the configuration in effect
	picked       atomic.Pointer[orderclose.Buckets]
	changed      chan struct{} // a token: live has changed
	bucketsReady chan struct{} // closed when picked holds the buckets whose topics exist
	subscribers  []func(serve, pick orderclose.Buckets)

	closeMethodOnce func() (closeMethod, error)
	closers         []io.Closer // the clients that buildCloseMethod made
}

// New returns an App.
func New(o Options) (*App, error) {
	if o.Config == nil {
		return nil, errors.New("pipeline: Options need a Config")
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	if o.RolloutDelay == 0 {
		o.RolloutDelay = config.DefaultRolloutDelay
	}
	if err := obs.RegisterRuntime(o.Registry); err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	clock := kafka.NewBrokerClock(o.Now)
	a := &App{o: o, clock: clock, metrics: obs.NewMetrics(o.Registry, clock.Now)}
	a.closeMethodOnce = sync.OnceValues(a.buildCloseMethod)
	a.changed, a.bucketsReady = make(chan struct{}, 1), make(chan struct{})
	a.live.Store(o.Config)
	a.picked.Store(&o.Config.Buckets)
	if o.TopicsFile != "" {
		var err error
		if a.reloader, err = a.newReloader(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Ready lists the servers and topics that the app still waits for. An empty list means ready.
func (a *App) Ready() []string { return a.ready.Waiting() }

// Hints lists problems that do not stop the app: topics that do not exist, and services
// that fail every call.
func (a *App) Hints() []string { return a.ready.Hints() }

// Run runs the roles until ctx ends. It returns when everything that it started has
// stopped. Each role first waits for its servers. An error of one role stops the others.
func (a *App) Run(ctx context.Context, roles ...Role) error {
	parts := make([]part, len(roles))
	for i, role := range roles {
		p, err := a.build(role)
		if err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		parts[i] = p
	}
	for _, need := range needs(parts) {
		a.ready.Wait(need.name, "not checked yet")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	errs := make([]error, len(parts))
	for i, p := range parts {
		running.Go(func() {
			if errs[i] = a.runPart(ctx, p); errs[i] != nil {
				cancel()
			}
		})
	}
	if a.o.Kafka != nil && slices.ContainsFunc(roles, func(r Role) bool { return r != Compensator }) {
		guarding, stop := context.WithCancel(ctx)
		var guard sync.WaitGroup
		guard.Go(func() { a.guard(guarding) })
		if slices.Contains(roles, Relay) || slices.Contains(roles, Closer) {
			guard.Go(func() { a.clock.Keep(guarding, a.o.Kafka, a.o.Config.Topics.Control, a.onClockOffset) })
		}
		defer guard.Wait()
		defer stop()
	}
	defer a.watchDeadLetters(ctx, roles)()
	defer a.watchOverdue(ctx, roles)()
	defer a.watchWrites(ctx, roles)()
	defer a.keepBuckets(ctx, roles)()
	defer a.watch(ctx)()
	running.Wait()
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// part is a role that is ready to run.
type part struct {
	role  Role
	needs []need
	run   func(ctx context.Context) error
}

func (a *App) runPart(ctx context.Context, p part) error {
	for _, n := range p.needs {
		if !a.await(ctx, n) {
			return nil
		}
	}
	if a.o.Kafka != nil && usesBuckets(p.role) && p.role != Compensator { // a compensator also works without Kafka
		select {
		case <-a.bucketsReady:
		case <-ctx.Done():
			return nil
		}
	}
	a.o.Logger.Info("started", "role", p.role)
	defer a.o.Logger.Info("stopped", "role", p.role)
	return p.run(ctx)
}

// needs returns the needs of all parts, without duplicates.
func needs(parts []part) []need {
	var all []need
	for _, p := range parts {
		for _, n := range p.needs {
			if !slices.ContainsFunc(all, func(o need) bool { return o.name == n.name }) {
				all = append(all, n)
			}
		}
	}
	return all
}

func (a *App) build(role Role) (part, error) {
	switch role {
	case Relay:
		return a.buildRelay()
	case Closer:
		return a.buildCloser()
	case Compensator:
		return a.buildCompensator()
	case Outbox:
		return a.buildOutbox()
	case Release:
		return a.buildRelease()
	}
	return part{}, fmt.Errorf("unknown role; the roles are %v", append(AllRoles(), Release))
}

func (a *App) buildRelay() (part, error) {
	if a.o.Kafka == nil {
		return part{}, fmt.Errorf("set %s", config.EnvBrokers)
	}
	c := a.o.Config
	r, err := delayrelay.New(delayrelay.Options{
		Log:             topicWaiter{a.o.Kafka, a},
		Buckets:         c.Buckets,
		Group:           c.RelayGroup,
		CloseTopic:      c.Topics.Close,
		ReplayTopic:     c.Topics.Replay,
		DeadLetterTopic: c.Topics.DeadLetter,
		ControlTopic:    c.Topics.Control,
		OnHang:          a.abandon,
		Now:             a.clock.Now,
		Logger:          a.o.Logger.With("stage", delayrelay.Stage),
		Metrics:         a.metrics,
	})
	if err != nil {
		return part{}, err
	}
	a.subscribers = append(a.subscribers, r.SetBuckets)
	return part{Relay, []need{a.needKafka(), a.needTopic(c.Topics.Close)}, r.Run}, nil
}

// abandon ends the process because a loop hangs and cannot be stopped. The next process
// repeats the work that was not committed.
func (a *App) abandon(why string) {
	a.o.Logger.Error("exiting because a loop hangs", "reason", why)
	os.Exit(1)
}

// clockWarnOffset is the offset between the clocks above which the log has a warning. The
// relay works correctly with any offset.
const clockWarnOffset = time.Second

func (a *App) onClockOffset(offset time.Duration) {
	a.metrics.ClockOffset("kafka", offset)
	if offset.Abs() > clockWarnOffset {
		a.o.Logger.Warn("the brokers' clock and the clock of this machine differ: fix the time synchronisation", "ahead", offset)
	}
}

func (a *App) buildCloser() (part, error) {
	if a.o.Kafka == nil {
		return part{}, fmt.Errorf("set %s", config.EnvBrokers)
	}
	method, err := a.closeMethodOnce()
	if err != nil {
		return part{}, err
	}
	c := a.o.Config
	cl, err := closer.New(closer.Options{
		Log:             topicWaiter{a.o.Kafka, a},
		Store:           method.store,
		Buckets:         c.Buckets,
		Group:           c.CloserGroup(),
		CloseTopic:      c.Topics.Close,
		ReplayGroup:     c.ReplayGroup(),
		ReplayTopic:     c.Topics.Replay,
		DeadLetterTopic: c.Topics.DeadLetter,
		ControlTopic:    c.Topics.Control,
		Batch:           method.batch(c.Closer.Batch),
		TargetLatency:   c.Closer.Latency,
		Now:             a.o.Now,
		Clock:           a.clock.Now,
		OnHang:          a.abandon,
		Logger:          a.o.Logger.With("stage", closer.Stage),
		Metrics:         a.metrics,
	})
	if err != nil {
		return part{}, err
	}
	a.subscribers = append(a.subscribers, func(_, pick orderclose.Buckets) { cl.SetBuckets(pick) })
	return part{Closer, append([]need{a.needKafka(), a.needTopic(c.Topics.Close)}, method.needs...), cl.Run}, nil
}
