// Command checkout runs the shop on real servers; ../../README.md says how.
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
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"orderclose/examples/checkout"
	"orderclose/internal/app"
	"orderclose/internal/config"
	"orderclose/internal/kafka"
	"orderclose/producer"
)

// The secret of the provider's callbacks is never a flag.
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

// usageError is one of whoever has started it.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("checkout", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "host:port of the shop and its /metrics")
	file := flags.String("config", "topics.yaml", "the topics.yaml that relays and closers use too")
	maxStale := flags.Duration("max-stale", checkout.DefaultMaxStale, "for how long a read may miss a change that Redis has missed")
	askFirst := flags.Bool("ask-first", false, "closing asks the payment provider first: a read past due only shows \"closing\"")
	if err := flags.Parse(args); err != nil {
		return usageError{err}
	}
	cfg, err := config.Load(*file)
	if err != nil {
		return usageError{err}
	}
	servers, err := config.FromEnviron(os.LookupEnv)
	if err == nil {
		err = servers.Require(config.EnvBrokers, config.EnvDSN)
	}
	if err != nil {
		return usageError{err}
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := app.Connect(servers, cfg, logger)
	if err != nil {
		return usageError{err}
	}
	defer c.Close()
	if err := c.Store.Migrated(ctx); err != nil {
		return err
	}
	if err := checkout.CreateTables(ctx, c.Store); err != nil {
		return err
	}
	coalescer := kafka.NewCoalescer(c.Kafka)
	defer coalescer.Close()
	p, err := producer.New(producer.Options{Appender: coalescer, TopicsFile: *file, Watch: true, Logger: logger})
	if err != nil {
		return err
	}
	defer p.Close()
	secret := os.Getenv(envSecret)
	if secret == "" {
		logger.Warn("payment callbacks are believed unsigned: set " + envSecret)
	}
	registry := prometheus.NewRegistry()
	shop, err := checkout.New(checkout.Options{
		Store: c.Store, Producer: p, Redis: c.Redis, ViewPrefix: cfg.Topics.Prefix + checkout.DefaultViewPrefix,
		MaxStale: *maxStale, AskFirst: *askFirst, CallbackSecret: secret,
		Logger: logger, Metrics: checkout.NewCounters(registry),
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("give another --listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", shop.Handler())
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	logger.Info("the shop is open", "address", "http://"+listener.Addr().String())
	return shop.Run(ctx, checkout.RunOptions{Listener: listener, Handler: mux, Log: c.Kafka, Group: cfg.Topics.Prefix + "checkout", Topic: cfg.Topics.Events})
}
