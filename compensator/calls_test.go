package compensator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// wildStore calls wild before each call of its methods.
type wildStore struct {
	*fakeStore
	wild func(ctx context.Context, method string, requests []orderclose.CloseRequest) error
}

func (s wildStore) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	if err := s.wild(ctx, "Overdue", nil); err != nil {
		return nil, err
	}
	return s.fakeStore.Overdue(ctx, cutoff, after, limit)
}

func (s wildStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if err := s.wild(ctx, "CloseOrders", requests); err != nil {
		return nil, err
	}
	return s.fakeStore.CloseOrders(ctx, path, requests)
}

// takenLock is the lock of another process.
type takenLock struct{}

func (takenLock) Hold(context.Context, func(context.Context) error) error { return ErrHeld }

// One process has a connection that nobody answers on, such as one that a firewall has forgotten.
func TestRun_ACallWithoutAnswerLeavesTheSweepToAnotherProcess(t *testing.T) {
	for method, within := range map[string]time.Duration{
		"Overdue":     10 * time.Minute,
		"CloseOrders": 30 * time.Minute, // orders are tried alone, as many as their random order makes it
	} {
		t.Run(method, func(t *testing.T) {
			inFleet(t, &fakeStore{}, func(f *fleet) {
				f.store.orders = newStore(100).orders
				f.start(Options{Store: wildStore{f.store, func(ctx context.Context, called string, _ []orderclose.CloseRequest) error {
					if called == method {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}}, PageSize: 50, Grace: -1, KeeperLock: takenLock{}})
				time.Sleep(time.Second)
				f.start(Options{PageSize: 50, Grace: -1})
				time.Sleep(within)
				if open := f.store.open(); open != 0 || f.counts[1].swept() == 0 || f.counts[0].failed() == 0 {
					t.Errorf("%d orders are open; the healthy process swept %d times and was held %d times; the other failed %d times",
						open, f.counts[1].swept(), f.counts[1].skipped("held"), f.counts[0].failed())
				}
			})
		})
	}
}

// The call cannot be stopped. If OnHang returns, the sweep ends all the same.
func TestSweep_ACallThatIgnoresItsContextEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		var why atomic.Pointer[string]
		s := wildStore{newStore(10), func(_ context.Context, called string, _ []orderclose.CloseRequest) error {
			if called == "CloseOrders" {
				<-release
			}
			return nil
		}}
		c := newCompensator(t, Options{Store: s, Grace: -1, OnHang: func(is string) { why.Store(&is) }})
		r, err := c.Sweep(t.Context(), false)
		if why.Load() == nil || !strings.Contains(*why.Load(), "CloseOrders hangs") || !errors.Is(err, orderclose.ErrNoOrderAtFault) || r.Took() > 10*time.Minute {
			t.Errorf("OnHang got %v, and the sweep ended after %v with: %v", why.Load(), r.Took(), err)
		}
	})
}

// The lock is extended meanwhile, so no other process can sweep.
func TestSweep_ProgressThatDoesNotReturnEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why atomic.Pointer[string]
		s := wildStore{newStore(10), func(context.Context, string, []orderclose.CloseRequest) error { return nil }}
		c := newCompensator(t, Options{Store: s, Grace: -1, OnHang: func(is string) { why.Store(&is) },
			Progress: func(Report) { time.Sleep(callTimeout + stopTimeout + time.Second) }})
		if _, err := c.Sweep(t.Context(), false); err != nil || why.Load() == nil || !strings.Contains(*why.Load(), "Options.Progress hangs") {
			t.Errorf("OnHang got %v; the sweep ended with %v", why.Load(), err)
		}
	})
}

// The search for such an order takes minutes, and the others are closed.
func TestSweep_FindsAnOrderOnWhichTheStoreHangsForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wildStore{newStore(400), func(ctx context.Context, _ string, requests []orderclose.CloseRequest) error {
			for _, r := range requests {
				if r.OrderID == "o0003" {
					<-ctx.Done()
					return ctx.Err()
				}
			}
			return nil
		}}
		r, err := newCompensator(t, Options{Store: s, PageSize: 200, Grace: -1}).Sweep(t.Context(), false)
		expect.That(t, err == nil && r.Closed == 399 && r.Failed == 1 && r.Failures[0].OrderID == "o0003" && r.Took() <= 10*time.Minute,
			"closed %d, failed %d %v after %v: %v", r.Closed, r.Failed, r.Failures, r.Took(), err)
	})
}

// An order that makes the store panic fails, and the others are closed. The stack is logged once.
func TestSweep_APanicOfTheStoreIsAnErrorOfItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wildStore{newStore(100), func(_ context.Context, _ string, requests []orderclose.CloseRequest) error {
			for _, r := range requests {
				if r.OrderID == "o0042" {
					panic("no such room")
				}
			}
			return nil
		}}
		log := &testkit.LogBuffer{}
		r, err := newCompensator(t, Options{Store: s, PageSize: 50, Grace: -1, Logger: slog.New(slog.NewTextHandler(log, nil))}).Sweep(t.Context(), false)
		expect.That(t, err == nil && r.Closed == 99 && r.Failed == 1 && r.Failures[0].OrderID == "o0042" && strings.Contains(r.Failures[0].Error, "no such room"),
			"closed %d, failed %d %v: %v", r.Closed, r.Failed, r.Failures, err)
		expect.Equal(t, strings.Count(log.String(), "wildStore.CloseOrders"), 1, "stacks in the log:\n%s", log.String())
	})
}

func TestSweep_APanicElsewhereIsAnError(t *testing.T) {
	panics := wildStore{newStore(10), func(_ context.Context, called string, _ []orderclose.CloseRequest) error {
		if called == "Overdue" {
			panic("nil map")
		}
		return nil
	}}
	expect.Says(t, expect.Err(newCompensator(t, Options{Store: panics, Grace: -1}).Sweep(t.Context(), false)), "nil map", "Overdue")
	s := newStore(10)
	r, err := newCompensator(t, Options{Store: s, Grace: -1, Lock: panickingLock{}, Progress: func(Report) { panic("progress") }}).Sweep(t.Context(), false)
	expect.That(t, err == nil && r.Closed == 10 && r.Lock == "unavailable",
		"with a lock and a callback that panic: %+v, %v; want a sweep without the lock", r, err)
}

type panickingLock struct{}

func (panickingLock) Hold(context.Context, func(context.Context) error) error { panic("lock") }

// A lock that does not answer must not keep all processes from sweeping.
func TestSweep_ALockWithoutAnswerIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(10)
		r, err := newCompensator(t, Options{Store: s, Grace: -1, Lock: hangingLock{}}).Sweep(t.Context(), false)
		expect.That(t, err == nil && r.Closed == 10 && r.Lock == "unavailable", "%+v, %v", r, err)
	})
}

type hangingLock struct{}

func (hangingLock) Hold(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return ctx.Err()
}
