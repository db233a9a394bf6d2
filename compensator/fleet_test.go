package compensator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// counts are the metrics of a compensator.
type counts struct{ testkit.Metrics }

func (c counts) available() bool { return c.Value("compensator_lock_available") == 1 }
func (c counts) stuck() bool     { return c.Value("compensator_lock_stuck") == 1 }

// fleet is a set of compensators on one shop and one Redis, each like a process of its own.
type fleet struct {
	t      *testing.T
	redis  *miniredis.Miniredis
	shop   *shop
	counts []counts
	works  []*atomic.Int64 // how often a process has done its work, each second while it holds the lock
	cut    []*atomic.Bool  // the process does not reach Redis
	stops  []func()
	logger *slog.Logger // of processes that are started
}

func inFleet(t *testing.T, test func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, redis: miniredis.NewMiniRedis(), shop: newShop(), logger: discard}
		f.redis.ClockTTL(true)
		defer f.redis.Close()
		defer func() {
			for _, stop := range f.stops {
				stop()
			}
		}()
		test(f)
	})
}

var errCut = errors.New("no route to host")

// client returns a client of the fleet's Redis, and a switch that cuts its connection.
func (f *fleet) client() (*redis.Client, *atomic.Bool) {
	cut := new(atomic.Bool)
	return redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: 1, ConnMaxLifetime: time.Millisecond,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if cut.Load() {
				return nil, errCut
			}
			return f.redis.Dial()
		}}), cut
}

// start starts a process with both locks.
func (f *fleet) start(o Options) (stop func()) {
	f.t.Helper()
	client, cut := f.client()
	c, works := counts{testkit.NewMetrics()}, new(atomic.Int64)
	if o.Store == nil {
		o.Store, o.Reader, o.SweepLog = f.shop, f.shop, f.shop
	}
	o.Leases, o.Process = f.shop, fmt.Sprint("p", len(f.works))
	if o.Redis == nil {
		o.Redis = client
	}
	o.Registerer, o.Name, o.Logger = c, "order-close", f.logger
	if o.OnHang == nil {
		o.OnHang = func(string) {}
	}
	o.Tasks = append(o.Tasks, Task{Do: func(context.Context) time.Duration { works.Add(1); return time.Second }})
	comp := must.Get(New(o))(f.t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		expect.NoError(f.t, comp.Run(ctx))
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done; client.Close() })
	f.counts, f.stops, f.works, f.cut = append(f.counts, c), append(f.stops, stop), append(f.works, works), append(f.cut, cut)
	return stop
}

// worked returns how many processes worked at once in the next time, on average.
func (f *fleet) worked(during time.Duration) float64 {
	total := func() (n int64) {
		for _, w := range f.works {
			n += w.Load()
		}
		return n
	}
	before := total()
	time.Sleep(during)
	return float64(total()-before) / during.Seconds()
}

func (f *fleet) expectWorkers(least, most float64, when string) {
	f.t.Helper()
	n := f.worked(5 * time.Minute)
	expect.That(f.t, n >= least && n <= most, "%s: %.2f processes work at once; want %v to %v", when, n, least, most)
}

func TestHolder_OneProcessWorksWhateverHappensToTheLock(t *testing.T) {
	inFleet(t, func(f *fleet) {
		for range 10 {
			f.start(Options{})
			time.Sleep(700 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		f.expectWorkers(.95, 1.05, "with Redis")
		f.redis.FlushAll()
		f.expectWorkers(.9, 1.2, "after Redis was emptied")
		for i := range 4 {
			f.cut[i].Store(true)
		}
		f.expectWorkers(.95, 2.2, "while four of ten do not reach Redis")
		for i := range f.cut {
			f.cut[i].Store(true)
		}
		time.Sleep(30 * time.Second)
		f.expectWorkers(.95, 1.2, "while none reaches Redis")
		for i := range f.cut {
			f.cut[i].Store(false)
		}
		time.Sleep(30 * time.Second)
		f.expectWorkers(.95, 1.2, "after all reach Redis")
		must.Do(f.t, f.redis.Set(lock.DefaultKey, "of nobody")) // without expiry
		time.Sleep(30 * time.Second)
		f.expectWorkers(.95, 1.2, "with a stuck key")
		expect.That(t, f.counts[0].stuck() || f.counts[1].stuck(), "no process says that the key is stuck")
		f.shop.mu.Lock()
		f.shop.leaseErr = errBroken
		f.shop.mu.Unlock()
		time.Sleep(30 * time.Second)
		f.expectWorkers(5, 10.1, "with a stuck key and no lease")
		f.redis.Del(lock.DefaultKey)
		time.Sleep(time.Minute)
		f.expectWorkers(.95, 1.2, "after the key was deleted")
	})
}

func TestHolder_ASlowRedisCountsAsUnavailable(t *testing.T) {
	inFleet(t, func(f *fleet) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", MaxRetries: -1, ContextTimeoutEnabled: true,
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				time.Sleep(3 * time.Second)
				return nil, errCut
			}})
		defer func() { client.Close(); time.Sleep(time.Minute) }()
		f.start(Options{Redis: client})
		time.Sleep(10 * time.Second)
		f.expectWorkers(.9, 1.05, "while Redis does not answer")
		expect.That(t, !f.counts[0].available(), "the lock counts as available")
	})
}

