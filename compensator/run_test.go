package compensator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// counts are the metrics of a compensator.
type counts struct{ testkit.Metrics }

func newCounts() counts { return counts{testkit.NewMetrics()} }

func (c counts) swept() int  { return int(c.Value("compensator_sweep_seconds")) }
func (c counts) failed() int { return int(c.Value("compensator_failed_total")) }
func (c counts) skipped(reason string) int {
	return int(c.Value("compensator_skipped_total", "reason", reason))
}
func (c counts) missed(cause Cause) int {
	return int(c.Value("compensator_found_total", "cause", string(cause)))
}
func (c counts) locked() bool { return c.Value("compensator_lock_available") == 1 }
func (c counts) stuck() bool  { return c.Value("compensator_lock_stuck") == 1 }
func (c counts) sweeping() bool {
	return c.Value("compensator_sweep_running_since_timestamp_seconds") > 0
}

// fleet is a set of compensators on one database and one Redis, each like a process
// of its own.
type fleet struct {
	t      *testing.T
	redis  *miniredis.Miniredis
	store  *fakeStore
	log    SweepLog
	counts []counts
	stops  []func()
}

func inFleet(t *testing.T, store *fakeStore, test func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, redis: miniredis.NewMiniRedis(), store: store, log: &ownLog{clock: store, finished: map[string]time.Time{}}}
		f.redis.ClockTTL(true)
		defer f.redis.Close()
		defer func() {
			for i := range f.stops {
				f.stop(i)
			}
		}()
		test(f)
	})
}

// lock returns a lock in the fleet's Redis.
func (f *fleet) lock(key string) (lock Lock, stop func()) {
	f.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", MaxRetries: -1, ContextTimeoutEnabled: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return f.redis.Dial() }})
	lock = must.Get(NewLock(LockOptions{Client: client, Key: key}))(f.t)
	return lock, func() { client.Close() }
}

func (f *fleet) start(o Options) (stop func()) {
	f.t.Helper()
	lock, stopLock := f.lock(DefaultLockKey)
	c := newCounts()
	if o.Store == nil {
		o.Store = f.store
	}
	o.SweepLog, o.Lock, o.Registerer, o.Name = f.log, lock, c, "order-close"
	comp := newCompensator(f.t, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		expect.NoError(f.t, comp.Run(ctx))
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done; stopLock() })
	f.counts, f.stops = append(f.counts, c), append(f.stops, stop)
	return stop
}

func (f *fleet) stop(i int) { f.stops[i]() }

func (f *fleet) swept() (n int) {
	synctest.Wait()
	for _, c := range f.counts {
		n += c.swept()
	}
	return n
}

func TestRun_OneProcessSweepsInEachPeriod(t *testing.T) {
	inFleet(t, &fakeStore{}, func(f *fleet) {
		for range 3 {
			f.start(Options{})
			time.Sleep(7 * time.Second)
		}
		time.Sleep(3 * time.Minute)
		before := f.swept()
		time.Sleep(24 * time.Hour)
		expect.That(t, (before == 1 || before == 2) && f.swept()-before == 24,
			"%d sweeps at the start and %d in the day after it; want one, or two if an hour began then, and 24", before, f.swept()-before)
	})
}

func TestRun_AKilledSweepIsTakenOverWithinTwoMinutes(t *testing.T) {
	inFleet(t, &fakeStore{}, func(f *fleet) {
		f.start(Options{})
		time.Sleep(30 * time.Minute)
		before := f.swept()
		next := f.next()
		time.Sleep(time.Until(next) - time.Millisecond)
		// Another process had the lock and died.
		must.Do(t, f.redis.Set(DefaultLockKey, "dead"))
		f.redis.SetTTL(DefaultLockKey, DefaultLockExpiry)
		time.Sleep(2 * time.Minute)
		n := f.swept() - before
		expect.That(t, n == 1 && f.counts[0].skipped("held") != 0, "%d sweeps two minutes later, skipped %d", n, f.counts[0].skipped("held"))
	})
}

// next returns when the next sweep is due.
func (f *fleet) next() time.Time {
	s := newSchedule(DefaultPeriod, "order-close")
	return s.slot(time.Now()).Add(s.period)
}

func TestRun_WithoutRedisItSweepsAndReportsIt(t *testing.T) {
	inFleet(t, &fakeStore{}, func(f *fleet) {
		for range 3 {
			f.start(Options{})
		}
		time.Sleep(30 * time.Minute)
		before := f.swept()
		f.redis.SetError("LOADING")
		time.Sleep(2 * time.Minute)
		expect.That(t, !f.counts[0].locked(), "two minutes later the lock counts as available")
		time.Sleep(6 * time.Hour)
		if n := f.swept() - before; n < 6 || n > 3*6 {
			t.Errorf("%d sweeps in six hours without Redis, want 6 at least", n)
		} else {
			t.Logf("%d sweeps in six periods of three processes without a lock", n)
		}
		f.redis.SetError("")
		f.redis.FlushAll()
		time.Sleep(2 * time.Minute)
		expect.That(t, f.counts[0].locked(), "two minutes after Redis is back the lock counts as unavailable")
	})
}

