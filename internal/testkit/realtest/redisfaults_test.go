package realtest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// holding is a process that works under a lock, to whose server its connection leads through a proxy.
type holding struct {
	t      *testing.T
	proxy  *testkit.Proxy
	direct *redis.Client // without the proxy
	key    string
	began  chan struct{} // closed when it has the lock
	enough chan struct{} // closed when it shall end
	over   chan struct{} // closed when it has ended, with:
	err    error
}

// newHolding returns a process without a lock, and the proxy to the server of its lock.
func newHolding(t *testing.T, server string) *holding {
	t.Helper()
	h := &holding{t: t, key: newPrefix() + "lock", began: make(chan struct{}), enough: make(chan struct{}), over: make(chan struct{})}
	h.proxy = must.Get(testkit.NewProxy(server))(t)
	t.Cleanup(func() { h.proxy.Close() })
	return h
}

// holdThroughProxy takes a lock in Redis by the production client.
func holdThroughProxy(t *testing.T) *holding {
	t.Helper()
	o := must.Get(redis.ParseURL(realServers(t).RedisURL))(t)
	h := newHolding(t, o.Addr)
	h.direct = redis.NewClient(o)
	t.Cleanup(func() {
		h.direct.Del(context.Background(), h.key)
		h.direct.Close()
	})
	proxied := environ.Servers{RedisURL: fmt.Sprintf("redis://%s:%s@%s/%d", o.Username, o.Password, h.proxy.Addr(), o.DB)}
	client := must.Get(clients.Connect(proxied, clients.Database{}, config.Default(), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(client.Close)
	h.hold(lock.NewRedis(lock.Options{Client: client.Redis, Key: h.key, Expiry: 3 * time.Second}))
	return h
}

// hold takes a lock, and returns when it is granted.
func (h *holding) hold(l lock.Lock) {
	h.t.Helper()
	h.t.Cleanup(h.stop)
	go func() {
		defer close(h.over)
		h.err = patient{l}.Hold(context.Background(), func(held context.Context) error {
			close(h.began)
			select {
			case <-held.Done():
				return held.Err()
			case <-h.enough:
				return nil
			}
		})
	}()
	select {
	case <-h.began:
	case <-h.over:
		h.t.Fatal(h.err)
	}
}

// stop ends the work.
func (h *holding) stop() {
	select {
	case <-h.enough:
	default:
		close(h.enough)
	}
}

// losesItsLock waits until the work has ended because its lock is lost.
func (h *holding) losesItsLock() {
	h.t.Helper()
	select {
	case <-h.over:
		expect.Is(h.t, h.err, lock.ErrLost, "the end of the work")
	case <-time.After(waitLimit):
		h.t.Fatal("the work goes on")
	}
}

// The connection to the server of the lock fails while a compensator works, or another process takes the lock. The work stops.
func TestReal_ASweepStopsWhenItMayHaveLostItsLock(t *testing.T) {
	placementOf(t)
	t.Parallel()
	stall := func(s *holding) { s.proxy.Stall() }
	halfOpen := func(s *holding) { s.proxy.Refuse(); s.proxy.HalfOpen() }
	away := func(s *holding) { s.proxy.Disconnect() }
	inRedis := func(lose func(s *holding)) func(t *testing.T) {
		return func(t *testing.T) {
			s := holdThroughProxy(t)
			lose(s)
			s.losesItsLock()
		}
	}
	inDatabase := func(lose func(s *holding)) func(t *testing.T) {
		return func(t *testing.T) { losesDatabaseLock(t, lose) }
	}
	for name, play := range map[string]func(t *testing.T){
		"Redis: taken by another": func(t *testing.T) {
			s := holdThroughProxy(t)
			expect.NoError(t, s.direct.Set(t.Context(), s.key, "another", waitLimit).Err())
			s.losesItsLock()
			expect.Equal(t, must.Get(s.direct.Get(t.Context(), s.key).Result())(t), "another", "the holder of the lock")
		},
		"Redis: deleted": inRedis(func(s *holding) {
			expect.NoError(t, s.direct.Del(t.Context(), s.key).Err())
		}),
		"Redis: stall": inRedis(stall),
		"Redis: half open, and nobody new is taken": inRedis(halfOpen),
		"Redis: away":     inRedis(away),
		"database: stall": inDatabase(stall),
		"database: half open, and nobody new is taken": inDatabase(halfOpen),
		"database: away": inDatabase(away),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t)
		})
	}
}
