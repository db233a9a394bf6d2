package clients

import (
	"log/slog"
	"testing"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
)

// With the lock in the database nothing connects to Redis, whatever the variable has.
func TestConnect_UsesTheServerOfTheLock(t *testing.T) {
	for kind, url := range map[config.LockKind]string{config.LockRedis: "redis://127.0.0.1:1/0", config.LockDatabase: "no URL"} {
		cfg := config.Default()
		cfg.Compensator.Lock.Kind = kind
		c, err := Connect(config.Servers{DSN: "u@tcp(127.0.0.1:1)/d", RedisURL: url}, Pool{}, cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lock, err := c.SweepLock(cfg.Compensator.Lock, "-recheck", config.Never)
		if err != nil {
			t.Fatal(err)
		}
		_, inRedis := lock.(*compensator.RedisLock)
		_, inDatabase := lock.(*compensator.DatabaseLock)
		if (c.Redis != nil) != (kind == config.LockRedis) || inRedis != (kind == config.LockRedis) || inDatabase != (kind == config.LockDatabase) {
			t.Errorf("%s: the lock is a %T; a client of Redis: %v", kind, lock, c.Redis != nil)
		}
	}
}
