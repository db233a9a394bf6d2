// Package clients makes the clients of the servers that a process uses. They are the Connections of
// package pipeline.
//
//	clients.go    Clients, and how they are made
//	redis.go      the client of Redis, and its log lines
package clients

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
)

// Clients are clients of the servers. A server that is not named has a nil client.
type Clients struct {
	Kafka *kafka.Cluster
	Store *store.Store
	Redis redis.UniversalClient

	StoreIsShared bool // Close leaves the Store open
}

// Database is how to connect to the database, beside the variables of the servers. See pipeline.Servers.
type Database struct {
	MySQL    *mysql.Config // in place of a DSN, as Postgres
	Postgres *pgx.ConnConfig
	MaxConns int                            // 0: the default
	Open     func(driver.Connector) *sql.DB // makes the pool; default sql.OpenDB
}

// Connect makes clients of the servers. cfg maps the tables of orders, and says whether Redis is used. Connect does not wait
// for the servers. Call Close in the end.
func Connect(s environ.Servers, db Database, cfg *config.Config, logger *slog.Logger) (c Clients, err error) {
	defer func() {
		if err != nil {
			c.Close()
			c = Clients{}
		}
	}()
	if len(s.Brokers) > 0 {
		if c.Kafka, err = kafka.New(kafka.Options{Brokers: s.Brokers, Security: s.Kafka, SessionTimeout: cfg.Kafka.SessionTimeout, Logger: logger}); err != nil {
			return c, fmt.Errorf("%s (Servers.Brokers, TLS and SASL): %w", environ.EnvBrokers, err)
		}
	}
	if s.DSN != "" || db.MySQL != nil || db.Postgres != nil {
		if c.Store, err = store.Open(store.Options{DSN: s.DSN, TLS: s.DatabaseTLS, MySQL: db.MySQL, Postgres: db.Postgres,
			MaxOpenConns: db.MaxConns, OpenDB: db.Open, Orders: cfg.Orders, OrdersAt: cfg.OrdersAt.At,
			Pipeline: cfg.Topics.Close, Delays: cfg.Delays}); err != nil {
			return c, fmt.Errorf("%s (Servers.DSN, MySQL or Postgres): %w", environ.EnvDSN, err)
		}
	}
	if s.RedisURL != "" && cfg.Compensator.Lock.Kind != config.LockDatabase {
		if environ.PlainRedis(s.RedisURL) {
			logger.Warn("the connection to Redis is not encrypted, and its URL has a password: "+
				"somebody who reads the network can take the lock of the compensator; write rediss://", "variable", environ.EnvRedis)
		}
		if c.Redis, err = newRedis(s.RedisURL, s.RedisTLS); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Close closes the clients, also those that were made after a defer of Close.
func (c *Clients) Close() {
	if c.Kafka != nil {
		c.Kafka.Close()
	}
	if c.Store != nil && !c.StoreIsShared {
		c.Store.Close()
	}
	if c.Redis != nil {
		c.Redis.Close()
	}
}
