package compensator

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// done is one work of a process, since the start.
type done struct {
	process int
	after   time.Duration
}

// works records which processes do a work each 15 s, and which are idle.
type works struct {
	mu    sync.Mutex
	began time.Time
	done  []done
	busy  map[int]bool
}

func (w *works) of(process int) []Work {
	note := func(busy bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.busy[process] = busy; busy {
			w.done = append(w.done, done{process, time.Since(w.began)})
		}
	}
	return []Work{{
		Do:   func(context.Context) time.Duration { note(true); return 15 * time.Second },
		Idle: func() { note(false) },
	}}
}

// want checks which processes have worked when since the last call, and which work now. A work may come idleInterval later: a process
// asks as often whether it is the keeper, perhaps in the moment before it is.
func (w *works) want(t *testing.T, busy []int, want ...done) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var now []int
	for process, busy := range w.busy {
		if busy {
			now = append(now, process)
		}
	}
	slices.Sort(now)
	inTime := func(got, want done) bool {
		return got.process == want.process && got.after >= want.after && got.after <= want.after+idleInterval
	}
	expect.That(t, slices.Equal(now, busy) && slices.EqualFunc(w.done, want, inTime),
		"the processes %v work, and have done %v; want %v, %v", now, w.done, busy, want)
	w.done = nil
}

const keeperKey = DefaultLockKey + "-keeper"

// keepers runs test with works, and a function that starts a process and returns what stops it.
func keepers(t *testing.T, test func(f *fleet, w *works, start func(process int, s Store) (stop func()))) {
	t.Helper()
	inFleet(t, &fakeStore{}, func(f *fleet) {
		w := &works{began: time.Now(), busy: map[int]bool{}}
		test(f, w, func(process int, s Store) func() {
			lock, stopLock := f.lock(keeperKey)
			if r, ok := lock.(*RedisLock); ok {
				r.o.Expiry = KeeperLockExpiry
			}
			stop := f.start(Options{Store: s, KeeperLock: lock, Works: w.of(process), Period: 24 * time.Hour})
			return func() { stop(); stopLock() }
		})
	})
}

func TestKeeper_OneProcessWorksAndAnotherTakesOver(t *testing.T) {
	keepers(t, func(f *fleet, w *works, start func(int, Store) func()) {
		stop := start(1, nil)
		time.Sleep(time.Second)
		defer start(2, nil)()
		time.Sleep(34 * time.Second)
		w.want(t, []int{1}, done{1, 0}, done{1, 15 * time.Second}, done{1, 30 * time.Second})
		left := f.redis.TTL(keeperKey)
		expect.That(t, left > 0 && left <= KeeperLockExpiry, "a crash would keep the lock for %v", left)
		stop()
		w.want(t, nil)
		time.Sleep(20 * time.Second)
		w.want(t, []int{2}, done{2, 46 * time.Second})
	})
}

func TestKeeper_AnotherProcessWorksWithinAMinuteAfterACrash(t *testing.T) {
	keepers(t, func(f *fleet, w *works, start func(int, Store) func()) {
		must.Do(t, f.redis.Set(keeperKey, "a process that crashed"))
		f.redis.SetTTL(keeperKey, KeeperLockExpiry)
		defer start(1, nil)()
		time.Sleep(50 * time.Second)
		w.want(t, []int{1}, done{1, 30 * time.Second}, done{1, 45 * time.Second})
	})
}

func TestKeeper_EachProcessWorksWithoutRedis(t *testing.T) {
	keepers(t, func(f *fleet, w *works, start func(int, Store) func()) {
		defer start(1, nil)()
		time.Sleep(time.Second)
		defer start(2, nil)()
		time.Sleep(time.Minute)
		f.redis.SetError("OOM command not allowed")
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.done = nil
		w.mu.Unlock()
		time.Sleep(10 * time.Minute)
		w.mu.Lock()
		done := len(w.done)
		w.mu.Unlock()
		expect.Between(t, float64(done), 79, 81, "works of two processes in ten minutes without Redis, each 15 s")
	})
}

// A process that does not reach the database must not keep others from the works.
func TestKeeper_GivesTheLockBackIfItCannotLook(t *testing.T) {
	keepers(t, func(f *fleet, w *works, start func(int, Store) func()) {
		broken := wildStore{f.store, func(context.Context, string, []orderclose.CloseRequest) error { return orderclose.ErrUnavailable }}
		defer start(1, broken)()
		time.Sleep(time.Second)
		defer start(2, nil)()
		time.Sleep(40 * time.Second)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		expect.That(t, w.busy[2] && !w.busy[1], "the processes that work: %v, want the second", w.busy)
	})
}
