package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/producer"
)

// readyTimeout bounds how long servers and groups may take to start.
const readyTimeout = 30 * time.Second

// environment is what the demo runs on: servers, the pipeline, and a shop.
type environment struct {
	backend string
	cfg     *config.Config
	clients.Clients
	brokers  []string
	security kafka.Security
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	registry *prometheus.Registry
	app      *pipeline.App
	shop     *scenario.Shop
	closers  []func() error // last in, first out
}

// demoCategories returns the categories of the demo's orders. One of them is not in the
// configuration.
func demoCategories() []string { return []string{"flash-sale", "virtual", "physical", "unheard-of"} }

// demoConfig returns a configuration with delays of seconds. prefix is added to all names.
func demoConfig(prefix string) *config.Config {
	c := config.Default()
	c.Partitions = 4
	c.Buckets = nil
	for _, length := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second} {
		c.Buckets = append(c.Buckets, orderclose.Bucket{Topic: prefix + "delay_" + orderclose.ShortDuration(length), Length: length})
	}
	c.Topics = c.Topics.WithPrefix(prefix)
	c.Delays.Default = 6 * time.Second
	c.Delays.ByCategory = map[string]time.Duration{"flash-sale": 2 * time.Second, "virtual": 5 * time.Second, "physical": 8 * time.Second}
	c.Compensator.Period = 5 * time.Second
	c.Compensator.Lock.Key = prefix + c.Compensator.Lock.Key
	return c
}

// delaysInWords lists the delays, sorted by length: flash-sale 2s, virtual 5s, …
func delaysInWords(c *config.Config) string {
	delays := c.Delays.ByCategory
	categories := slices.SortedFunc(maps.Keys(delays), func(a, b string) int {
		return cmp.Or(cmp.Compare(delays[a], delays[b]), cmp.Compare(a, b))
	})
	var all []string
	for _, category := range categories {
		all = append(all, category+" "+orderclose.ShortDuration(delays[category]))
	}
	return strings.Join(append(all, "any other "+orderclose.ShortDuration(c.Delays.Default)), ", ")
}

// open makes the environment on embedded servers, or in a database and topics of its own on real
// ones. If it fails, it closes what it opened.
func (d *demo) open(ctx context.Context, logger *slog.Logger) (*environment, error) {
	st := &environment{registry: prometheus.NewRegistry()}
	build := st.openEmbedded
	if d.real || d.database != "" {
		build = func(ctx context.Context, env cli.Env, logger *slog.Logger) error {
			return st.openReal(ctx, env, databases[d.database], logger)
		}
	}
	err := build(ctx, d.env, logger)
	if err == nil {
		err = st.build(ctx, logger)
	}
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *environment) openEmbedded(_ context.Context, _ cli.Env, logger *slog.Logger) error {
	st.backend, st.cfg = "embedded", demoConfig("")
	w, err := pipelinetest.Start(pipelinetest.Options{Logger: logger})
	if err != nil {
		return err
	}
	st.onClose(func() error { w.Close(); return nil })
	connections, err := w.Connect("demo")
	if err != nil {
		return err
	}
	st.onClose(func() error { connections.Close(); return nil })
	st.Clients, st.brokers, st.dial = connections, w.Brokers(), w.Dial
	return nil
}

// databases are the variables that name a server of each kind of database, as make up prints them.
var databases = map[string]string{"mariadb": environ.EnvDSN, "mysql": "ORDERCLOSE_MYSQL_DSN", "postgres": "ORDERCLOSE_POSTGRES_DSN"}

// openReal opens the servers that the environment names. variable has the database; empty: it is that of the
// pipeline.
func (st *environment) openReal(ctx context.Context, env cli.Env, variable string, logger *slog.Logger) error {
	st.backend = "real"
	servers, err := realServers(env, variable)
	if err != nil {
		return cli.Exit(cli.Usage, err)
	}
	prefix := "oc_" + strings.ToLower(rand.Text()[:10]) + "_"
	st.cfg = demoConfig(prefix)
	dsn, drop, err := scenario.CreateDatabase(ctx, servers.DSN, servers.DatabaseTLS, strings.TrimSuffix(prefix, "_"))
	if err != nil {
		return err
	}
	st.onClose(func() error { return withTimeout(drop) })
	servers.DSN = dsn
	if st.Clients, err = clients.Connect(servers, clients.Database{}, st.cfg, logger); err != nil {
		return err
	}
	st.onClose(func() error { st.Clients.Close(); return nil })
	st.brokers, st.security = servers.Brokers, servers.Kafka
	if err := st.Kafka.Ping(ctx); err != nil {
		return err
	}
	if err := st.Redis.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	st.onClose(func() error { return withTimeout(st.dropTopics) })
	return st.Store.Migrate(ctx)
}

// realServers returns the servers that the environment names, or those that make up started. The value of
// variable, if it is not empty, replaces the database.
func realServers(env cli.Env, variable string) (environ.Servers, error) {
	from := func(lookup func(string) (string, bool)) (environ.Servers, error) {
		return environ.Read(func(name string) (string, bool) {
			if name == environ.EnvDSN && variable != "" {
				name = variable
			}
			return lookup(name)
		})
	}
	servers, err := from(env.LookupEnv)
	if err != nil {
		return servers, err
	}
	names := []string{environ.EnvBrokers, environ.EnvDSN, environ.EnvRedis}
	missing := servers.Require(names...)
	if missing == nil {
		return servers, nil
	}
	written, err := os.ReadFile(upFile())
	if err != nil {
		return servers, fmt.Errorf("%w\nor run make up first", missing)
	}
	vars := exports(string(written))
	servers, err = from(func(name string) (string, bool) {
		if v, ok := env.LookupEnv(name); ok {
			return v, ok
		}
		v, ok := vars[name]
		return v, ok
	})
	return servers, errors.Join(err, servers.Require(names...))
}