// Its key has no expiry, or an expiry that is too long.
func TestRun_AStuckLockStopsNoSweep(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"no expiry": 0, "a year": 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, &fakeStore{}, func(f *fleet) {
				must.Do(t, f.redis.Set(DefaultLockKey, "left behind"))
				if ttl > 0 {
					f.redis.SetTTL(DefaultLockKey, ttl)
				}
				f.start(Options{})
				f.start(Options{})
				time.Sleep(6*time.Hour + time.Minute)
				expect.That(t, f.swept() >= 6 && f.counts[0].stuck() && f.counts[0].locked(),
					"%d sweeps in six hours, stuck %v, available %v", f.swept(), f.counts[0].stuck(), f.counts[0].locked())
				f.redis.Del(DefaultLockKey)
				time.Sleep(2 * time.Minute)
				if synctest.Wait(); f.counts[0].stuck() {
					t.Error("the lock counts as stuck after the key was deleted")
				}
			})
		})
	}
}

func TestRun_ALostLockEndsTheSweepAndItIsRetried(t *testing.T) {
	store := &fakeStore{}
	inFleet(t, store, func(f *fleet) {
		f.store.orders = newStore(50).orders
		f.store.slow = 10 * time.Second // per page
		f.start(Options{PageSize: 1, Grace: -1})
		f.start(Options{PageSize: 1, Grace: -1})
		time.Sleep(65 * time.Second)
		f.redis.FlushAll() // as after a restart without data
		time.Sleep(30 * time.Minute)
		expect.That(t, store.open() == 0 && f.counts[0].failed()+f.counts[1].failed() != 0,
			"%d orders are open, and %d sweeps failed", store.open(), f.counts[0].failed()+f.counts[1].failed())
	})
}

func TestRun_SlotsDuringASweepAreSkippedAndCounted(t *testing.T) {
	inFleet(t, &fakeStore{}, func(f *fleet) {
		f.store.orders = newStore(310).orders
		f.store.slow = time.Minute // 311 pages take over five hours
		f.start(Options{PageSize: 1, Grace: -1})
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		expect.That(t, f.counts[0].sweeping() && f.counts[0].swept() == 0, "the sweep in progress is not reported")
		time.Sleep(2 * time.Hour)
		expect.That(t, f.swept() == 1 && f.counts[0].skipped("running") == 6 && !f.counts[0].sweeping(),
			"%d sweeps, skipped %d, want one, and the six slots meanwhile", f.swept(), f.counts[0].skipped("running"))
	})
}

func TestSweep_IsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(1000)
		began := time.Now()
		r, err := newCompensator(t, Options{Store: s, PageSize: 50, Grace: -1, Rate: 100}).Sweep(t.Context(), false)
		if took := time.Since(began); err != nil || r.Closed != 1000 || took < 9*time.Second || took > 11*time.Second {
			t.Errorf("%d closed in %v, %v; want 1000 in ten seconds", r.Closed, took, err)
		}
	})
}

func TestSweep_OrdersThatCannotBeClosedAreTriedOnceAndDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(40)
		s.bad = map[string]bool{}
		for i := range 20 {
			s.bad[fmt.Sprintf("o%04d", i)] = true // all orders of the first pages
		}
		r, err := newCompensator(t, Options{Store: s, PageSize: 5, Grace: -1}).Sweep(t.Context(), false)
		expect.That(t, err == nil && r.Failed == 20 && r.Closed == 20 && r.Pages == 8, "%+v, %v", r, err)
	})
}

func TestSweep_ContinuesWhereItWasInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(100)
		s.slow = time.Second
		c := newCompensator(t, Options{Store: s, PageSize: 10, Grace: -1})
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		first, err := c.Sweep(ctx, false)
		if !errors.Is(err, context.DeadlineExceeded) || first.Closed != 40 { // two pages are read, then closed
			t.Errorf("%+v, %v", first, err)
		}
		second, err := c.Sweep(t.Context(), false)
		expect.That(t, err == nil && second.Found == 60 && second.Closed == 60 && s.open() == 0, "%+v, %v", second, err)
	})
}

// looker is an Investigator that gives all orders the same cause and records its
// calls.
type looker struct {
	began int
	asked []string
}

func (l *looker) Begin(context.Context) (Investigation, error) { l.began++; return l, nil }
func (l *looker) Explain(_ context.Context, missed []orderclose.Order) []Miss {
	var all []Miss
	for _, o := range missed {
		l.asked = append(l.asked, o.ID)
		all = append(all, Miss{Order: o, Cause: OnItsWay})
	}
	return all
}

func TestSweep_LooksUpWhyClosedOrdersWereMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(205)
		s.bad, s.paid = map[string]bool{"o0007": true}, map[string]bool{"o0008": true}
		why, metrics := &looker{}, newCounts()
		r, err := newCompensator(t, Options{Store: s, PageSize: 10, Grace: -1, Investigator: why, Registerer: metrics}).Sweep(t.Context(), false)
		if err != nil || why.began != 1 || len(why.asked) != 203 || r.Causes["on_its_way"] != 203 || len(r.Misses) != maxMisses ||
			metrics.missed("on_its_way") != 203 {
			t.Errorf("began %d times, asked about %d; %v, %d misses, %d counted, %v", why.began, len(why.asked), r.Causes, len(r.Misses),
				metrics.missed("on_its_way"), err)
		}
		expect.That(t, r.Misses[0].Order.ID == "o0000" && r.OldestDue.Equal(r.Misses[0].Order.Due),
			"the oldest due is %v, the first miss is %v", r.OldestDue, r.Misses[0])
	})
}

func TestSweep_ASecondSweepInTheSameProcessIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(3)
		s.slow = time.Minute
		c := newCompensator(t, Options{Store: s, Grace: -1})
		done := make(chan error)
		go func() { _, err := c.Sweep(t.Context(), false); done <- err }()
		time.Sleep(time.Second)
		expect.Is(t, expect.Err(c.Sweep(t.Context(), false)), ErrHeld, "the second sweep")
		expect.NoError(t, <-done)
	})
}
