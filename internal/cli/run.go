package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/tracing/otlp"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/webconsole"
)

// stopTimeout bounds how long a process may take to stop after SIGTERM.
const stopTimeout = 10 * time.Second

func newRun(c *common) *cobra.Command {
	var every time.Duration
	var names []string
	for _, name := range pipeline.RoleNames() {
		if name != string(pipeline.Sweeper) {
			names = append(names, name)
		}
	}
	cmd := &cobra.Command{
		Use:   "run [" + strings.Join(append(names, "all"), "|") + "]... | run sweeper [console] [webhook] [--every 5s]",
		Short: "Run parts of the pipeline until SIGTERM",
		Long: `Run parts of the pipeline until SIGTERM. The process then acks and commits what is
in flight and leaves its consumer groups, within 10 s.

webhook posts each event to the url of topics.yaml, signed, for those who have no Kafka:
run sweeper webhook. docs/webhook.md says what the receiver must do. all does not
include it: write run all webhook.

console serves the web console, as orderclose console does. all does not include it.

sweeper takes the place of the pipeline. It needs the database, and neither Kafka nor
Redis. Each --every it closes the orders that are due, so they close late by up to that
time. One of several sweepers works at a time, by a lock in the database. It ignores
the lock of compensator in topics.yaml: docs/sweeper.md.

Metrics, /-/healthy and /-/ready are served on ` + environ.EnvListen + `
(default ` + environ.DefaultListen + `).

A process applies a changed topics.yaml while it runs: when the file changes, on SIGHUP,
and on POST /-/reload at the same address. The reload answers 200 with the changes, or
400 with the problems; then nothing changes. Delays, partitions and replication take
effect at once, buckets once their topics exist, the rest at the next start; the log says which.
With orders.due.from nothing closes after a change of a delay until orderclose migrate.

With OTEL_EXPORTER_OTLP_ENDPOINT, orders that the shop traces are traced: docs/tracing.md.

With ` + environ.EnvInstance + ` a process that was killed gets its partitions back at once
when it is started again. Each process needs a value of its own: of two with the same
value, one ends with exit code 8.`,
		Example: "  orderclose run sweeper --every 5s\n  orderclose run all console\n  orderclose run relay closer --log-format json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < time.Second || every > 24*time.Hour {
				return Exit(Usage, fmt.Errorf("--every is %v, want 1s to 24h", every))
			}
			if cmd.Flags().Changed("every") && !slices.Contains(args, string(pipeline.Sweeper)) {
				return Exit(Usage, errors.New("--every is of the role sweeper: a compensator beside the pipeline works each 5 s"))
			}
			return c.runRoles(cmd.Context(), args, every, true)
		},
	}
	cmd.Flags().DurationVar(&every, "every", 5*time.Second, "how often a sweeper closes the orders that are due")
	return cmd
}

// runRoles runs the roles that the arguments name until ctx ends. If listens is set, it serves their
// metrics, and warns of variables that have no effect. every is the interval of a sweeper.
func (c *common) runRoles(ctx context.Context, args []string, every time.Duration, listens bool) error {
	hangup := make(chan os.Signal, 1) // first of all: without a handler SIGHUP ends the process
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	roles, err := rolesOf(args)
	if err != nil {
		return Exit(Usage, err)
	}
	if c.traces, err = otlp.FromEnvironment(ctx, c.env.LookupEnv, buildVersion().Version, c.logger()); err != nil {
		return Exit(Usage, err)
	}
	defer c.traces.Close()
	s, err := c.openRoles(roles)
	if err != nil {
		return err
	}
	defer s.Close()
	if !slices.Contains(roles, pipeline.Sweeper) {
		c.attachKafka(s)
	}
	if slices.Contains(roles, pipeline.Console) && s.Kafka == nil && s.Store == nil {
		return Exit(Usage, fmt.Errorf("%s is not set, and %s is not set: the console has nothing to show; set one of them", environ.EnvBrokers, environ.EnvDSN))
	}
	if listens && c.env.Environ != nil {
		for _, problem := range environ.UnknownVariables(c.env.Environ()) { // such as one with a misspelt name
			s.logger.Warn("unknown environment variable", "problem", problem)
		}
		for _, problem := range environ.OpenSecrets(c.env.Environ()) {
			s.logger.Warn("secret is open to every user", "problem", problem)
		}
	}
	return s.run(ctx, roles, every, hangup, listens)
}

