// Package pipelinetest runs the servers of the pipeline in one process: Kafka, Redis and a
// database are embedded, and the real clients connect to them.
//
// The database is SQLite. What only MySQL or PostgreSQL understands needs a real server: statements of orders.on_close, a trigger,
// and a Store of your own. A time is a number there, and one transaction writes at a time.
//
// Servers listen in memory. Tests start them in a testing/synctest bubble, where half an hour
// of the pipeline passes in a moment, and the demo starts them in real time. DevServers listen
// on loopback ports and keep their data in a folder, for development without servers.
//
//	servers.go      servers in memory
//	devservers.go   servers on loopback ports
//	lock_unix.go, lock_other.go    one process at a time uses a folder
//	brokerclock.go  append times by a clock of each broker
package pipelinetest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/producer"
)

// port is the port of the first broker on the virtual network. The other brokers listen on
// the ports that follow.
const port = 9092

// Servers are a Kafka cluster, a Redis server and a database in this process. They listen on
// no real port. Close them after the clients that Connect returned.
type Servers struct {
	Broker *kfake.Cluster
	Redis  *miniredis.Miniredis
	store  *store.Store // migrated; all clients share it
	net    *kfake.VirtualNetwork
	logger *slog.Logger
	ending []func() // closes the clients of Apps and producers
}

// Options configure Servers. The zero value is valid.
type Options struct {
	// InBubble must be set inside a synctest bubble, and only there. The brokers then set
	// append times by the time of the bubble.
	InBubble bool
	// Brokers is the number of brokers; default 1.
	Brokers int
	// BrokerClock returns the time of the broker with this node id; default time.Now. The
	// clocks may step, and may differ. It requires InBubble.
	BrokerClock func(node int32) time.Time
	Now         func() time.Time // the clock of the database; default time.Now
	// Through wraps the driver of the database, for example to inject faults; default: the
	// driver itself.
	Through func(driver.Connector) driver.Connector
	// OnClose lists statements that belong to each close, as orders.on_close of topics.yaml does.
	// Their tables must exist at the first close.
	OnClose []string
	Logger  *slog.Logger // default: discard
}

// Start starts Servers.
func Start(o Options) (*Servers, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ports := []int{port}
	for n := 1; n < o.Brokers; n++ {
		ports = append(ports, port+n)
	}
	w := &Servers{net: &kfake.VirtualNetwork{}, logger: o.Logger}
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
	if w.store, err = sqlite.OpenWith(sqlite.Memory, sqlite.Options{Now: o.Now, OnClose: o.OnClose, Through: o.Through}); err == nil {
		err = w.store.Migrate(context.Background())
	}
	if err != nil {
		w.Redis.Close()
		w.Broker.Close()
		return nil, fmt.Errorf("embedded database: %w", err)
	}
	return w, nil
}

// App returns an App on these servers, and creates its topics and tables. Options.Config or TopicsFile is
// required. Options.Servers and Options.Connections are not used. Servers.Close closes the clients
// of the App; call it after App.Run has returned.
func (w *Servers) App(ctx context.Context, o pipeline.Options) (*pipeline.App, error) {
	c, err := w.Connect("app")
	if err != nil {
		return nil, err
	}
	w.ending = append(w.ending, c.Close)
	o.Connections = c
	app, err := pipeline.New(o)
	if err != nil {
		return nil, err
	}
	return app, errors.Join(app.CreateTopics(ctx), app.CreateTables(ctx))
}

// Producer returns a producer for the topics and delays of a configuration. Servers.Close closes
// it.
func (w *Servers) Producer(cfg *pipeline.Config) (*producer.Producer, error) {
	c, err := w.Connect("producer")
	if err != nil {
		return nil, err
	}
	p, err := producer.New(producer.Options{
		Appender: c.Kafka.Appender, Buckets: cfg.Buckets, CloseTopic: cfg.Topics.Close, Delays: cfg.Delays, MaxDelay: cfg.MaxDelay, Logger: w.logger,
	})
	w.ending = append(w.ending, func() {
		p.Close()
		c.Close()
	})
	return p, err
}

// DB returns the database, which is SQLite with the reference schema. Times are unix
// milliseconds.
func (w *Servers) DB() *sql.DB { return w.store.DB() }

// Close closes the clients of Apps and producers, and stops the servers.
func (w *Servers) Close() {
	for _, end := range w.ending {
		end()
	}
	w.store.Close()
	w.Redis.Close()
	w.Broker.Close()
}

// Brokers returns the addresses of the brokers, on the virtual network.
func (w *Servers) Brokers() []string { return w.Broker.ListenAddrs() }

// Dial opens a connection to a broker.
func (w *Servers) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return w.net.DialContext(ctx, network, address)
}

// Connect returns new clients of all servers. Close them before the Servers.
func (w *Servers) Connect(clientID string) (pipeline.Connections, error) {
	k, err := kafka.New(kafka.Options{Brokers: w.Brokers(), ClientID: clientID, Dial: w.Dial, PoisonFreedMemory: true, Logger: w.logger})
	if err != nil {
		return pipeline.Connections{}, err
	}
	r := redis.NewClient(&redis.Options{
		Addr:       "127.0.0.1:6379", // never dialled; a name would be looked up
		MaxRetries: 1,
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return w.Redis.Dial() },
	})
	return pipeline.Connections{Kafka: k, Store: w.store, Redis: r, StoreIsShared: true}, nil
}
