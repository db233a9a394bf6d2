package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/pipeline"
)

// DevServers are a Kafka broker and a Redis server on loopback ports, and a database in a
// file. Programs in any language can use them during development. A folder keeps the data of
// the broker and of the database, and the next DevServers with this folder continue with
// them. Redis keeps no data.
type DevServers struct {
	store   *store.Store // migrated; all clients share it
	broker  *kfake.Cluster
	redis   *miniredis.Miniredis
	release func() error
	logger  *slog.Logger
}

// DevOptions configure DevServers. Dir is required. Port 0 means any free port.
type DevOptions struct {
	Dir                  string
	KafkaPort, RedisPort int
	// OnClose lists statements that belong to each close, as orders.on_close of topics.yaml does.
	OnClose []string
	Logger  *slog.Logger // default: discard
}

// DevDatabase is the name of the database's file in the folder.
const DevDatabase = "orders.db"

// ErrFolderInUse means that another process uses the folder.
var ErrFolderInUse = errors.New("another process uses this folder")

// OpenDevServers starts DevServers. It creates the folder if it does not exist. The error wraps
// ErrFolderInUse if another process uses the folder.
func OpenDevServers(ctx context.Context, o DevOptions) (_ *DevServers, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := &DevServers{logger: o.Logger}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder for the data: %w", err)
	}
	if d.release, err = lockFile(filepath.Join(o.Dir, "lock")); err != nil {
		return nil, fmt.Errorf("folder %s: %w", o.Dir, err)
	}
	if d.store, err = sqlite.OpenWith(filepath.Join(o.Dir, DevDatabase), sqlite.Options{OnClose: o.OnClose}); err == nil {
		err = d.store.Migrate(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("embedded database: %w", err)
	}
	d.broker, err = kfake.NewCluster(
		kfake.Ports(o.KafkaPort), kfake.DataDir(filepath.Join(o.Dir, "kafka")),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	)
	if err != nil {
		return nil, fmt.Errorf("embedded Kafka on port %d: %w", o.KafkaPort, err)
	}
	d.redis = miniredis.NewMiniRedis()
	d.redis.ClockTTL(true)
	if err := d.redis.StartAddr(net.JoinHostPort("127.0.0.1", strconv.Itoa(o.RedisPort))); err != nil {
		d.redis = nil
		return nil, fmt.Errorf("embedded Redis on port %d: %w", o.RedisPort, err)
	}
	return d, nil
}

// Close stops the servers and releases the folder.
func (d *DevServers) Close() {
	if d.redis != nil {
		d.redis.Close()
	}
	if d.broker != nil {
		d.broker.Close()
	}
	if d.store != nil {
		if err := d.store.Close(); err != nil {
			d.logger.Warn("closing the database failed", "err", err)
		}
	}
	if d.release != nil {
		if err := d.release(); err != nil {
			d.logger.Warn("releasing the folder failed", "err", err)
		}
	}
}

// Brokers returns the addresses of the broker.
func (d *DevServers) Brokers() []string { return d.broker.ListenAddrs() }

// RedisAddr returns the address of Redis.
func (d *DevServers) RedisAddr() string { return d.redis.Addr() }

// Connect returns new clients of all servers. Close them before the DevServers.
func (d *DevServers) Connect(clientID string) (pipeline.Connections, error) {
	k, err := kafka.New(kafka.Options{Brokers: d.Brokers(), ClientID: clientID, Logger: d.logger})
	if err != nil {
		return pipeline.Connections{}, err
	}
	r := redis.NewClient(&redis.Options{Addr: d.RedisAddr(), MaxRetries: 1, ContextTimeoutEnabled: true})
	return pipeline.Connections{Kafka: k, Store: d.store, Redis: r, StoreIsShared: true}, nil
}
