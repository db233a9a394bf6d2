package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
)

// Connections are the clients of the servers that the environment names. A server that is
// not named has a nil client.
type Connections struct {
	Kafka *kafka.Cluster
	Store *store.Store
	Redis redis.UniversalClient
}

// Connect makes the clients. It does not wait for the servers.
func Connect(s config.Servers, cfg *config.Config, logger *slog.Logger) (Connections, error) {
	var c Connections
	var err error
	if len(s.Brokers) > 0 {
		if c.Kafka, err = kafka.New(kafka.Options{Brokers: s.Brokers, Security: s.Kafka, Logger: logger}); err != nil {
			return c, err
		}
	}
	if s.DSN != "" {
		if c.Store, err = store.Open(store.Options{DSN: s.DSN, Orders: cfg.Orders, OrdersAt: cfg.OrdersAt.At}); err != nil {
			c.Close()
			return c, err
		}
	}
	if s.RedisURL != "" {
		o, err := redis.ParseURL(s.RedisURL)
		if err != nil {
			c.Close()
			return c, fmt.Errorf("%s is invalid: want redis://[user:password@]host:port/db", config.EnvRedis)
		}
		// The lock is needed once an hour only, and a sweep goes on without it: fail fast.
		o.DialTimeout, o.MaxRetries = 2*time.Second, 1
		o.ContextTimeoutEnabled = true // a request must not outlast the lock
		c.Redis = redis.NewClient(o)
	}
	return c, nil
}

// Close closes the clients.
func (c Connections) Close() {
	if c.Kafka != nil {
		c.Kafka.Close()
	}
	if c.Store != nil {
		c.Store.Close()
	}
	if c.Redis != nil {
		c.Redis.Close()
	}
}

// Limits of the listener of metrics and health. A client sends a few hundred bytes and
// reads the answer at once. A slower client must not keep a connection, and with it a file
// descriptor.
const (
	maxHeaderBytes = 16 << 10
	headersWithin  = 5 * time.Second
	requestWithin  = 10 * time.Second // headers and body
	// answerWithin exceeds the 30 s that a CPU profile takes by default.
	answerWithin = 2 * time.Minute
	// idleWithin exceeds the usual minute between two scrapes.
	idleWithin = 3 * time.Minute
)

// Serve serves HTTP on the address until ctx ends.
func Serve(ctx context.Context, listen string, handler http.Handler, logger *slog.Logger) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("%w: set %s to another host:port", err, config.EnvListen)
	}
	logger.Info("serving metrics and health", "address", "http://"+listener.Addr().String())
	return serveOn(ctx, listener, handler)
}

func serveOn(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: headersWithin, ReadTimeout: requestWithin, WriteTimeout: answerWithin, IdleTimeout: idleWithin,
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		server.Shutdown(ctx)
	})
	err := server.Serve(listener)
	if !stop() {
		<-ended // the requests in flight
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", listener.Addr(), err)
	}
	return nil
}
