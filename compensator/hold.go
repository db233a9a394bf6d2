package compensator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// askInterval is the interval between two attempts to take the lock: with the lock's expiry 18 s until another process works.
	askInterval = 3 * time.Second
	// A process that has given the lock back asks after shortestStay to longestStay, at random, so that another one is first.
	shortestStay, longestStay = 3 * time.Second, 15 * time.Second
	// firstLockInterval is how often a process that works under another lock, or under none, asks for the first lock.
	firstLockInterval = 15 * time.Second
	// idleInterval is how often a work that waits asks whether this process has become the holder.
	idleInterval = time.Second
	// workTimeout is how long a work may take. One that takes longer hangs.
	workTimeout = 5 * time.Minute
)

// Work is what the holder of the lock does again and again, beside the loop.
type Work struct {
	// Do does the work once, and returns the time until the next call. It ends soon when ctx ends. A call that takes 5 minutes hangs.
	Do func(ctx context.Context) (next time.Duration)
	// Idle is called about each second while another process does the work, and when Run ends. It may be nil.
	Idle func()
}

// holder does works, each in its own goroutine, while this process holds the lock.
type holder struct {
	c      *Compensator
	leads  atomic.Bool // this process does the works
	state  atomic.Value
	resign chan struct{} // has a value if the lock is to be given back, so that another process may try
}

// run does the works until ctx ends.
func (h *holder) run(ctx context.Context, works []Work) {
	var running sync.WaitGroup
	for _, w := range works {
		running.Go(func() { h.work(ctx, w) })
	}
	for ctx.Err() == nil {
		retry.Sleep(ctx, h.hold(ctx, h.c.locks))
	}
	running.Wait()
}

// hold holds the first lock that answers, or works without a lock if none does. It returns how long this process waits before it asks again.
func (h *holder) hold(ctx context.Context, locks []lock.Lock) time.Duration {
	if len(locks) == 0 {
		return h.lead(ctx, nil, "none") //mutant:no-lock-no-loop
	}
	stay := askInterval
	err := h.take(ctx, locks[0], func(held context.Context) error {
		stay = h.lead(held, nil, "held")
		return nil
	})
	h.leads.Store(false)
	first := len(locks) == len(h.c.locks)
	if first && ctx.Err() == nil {
		h.checked(err)
	}
	if errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrStuck) {
		if first {
			h.c.o.Logger.Warn("the lock cannot be taken, another one or none is used", "err", err)
		}
		return h.instead(ctx, locks, err)
	}
	return stay
}

// instead works under the next lock, or under none, until the first lock answers.
func (h *holder) instead(ctx context.Context, locks []lock.Lock, why error) time.Duration {
	state := "unavailable"
	if errors.Is(why, lock.ErrStuck) {
		state = "stuck"
	}
	work := func(held context.Context) (stay time.Duration) { return h.lead(held, h.c.locks[0], state) }
	if len(locks) == 1 {
		return work(ctx)
	}
	stay := askInterval
	if err := h.take(ctx, locks[1], func(held context.Context) error { stay = work(held); return nil }); errors.Is(err, lock.ErrUnavailable) {
		return work(ctx)
	}
	return stay
}

// lead does the works until the lock is lost or given back, or until better, which did not answer, does. It returns how long this process
// then waits before it asks again.
func (h *holder) lead(held context.Context, better lock.Lock, state string) time.Duration {
	defer h.leads.Store(false)
	select {
	case <-h.resign: // of an earlier term
	default:
	}
	for {
		h.state.Store(state)
		h.leads.Store(true)
		var again <-chan time.Time
		if better != nil {
			again = time.After(firstLockInterval)
		}
		select {
		case <-held.Done():
			return askInterval
		case <-h.resign:
			return shortestStay + rand.N(longestStay-shortestStay)
		case <-again:
			stay, led := askInterval, false
			err := h.take(held, better, func(held context.Context) error {
				led = true
				h.checked(nil)
				stay = h.lead(held, nil, "held")
				return nil
			})
			if led || errors.Is(err, lock.ErrHeld) {
				return stay
			}
		}
	}
}

// giveBack gives the lock back. A process that cannot work must not keep others from it.
func (h *holder) giveBack() {
	select {
	case h.resign <- struct{}{}: //mutant:holder-keeps-lock
	default:
	}
}

// checked notes whether the server of the first lock answers.
func (h *holder) checked(err error) {
	stuck := errors.Is(err, lock.ErrStuck)
	if err != nil && !stuck && !errors.Is(err, lock.ErrUnavailable) {
		err = nil
	}
	h.c.metrics.lockAvailable.Set(zeroOrOne(err == nil || stuck))
	h.c.metrics.lockStuck.Set(zeroOrOne(stuck))
	h.c.o.LockChecked(err)
}

// take calls lock.Hold. A lock that does not begin the work in time, or panics before, counts as
// unavailable.
func (h *holder) take(ctx context.Context, l lock.Lock, work func(ctx context.Context) error) error {
	holding, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(callTimeout, cancel)
	defer late.Stop()
	hang := time.AfterFunc(callTimeout+stopTimeout, func() { h.c.o.OnHang("the method Hold of the lock hangs and ignores the end of its context") })
	defer hang.Stop()
	began := false
	err := h.c.calls.catch("the lock's method Hold", func() error {
		return l.Hold(holding, func(ctx context.Context) error {
			began = true
			late.Stop()
			hang.Stop()
			defer hang.Reset(callTimeout + stopTimeout) // to give the lock back
			return work(ctx)
		})
	})
	if panicked := errors.As(err, new(*retry.PanicError)); !began && (panicked || holding.Err() != nil && ctx.Err() == nil) {
		err = fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
	}
	return err
}

// work does a work until ctx ends, whenever this process is the holder.
func (h *holder) work(ctx context.Context, w Work) {
	idle := func() {
		if w.Idle != nil {
			w.Idle()
		}
	}
	defer idle()
	for ctx.Err() == nil {
		wait := idleInterval
		if h.leads.Load() {
			_ = h.c.calls.within(workTimeout, "a work beside the loop", func() error { wait = w.Do(ctx); return nil }) // a panic is logged
		} else {
			idle()
		}
		retry.Sleep(ctx, wait)
	}
}
