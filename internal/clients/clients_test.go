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
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// With the lock in the database nothing connects to Redis, whatever the variable has.
func TestConnect_UsesTheServerOfTheLock(t *testing.T) {
	for kind, url := range map[config.LockKind]string{config.LockRedis: "redis://127.0.0.1:1/0", config.LockDatabase: "no URL"} {
		cfg := config.Default()
		cfg.Compensator.Lock.Kind = kind
		c := must.Get(Connect(config.Servers{DSN: "u@tcp(127.0.0.1:1)/d", RedisURL: url}, Pool{}, cfg, slog.New(slog.DiscardHandler)))(t)
		defer c.Close()
		if withRedis := kind == config.LockRedis; (c.Redis != nil) != withRedis {
			t.Errorf("%s: a client of Redis: %v", kind, c.Redis != nil)
		}
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
		if err := client.Ping(t.Context()).Err(); err == nil {
			t.Fatal("a client without a server gets an answer")
		}
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
		"redis://:hunter2@a:b":                                            {nil, "is invalid: want redis://"},
		"redis+sentinel://:hunter2@a:b/x?master_name=m":                   {nil, "is invalid: want redis://"},
		"redis+sentinel://:hunter2@?master_name=m":                        {nil, "is invalid: want redis://"},
		"redis+sentinel://:hunter2@a,b":                                   {nil, "append ?master_name=NAME"},
		"redis+sentinel://a?master_name=m&sentinel_password=hunter2&x":    {nil, "write master_name, sentinel_username, sentinel_password, with special"},
		"redis+sentinel://a?master_name=m&sentinel_password=&hunter2":     {nil, "write master_name, sentinel_username, sentinel_password, with special"},
		"redis+sentinel://a?master_name=m&sentinel_password=hunter2%zz":   {nil, "write master_name, sentinel_username, sentinel_password, with special"},
		"redis+sentinel://:hunter2@a?master_name=m&skip_verify=true":      {nil, "write master_name, sentinel_username, sentinel_password, with special"},
		"redis+sentinel://:hunter2@a?master_name=m":                       {withTLS, "write rediss://"},
		"redis+cluster://:hunter2@a,b/1":                                  {nil, "a cluster has only database 0"},
		"redis+cluster://:hunter2@a,b?password=hunter2":                   {nil, "has parameters, of which a cluster has none"},
		"redis+cluster://:hunter2@a,b":                                    {withTLS, "write rediss://"},
		"rediss://:hunter2@a?skip_verify=true":                            {nil, "has skip_verify"},
		"redis+sentinel://user:hunter2/a@b:1?master_name=m&x=hunter2":     {nil, "write master_name"},
		"redis+sentinel://user:hunter2/a@b:1?master_name=m":               {nil, "is invalid: want redis://"},
		"redis+sentinel://user:hunter2?master_name=m,b@c:1?master_name=m": {nil, "is invalid: want redis://"},
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
	sentinels := open("redis+sentinel://shop:p%40w@h1:1,[::1]:2,h3/4?master_name=mine&sentinel_username=s&sentinel_password=q%26", nil).(*redis.Client).Options()
	if sentinels.Username != "shop" || sentinels.Password != "p@w" || sentinels.DB != 4 || !sentinels.ContextTimeoutEnabled || sentinels.MaxRetries != 1 {
		t.Errorf("%+v", sentinels)
	}
	cluster := open("redis+cluster://shop:pw@h1:1,h2,::1", nil).(*redis.ClusterClient).Options()
	if strings.Join(cluster.Addrs, " ") != "h1:1 h2:6379 [::1]:6379" || cluster.Username != "shop" || cluster.Password != "pw" || !cluster.ContextTimeoutEnabled {
		t.Errorf("%+v", cluster)
	}
	for _, c := range []*tls.Config{nil, {MinVersion: tls.VersionTLS12}} {
		if got := open("rediss+cluster://h1,h2", c).(*redis.ClusterClient).Options().TLSConfig; got != nil && got.ServerName != "" {
			t.Errorf("all servers must have the certificate of %s", got.ServerName)
		}
	}
}
