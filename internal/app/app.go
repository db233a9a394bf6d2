// Package app builds the parts from configuration, runs them and stops them. It
// is the only package that sees them all.
package app

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

	"orderclose"
	"orderclose/closer"
	"orderclose/compensator"
	"orderclose/delayrelay"
	"orderclose/internal/config"
	"orderclose/internal/kafka"
	"orderclose/internal/loglimit"
	"orderclose/internal/obs"
	"orderclose/internal/reload"
	"orderclose/internal/store"
	"orderclose/release"
)

// Role is a part that a process can play.
type Role string

// The roles. Any number of processes may play each.
const (
	Relay       Role = "relay"
	Closer      Role = "closer"
	Compensator Role = "compensator"
	Outbox      Role = "outbox"
)

// AllRoles is every role that every shop needs, in the order of an order's way.
func AllRoles() []Role { return []Role{Relay, Closer, Compensator, Outbox} }

// Options for an App. Config must be set, and what the roles that it will run
// need: Kafka for all but the compensator, Store for closer, compensator and outbox,
// Releaser for release.
type Options struct {
	Config   *config.Config
	Kafka    *kafka.Cluster
	Store    *store.Store
	Redis    redis.UniversalClient    // nil: sweeps without a lock
	Releaser release.Releaser         // of stock that is kept in a service
	Missed   func([]compensator.Miss) // what sweeps have closed, page by page; may be nil
	Secrets  config.Secrets           // of the user's services
	Services http.RoundTripper        // how they are reached; default: over the network
	// TopicsFile is where Config was read from, to be read again by Reload; "" if it
	// never is. With Watch it is also read when it changes, and on Hangup.
	TopicsFile string
	Watch      bool
	Hangup     <-chan os.Signal
	Settle     time.Duration        // before changed buckets are picked from; default reload.DefaultSettle
	Registry   *prometheus.Registry // gets the metrics of the roles, the Go runtime and the process; default: a new one
	Now        func() time.Time     // the clock of this machine; default time.Now
	Logger     *slog.Logger         // default: discard
}

// App runs roles. Make it with New.
type App struct {
	o       Options
	clock   *kafka.BrokerClock // of relays and closers
	metrics *obs.Metrics
	ready   obs.Readiness

	reloader *reload.Reloader              // nil: there is nothing to reload
	live     atomic.Pointer[config.Config] // what holds now
	picked   atomic.Pointer[orderclose.Buckets]
	changed  chan struct{} // there is another configuration in live
	begun    chan struct{} // closed when picked has the buckets whose topics exist
	pickers  []func(serve, pick orderclose.Buckets)

	closingOnce func() (closing, error)
	closers     []io.Closer // of what closing has kept
}

