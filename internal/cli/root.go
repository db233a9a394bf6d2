// Package cli is the production command line. Each command has a file of its own.
//
//	root.go           the command line: flags, and the clients that a command opens
//	exit.go           exit codes
//	output.go         printing results and progress
//	flags.go          flags with times, durations and categories, among them --wait
//	run.go            run: the parts of the pipeline; console: the web console
//	send.go           send: schedules an order
//	topics.go         topics check and apply
//	status.go         status: what waits, and what is overdue
//	order.go          order: the history of one order
//	auditlog.go       what acting commands write to the audit log
//	audit.go          audit: compares the database with Kafka
//	compensate.go     compensate: one pass by hand, or its preview
//	replay.go         replay: closes the orders of a window again
//	pause.go          pause and resume
//	events.go         events again: writes the events of a window of time again
//	payments.go       payments late and resolve: money that came after a close
//	dlq.go            dlq ls and show: dead letters
//	delays.go         delays explain: when an order closes, which rule decides, and the buckets of a delay
//	doctor.go         doctor: the verdict, and checks of the installation
//	ordercounts.go    how many orders have which state
//	init.go           init: a topics.yaml for the tables of a shop
//	migrate.go        migrate: the schema, and a close that is tried and rolled back
//	runbook.go        runbook: what to do about a problem or an alert
//	healthcheck.go    healthcheck of a container
//	version.go        version
//
// Main runs a command line with an Env and returns the exit code. cmd/orderclose-dev adds the
// commands for development and also uses Execute.
//
// Results go to stdout; logs and progress go to stderr. A command that changes data shows a
// plan first, and changes it only with --yes.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/tracing/otlp"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/webconsole"
)

// Env is the environment of a command: streams and variables.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(string) (string, bool)
	Environ        func() []string // nil: the names of variables are not checked
}

// OSEnv returns the environment of the process.
func OSEnv() Env {
	return Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv, Environ: os.Environ}
}

// Main runs the production command line and returns its exit code.
func Main(ctx context.Context, env Env, args []string) int {
	return Execute(ctx, env, newRoot(env), args)
}

// Execute runs a command line and returns its exit code. It writes an error to stderr.
func Execute(ctx context.Context, env Env, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Exit(Usage, err) })
	err := root.ExecuteContext(ctx)
	if err != nil {
		if f := root.PersistentFlags().Lookup("output"); f != nil && strings.HasPrefix(f.Value.String(), "json") {
			_ = json.NewEncoder(env.Stderr).Encode(failure{text.Harmless(err.Error()), codeOf(err)})
		} else {
			fmt.Fprintln(env.Stderr, "orderclose:", text.Harmless(err.Error()))
		}
	}
	return codeOf(err)
}

// failure is the error of a command with -o json.
type failure struct {
	Error string `json:"error"`
	Code  int    `json:"code"` // the exit code
}

// common holds the flags that all commands have.
type common struct {
	env    Env
	same   string // the flag --config of this command, for those that it prints
	config string
	output string
	quiet  bool
	debug  bool
	format string          // of the log; "": EnvLogFormat says it
	roles  []pipeline.Role // that this process runs; none: it is another command
	traces *otlp.Exporter  // of the roles that run; nil: none
}

// Root returns the production command line, for programs that describe it, such as those that write man pages and completions.
func Root() *cobra.Command { return newRoot(OSEnv()) }

func newRoot(env Env) *cobra.Command {
	c := &common{env: env}
	root := &cobra.Command{
		Use:   "orderclose",
		Short: "Unpaid orders close on time, their stock comes back exactly once, and none is missed",
		Long: `Unpaid orders close on time, their stock comes back exactly once, and none is missed.

The environment names the servers: ` + environ.EnvBrokers + `,
` + environ.EnvDSN + ` and ` + environ.EnvRedis + `, or the same names with _FILE
for mounted secrets.

Exit codes: 0 done, 1 failed, 2 usage, 3 drift or findings, 4 not found,
5 refused, 6 partly done, 7 timed out, 8 another process has the same instance.`,
	}
	c.flags(root)
	add := func(to string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: to, Title: "To " + to + ":"})
		for _, cmd := range commands {
			cmd.GroupID = to
		}
		root.AddCommand(commands...)
	}
	add("run", newRun(c), newConsole(c), newHealthcheck(c))
	add("set up", newInit(c), newMigrate(c), newTopics(c),
		group("delays", "Show when an order closes, and which rule decides", newDelaysExplain(c)), newVersion(c))
	add("look", newStatus(c), newDoctor(c), newOrder(c), newAudit(c), newRunbook(c))
	add("act", newCompensate(c), newReplay(c),
		group("events", "Write events again that their topic has lost", newEventsAgain(c)), newDLQ(c), newPayments(c), newPause(c), newResume(c), newSend(c))
	complete(root)
	c.keepActions(root)
	return root
}

