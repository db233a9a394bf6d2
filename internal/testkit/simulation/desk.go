package simulation

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

	"orderclose/internal/app"
	"orderclose/internal/kafka"
	"orderclose/internal/store"
	"orderclose/internal/store/sqlite"
)

// DevEnvironment is a broker and a Redis on ports of the loopback, and a database in a file:
// for a desk without servers, and for programs in any language beside us. What the
// broker and the database hold is kept in a folder, and found again by the next
// DevEnvironment there. Redis keeps nothing.
type DevEnvironment struct {
	Store *store.Store // migrated; shared by everybody

	broker  *kfake.Cluster
	redis   *miniredis.Miniredis
	release func() error
	logger  *slog.Logger
}

// DevOptions say where a DevEnvironment is. Dir must be set; a port of 0 is any free one.
type DevOptions struct {
	Dir                  string
	KafkaPort, RedisPort int
	Logger               *slog.Logger // default: discard
}

// DeskDatabase is the file of the database in a DevEnvironment's folder.
const DeskDatabase = "orders.db"

// ErrFolderInUse says that another process works in the folder.
var ErrFolderInUse = errors.New("another process works in this folder")

// OpenDevEnvironment makes the folder, or takes up what is in it. The error wraps
// ErrFolderInUse if that is another process's.
func OpenDevEnvironment(ctx context.Context, o DevOptions) (_ *DevEnvironment, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := &DevEnvironment{logger: o.Logger}
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
	if d.Store, err = sqlite.Open(filepath.Join(o.Dir, DeskDatabase), nil); err == nil {
		err = d.Store.Migrate(ctx)
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

// Close stops everything and lets go of the folder.
func (d *DevEnvironment) Close() {
	if d.redis != nil {
		d.redis.Close()
	}
	if d.broker != nil {
		d.broker.Close()
	}
	if d.Store != nil {
		if err := d.Store.Close(); err != nil {
			d.logger.Warn("the database was not closed", "err", err)
		}
	}
	if d.release != nil {
		if err := d.release(); err != nil {
			d.logger.Warn("the folder was not let go of", "err", err)
		}
	}
}

// Brokers are the addresses of the broker.
func (d *DevEnvironment) Brokers() []string { return d.broker.ListenAddrs() }

// RedisAddr is the address of Redis.
func (d *DevEnvironment) RedisAddr() string { return d.redis.Addr() }

// Connect returns clients of the servers. The store is shared: Disconnect rather
// than Connections.Close.
func (d *DevEnvironment) Connect(clientID string) (app.Connections, error) {
	k, err := kafka.New(kafka.Options{Brokers: d.Brokers(), ClientID: clientID, Logger: d.logger})
	if err != nil {
		return app.Connections{}, err
	}
	r := redis.NewClient(&redis.Options{Addr: d.RedisAddr(), MaxRetries: 1, ContextTimeoutEnabled: true})
	return app.Connections{Kafka: k, Store: d.Store, Redis: r}, nil
}