// New returns an App.
func New(o Options) (*App, error) {
	if o.Config == nil {
		return nil, errors.New("app: Options need a Config")
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	if o.Settle == 0 {
		o.Settle = reload.DefaultSettle
	}
	if err := obs.RegisterRuntime(o.Registry); err != nil {
		return nil, fmt.Errorf("app: %w", err)
	}
	clock := kafka.NewBrokerClock(o.Now)
	a := &App{o: o, clock: clock, metrics: obs.NewMetrics(o.Registry, clock.Now)}
	a.closingOnce = sync.OnceValues(a.buildClosing)
	a.changed, a.begun = make(chan struct{}, 1), make(chan struct{})
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

// Ready lists what the app still waits for; it is ready when that is nothing.
func (a *App) Ready() []string { return a.ready.Waiting() }

// Hints lists what the app works without for now: topics that do not exist, and services
// all of whose calls fail.
func (a *App) Hints() []string { return a.ready.Hints() }

// Run plays the roles until ctx ends, and returns when all they started has
// stopped. Each role waits until its servers are there. An error of one stops
// the others.
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
		a.ready.Wait(need.name, "not asked yet")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	errs := make([]error, len(parts))
	for i, p := range parts {
		running.Go(func() {
			if errs[i] = a.play(ctx, p); errs[i] != nil {
				cancel()
			}
		})
	}
	if a.o.Kafka != nil && slices.ContainsFunc(roles, func(r Role) bool { return r != Compensator }) {
		guarding, stop := context.WithCancel(ctx)
		var guard sync.WaitGroup
		guard.Go(func() { a.guard(guarding) })
		if slices.Contains(roles, Relay) || slices.Contains(roles, Closer) {
			guard.Go(func() { a.clock.Keep(guarding, a.o.Kafka, a.o.Config.Topics.Control, a.toldOffset) })
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

// part is a role that was built: what it needs, and its life.
type part struct {
	role  Role
	needs []need
	run   func(ctx context.Context) error
}

func (a *App) play(ctx context.Context, p part) error {
	for _, n := range p.needs {
		if !a.await(ctx, n) {
			return nil
		}
	}
	if a.o.Kafka != nil && picks(p.role) && p.role != Compensator { // which goes on without Kafka
		select {
		case <-a.begun:
		case <-ctx.Done():
			return nil
		}
	}
	a.o.Logger.Info("started", "role", p.role)
	defer a.o.Logger.Info("stopped", "role", p.role)
	return p.run(ctx)
}

// needs lists what parts need, each once.
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
	return part{}, fmt.Errorf("there is no such role; there are %v", append(AllRoles(), Release))
}

func (a *App) buildRelay() (part, error) {
	if a.o.Kafka == nil {
		return part{}, fmt.Errorf("set %s", config.EnvBrokers)
	}
	c := a.o.Config
	r, err := delayrelay.New(delayrelay.Options{
		Log:             appearing{a.o.Kafka, a},
		Buckets:         c.Buckets,
		Group:           c.RelayGroup,
		CloseTopic:      c.Topics.Close,
		ReplayTopic:     c.Topics.Replay,
		DeadLetterTopic: c.Topics.DeadLetter,
		ControlTopic:    c.Topics.Control,
		Abandon:         a.abandon,
		Now:             a.clock.Now,
		Logger:          a.o.Logger.With("stage", delayrelay.Stage),
		Metrics:         a.metrics,
	})
	if err != nil {
		return part{}, err
	}
	a.pickers = append(a.pickers, r.Change)
	return part{Relay, []need{a.needKafka(), a.needTopic(c.Topics.Close)}, r.Run}, nil
}

// abandon ends the process: something in it hangs beyond repair, and what was not
// committed is done again by the next one.
func (a *App) abandon(why string) {
	a.o.Logger.Error("exiting, to be started again", "why", why)
	os.Exit(1)
}

// alarmingOffset is how far clocks may be apart before it is worth a line in the
// log; the relay's decisions are right in any case.
const alarmingOffset = time.Second

func (a *App) toldOffset(offset time.Duration) {
	a.metrics.ClockOffset("kafka", offset)
	if offset.Abs() > alarmingOffset {
		a.o.Logger.Warn("the brokers' clock and this machine's are apart: mend the time synchronisation", "ahead", offset)
	}
}

func (a *App) buildCloser() (part, error) {
	if a.o.Kafka == nil {
		return part{}, fmt.Errorf("set %s", config.EnvBrokers)
	}
	way, err := a.closingOnce()
	if err != nil {
		return part{}, err
	}
	c := a.o.Config
	cl, err := closer.New(closer.Options{
		Log:             appearing{a.o.Kafka, a},
		Store:           way.store,
		Buckets:         c.Buckets,
		Group:           c.CloserGroup(),
		CloseTopic:      c.Topics.Close,
		ReplayGroup:     c.ReplayGroup(),
		ReplayTopic:     c.Topics.Replay,
		DeadLetterTopic: c.Topics.DeadLetter,
		ControlTopic:    c.Topics.Control,
		Batch:           way.batch(c.Closer.Batch),
		Latency:         c.Closer.Latency,
		Now:             a.o.Now,
		Clock:           a.clock.Now,
		Abandon:         a.abandon,
		Logger:          a.o.Logger.With("stage", closer.Stage),
		Metrics:         a.metrics,
	})
	if err != nil {
		return part{}, err
	}
	a.pickers = append(a.pickers, func(_, pick orderclose.Buckets) { cl.Pick(pick) })
	return part{Closer, append([]need{a.needKafka(), a.needTopic(c.Topics.Close)}, way.needs...), cl.Run}, nil
}
