package clients

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// With the lock in the database nothing connects to Redis, whatever the variable has.
func TestConnect_UsesTheServerOfTheLock(t *testing.T) {
	for kind, url := range map[config.LockKind]string{config.LockRedis: "redis://127.0.0.1:1/0", config.LockDatabase: "no URL"} {
		cfg := config.Default()
		cfg.Compensator.Lock.Kind = kind
		c := must.Get(Connect(environ.Servers{DSN: "u@tcp(127.0.0.1:1)/d", RedisURL: url}, Database{}, cfg, slog.New(slog.DiscardHandler)))(t)
		defer c.Close()
		withRedis := kind == config.LockRedis
		expect.That(t, (c.Redis != nil) == withRedis, "%s: a client of Redis: %v", kind, c.Redis != nil)
	}
}

// While Redis is down its client writes lines of its own. They are lines of the log as all others.
func TestLogRedis_WritesToTheLogAndIsLimited(t *testing.T) {
	var out bytes.Buffer
	LogRedis(slog.New(slog.NewTextHandler(&out, nil)))
	defer logging.Enable()
	client := redis.NewClient(&redis.Options{PoolSize: 100, MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no route to Redis")
	}})
	defer client.Close()
	for range 2 * retry.LogBurst {
		err := client.Ping(t.Context()).Err()
		must.That(t, err != nil, "a client without a server gets an answer")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != retry.LogBurst || !strings.Contains(lines[0], `level=WARN msg="the Redis client reports a failure" err="redis: connection pool: failed to `+
		`dial after 1 attempts: no route to Redis"`) {
		t.Errorf("%d lines, want %d, the first\n%s", len(lines), retry.LogBurst, lines[0])
	}
}

// secret is what no error may show.
const secret = "hunter2"

func TestNewRedis_RefusesAURLAndShowsNoPassword(t *testing.T) {
	withTLS := &tls.Config{MinVersion: tls.VersionTLS12}
	for url, c := range map[string]struct {
		tls  *tls.Config
		want string
	}{
		"redis://:hunter2@a:b":                                        {nil, "is invalid: want redis://"},
		"redis://:hunter2@a:1/x?master_name=m":                        {nil, "is invalid: want redis://"},
		"redis://:hunter2@a?addr=b:2":                                 {withTLS, "write rediss://"},
		"redis://:hunter2@a?addr=b:2&master_name=m":                   {withTLS, "write rediss://"},
		"redis://:hunter2@a?addr=b":                                   {nil, "is invalid: want redis://"},
		"redis://a?master_name=m&password=hunter2&x":                  {nil, "is invalid: want redis://"},
		"redis://a?master_name=m&password=&hunter2":                   {nil, "is invalid: want redis://"},
		"redis://a?master_name=m&password=hunter2%zz":                 {nil, "is invalid: want redis://"},
		"redis://:hunter2@a?master_name=m&route_randomly=true":        {nil, "is invalid: want redis://"},
		"redis://:hunter2@a?master_name=":                             {nil, "is invalid: want redis://"},
		"redis://:hunter2@a?password=hunter2":                         {nil, "is invalid: want redis://"},
		"rediss://:hunter2@a?skip_verify=true":                        {nil, "has skip_verify"},
		"rediss://:hunter2@a?master_name=m&skip_verify=true&addr=b:1": {nil, "has skip_verify"},
		"redis://user:hunter2/a@b:1?master_name=m":                    {nil, "is invalid: want redis://"},
	} {
		_, err := newRedis(url, c.tls)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "ORDERCLOSE_REDIS_URL") {
			t.Errorf("%s: %v, want %q", url, err, c.want)
		}
	}
}

func TestNewRedis_ReadsAllServers(t *testing.T) {
	open := func(url string, c *tls.Config) redis.UniversalClient {
		t.Helper()
		client := must.Get(newRedis(url, c))(t)
		t.Cleanup(func() { client.Close() })
		return client
	}
	sentinels := open("redis://s:q%26@h1:1/4?addr=[::1]:2&addr=h3:26379&master_name=mine&username=shop&password=p%40w", nil).(*redis.Client).Options()
	if sentinels.Username != "shop" || sentinels.Password != "p@w" || sentinels.DB != 4 || !sentinels.ContextTimeoutEnabled || sentinels.MaxRetries != 1 {
		t.Errorf("%+v", sentinels)
	}
	cluster := open("redis://shop:pw@h1:1?addr=h2:6379&addr=[::1]:6379", nil).(*redis.ClusterClient).Options()
	if strings.Join(cluster.Addrs, " ") != "h1:1 h2:6379 [::1]:6379" || cluster.Username != "shop" || cluster.Password != "pw" || !cluster.ContextTimeoutEnabled {
		t.Errorf("%+v", cluster)
	}
	for _, c := range []*tls.Config{nil, {MinVersion: tls.VersionTLS12}} {
		for _, all := range []string{"?addr=h2:1", "?addr=h2:1&master_name=m", ""} {
			var got *tls.Config
			switch client := open("rediss://h1"+all, c).(type) {
			case *redis.ClusterClient:
				got = client.Options().TLSConfig
			case *redis.Client:
				got = client.Options().TLSConfig
			}
			expect.That(t, got != nil && got.ServerName == "", "%q: all servers must have the certificate of one: %+v", all, got)
		}
	}
}
