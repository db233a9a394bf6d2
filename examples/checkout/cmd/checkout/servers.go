package main

import (
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/producer"
)

// maxConns bounds the shop's own connections to the database.
const maxConns = 32

// openDatabase opens the shop's own pool. Packages sqlclose and pipeline open theirs.
func openDatabase(s pipeline.Servers) (*sql.DB, producer.Dialect, error) {
	if strings.HasPrefix(s.DSN, "postgres") {
		db, err := openPostgres(s)
		return db, producer.Postgres, err
	}
	db, err := openMySQL(s)
	return db, producer.MySQL, err
}

func openPostgres(s pipeline.Servers) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(s.DSN)
	if err != nil {
		return nil, errors.New("ORDERCLOSE_DB_DSN is invalid: write postgres://user:password@host:5432/database?sslmode=verify-full") // err may quote the password
	}
	if s.DatabaseTLS != nil {
		cfg.TLSConfig, cfg.Fallbacks = s.DatabaseTLS.Clone(), nil
		if cfg.TLSConfig.ServerName == "" {
			cfg.TLSConfig.ServerName = cfg.Host
		}
	}
	cfg.ConnectTimeout = 3 * time.Second
	cfg.RuntimeParams["timezone"], cfg.RuntimeParams["lock_timeout"], cfg.RuntimeParams["statement_timeout"] = "UTC", "2s", "15s"
	db := shopdb.OpenPostgres(*cfg)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	return db, nil
}

func openMySQL(s pipeline.Servers) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(s.DSN)
	if err != nil {
		return nil, errors.New("ORDERCLOSE_DB_DSN is invalid: write user:password@tcp(host:3306)/database") // err may quote the password
	}
	cfg.ParseTime, cfg.Loc, cfg.InterpolateParams = true, time.UTC, true
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = 3*time.Second, 15*time.Second, 10*time.Second
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["time_zone"], cfg.Params["innodb_lock_wait_timeout"] = "'+00:00'", "2" // seconds
	if s.DatabaseTLS != nil {
		cfg.TLS = s.DatabaseTLS.Clone()
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	return db, nil
}

// openRedis returns a client for the views and the filter; nil if no server is named.
func openRedis(s pipeline.Servers) (redis.UniversalClient, error) {
	if s.RedisURL == "" {
		return nil, nil
	}
	o, err := redis.ParseURL(s.RedisURL)
	if err != nil {
		return nil, errors.New("ORDERCLOSE_REDIS_URL is invalid: write redis://user:password@host:port/db") // err quotes the password
	}
	if o.TLSConfig != nil && s.RedisTLS != nil {
		host := o.TLSConfig.ServerName
		if o.TLSConfig = s.RedisTLS.Clone(); o.TLSConfig.ServerName == "" {
			o.TLSConfig.ServerName = host
		}
	}
	// A read that waits longer uses the database instead.
	o.DialTimeout, o.MaxRetries, o.ContextTimeoutEnabled = 2*time.Second, 1, true
	return redis.NewClient(o), nil
}