func (c *common) flags(root *cobra.Command) {
	f, file := root.PersistentFlags(), ""
	if c.env.LookupEnv != nil {
		file, _ = c.env.LookupEnv(config.EnvConfig)
	}
	f.StringVar(&c.config, "config", cmp.Or(file, defaultConfig), "the topics.yaml to use; also "+config.EnvConfig)
	f.StringVarP(&c.output, "output", "o", "table", "how to print results: table or json, and for some commands jsonl")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "log errors only, and show no progress")
	f.BoolVar(&c.debug, "debug", false, "log more")
	f.StringVar(&c.format, "log-format", "", "how to log: text, the default, or json; also "+environ.EnvLogFormat)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Name() != "run" && cmd.Name() != "console" {
			cmd.SetContext(store.Limited(cmd.Context(), statementLimit))
		}
		if cmd.Flags().Changed("config") {
			c.same = " --config " + text.ShellQuote(c.config)
		}
		if (c.output != "jsonl" || cmd.Annotations["jsonl"] == "") && c.output != "table" && c.output != "json" {
			return Exit(Usage, fmt.Errorf("-o is %q, want table or json", c.output))
		}
		if _, err := environ.LogHandler(io.Discard, c.format, c.env.LookupEnv, nil); err != nil {
			return Exit(Usage, err)
		}
		return nil
	}
}

// statementLimit is after how long the server ends a statement of a command that reads, also if the command has ended before.
const statementLimit = 10 * time.Second

// logger returns a logger that writes to stderr, with the level that the flags give.
func (c *common) logger() *slog.Logger {
	level := slog.LevelInfo
	switch {
	case c.quiet:
		level = slog.LevelError
	case c.debug:
		level = slog.LevelDebug
	}
	handler, _ := environ.LogHandler(c.env.Stderr, c.format, c.env.LookupEnv, &slog.HandlerOptions{Level: level}) // PersistentPreRunE has refused errors
	return slog.New(handler)
}

const defaultConfig = "topics.yaml"

// session holds the configuration and the clients of a command.
type session struct {
	clients.Clients
	cfg     *config.Config
	servers environ.Servers
	logger  *slog.Logger
	file    string // the path of topics.yaml
	console webconsole.Settings
	traces  *otlp.Exporter
}

// load reads topics.yaml.
func (c *common) load() (*config.Config, error) {
	cfg, err := config.Load(c.config, c.readOptions()...)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; orderclose init proposes one for the tables of your shop", err)
	}
	return cfg, err
}

// readOptions says how the program reads topics.yaml. Without Kafka, the file need not list the buckets.
func (c *common) readOptions() []config.Option {
	if v, _ := c.env.LookupEnv(environ.EnvBrokers); v == "" || slices.Contains(c.roles, pipeline.Sweeper) {
		return []config.Option{config.WithoutKafka}
	}
	return nil
}

// open reads the configuration and makes clients of the servers that the needed variables
// name. It ignores all other variables, valid or not. The caller must close the session.
func (c *common) open(needed ...string) (*session, error) {
	return c.openFor(func(*config.Config) []string { return needed })
}

// openFor is like open, for variables that depend on the configuration: needs returns those that
// must be set. The variables of also may be set. If Kafka is not needed, openFor makes no client of
// Kafka, even if also has its variable; attachKafka can make it later.
func (c *common) openFor(needs func(*config.Config) []string, also ...string) (*session, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, Exit(Usage, err)
	}
	needed := needs(cfg)
	also = slices.DeleteFunc(also, func(name string) bool { // its value does not matter
		return name == environ.EnvRedis && cfg.Compensator.Lock.Kind == config.LockDatabase
	})
	servers, err := environ.Read(c.env.LookupEnv, slices.Concat(needed, also)...)
	if err == nil {
		err = servers.Require(needed...)
	}
	if err != nil {
		return nil, Exit(Usage, err)
	}
	if !slices.Contains(needed, environ.EnvBrokers) {
		servers.Brokers = nil
	}
	s := &session{cfg: cfg, servers: servers, logger: c.logger(), file: c.config, traces: c.traces}
	if len(c.roles) > 0 {
		s.logger = s.logger.With("process", (&pipeline.Options{Listen: servers.Listen, Instance: servers.Instance}).ProcessName(c.roles))
	}
	if err := s.connect(servers); err != nil {
		return nil, Exit(Usage, err)
	}
	return s, nil
}

