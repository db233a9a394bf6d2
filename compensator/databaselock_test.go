package compensator_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// fakeLocks is a database with locks of connections, which may fail.
type fakeLocks struct {
	mu    sync.Mutex
	held  map[string]*bool // by name: whether the connection of the holder lives
	err   error            // of all requests
	hangs bool             // requests end with their context
}

func (f *fakeLocks) ask(ctx context.Context) error {
	f.mu.Lock()
	hangs, err := f.hangs, f.err
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (f *fakeLocks) TakeLock(ctx context.Context, name string, _ time.Duration) (func(context.Context) error, func(context.Context), error) {
	if err := f.ask(ctx); err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[name] != nil {
		return nil, nil, nil
	}
	lives := true
	f.held[name] = &lives
	return func(ctx context.Context) error {
			if err := f.ask(ctx); err != nil {
				return err
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if !lives {
				return errors.New("the connection is gone")
			}
			return nil
		}, func(context.Context) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.held[name] == &lives {
				delete(f.held, name)
			}
		}, nil
}

// set changes the database.
func (f *fakeLocks) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func databaseLock(t *testing.T, f *fakeLocks) *compensator.DatabaseLock {
	t.Helper()
	l := must.Get(compensator.NewDatabaseLock(compensator.LockOptions{Database: f}))(t)
	return l
}

func TestDatabaseLock_IsHeldWhileTheWorkRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLocks{held: map[string]*bool{}}
		first, second := databaseLock(t, f), databaseLock(t, f)
		err := first.Hold(t.Context(), func(ctx context.Context) error {
			for range 10 { // five minutes: five times the expiry
				time.Sleep(30 * time.Second)
				expect.Is(t, second.Hold(ctx, func(context.Context) error { t.Error("two have it"); return nil }), compensator.ErrHeld, "the second lock")
				if err := second.Available(ctx); err != nil {
					t.Errorf("a lock that is held is not available: %v", err)
				}
			}
			return ctx.Err()
		})
		expect.That(t, err == nil && len(f.held) == 0, "%v; %d locks are held", err, len(f.held))
	})
}

func TestDatabaseLock_TheWorkEndsWhenTheLockMayBeLost(t *testing.T) {
	for name, lose := range map[string]func(f *fakeLocks){
		"the connection is gone":          func(f *fakeLocks) { *f.held[compensator.DefaultLockKey] = false },
		"the connection fails":            func(f *fakeLocks) { f.err = errors.New("bad connection") },
		"the connection does not respond": func(f *fakeLocks) { f.hangs = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeLocks{held: map[string]*bool{}}
				began := time.Now()
				err := databaseLock(t, f).Hold(t.Context(), func(ctx context.Context) error {
					f.set(func() { lose(f) })
					select {
					case <-ctx.Done():
					case <-time.After(time.Hour):
						t.Error("the work goes on without the lock")
					}
					return ctx.Err()
				})
				if took := time.Since(began); !errors.Is(err, compensator.ErrLockLost) || took >= compensator.DefaultLockExpiry {
					t.Errorf("ended after %v with %v, want the lock lost before its expiry", took, err)
				}
				expect.Equal(t, len(f.held), 0, "locks of connections that were not closed")
			})
		})
	}
}

// A process that stops has not lost its lock.
func TestDatabaseLock_TheEndOfTheProcessIsNoLostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLocks{held: map[string]*bool{}}
		ctx, stop := context.WithCancel(t.Context())
		err := databaseLock(t, f).Hold(ctx, func(ctx context.Context) error {
			f.set(func() { f.hangs = true })
			time.Sleep(compensator.DefaultLockExpiry/3 + time.Second) // an extension has begun
			stop()
			<-ctx.Done()
			return ctx.Err()
		})
		expect.That(t, !errors.Is(err, compensator.ErrLockLost) && errors.Is(err, context.Canceled), "got %v", err)
	})
}

func TestDatabaseLock_ReportsADatabaseWithoutLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, f := range []*fakeLocks{{err: errors.New("no locks here")}, {hangs: true}} {
			l := databaseLock(t, f)
			err := l.Hold(t.Context(), func(context.Context) error { t.Error("worked"); return nil })
			if available := l.Available(t.Context()); !errors.Is(err, compensator.ErrLockUnavailable) || !errors.Is(available, compensator.ErrLockUnavailable) {
				t.Errorf("Hold: %v; Available: %v", err, available)
			}
		}
	})
}

func TestNewDatabaseLock_RejectsInvalidOptions(t *testing.T) {
	_, err := compensator.NewDatabaseLock(compensator.LockOptions{})
	expect.That(t, err != nil, "no database is accepted")
}
