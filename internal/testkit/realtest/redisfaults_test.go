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
	"github.com/orderclose/orderclose/internal/testkit"
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
	case <-time.After(20 * time.Millisecond):
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

// sweepThroughProxy prepares a sweep with a lock of its own, whose Redis client is
// the production client.
func sweepThroughProxy(t *testing.T, expiry time.Duration) *sweeping {
	t.Helper()
	all := realServers(t)
	o, err := redis.ParseURL(all.RedisURL)
	if err != nil {
		t.Fatal(err)
	}
	s := &sweeping{
		t: t, direct: redis.NewClient(o), key: newPrefix() + "lock", over: make(chan struct{}),
		store: &endless{enough: make(chan struct{}), more: make(chan struct{})},
	}
	t.Cleanup(func() {
		s.direct.Del(context.Background(), s.key)
		s.direct.Close()
	})
	if s.proxy, err = testkit.NewProxy(o.Addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.proxy.Close() })
	client, err := clients.Connect(config.Servers{RedisURL: fmt.Sprintf("redis://%s:%s@%s/%d", o.Username, o.Password, s.proxy.Addr(), o.DB)}, clients.Pool{}, config.Default(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	lock, err := compensator.NewLock(compensator.LockOptions{Client: client.Redis, Key: s.key, Expiry: expiry, Extend: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s.sweep(patient{lock})
	s.page()
	return s
}

// sweep begins the sweep under a lock.
func (s *sweeping) sweep(lock compensator.Lock) {
	s.t.Helper()
	c, err := compensator.New(compensator.Options{Store: s.store, Lock: lock})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.stop)
	go func() {
		defer close(s.over)
		s.report, s.err = c.Sweep(context.Background(), false)
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
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	return owner
}

// ended waits until the sweep has ended by itself, and returns its error.
func (s *sweeping) ended() error {
	s.t.Helper()
	select {
	case <-s.over:
		return s.err
	case <-time.After(time.Minute):
		s.t.Fatal("the sweep goes on")
		return nil
	}
}

func TestReal_ASweepStopsWhenItMayHaveLostItsLock(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(s *sweeping){
		"taken by another": func(s *sweeping) {
			if err := s.direct.Set(t.Context(), s.key, "another", time.Minute).Err(); err != nil {
				t.Error(err)
			}
		},
		"deleted": func(s *sweeping) {
			if err := s.direct.Del(t.Context(), s.key).Err(); err != nil {
				t.Error(err)
			}
		},
		"stall":                              func(s *sweeping) { s.proxy.Stall() },
		"half open, and nobody new is taken": func(s *sweeping) { s.proxy.Refuse(); s.proxy.HalfOpen() },
		"away":                               func(s *sweeping) { s.proxy.Refuse(); s.proxy.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sweepThroughProxy(t, 3*time.Second)
			s.page()
			lose(s)
			began := time.Now()
			if err := s.ended(); !errors.Is(err, compensator.ErrLockLost) || s.report.Lock != "held" || s.report.Closed == 0 {
				t.Errorf("it ended with %v and %+v; want the lock lost in the middle", err, s.report)
			}
			t.Logf("stopped after %v, %d orders closed", time.Since(began).Round(time.Millisecond), s.report.Closed)
			if name == "taken by another" && s.owner() != "another" {
				t.Error("it gave back another's lock")
			}
		})
	}
}

func TestReal_ASweepSurvivesAShortFailureOfRedis(t *testing.T) {
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

// survives checks a sweep during a failure of Redis.
func survives(t *testing.T, fail func(p *testkit.Proxy)) {
	const expiry = 5 * time.Second
	s := sweepThroughProxy(t, expiry)
	s.page()
	owner := s.owner()
	fail(s.proxy)
	<-time.After(1200 * time.Millisecond)
	s.proxy.Heal()
	// Longer than the lock would have lasted without an extension.
	for until := time.Now().Add(expiry); time.Now().Before(until) && s.page(); {
	}
	now := s.owner()
	s.stop()
	err := s.ended()
	switch {
	case owner == "" || now != owner:
		t.Errorf("the lock was %q's and is %q's", owner, now)
	case err != nil || s.report.Lock != "held":
		t.Errorf("it ended with %v and %+v", err, s.report)
	case s.owner() != "":
		t.Error("the lock was not given back")
	}
}

func TestReal_ASweepContinuesIfRedisHangs(t *testing.T) {
	t.Parallel()
	all := realServers(t)
	o, err := redis.ParseURL(all.RedisURL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := testkit.NewProxy(o.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	proxy.Stall()
	r := newRig(t, all)
	r.servers.RedisURL = "redis://" + proxy.Addr() + "/0"
	if err := r.shop.Orders.CreateOrder(t.Context(), r.shop.Producer.Order("missed", time.Now().Add(-time.Hour)), nil); err != nil {
		t.Fatal(err)
	}
	var report compensator.Report
	began := time.Now()
	r.decode(r.must("compensate", "--once", "-o", "json"), &report)
	if report.Closed != 1 || report.Lock != "unavailable" {
		t.Errorf("%+v", report)
	}
	t.Logf("it took %v to do without", time.Since(began).Round(time.Millisecond))
}
