// Package cli is the command line: one file per command. Results go to stdout,
// logs and progress to stderr. What changes things shows a plan first.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"orderclose/internal/app"
	"orderclose/internal/config"
)

// Env is what a command sees of the world around it.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(string) (string, bool)
}

// OSEnv is the process's own.
func OSEnv() Env {
	return Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv}
}

// Main runs the production command line and returns its exit code.
func Main(ctx context.Context, env Env, args []string) int {
	return Execute(ctx, env, newRoot(env), args)
}

// Execute runs a command line and returns its exit code; the error, if any, is
// on stderr by then.
func Execute(ctx context.Context, env Env, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Exit(Usage, err) })
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(env.Stderr, "orderclose:", err)
	}
	return codeOf(err)
}

// common are the flags of every command.
type common struct {
	env    Env
	config string
	output string
	quiet  bool
	debug  bool
}

func newRoot(env Env) *cobra.Command {
	c := &common{env: env}
	root := &cobra.Command{
		Use:   "orderclose",
		Short: "Unpaid orders close on time, their stock comes back exactly once, and none is missed",
		Long: `Unpaid orders close on time, their stock comes back exactly once, and none is missed.

The servers are named by the environment: ` + config.EnvBrokers + `,
` + config.EnvDSN + ` and ` + config.EnvRedis + `, or the same names with _FILE
for mounted secrets.

Exit codes: 0 done, 1 failed, 2 usage, 3 drift or findings, 4 not found,
5 refused, 6 partly done, 7 timed out.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.flags(root)
	root.AddCommand(
		newRun(c), newTopics(c), newSend(c), newStatus(c), newForecast(c), newCompensate(c), newReplay(c), newDLQ(c), newOrder(c), newAudit(c), newDoctor(c), newMigrate(c), newHealthcheck(c), newVersion(c),
	)
	return root
}

func (c *common) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&c.config, "config", "topics.yaml", "the topics.yaml to use")
	f.StringVarP(&c.output, "output", "o", "table", "how to print results: table or json, and for audit jsonl")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "log errors only, and show no progress")
	f.BoolVar(&c.debug, "debug", false, "log more")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if c.output == "jsonl" && cmd.Annotations["jsonl"] != "" {
			return nil
		}
		if c.output != "table" && c.output != "json" {
			return Exit(Usage, fmt.Errorf("-o is %q, want table or json", c.output))
		}
		return nil
	}
}

// logger logs to stderr as far as the flags want it.
func (c *common) logger() *slog.Logger {
	level := slog.LevelInfo
	switch {
	case c.quiet:
		level = slog.LevelError
	case c.debug:
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(c.env.Stderr, &slog.HandlerOptions{Level: level}))
}

// session is what most commands work with.
type session struct {
	app.Connections
	cfg     *config.Config
	servers config.Servers
	logger  *slog.Logger
	file    string // the topics.yaml
	// broken is what is wrong with it, for commands that look nevertheless;
	// ordersUnknown, that it does not tell in which tables the orders are.
	broken        config.Problems
	ordersUnknown bool
	// wrong are the variables that are set to something that cannot be used, by name.
	wrong map[string]error
}

// open reads the configuration and makes clients of the servers that are needed,
// by the names of their variables. What else is set, rightly or wrongly, is left alone.
// Close the session.
func (c *common) open(needed ...string) (*session, error) {
	return c.openFor(func(*config.Config) []string { return needed })
}

// openFor is open where the configuration decides what is needed. The variables of also
// are used too if they are set. Kafka is connected only if it is needed; see kafkaToo.
func (c *common) openFor(needs func(*config.Config) []string, also ...string) (*session, error) {
	cfg, err := config.Load(c.config)
	if err != nil {
		return nil, Exit(Usage, err)
	}
	needed := needs(cfg)
	servers, err := config.FromEnviron(c.env.LookupEnv, slices.Concat(needed, also)...)
	if err == nil {
		err = servers.Require(needed...)
	}
	if err != nil {
		return nil, Exit(Usage, err)
	}
	if !slices.Contains(needed, config.EnvBrokers) {
		servers.Brokers = nil
	}
	return c.connect(cfg, servers)
}

// connect makes clients of the servers.
func (c *common) connect(cfg *config.Config, servers config.Servers) (*session, error) {
	logger := c.logger()
	connections, err := app.Connect(servers, cfg, logger)
	if err != nil {
		return nil, Exit(Usage, err)
	}
	return &session{Connections: connections, cfg: cfg, servers: servers, logger: logger, file: c.config}, nil
}

// openKafka is open for commands that do nothing without Kafka: it asks whether it is
// there, since what fails later says only what it was about to do.
func (c *common) openKafka(ctx context.Context) (*session, error) {
	s, err := c.open(config.EnvBrokers)
	if err != nil {
		return nil, err
	}
	if err := s.Kafka.Ping(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// openSome is open for commands that make do with what is set, of the variables of
// these names; one of them must be.
func (c *common) openSome(names ...string) (*session, error) {
	servers, err := config.FromEnviron(c.env.LookupEnv, names...)
	if err != nil {
		return nil, Exit(Usage, err)
	}
	var set []string
	for _, name := range names {
		if servers.Require(name) == nil {
			set = append(set, name)
		}
	}
	if len(set) == 0 {
		return nil, Exit(Usage, servers.Require(names...))
	}
	return c.open(set...)
}

// openToLook is for commands that only look, and are needed most when something is
// broken. It takes from a broken topics.yaml what is right in it, and the defaults for
// the rest; session.broken has the problems. A variable whose value is wrong counts as
// not set; session.wrong has it. One of the variables of oneOf must be set; those of also
// are used if they are.
func (c *common) openToLook(oneOf []string, also ...string) (*session, error) {
	found, err := config.Salvage(c.config)
	if err != nil {
		return nil, Exit(Usage, err)
	}
	s := &session{cfg: found.Config, logger: c.logger(), file: c.config,
		broken: found.Problems, ordersUnknown: found.OrdersUnknown, wrong: map[string]error{}}
	usable := false
	for _, name := range slices.Concat(oneOf, also) {
		if name == config.EnvDSN && s.ordersUnknown {
			continue
		}
		set, err := s.connectTo(c.env.LookupEnv, name)
		if err != nil {
			s.wrong[name] = err
		}
		usable = usable || set && err == nil && slices.Contains(oneOf, name)
	}
	if usable {
		return s, nil
	}
	s.Close()
	if len(s.wrong) > 0 {
		return nil, Exit(Usage, errors.Join(slices.Collect(maps.Values(s.wrong))...))
	}
	return nil, Exit(Usage, config.Servers{}.Require(oneOf...))
}

// connectTo makes a client of the server that one variable names, and says whether the
// variable is set.
func (s *session) connectTo(lookup func(string) (string, bool), name string) (set bool, err error) {
	servers, err := config.FromEnviron(lookup, name)
	if err != nil {
		return true, err
	}
	if servers.Require(name) != nil {
		return false, nil
	}
	connections, err := app.Connect(servers, s.cfg, s.logger)
	if err != nil {
		return true, err
	}
	switch name {
	case config.EnvBrokers:
		s.Kafka, s.servers.Brokers = connections.Kafka, servers.Brokers
	case config.EnvDSN:
		s.Store = connections.Store
	case config.EnvRedis:
		s.Redis = connections.Redis
	}
	return true, nil
}

// sayBroken says on stderr what is wrong with topics.yaml, if anything is.
func (c *common) sayBroken(s *session) {
	if len(s.broken) > 0 {
		fmt.Fprintf(c.env.Stderr, "topics.yaml is broken; what is right in it is used, and the defaults for the rest:\n%v\n", s.broken)
	}
}

// judgeBroken is the error of a command that has looked with a broken topics.yaml.
func judgeBroken(s *session) error {
	if len(s.broken) == 0 {
		return nil
	}
	return Exit(Partly, errors.New("topics.yaml is broken: topics that it means to list may be missing above"))
}

// kafkaToo connects to Kafka if it is set, also where the parts that are to run need
// none: a compensator hears of losses and tells of dead letters, and sweeps without it. It returns
// what closes the connections.
func (c *common) kafkaToo(s *session) (close func()) {
	servers, err := config.FromEnviron(c.env.LookupEnv, config.EnvBrokers)
	if err == nil && (len(servers.Brokers) == 0 || s.Kafka != nil) {
		return func() {}
	}
	var connections app.Connections
	if err == nil {
		connections, err = app.Connect(config.Servers{Brokers: servers.Brokers, Kafka: servers.Kafka}, s.cfg, s.logger)
	}
	if err != nil {
		s.logger.Warn("going on without Kafka, which is needed here but to hear of lost records and to count dead letters", "err", err)
		return func() {}
	}
	s.Kafka = connections.Kafka
	return connections.Close
}

func (s *session) app() (*app.App, error) { return s.appThat(func(*app.Options) {}) }

// appThat is app with more options.
func (s *session) appThat(more func(*app.Options)) (*app.App, error) {
	o := app.Options{
		Config: s.cfg, Kafka: s.Kafka, Store: s.Store, Redis: s.Redis,
		Releaser: app.Releaser(s.servers), Secrets: s.servers.Secrets, Logger: s.logger,
	}
	more(&o)
	return app.New(o)
}