// upFile is the file in which make up lists the servers that it started.
func upFile() string {
	return filepath.Join(os.TempDir(), "orderclose-up-"+strconv.Itoa(os.Getuid()), "env")
}

// exports parses lines of the form export NAME='value'.
func exports(s string) map[string]string {
	vars := map[string]string{}
	for line := range strings.Lines(s) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		if name, value, ok := strings.Cut(line, "="); ok {
			vars[name] = strings.Trim(value, `'"`)
		}
	}
	return vars
}

// dropTopics deletes what the demo created in Kafka and Redis.
func (st *environment) dropTopics(ctx context.Context) error {
	var names, groups []string
	specs := topics.Specs(st.cfg)
	for _, spec := range specs {
		names = append(names, spec.Name)
		if spec.Group != "" {
			groups = append(groups, spec.Group)
		}
	}
	return errors.Join(
		drop.Topics(ctx, st.Kafka, names...),
		drop.Groups(ctx, st.Kafka, groups...),
		st.Redis.Del(ctx, st.cfg.Compensator.Lock.Key).Err(),
	)
}

// build creates topics, the pipeline and the shop.
func (st *environment) build(ctx context.Context, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if _, _, err := st.Kafka.Apply(ctx, topics.Specs(st.cfg)); err != nil {
		return err
	}
	p, err := producer.New(producer.Options{
		Appender: st.Kafka.Appender, Buckets: st.cfg.Buckets, CloseTopic: st.cfg.Topics.Close, Delays: st.cfg.Delays, MaxDelay: st.cfg.MaxDelay,
	})
	if err != nil {
		return err
	}
	o, err := producer.NewOutbox(producer.OutboxOptions{Dialect: producer.Dialect(st.Store.Dialect()), MaxDelay: st.cfg.MaxDelay})
	if err != nil {
		return err
	}
	st.shop = &scenario.Shop{Orders: scenario.OrdersOf(st.Store), Producer: p, Outbox: o}
	st.app, err = pipeline.New(pipeline.Options{
		Config: st.cfg, Connections: st.Clients, Registerer: st.registry, Logger: logger,
	})
	return err
}

// start starts the pipeline. The returned function stops it and may be called again.
func (st *environment) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- st.app.Run(ctx, pipeline.AllRoles()...) }()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// ready waits until the relays serve all partitions.
func (st *environment) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for want := len(st.cfg.Buckets) * st.cfg.Partitions; ; {
		have, err := st.served()
		if err != nil {
			return err
		}
		if have == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return cli.Exit(cli.TimedOut, fmt.Errorf("the relays have %d of %d partitions after %v; waiting for %v", have, want, readyTimeout, st.app.Ready()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// served returns how many partitions the relays serve, according to their metrics.
func (st *environment) served() (int, error) {
	families, err := st.registry.Gather()
	for _, f := range families {
		if f.GetName() == "orderclose_delay_head_due_timestamp_seconds" {
			return len(f.GetMetric()), err
		}
	}
	return 0, err
}

// awaitSettled waits until no order is unpaid and the outboxes are empty, or until the compensator must
// have found every missed order.
func (st *environment) awaitSettled(ctx context.Context) error {
	deadline := st.shop.LastDue().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		n, err := st.count(ctx)
		if err != nil {
			return err
		}
		if n.unpaid == 0 && n.outgoing == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil // the checker reports open orders
}

// counts are orders by status, and the number of rows in the outboxes.
type counts struct{ orders, unpaid, paid, closed, outgoing int64 }

func (st *environment) count(ctx context.Context) (counts, error) {
	var n counts
	err := st.Store.DB().QueryRowContext(ctx, `SELECT COUNT(*), COUNT(CASE WHEN status = 0 THEN 1 END),
		COUNT(CASE WHEN status = 1 THEN 1 END), COUNT(CASE WHEN status = 2 THEN 1 END),
			(SELECT COUNT(*) FROM outbox_events) + (SELECT COUNT(*) FROM outbox_schedules) FROM orders`).
		Scan(&n.orders, &n.unpaid, &n.paid, &n.closed, &n.outgoing)
	return n, err
}

// check runs the checker.
func (st *environment) check(ctx context.Context) (*checker.Verdict, error) {
	e := scenario.ExpectOf(st.cfg, st.shop)
	e.OutboxEmpty, e.ProducerTime = true, st.backend == "embedded"
	evidence := checker.Servers{DB: st.Store.DB(), Brokers: st.brokers, Dial: st.dial, TLS: st.security.TLS, SASL: mechanism(st.security.SASL)}
	return checker.Check(ctx, evidence, e)
}

func (st *environment) onClose(f func() error) { st.closers = append(st.closers, f) }

// close runs the closers in reverse order.
func (st *environment) close() error {
	var errs []error
	for i := len(st.closers) - 1; i >= 0; i-- {
		errs = append(errs, st.closers[i]())
	}
	st.closers = nil
	return errors.Join(errs...)
}

// withTimeout runs a clean-up with a timeout. The clean-up runs also after an interrupt.
func withTimeout(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	return f(ctx)
}
