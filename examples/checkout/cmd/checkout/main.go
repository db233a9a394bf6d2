// Command checkout runs the shop on real servers. See ../../README.md. It uses what any program can import.
//
//	main.go      the flags, and how the shop is put together
//	servers.go   the connections to the database and Redis
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/examples/checkout/idfilter"
	"github.com/orderclose/orderclose/examples/checkout/ordercache"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/producer"
)

// envSecret is the environment variable of the callback secret, which is never a flag.
const envSecret = "CHECKOUT_CALLBACK_SECRET"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "checkout:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "checkout:", err)
		os.Exit(1)
	}
}

// usageError is an error of the flags, the configuration or the environment.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("checkout", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "host:port of the shop and its /metrics")
	file := flags.String("config", "topics.yaml", "the topics.yaml of the relays and closers")
	maxStale := flags.Duration("max-stale", checkout.DefaultMaxStale, "how long a read may show an old status after Redis missed a change")
	cacheSize := flags.Int("cache-size", ordercache.DefaultSize, "orders in the cache of this process, before Redis; 0: none")
	filtered := flags.Bool("id-filter", true, "answer reads of ids that no order has by a filter in Redis; start all shops with it, or none")
	direct := flags.Bool("direct", false, "publish orders after their commit, without the outbox: if Kafka does not accept an order, the sweep closes it")
	if err := flags.Parse(args); err != nil {
		return usageError{err}
	}
	cfg, err := pipeline.Load(*file)
	if err != nil {
		return usageError{err}
	}
	env, err := pipeline.FromEnvironment()
	if err == nil && (len(env.Servers.Brokers) == 0 || env.Servers.DSN == "") {
		err = errors.New("set ORDERCLOSE_KAFKA_BROKERS and ORDERCLOSE_DB_DSN")
	}
	if err != nil {
		return usageError{err}
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	db, dialect, err := openDatabase(env.Servers)
	if err != nil {
		return usageError{err}
	}
	defer db.Close()
	redis, err := openRedis(env.Servers)
	if err != nil {
		return usageError{err}
	}
	if redis != nil {
		defer redis.Close()
	}
	registry := prometheus.NewRegistry()
	app, err := pipeline.New(pipeline.Options{Config: cfg, Servers: env.Servers, Logger: logger})
	if err != nil {
		return usageError{err}
	}
	defer app.Close()
	// Statements of on_close may name the shop's tables, so these come before the check.
	if err := checkout.CreateTables(ctx, db, dialect); err != nil {
		return err
	}
	if err := app.CheckDatabase(ctx); err != nil {
		return err
	}
	orders, err := sqlclose.New(sqlclose.Options{DSN: env.Servers.DSN, TLS: env.Servers.DatabaseTLS, TopicsFile: *file, Registerer: registry})
	if err != nil {
		return err
	}
	defer orders.Close()
	p, err := producer.New(producer.Options{
		Brokers: env.Servers.Brokers, TLS: env.Servers.TLS, SASL: env.Servers.SASL, TopicsFile: *file, Watch: true, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer p.Close()

	secret := os.Getenv(envSecret)
	if secret == "" {
		logger.Warn("payment callbacks are accepted without a signature", "set", envSecret)
	}
	// A close on a read is the pipeline's close, with the question to the payment provider.
	var closer checkout.Closer = orders
	askFirst := cfg.Closer.AsksPayment()
	if askFirst {
		service, err := payment.NewHTTP(payment.HTTPOptions{URL: cfg.Closer.Payment.URL, Secrets: env.Secrets.Payment})
		if err != nil {
			return usageError{fmt.Errorf("%w: see closer.payment.url and ORDERCLOSE_PAYMENT_SECRET", err)}
		}
		defer service.Close()
		var provider payment.Provider = service
		if cfg.Closer.Payment.Cancel {
			provider = service.Canceler()
		}
		closer, err = payment.New(payment.Options{Store: orders, Provider: provider, Batch: cfg.Closer.Payment.Batch, Logger: logger})
		if err != nil {
			return err
		}
	}
	var outbox checkout.Outbox
	if !*direct {
		outbox, err = producer.NewOutbox(producer.OutboxOptions{Dialect: dialect, MaxDelayFunc: p.MaxDelay})
		if err != nil {
			return err
		}
	}
	var filter *idfilter.Filter
	if *filtered && redis != nil {
		filter, err = idfilter.New(idfilter.Options{Redis: redis, DB: db, Prefix: cfg.Topics.Prefix + "checkout:", Logger: logger})
		if err != nil {
			return err
		}
	}
	shop, err := checkout.New(checkout.Options{
		DB: db, Dialect: dialect, Producer: p, Record: orders.RecordPayment, Outbox: outbox, Closer: closer, Redis: redis,
		ViewPrefix: cfg.Topics.Prefix + checkout.DefaultViewPrefix,
		MaxStale:   *maxStale, CacheSize: *cacheSize, Filter: filter, AskFirst: askFirst, CallbackSecret: secret,
		Coupons: cfg.Orders != nil && slices.Contains(cfg.Orders.OnClose, checkout.ReturnCoupons),
		Logger:  logger, Metrics: checkout.NewCounters(registry),
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen, set another --listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", shop.Handler())
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	logger.Info("shop started", "address", "http://"+listener.Addr().String())
	return shop.Run(ctx, checkout.RunOptions{Listener: listener, Handler: mux, App: app, Group: cfg.Topics.Prefix + "checkout", Topic: cfg.Topics.Events})
}