func TestHolder_AKilledHolderIsReplacedWithin18Seconds(t *testing.T) {
	for _, kind := range []string{"redis", "lease"} {
		t.Run(kind, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				if kind == "redis" {
					must.Do(t, f.redis.Set(lock.DefaultKey, "dead"))
					f.redis.SetTTL(lock.DefaultKey, lock.DefaultExpiry)
				} else {
					f.redis.SetError("LOADING")
					f.shop.leases[lock.DefaultKey] = lease{"dead", time.Now().Add(lock.DefaultExpiry)}
				}
				began := time.Now()
				f.start(Options{})
				for f.works[0].Load() == 0 {
					time.Sleep(100 * time.Millisecond)
				}
				expect.Between(t, time.Since(began), 10*time.Second, 19*time.Second, "the time until another process works")
			})
		})
	}
}

func TestLock_IsHeldWhileTheWorkRuns(t *testing.T) {
	inFleet(t, func(f *fleet) {
		first, second := f.locks()
		for i := range first {
			err := first[i].Hold(f.t.Context(), func(ctx context.Context) error {
				for range 10 { // five minutes: twenty times the expiry
					time.Sleep(30 * time.Second)
					expect.Is(t, second[i].Hold(ctx, func(context.Context) error { t.Error("two have it"); return nil }), lock.ErrHeld, "the second lock")
				}
				return ctx.Err()
			})
			expect.NoError(t, err)
			expect.NoError(t, second[i].Hold(f.t.Context(), func(context.Context) error { return nil }))
		}
	})
}

// locks returns the locks in Redis and in the database of two processes.
func (f *fleet) locks() (first, second []lock.Lock) {
	for i, locks := range []*[]lock.Lock{&first, &second} {
		client, _ := f.client()
		f.stops = append(f.stops, func() { client.Close() })
		*locks = []lock.Lock{lock.NewRedis(lock.Options{Client: client}), must.Get(lock.NewLease(lock.Options{Database: f.shop, Holder: fmt.Sprint(i)}))(f.t)}
	}
	return first, second
}

func TestLock_TheWorkEndsWhenTheLockIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		lose        func(f *fleet)
		least, most time.Duration
	}{
		"another has it":     {func(f *fleet) { f.redis.FlushAll(); f.shop.steal("other", time.Now().Add(time.Hour)) }, 0, lock.DefaultExpiry / 3},
		"no extension works": {func(f *fleet) { f.redis.SetError("LOADING"); f.shop.leaseErr = errBroken }, lock.DefaultExpiry / 3, lock.DefaultExpiry},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				locks, _ := f.locks()
				for _, l := range locks {
					f.redis.SetError("")
					f.shop.leaseErr = nil
					begin := time.Now()
					err := l.Hold(f.t.Context(), func(ctx context.Context) error {
						f.shop.mu.Lock()
						c.lose(f)
						f.shop.mu.Unlock()
						select {
						case <-ctx.Done():
						case <-time.After(time.Hour):
							t.Error("the work goes on without the lock")
						}
						return ctx.Err()
					})
					expect.Is(t, err, lock.ErrLost, "%T", l)
					expect.Between(t, time.Since(begin), c.least, c.most+10*time.Millisecond, "the time until it ended")
					clear(f.shop.leases)
				}
			})
		})
	}
}

// refuses makes commands of a client fail, as those of a Redis that only answers.
type refuses struct {
	with     string
	commands []string
}

