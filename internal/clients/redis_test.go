package clients

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/orderclose/orderclose/internal/retry"
)

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
	if len(lines) != retry.LogBurst || !strings.Contains(lines[0], `level=WARN msg="the Redis client reports a failure" err="redis: connection pool: failed to dial after 1 attempts: no route to Redis"`) {
		t.Errorf("%d lines, want %d, the first\n%s", len(lines), retry.LogBurst, lines[0])
	}
}
