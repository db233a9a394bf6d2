package realtest

import (
	"context"
	"errors"
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
	"github.com/orderclose/orderclose/internal/testkit/scenario"
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
func holdThroughProxy(t *testing.T, expiry time.Duration) *holding {
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
	h.hold(lock.NewRedis(lock.Options{Client: client.Redis, Key: h.key, Expiry: expiry}))
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

// owner returns the value of the lock, "" if it is free.
func (h *holding) owner() string {
	h.t.Helper()
	owner, err := h.direct.Get(h.t.Context(), h.key).Result()
	must.That(h.t, err == nil || errors.Is(err, redis.Nil), "%v", err)
	return owner
}

// ended waits until the work has ended by itself, and returns its error.
func (h *holding) ended() error {
	h.t.Helper()
	select {
	case <-h.over:
		return h.err
	case <-time.After(waitLimit):
		h.t.Fatal("the work goes on")
		return nil
	}
}

// losesItsLock waits until the work has ended because its lock is lost.
func (h *holding) losesItsLock() {
	h.t.Helper()
	expect.Is(h.t, h.ended(), lock.ErrLost, "the end of the work")
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
			s := holdThroughProxy(t, 3*time.Second)
			lose(s)
			s.losesItsLock()
		}
	}
	inDatabase := func(lose func(s *holding)) func(t *testing.T) {
		return func(t *testing.T) { losesDatabaseLock(t, lose) }
	}
	for name, play := range map[string]func(t *testing.T){
		"Redis: taken by another": func(t *testing.T) {
			s := holdThroughProxy(t, 3*time.Second)
			expect.NoError(t, s.direct.Set(t.Context(), s.key, "another", waitLimit).Err())
			s.losesItsLock()
			expect.That(t, s.owner() == "another", "it gave back another's lock")
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

// The lock lasts longer than the failure, so the work goes on, and extends the lock afterwards.
func TestReal_ASweepSurvivesAShortFailureOfRedis(t *testing.T) {
	placementOf(t)
	t.Parallel()
	for name, fail := range map[string]func(p *testkit.Proxy){
		"cut":       func(p *testkit.Proxy) { p.Cut() },
		"stall":     func(p *testkit.Proxy) { p.Stall() },
		"half open": func(p *testkit.Proxy) { p.HalfOpen() },
		"slow": func(p *testkit.Proxy) {
			p.Set(testkit.ToClient, testkit.ProxyRules{Delay: 300 * time.Millisecond, Rate: 1000})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			survives(t, fail)
		})
	}
}

// survives checks the work during a failure of Redis, which lasts longer than the pause between two extensions.
func survives(t *testing.T, fail func(p *testkit.Proxy)) {
	const expiry = waitLimit
	s := holdThroughProxy(t, expiry)
	owner := s.owner()
	fail(s.proxy)
	scenario.Pause(t.Context(), 1200*time.Millisecond)
	s.proxy.Heal()
	must.Do(t, s.direct.PExpire(t.Context(), s.key, expiry/2).Err())
	await(t, func() error {
		if left := s.direct.PTTL(t.Context(), s.key).Val(); left <= expiry/2 {
			return fmt.Errorf("nobody has extended the lock since, it has %v left", left)
		}
		return nil
	})
	now := s.owner()
	s.stop()
	err := s.ended()
	switch {
	case owner == "" || now != owner:
		t.Errorf("the lock was %q's and is %q's", owner, now)
	case err != nil:
		t.Errorf("it ended with %v", err)
	case s.owner() != "":
		t.Error("the lock was not given back")
	}
}
