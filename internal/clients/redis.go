package clients

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/retry"
)

// LogRedis implements pipeline.LogRedis.
func LogRedis(logger *slog.Logger) { redis.SetLogger(redisLog{retry.LimitLogs(logger)}) }

// redisLog is a logger of go-redis.
type redisLog struct{ to *slog.Logger }

// Printf implements the logger of go-redis.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.to.Warn("the Redis client reports a failure", "err", fmt.Sprintf(format, args...))
}

// newRedis returns a client of the servers that the URL names, as go-redis reads it: with master_name they are sentinels, with addr
// alone a cluster. It does not connect.
func newRedis(address string, t *tls.Config) (redis.UniversalClient, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errRedisURL
	}
	servers, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errRedisURL
	}
	switch {
	case t != nil && u.Scheme != "rediss":
		return nil, fmt.Errorf("%s (Servers.RedisURL) is not encrypted, but TLS is configured (%s, Servers.RedisTLS): "+
			"write rediss:// in the URL, or remove the files", environ.EnvRedis, environ.EnvRedisTLSCA)
	case servers.Has("skip_verify"):
		return nil, fmt.Errorf("%s (Servers.RedisURL) has skip_verify, which accepts any server: "+
			"name the CA of the server's certificate in %s (RootCAs of Servers.RedisTLS) instead",
			environ.EnvRedis, environ.EnvRedisTLSCA)
	}
	secured := func(own *tls.Config) *tls.Config {
		if own == nil || t != nil {
			return t
		}
		own.ServerName = "" // it is the first server's: each certificate must have the name of its own server
		return own
	}
	// The lock is asked for again and again, and the database has one too: fail fast. A request must not outlast the lock.
	const dialTimeout, retries = 2 * time.Second, 1
	switch {
	case servers.Get("master_name") != "":
		o, err := redis.ParseFailoverURL(address)
		if err != nil || o.RouteByLatency || o.RouteRandomly { // which this client does not take
			return nil, errRedisURL
		}
		o.TLSConfig, o.DialTimeout, o.MaxRetries, o.ContextTimeoutEnabled = secured(o.TLSConfig), dialTimeout, retries, true
		return redis.NewFailoverClient(o), nil
	case servers.Has("addr"):
		o, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, errRedisURL
		}
		o.TLSConfig, o.DialTimeout, o.MaxRetries, o.ContextTimeoutEnabled = secured(o.TLSConfig), dialTimeout, retries, true
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, errRedisURL
	}
	o.TLSConfig, o.DialTimeout, o.MaxRetries, o.ContextTimeoutEnabled = secured(o.TLSConfig), dialTimeout, retries, true
	return redis.NewClient(o), nil
}

// errRedisURL wraps no error of the URL, because that quotes it with its password.
var errRedisURL = fmt.Errorf("%s (Servers.RedisURL) is invalid: want redis://[user:password@]host:port/db, or rediss:// for TLS; "+
	"docs/security.md has the URLs of sentinels and of a cluster. Special letters are %%-escaped", environ.EnvRedis)
