package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/examples/checkout/ordercache"
	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/pipeline/webconsole"
	"github.com/orderclose/orderclose/producer"
)

// stopTimeout bounds how long serve may take to stop after a signal.
const stopTimeout = 10 * time.Second

// serve holds the flags of the command serve.
type serve struct {
	env                            cli.Env
	dir, config, output            string
	shopPort, kafkaPort, redisPort int
	consolePort                    int
	debug                          bool
}

func newServe(env cli.Env) *cobra.Command {
	s := &serve{env: env}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a shop and the whole pipeline on embedded servers, until Ctrl-C",
		Long: `Run a small shop over HTTP (examples/checkout) and the whole pipeline, on
embedded servers: Kafka and Redis on ports of the loopback, and SQLite. A checkout
in any language can be tried with them: it writes the order to the database file and
publishes its record to Kafka, as docs/wire.md describes.

The folder keeps the database (orders, stock, receipts, points) and Kafka (topics,
records, offsets); the next run there continues with them. The data survives kill -9 of
this process. A power failure may lose the last moments of both; the sweep closes every
order that is in the database. Redis keeps nothing: it holds only a view of orders, and a
lock. Orders that became due while nothing ran are closed at the start.

If --config has closer.payment.url or closer.http.url, requests to the service are signed
with ORDERCLOSE_PAYMENT_SECRET or ORDERCLOSE_HTTP_SECRET, as with orderclose run. With
closer.http.url the service closes the orders in the database file.

serve is for development: the embedded servers have no users, no replicas, and no limits.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&s.dir, "dir", "orderclose-data", "the folder that keeps the data; it is created if it is missing")
	f.StringVar(&s.config, "config", "", "a topics.yaml, reloaded when it changes (default: one with short delays: flash-sale 10s, "+
		"virtual 1m, physical 5m, any other 30m, and never for a bank transfer)")
	f.IntVar(&s.shopPort, "shop-port", 8080, "port of the shop, its /metrics and /-/ready; 0: any free one")
	f.IntVar(&s.consolePort, "console-port", 9465, "port of the web console; 0: any free one")
	f.IntVar(&s.kafkaPort, "kafka-port", 19092, "port of Kafka; 0: any free one")
	f.IntVar(&s.redisPort, "redis-port", 16379, "port of Redis; 0: any free one")
	f.StringVarP(&s.output, "output", "o", "table", "how to print the addresses: table or json")
	f.BoolVar(&s.debug, "debug", false, "log at debug level")
	return cmd
}

// addresses is the output of serve. Programs read its keys.
type addresses struct {
	Shop     string `json:"shop"`
	Console  string `json:"console"`
	Kafka    string `json:"kafka"`
	Redis    string `json:"redis"`
	Database string `json:"database"` // the file
	Dir      string `json:"dir"`
}

// serveConfig returns the default configuration with delays that are short enough to wait
// for.
func serveConfig() *config.Config {
	c := config.Default()
	c.Partitions = 4
	c.Delays.ByCategory = map[string]time.Duration{"flash-sale": 10 * time.Second, "virtual": time.Minute, "physical": 5 * time.Minute}
	c.Delays.Rules = []orderclose.Rule{{Match: orderclose.Match{Attributes: map[string][]string{"payment_method": {"bank_transfer"}}}, Never: true}}
	c.Compensator.Period = time.Minute
	return c
}

func (s *serve) run(ctx context.Context) error {
	for name, port := range map[string]int{"--shop-port": s.shopPort, "--console-port": s.consolePort, "--kafka-port": s.kafkaPort, "--redis-port": s.redisPort} {
		if port < 0 || port > 65535 {
			return cli.Exit(cli.Usage, fmt.Errorf("%s is %d, want 0 to 65535", name, port))
		}
	}
	if s.output != "table" && s.output != "json" {
		return cli.Exit(cli.Usage, fmt.Errorf("-o is %q, want table or json", s.output))
	}
	cfg := serveConfig()
	if s.config != "" {
		var err error
		if cfg, err = config.Load(s.config); err != nil {
			return cli.Exit(cli.Usage, err)
		}
	}
	secrets, err := s.secrets(cfg.Closer)
	if err != nil {
		return cli.Exit(cli.Usage, err)
	}
	level := slog.LevelWarn
	if s.debug {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(s.env.Stderr, &slog.HandlerOptions{Level: level}))

	ran := make(chan error, 1)
	go func() { ran <- s.serve(ctx, cfg, secrets, logger) }()
	select {
	case err := <-ran:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case err := <-ran:
		return err
	case <-late.C:
		return cli.Exit(cli.TimedOut, fmt.Errorf("not stopped within %v; the next run repeats what was not committed", stopTimeout))
	}
}

// secrets returns the secrets that closing needs. It reads no other variable, because serve
// has servers of its own.
func (s *serve) secrets(c config.Closer) (environ.Secrets, error) {
	needs := slices.DeleteFunc(environ.OfClosing(c), func(name string) bool { return name == environ.EnvDSN })
	named, err := environ.Read(func(name string) (string, bool) {
		if slices.Contains(needs, strings.TrimSuffix(name, "_FILE")) {
			return s.env.LookupEnv(name)
		}
		return "", false
	})
	if err == nil {
		err = named.Require(needs...)
	}
	return named.Secrets, err
}

// configureClosing configures how the shop closes an order at once: as the pipeline does, with
// the payment provider asked first, or not at all if a service closes the orders. stop closes
// the clients.
func configureClosing(o *checkout.Options, orders *store.Store, c config.Closer, secrets environ.Secrets) (stop func(), err error) {
	switch {
	case c.Kind == config.KindHTTP:
		o.AskFirst = true
	case c.AsksPayment():
		o.AskFirst = true
		service, err := payment.NewHTTP(payment.HTTPOptions{URL: c.Payment.URL, Secrets: secrets.Payment})
		if err != nil {
			return nil, err
		}
		var provider payment.Provider = service
		if c.Payment.Cancel {
			provider = service.Canceler()
		}
		o.Closer, err = payment.New(payment.Options{Store: orders, Provider: provider, Batch: c.Payment.Batch, Logger: o.Logger})
		return func() { _ = service.Close() }, err
	default:
		o.Closer = orders
	}
	return func() {}, nil
}

// serve starts the servers, runs shop and pipeline until ctx ends, and stops the servers.
func (s *serve) serve(ctx context.Context, cfg *config.Config, secrets environ.Secrets, logger *slog.Logger) error {
	servers, err := pipelinetest.OpenDevServers(ctx, pipelinetest.DevOptions{
		Dir: s.dir, KafkaPort: s.kafkaPort, RedisPort: s.redisPort, OnClose: []string{checkout.ReturnCoupons}, Logger: logger,
	})
	if errors.Is(err, pipelinetest.ErrFolderInUse) {
		return cli.Exit(cli.Refused, fmt.Errorf("%w: stop it, or give this one another --dir", err))
	}
	if err != nil {
		return fmt.Errorf("%w: is a port taken? --kafka-port and --redis-port give others, 0 any free one", err)
	}
	defer servers.Close()
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.shopPort)))
	if err != nil {
		return fmt.Errorf("%w: --shop-port gives the shop another port, 0 any free one", err)
	}
	defer listener.Close()
	consoleListener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.consolePort)))
	if err != nil {
		return fmt.Errorf("%w: --console-port gives the console another port, 0 any free one", err)
	}
	defer consoleListener.Close()
	settings, err := webconsole.FromEnvironment(s.env.LookupEnv)
	if err != nil {
		return cli.Exit(cli.Usage, err)
	}
	settings.Listen = consoleListener.Addr().String()
	if err := settings.Check(); err != nil {
		return cli.Exit(cli.Usage, err)
	}
	c, err := servers.Connect("serve")
	if err != nil {
		return err
	}
	defer c.Close()
	if _, _, err := c.Kafka.Apply(ctx, topics.Specs(cfg)); err != nil {
		return err
	}
	if err := errors.Join(c.Store.Migrate(ctx), createTables(ctx, c.Store)); err != nil {
		return err
	}
	rules := producer.Options{Appender: c.Kafka.Appender, Logger: logger}
	if s.config != "" {
		rules.TopicsFile, rules.Watch = s.config, true
	} else {
		rules.Buckets, rules.CloseTopic, rules.Delays, rules.MaxDelay = cfg.Buckets, cfg.Topics.Close, cfg.Delays, cfg.MaxDelay
	}
	p, err := producer.New(rules)
	if err != nil {
		return err
	}
	defer p.Close()
	outbox, err := producer.NewOutbox(producer.OutboxOptions{Dialect: producer.Dialect(c.Store.Dialect()), MaxDelayFunc: p.MaxDelay})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	options := checkout.Options{
		DB: c.Store.DB(), Dialect: producer.Dialect(c.Store.Dialect()), Producer: p, Record: scenario.RecordOf(c.Store),
		Outbox: outbox, Redis: c.Redis, CacheSize: ordercache.DefaultSize,
		Coupons: true, Logger: logger, Metrics: checkout.NewCounters(registry),
	}
	stop, err := configureClosing(&options, c.Store, cfg.Closer, secrets)
	if err != nil {
		return err
	}
	defer stop()
	shop, err := checkout.New(options)
	if err != nil {
		return err
	}
	a, err := pipeline.New(pipeline.Options{Config: cfg, Connections: c, Secrets: pipeline.Secrets(secrets), Registerer: registry, Logger: logger,
		TopicsFile: s.config, Watch: s.config != "",
		Console: webconsole.New(webconsole.Options{Settings: settings, Listener: consoleListener})})
	if err != nil {
		return err
	}
	at := addresses{
		Shop: "http://" + listener.Addr().String(), Console: "http://" + consoleListener.Addr().String() + settings.BasePath + "/",
		Kafka: strings.Join(servers.Brokers(), ","), Redis: servers.RedisAddr(),
		Database: filepath.Join(s.dir, pipelinetest.DevDatabase), Dir: s.dir,
	}
	mux := http.NewServeMux()
	mux.Handle("/", shop.Handler())
	for _, pattern := range []string{"/metrics", "/-/", "/debug/"} {
		mux.Handle(pattern, a.Handler(true))
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pipelineDone := make(chan error, 1)
	go func() {
		defer cancel()
		pipelineDone <- a.Run(ctx, append(pipeline.AllRoles(), pipeline.Console)...)
	}()
	err = s.print(at, cfg)
	if err == nil {
		err = shop.Run(ctx, checkout.RunOptions{Listener: listener, Handler: mux, App: a, Group: cfg.Topics.Prefix + "checkout", Topic: cfg.Topics.Events})
	}
	cancel()
	return errors.Join(err, <-pipelineDone)
}

// createTables creates the shop's tables, and stock for SKUs that have none yet.
func createTables(ctx context.Context, s *store.Store) error {
	if err := checkout.CreateTables(ctx, s.DB(), producer.Dialect(s.Dialect())); err != nil {
		return err
	}
	orders := scenario.OrdersOf(s)
	for _, sku := range []string{"ink", "nib", "ticket"} {
		_, known, err := orders.ReadStock(ctx, sku)
		if err == nil && !known {
			err = orders.PutStock(ctx, sku, 1000)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *serve) print(at addresses, cfg *config.Config) error {
	if s.output == "json" {
		return json.NewEncoder(s.env.Stdout).Encode(at)
	}
	_, err := io.WriteString(s.env.Stdout, welcome(at, cfg))
	return err
}

// welcome describes the addresses, with commands to try.
func welcome(at addresses, cfg *config.Config) string {
	return fmt.Sprintf(`A shop and the whole pipeline, on embedded servers:

  console   %[7]s    what waits, what is due when, and each order's history
  shop      %[1]s    (also /metrics and /-/ready)
  Kafka     %[2]s
  Redis     %[3]s
  database  %[4]s

Unpaid orders close after: %[5]s; a sweep each %[6]v.
Try:

  curl -s %[1]s/orders -d '{"customer":"ann","category":"flash-sale","points":10,"items":[{"sku":"ink","quantity":2}]}'
  curl -s %[1]s/orders/ORDER                      # due_at, seconds_left, and the status
  curl -s -X POST %[1]s/orders/ORDER/payments     # starts a payment; then you are the provider:
  curl -s %[1]s/payments/callback -d '{"payment_id":"PAYMENT"}'
  curl -s -X POST %[1]s/orders/ORDER/ship         # or cancel, confirm
  curl -s %[1]s/customers/ann                     # points, and what ann was told
  curl -s %[1]s/stock/ink
  curl -s -X PUT %[1]s/coupons/c1 -d '{"customer":"ann"}'    # then add "coupon":"c1" to an order
and open %[1]s/orders/ORDER/page in a browser: it counts down.

Ctrl-C stops it. The next run in the same folder continues where this one ends.
`, at.Shop, at.Kafka, at.Redis, at.Database, delaysInWords(cfg), cfg.Compensator.Period, at.Console)
}