func (r refuses) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(r.commands, cmd.Name()) {
			cmd.SetErr(errors.New(r.with))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (refuses) DialHook(next redis.DialHook) redis.DialHook { return next }

func (refuses) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestLock_ARedisThatOnlyAnswersIsNotAvailable(t *testing.T) {
	inFleet(t, func(f *fleet) {
		for answer, why := range map[string]string{
			"OOM command not allowed when used memory > 'maxmemory'.": "its memory is full: ",
			"MISCONF Redis is configured to save RDB snapshots":       "it cannot save to its disk: ",
			"READONLY You can't write against a read only replica.":   "it is a read-only replica: ",
			"NOPERM No permissions to access a key":                   "NOPERM",
		} {
			client, _ := f.client()
			client.AddHook(refuses{answer, []string{"set", "setnx"}})
			err := lock.NewRedis(lock.Options{Client: client}).Hold(f.t.Context(), func(context.Context) error { t.Error("worked"); return nil })
			expect.That(t, errors.Is(err, lock.ErrUnavailable) && strings.Contains(err.Error(), why), "%v, want %q", err, why)
			client.Close()
		}
	})
}

// A Redis without EVAL, by its ACL or a renamed command, gives locks and extends none.
func TestHolder_ARedisThatExtendsNoLockIsNotUsed(t *testing.T) {
	for _, answer := range []string{"NOPERM User shop has no permissions to run the 'evalsha' command", "ERR unknown command 'evalsha'"} {
		inFleet(t, func(f *fleet) {
			var checked []error
			for range 2 {
				client, _ := f.client()
				client.AddHook(refuses{answer, []string{"eval", "evalsha"}})
				defer client.Close()
				f.start(Options{Redis: client, LockChecked: func(err error) {
					f.shop.change(func() { checked = append(checked, err) })
				}})
			}
			time.Sleep(time.Minute)
			f.expectWorkers(.95, 1.05, answer)
			f.shop.change(func() {
				good := slices.IndexFunc(checked, func(err error) bool { return !errors.Is(err, lock.ErrRefused) })
				expect.That(t, good < 0, "check %d of the lock found no error, or another one, of %v", good, checked)
				expect.That(t, !f.counts[0].available() && !f.counts[1].available() && len(checked) > 0, "the lock counts as available")
			})
		})
	}
}

func TestHolder_LogsALockThatWasLost(t *testing.T) {
	for name, lose := range map[string]func(f *fleet){
		"another has it": func(f *fleet) {
			must.Do(f.t, f.redis.Set(lock.DefaultKey, "other"))
			f.redis.SetTTL(lock.DefaultKey, lock.DefaultExpiry)
		},
		"no answer": func(f *fleet) { f.cut[0].Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(f *fleet) {
				var log bytes.Buffer
				f.logger = slog.New(slog.NewTextHandler(&log, nil))
				f.start(Options{})
				time.Sleep(time.Minute)
				lose(f)
				time.Sleep(time.Minute)
				f.cut[0].Store(false)
				time.Sleep(time.Minute)
				f.stops[0]()
				expect.Equal(t, strings.Count(log.String(), "lost the lock of the compensator"), 1, "lines in the log:\n%s", &log)
			})
		})
	}
}

func TestCalls_ACallThatIgnoresItsContextEndsTheProcess(t *testing.T) {
	inFleet(t, func(f *fleet) {
		release := make(chan struct{})
		hung := make(chan string, 10)
		c := must.Get(New(Options{Store: ignores{f.shop, release}, Logger: discard, OnHang: func(why string) { hung <- why }}))(t)
		go func() { _, _ = c.Sweep(f.t.Context(), false) }()
		expect.That(t, strings.Contains(<-hung, "the clock"), "no reason")
		close(release)
	})
}

// ignores is a Store whose clock ignores the end of its context.
type ignores struct {
	*shop
	release chan struct{}
}

func (i ignores) Now(context.Context) (time.Time, error) { <-i.release; return time.Time{}, nil }

func TestSweep_TriesEachOrderOnce(t *testing.T) {
	inFleet(t, func(f *fleet) {
		now := f.shop.now()
		f.shop.add(healthy, "", "good", now.Add(-time.Hour), now.Add(-30*24*time.Hour), now.Add(-time.Minute))
		f.shop.add(ownCause, "", "bad", now.Add(-40*24*time.Hour), now.Add(-2*time.Minute))
		f.shop.add(hanging, "", "hanging", now.Add(-3*time.Minute))
		f.shop.add(healthy, "virtual", "paused", now.Add(-4*time.Minute))
		f.shop.add(healthy, "", "new", now.Add(-time.Second))
		f.shop.setPauses(Pause{Category: "virtual", Until: now.Add(time.Hour)})
		c := must.Get(New(Options{Store: f.shop, Reader: f.shop, Logger: discard}))(t)
		r := must.Get(c.Sweep(f.t.Context(), true))(t)
		expect.That(t, r.Found == 7 && r.Closed == 0 && r.Paused == 1, "dry run: %+v", r)
		r = must.Get(c.Sweep(f.t.Context(), false))(t)
		expect.That(t, r.Found == 7 && r.Paused == 1 && r.Closed+r.Failed == 6 && r.Failed >= 3, "%+v", r)
		r = must.Get(c.Sweep(f.t.Context(), false))(t)
		expect.That(t, r.Failed == 3, "the second pass: %+v", r)
		f.shop.setPauses(Pause{Until: now.Add(time.Hour)})
		_, err := c.Sweep(f.t.Context(), false)
		expect.Is(t, err, orderclose.ErrPaused, "while all is paused")
		f.shop.setPauses()
		f.shop.down = errBroken
		_, err = c.Sweep(f.t.Context(), false)
		expect.Is(t, err, orderclose.ErrUnavailable, "while the database is down")
	})
}

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	r := testkit.NewMetrics()
	m := must.Get(newMetrics(r, nil))(t)
	expect.Equal(t, r.Series("compensator_found_total"), 4, "kinds with a series at 0")
	m.seconds.Observe(.5)
	m.lockStuck.Set(zeroOrOne(true))
	for name, want := range map[string]float64{"compensator_pass_seconds": 1, "compensator_last_pass_timestamp_seconds": 0,
		"compensator_untried_since_timestamp_seconds": 0,
		"compensator_resting_orders":                  0, "compensator_lock_available": 1, "compensator_lock_stuck": 1} {
		expect.Equal(t, r.Value(name), want, "%s", name)
	}
}
