// Package simulation is the world in one process: Kafka, Redis and the database,
// embedded, reached by the real clients. Tests run it inside a testing/synctest
// bubble, where half an hour of pipeline passes in a moment; the demo runs it on
// a desk without servers, in real time.
package simulation

import (
	"context"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"orderclose/internal/app"
	"orderclose/internal/kafka"
	"orderclose/internal/store"
	"orderclose/internal/store/sqlite"
)

// port is where the first broker listens on the virtual network; any will do. The
// other brokers listen on the ports that follow.
const port = 9092

// World is a broker, a Redis and a database in this process. Nothing of it
// listens on a real port. Close it after the clients that were made from it.
type World struct {
	Broker *kfake.Cluster
	Redis  *miniredis.Miniredis
	Store  *store.Store // migrated; shared by everybody
	net    *kfake.VirtualNetwork
	logger *slog.Logger
}

// Options for a World.
type Options struct {
	// InBubble must be set inside a synctest bubble, and only there: it makes the
	// broker set append times itself.
	InBubble bool
	// Brokers is how many brokers the cluster has; default 1.
	Brokers int
	// BrokerClock is the clock of a broker, by its node id, in a bubble; default
	// time.Now. It may step, and differ from broker to broker.
	BrokerClock func(node int32) time.Time
	Now         func() time.Time // the clock of the database; default time.Now
	// Through puts something between the pool of the database and its driver; nil is
	// nothing.
	Through func(driver.Connector) driver.Connector
	Logger  *slog.Logger // default: discard
}

// New starts a World.
func New(o Options) (*World, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ports := []int{port}
	for n := 1; n < o.Brokers; n++ {
		ports = append(ports, port+n)
	}
	w := &World{net: &kfake.VirtualNetwork{}, logger: o.Logger}
	stamping := &stamps{clock: o.BrokerClock, given: map[uint32]uint64{}}
	listen := w.net.Listen
	if o.BrokerClock != nil {
		listen = stamping.listen(listen)
	} else {
		stamping.clock = func(int32) time.Time { return time.Now() } // kfake's, so that no answer needs a correction
	}
	var err error
	w.Broker, err = kfake.NewCluster(
		kfake.ListenFn(listen), kfake.Ports(ports...),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	)
	if err != nil {
		return nil, fmt.Errorf("embedded Kafka: %w", err)
	}
	if o.InBubble {
		stamping.write(w.Broker)
	}
	w.Redis = miniredis.NewMiniRedis()
	w.Redis.ClockTTL(true)
	if o.Through == nil {
		o.Through = func(c driver.Connector) driver.Connector { return c }
	}
	if w.Store, err = sqlite.OpenWith(sqlite.Memory, sqlite.Options{Now: o.Now, Through: o.Through}); err == nil {
		err = w.Store.Migrate(context.Background())
	}
	if err != nil {
		w.Redis.Close()
		w.Broker.Close()
		return nil, fmt.Errorf("embedded database: %w", err)
	}
	return w, nil
}

// Close stops everything.
func (w *World) Close() {
	w.Store.Close()
	w.Redis.Close()
	w.Broker.Close()
}

// Brokers are the addresses of the broker, on the virtual network.
func (w *World) Brokers() []string { return w.Broker.ListenAddrs() }

// Dial opens a connection to the broker.
func (w *World) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return w.net.DialContext(ctx, network, address)
}

// Kafka returns a client of its own of the broker.
func (w *World) Kafka(clientID string) (*kafka.Cluster, error) {
	return kafka.New(kafka.Options{Brokers: w.Brokers(), ClientID: clientID, Dial: w.Dial, PoisonFreedMemory: true, Logger: w.logger})
}

// Connect returns clients as a process of its own would have them. The store is
// shared: Disconnect rather than Connections.Close.
func (w *World) Connect(clientID string) (app.Connections, error) {
	k, err := w.Kafka(clientID)
	if err != nil {
		return app.Connections{}, err
	}
	return app.Connections{Kafka: k, Store: w.Store, Redis: w.redisClient()}, nil
}

// Disconnect closes what Connect made.
func Disconnect(c app.Connections) {
	c.Kafka.Close()
	c.Redis.Close()
}

func (w *World) redisClient() redis.UniversalClient {
	return redis.NewClient(&redis.Options{
		Addr:       "127.0.0.1:6379", // never dialled; a name would be looked up
		MaxRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return w.Redis.Dial()
		},
	})
}