// openRoles opens what the roles require, and for a console every server that a variable names.
func (c *common) openRoles(roles []pipeline.Role) (s *session, err error) {
	also := []string{environ.EnvListen, environ.EnvInstance}
	switch {
	case slices.Contains(roles, pipeline.Sweeper):
		also = []string{environ.EnvListen} // a variable of Kafka has no effect
	case slices.Contains(roles, pipeline.Console):
		also = append(also, environ.EnvBrokers)
	}
	if slices.Contains(roles, pipeline.Closer) {
		also = append(also, environ.EnvDSN) // if a service closes the orders, the database still has the pauses
	}
	if slices.Contains(roles, pipeline.Compensator) {
		also = append(also, environ.EnvRedis) // without it the lock is a row of the database
	}
	var settings webconsole.Settings
	if slices.Contains(roles, pipeline.Console) {
		also = append(also, environ.EnvDSN, environ.EnvRedis, environ.EnvHTTPSecret, environ.EnvPaymentSecret)
		if settings, err = webconsole.FromEnvironment(c.env.LookupEnv); err != nil {
			return nil, Exit(Usage, err)
		}
	}
	c.roles = roles
	s, err = c.openFor(func(cfg *config.Config) []string { return c.requiredVariables(cfg, roles...) }, also...)
	if err == nil {
		s.console = settings
	}
	return s, err
}

// rolesOf returns the roles that the arguments name. No argument means all: those of pipeline.AllRoles.
func rolesOf(args []string) (roles []pipeline.Role, err error) {
	add := func(role pipeline.Role) {
		if !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	if len(args) == 0 || slices.Contains(args, "all") {
		for _, role := range pipeline.AllRoles() {
			add(role)
		}
	}
	for _, arg := range args {
		if arg == "all" {
			continue
		}
		if all := pipeline.RoleNames(); !slices.Contains(all, arg) {
			return nil, fmt.Errorf("unknown role %q: run %v, or all", arg, all)
		}
		add(pipeline.Role(arg))
	}
	return roles, nil
}

// requiredVariables returns the environment variables that the roles require.
func (c *common) requiredVariables(cfg *config.Config, roles ...pipeline.Role) (names []string) {
	for _, role := range pipeline.Roles() {
		if !slices.Contains(roles, role.Role) {
			continue
		}
		if role.Kafka {
			names = append(names, environ.EnvBrokers)
		}
		if role.Database {
			names = append(names, environ.EnvDSN)
		}
		if role.Variables != nil {
			names = append(names, role.Variables(cfg)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// run runs the roles, and serves their metrics if listens is set, until ctx ends.
func (s *session) run(ctx context.Context, roles []pipeline.Role, every time.Duration, hangup <-chan os.Signal, listens bool) error {
	o := s.options()
	o.TopicsFile, o.Watch, o.Hangup, o.SweepEvery = s.file, true, hangup, every
	o.Console, o.Listen = webconsole.New(webconsole.Options{Settings: s.console, Version: buildVersion().Version}), s.servers.Listen
	o.Instance = s.servers.Instance
	a, err := pipeline.New(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var ran, served error
	all.Go(func() {
		defer cancel()
		ran = a.Run(ctx, roles...)
	})
	if listens {
		all.Go(func() {
			defer cancel()
			served = pipeline.Serve(ctx, s.servers.Listen, a.Handler(environ.OnLoopback(s.servers.Listen)), s.logger)
		})
	}
	<-ctx.Done()
	s.logger.Info("stopping")
	ended := make(chan error, 1)
	go func() {
		all.Wait()
		ended <- errors.Join(ran, served)
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(stopTimeout):
		return Exit(TimedOut, fmt.Errorf("not stopped within %v; the next process repeats what was not committed", stopTimeout))
	}
}

func newConsole(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "console",
		Short: "Serve the web console until SIGTERM",
		Long: `Serve the web console until SIGTERM, on ` + environ.EnvConsoleListen + ` (default
` + environ.DefaultConsoleListen + `): what waits, the history of an order, dead letters, late
payments, and the delays of topics.yaml. It shows what it finds, whichever servers
answer, and needs no running part of the pipeline. At least one of ` + environ.EnvBrokers + `
and ` + environ.EnvDSN + ` must be set.

On the loopback everybody may look. Who acts, or comes from elsewhere, comes through a
proxy that names the user: docs/security.md.`,
		Example: "  orderclose console",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.runRoles(cmd.Context(), []string{string(pipeline.Console)}, 0, false)
		},
	}
}
