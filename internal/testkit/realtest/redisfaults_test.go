package realtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// endless is a database that always has another overdue order, until it is stopped.
type endless struct {
	enough chan struct{}

	mu    sync.Mutex
	pages int
	more  chan struct{} // closed at the next page, and replaced
}

func (e *endless) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (e *endless) Overdue(ctx context.Context, _ time.Time, _ orderclose.Order, _ int) ([]orderclose.Order, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-e.enough:
		return nil, nil
	default:
		scenario.Pause(ctx, 20*time.Millisecond) // a page takes its time
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pages++
	close(e.more)
	e.more = make(chan struct{})
	return []orderclose.Order{{ID: fmt.Sprint("o", e.pages), Due: time.Now().Add(-time.Hour)}}, nil
}

func (e *endless) CloseOrders(ctx context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed, At: time.Now()}
	}
	return outcomes, nil
}

// sweeping is a sweep in progress whose connection to Redis leads through a proxy.
type sweeping struct {
	t      *testing.T
	proxy  *testkit.Proxy
	direct *redis.Client // without the proxy
	key    string
	store  *endless
	over   chan struct{} // closed when the sweep has ended, with:
	report compensator.Report
	err    error
}

// newSweeping returns a sweep of an endless database, and the proxy to the server of its lock.
func newSweeping(t *testing.T, server string) *sweeping {
	t.Helper()
	s := &sweeping{t: t, key: newPrefix() + "lock", over: make(chan struct{}), store: &endless{enough: make(chan struct{}), more: make(chan struct{})}}
	s.proxy = must.Get(testkit.NewProxy(server))(t)
	t.Cleanup(func() { s.proxy.Close() })
	return s
}

// sweepThroughProxy begins a sweep with a lock of its own, whose Redis client is the production client.
func sweepThroughProxy(t *testing.T, expiry time.Duration) *sweeping {
	t.Helper()
	o := must.Get(redis.ParseURL(realServers(t).RedisURL))(t)
	s := newSweeping(t, o.Addr)
	s.direct = redis.NewClient(o)
	t.Cleanup(func() {
		s.direct.Del(context.Background(), s.key)
		s.direct.Close()
	})
	proxied := environ.Servers{RedisURL: fmt.Sprintf("redis://%s:%s@%s/%d", o.Username, o.Password, s.proxy.Addr(), o.DB)}
	client := must.Get(clients.Connect(proxied, clients.Database{}, config.Default(), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(client.Close)
	s.sweep(patient{lock.NewRedis(lock.Options{Client: client.Redis, Key: s.key, Expiry: expiry})})
	s.page()
	return s
}

// sweep begins the sweep under a lock.
func (s *sweeping) sweep(under lock.Lock) {
	s.t.Helper()
	c := must.Get(compensator.New(compensator.Options{Store: s.store}))(s.t)
	s.t.Cleanup(s.stop)
	go func() {
		defer close(s.over)
		s.err = under.Hold(context.Background(), func(held context.Context) (err error) {
			s.report, err = c.Sweep(held, false)
			return err
		})
	}()
}

// page returns true when one more page was read, and false if the sweep has ended.
func (s *sweeping) page() bool {
	s.store.mu.Lock()
	more := s.store.more
	s.store.mu.Unlock()
	select {
	case <-more:
		return true
	case <-s.over:
		return false
	}
}

// stop ends the sweep after its page.
func (s *sweeping) stop() {
	select {
	case <-s.store.enough:
	default:
		close(s.store.enough)
	}
}

// owner returns the value of the lock, "" if it is free.
func (s *sweeping) owner() string {
	s.t.Helper()
	owner, err := s.direct.Get(s.t.Context(), s.key).Result()
	must.That(s.t, err == nil || errors.Is(err, redis.Nil), "%v", err)
	return owner
}

// ended waits until the sweep has ended by itself, and returns its error.
func (s *sweeping) ended() error {
	s.t.Helper()
	select {
	case <-s.over:
		return s.err
	case <-time.After(waitLimit):
		s.t.Fatal("the sweep goes on")
		return nil
	}
}

// lostItsLock waits until the sweep has ended by itself in the middle, because its lock is lost.
func (s *sweeping) lostItsLock() {
	s.t.Helper()
	err := s.ended()
	expect.That(s.t, errors.Is(err, lock.ErrLost) && s.report.Closed != 0, "it ended with %v and %+v; want the lock lost in the middle", err, s.report)
}

// The connection to the server of the lock fails in the middle of a sweep, or another process takes the lock. The sweep stops.
func TestReal_ASweepStopsWhenItMayHaveLostItsLock(t *testing.T) {
	placementOf(t)
	t.Parallel()
	stall := func(s *sweeping) { s.proxy.Stall() }
	halfOpen := func(s *sweeping) { s.proxy.Refuse(); s.proxy.HalfOpen() }
	away := func(s *sweeping) { s.proxy.Refuse(); s.proxy.Cut() }
	inRedis := func(lose func(s *sweeping)) func(t *testing.T) {
		return func(t *testing.T) {
			s := sweepThroughProxy(t, 3*time.Second)
			lose(s)
			s.lostItsLock()
		}
	}
	inDatabase := func(lose func(s *sweeping)) func(t *testing.T) {
		return func(t *testing.T) { losesDatabaseLock(t, lose) }
	}
	for name, play := range map[string]func(t *testing.T){
		"Redis: taken by another": func(t *testing.T) {
			s := sweepThroughProxy(t, 3*time.Second)
			expect.NoError(t, s.direct.Set(t.Context(), s.key, "another", waitLimit).Err())
			s.lostItsLock()
			expect.That(t, s.owner() == "another", "it gave back another's lock")
		},
		"Redis: deleted": inRedis(func(s *sweeping) {
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

// The lock lasts longer than the failure, so the sweep goes on, and extends the lock afterwards.
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

// survives checks a sweep during a failure of Redis, which lasts longer than the pause between two extensions.
func survives(t *testing.T, fail func(p *testkit.Proxy)) {
	const expiry = waitLimit
	s := sweepThroughProxy(t, expiry)
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
		t.Errorf("it ended with %v and %+v", err, s.report)
	case s.owner() != "":
		t.Error("the lock was not given back")
	}
}
