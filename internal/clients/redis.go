package clients

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/tlsfault"
)

// LogRedis implements pipeline.LogRedis.
func LogRedis(logger *slog.Logger) { redis.SetLogger(redisLog{retry.LimitLogs(logger)}) }

// redisLog is a logger of go-redis.
type redisLog struct{ to *slog.Logger }

// Printf implements the logger of go-redis.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.to.Warn("the Redis client reports a failure", "err", fmt.Sprintf(format, args...))
}

// newRedis returns a client of the servers that the URL names. It does not connect.
func newRedis(address string, t *tls.Config) (redis.UniversalClient, error) {
	first, kind, addrs := config.SplitRedis(address)
	var sentinel url.Values
	if kind != config.RedisSingle {
		var query string
		var err error
		first, query, _ = strings.Cut(first, "?")
		if sentinel, err = parameters(kind, query); err != nil {
			return nil, fmt.Errorf("%s (Servers.RedisURL) %w", config.EnvRedis, err)
		}
	}
	o, err := redis.ParseURL(first)
	switch {
	case err != nil || slices.ContainsFunc(addrs, func(addr string) bool { return strings.HasPrefix(addr, ":") }):
		// Do not wrap err: it quotes the URL with its password.
		return nil, fmt.Errorf("%s (Servers.RedisURL) is invalid: want redis://[user:password@]host:port/db, or rediss:// for TLS; "+
			"redis+sentinel://host1:26379,host2:26379/db?master_name=NAME, or redis+cluster://host1:6379,host2:6379", config.EnvRedis)
	case kind == config.RedisCluster && o.DB != 0:
		return nil, fmt.Errorf("%s (Servers.RedisURL) names a database, but a cluster has only database 0: remove it", config.EnvRedis)
	case o.TLSConfig == nil && t != nil:
		return nil, fmt.Errorf("%s (Servers.RedisURL) is not encrypted, but TLS is configured (%s, Servers.RedisTLS): "+
			"write rediss:// in the URL (or rediss+sentinel://, rediss+cluster://), or remove the files",
			config.EnvRedis, config.EnvRedisTLSCA)
	case o.TLSConfig != nil && o.TLSConfig.InsecureSkipVerify:
		return nil, fmt.Errorf("%s (Servers.RedisURL) has skip_verify, which accepts any server: "+
			"name the CA of the server's certificate in %s (RootCAs of Servers.RedisTLS) instead",
			config.EnvRedis, config.EnvRedisTLSCA)
	case t != nil:
		o.TLSConfig = t
	case o.TLSConfig != nil:
		o.TLSConfig.ServerName = "" // that of the first server
	}
	// The lock is needed once an hour only, and a sweep goes on without it: fail fast.
	o.DialTimeout, o.MaxRetries = 2*time.Second, 1
	o.ContextTimeoutEnabled = true // a request must not outlast the lock
	if o.TLSConfig != nil {
		o.Dialer = dialTLS(*o)
	}
	var c redis.UniversalClient
	if kind == config.RedisSingle {
		c = redis.NewClient(o)
	} else {
		c = redis.NewUniversalClient(&redis.UniversalOptions{
			Addrs: addrs, MasterName: sentinel.Get("master_name"), IsClusterMode: kind == config.RedisCluster,
			SentinelUsername: sentinel.Get("sentinel_username"), SentinelPassword: sentinel.Get("sentinel_password"),
			Username: o.Username, Password: o.Password, DB: o.DB,
			Dialer: o.Dialer, DialTimeout: o.DialTimeout, MaxRetries: o.MaxRetries, ContextTimeoutEnabled: true,
		})
	}
	c.AddHook(&redisErrors{tls: o.TLSConfig})
	return c, nil
}

// parameters returns those of a URL of several servers. The error shows no value, and no name that is unknown: a password
// without %-escapes may be one.
func parameters(kind config.RedisKind, query string) (url.Values, error) {
	var known []string
	if kind == config.RedisSentinel {
		known = []string{"master_name", "sentinel_username", "sentinel_password"}
	}
	values, err := url.ParseQuery(query)
	unknown := slices.ContainsFunc(slices.Collect(maps.Keys(values)), func(name string) bool { return !slices.Contains(known, name) })
	switch {
	case kind == config.RedisCluster && query != "":
		return nil, errors.New("has parameters, of which a cluster has none: remove them")
	case err != nil || unknown:
		return nil, errors.New("has a parameter that is not known: write " + strings.Join(known, ", ") + ", with special letters %-escaped")
	case kind == config.RedisSentinel && values.Get("master_name") == "":
		return nil, errors.New("lacks the name under which the sentinels know the servers: append ?master_name=NAME")
	}
	return values, nil
}

// errNoHandshake says that the TLS handshake got no answer. A Redis without TLS waits for the end of a
// line, which a handshake does not have.
var errNoHandshake = errors.New("no answer to the TLS handshake")

// dialTLS returns a dialer that connects with TLS. An empty ServerName stands for the host of the address. Unlike that of
// the library, its error says that the handshake got no answer.
func dialTLS(o redis.Options) func(ctx context.Context, network, address string) (net.Conn, error) {
	config := o.TLSConfig
	o.TLSConfig = nil
	dial := redis.NewDialer(&o)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := config.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%w: %w", errNoHandshake, err)
			}
			return nil, err
		}
		return secured, nil
	}
}

var redisServer = tlsfault.Server{
	Name: "the Redis server", Variables: "ORDERCLOSE_REDIS_TLS",
	Address: "use a host name of the certificate in ORDERCLOSE_REDIS_URL",
	Plain:   "this port of Redis", Encrypted: "use its TLS port, or redis:// in ORDERCLOSE_REDIS_URL",
}

// redisErrors adds to the errors of commands what to do about TLS. It is a hook of the client.
type redisErrors struct {
	tls     *tls.Config // nil: none
	reached atomic.Bool // the server has answered a command
}

// DialHook implements redis.Hook.
func (*redisErrors) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (r *redisErrors) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil || errors.As(err, new(redis.Error)) {
			r.reached.Store(true)
			return err
		}
		if what, do := r.explain(err); what != "" {
			err = fmt.Errorf("%s; %s: %w", what, do, err)
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (*redisErrors) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// explain returns what failed and what to do. Both are empty if err is no failure of TLS.
func (r *redisErrors) explain(err error) (what, do string) {
	what, do = redisServer.Explain(err, r.tls)
	if errors.Is(err, errNoHandshake) {
		what, do = redisServer.Plain+" may not use TLS", redisServer.Encrypted
	}
	switch closed := !r.reached.Load() && tlsfault.ClosedByPeer(err); {
	case what != "" || !closed:
	case r.tls == nil:
		what, do = "the Redis server closed a connection without TLS", "if it requires TLS, write rediss:// in ORDERCLOSE_REDIS_URL"
	default:
		what, do = redisServer.ExplainClosed(r.tls)
	}
	return what, do
}