// with returns a function that calls run with a session that was just opened, and closes it.
func with(s *session, err error) func(run func(*session) error) error {
	return func(run func(*session) error) error {
		if err != nil {
			return err
		}
		defer s.Close()
		return run(s)
	}
}

// openKafka is like open for commands that need Kafka. The variables of also may be set. It checks that
// Kafka answers, because later errors only say which request failed.
func (c *common) openKafka(ctx context.Context, also ...string) (*session, error) {
	s, err := c.openFor(func(*config.Config) []string { return []string{environ.EnvBrokers} }, also...)
	if v, _ := c.env.LookupEnv(environ.EnvBrokers); err != nil && v == "" {
		err = Exit(Usage, fmt.Errorf("%w. This command works on the topics of Kafka; sweeps alone, orderclose run sweeper, have none", err))
	}
	if err != nil {
		return nil, err
	}
	if err := s.Kafka.Ping(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// openAnySet is like open for commands that can work with some of the named variables. At
// least one of them must be set. The variables of also may be set.
func (c *common) openAnySet(names []string, also ...string) (*session, error) {
	set := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		servers, err := environ.Read(c.env.LookupEnv, name)
		return err == nil && servers.Require(name) != nil
	})
	if len(set) == 0 {
		set = names // the error names all
	}
	return c.openFor(func(*config.Config) []string { return set }, also...)
}

// readAny is for the commands that show the verdict: they need Kafka or the database.
func (c *common) readAny(run func(*session) error) error {
	return with(c.openAnySet([]string{environ.EnvBrokers, environ.EnvDSN}, environ.EnvRedis))(run)
}

// connect makes clients of the servers, beside those that the session has.
func (s *session) connect(servers environ.Servers) error {
	clients.LogRedis(s.logger)
	made, err := clients.Connect(servers, clients.Database{Open: s.traces.OpenDB}, s.cfg, s.logger)
	s.Kafka, s.Store, s.Redis = cmp.Or(made.Kafka, s.Kafka), cmp.Or(made.Store, s.Store), cmp.Or(made.Redis, s.Redis)
	return err
}

// attachKafka makes a client of Kafka if its variable is set and the session has none. It is for roles that do not require Kafka: a
// compensator sees how far the pipeline is and counts dead letters with Kafka, and sweeps without it. So it logs an error, such as an
// invalid variable, and the session stays without Kafka.
func (c *common) attachKafka(s *session) {
	if s.Kafka != nil {
		return
	}
	servers, err := environ.Read(c.env.LookupEnv, environ.EnvBrokers)
	if err == nil && len(servers.Brokers) > 0 {
		s.servers.Brokers, s.servers.Kafka = servers.Brokers, servers.Kafka
		err = s.connect(servers)
	}
	if err != nil {
		s.logger.Warn("continuing without Kafka: lost records and dead letters are not handled", "err", err)
	}
}

// ownStoreTimeout bounds the question whether a Store of a program closes the orders.
const ownStoreTimeout = 2 * time.Second

// ownStore reports whether the tables in the database belong to a program that closes the orders by a Store of its own.
func (s *session) ownStore() bool {
	if s.Store == nil || s.cfg.Orders != nil || s.Store.OwnStore() {
		return s.Store != nil && s.Store.OwnStore()
	}
	ctx, cancel := context.WithTimeout(store.Limited(context.Background(), ownStoreTimeout), ownStoreTimeout)
	defer cancel()
	if s.Store.OfOwnStore(ctx) {
		s.Store.UseOwnStore()
	}
	return s.Store.OwnStore()
}

// pipeline returns the pipeline of the session, for what commands share with the console.
func (s *session) pipeline() ops.Pipeline {
	return ops.Pipeline{Config: s.cfg, Kafka: s.Kafka, Store: s.Store, Redis: s.Redis, OwnStore: s.ownStore()}
}

// options returns the options of a pipeline with the clients of the session.
func (s *session) options() pipeline.Options {
	o := pipeline.Options{
		Config: s.cfg, Connections: s.Clients,
		Secrets: pipeline.Secrets(s.servers.Secrets), Logger: s.logger,
	}
	if s.traces != nil {
		o.TracerProvider, o.Services = s.traces.Provider, s.traces.Transport(httpcall.Transport())
	}
	return o
}
