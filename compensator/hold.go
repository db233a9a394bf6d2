package compensator

import (
	"context"
	"errors"
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
	// idleInterval is how often a task that waits asks whether this process has become the holder.
	idleInterval = time.Second
	// taskTimeout is how long a task may take. One that takes longer hangs.
	taskTimeout = 5 * time.Minute
)

// Task is what the holder of the lock does again and again, beside the loop.
type Task struct {
	// Do does the task once, and returns the time until the next call. It ends soon when ctx ends. A call that takes 5 minutes hangs.
	Do func(ctx context.Context) (next time.Duration)
	// Idle is called about each second while another process does the task, and when Run ends. It may be nil.
	Idle func()
}

// holder does tasks, each in its own goroutine, while this process holds the lock.
type holder struct {
	*Compensator
	leads  atomic.Bool   // this process does the tasks
	resign chan struct{} // has a value if the lock is to be given back, so that another process may try
}

// run does the tasks until ctx ends.
func (h *holder) run(ctx context.Context, tasks []Task) {
	var running sync.WaitGroup
	for _, t := range tasks {
		running.Go(func() { h.repeat(ctx, t) })
	}
	for ctx.Err() == nil {
		retry.Sleep(ctx, h.hold(ctx))
	}
	running.Wait()
}

// hold works under the first lock that answers, or without a lock if none does. It returns how long this process waits before it asks again.
func (h *holder) hold(ctx context.Context) (wait time.Duration) {
	if len(h.locks) == 0 {
		return h.lead(ctx, false) //mutant:no-lock-no-loop
	}
	wait, err := h.holdFirst(ctx)
	if !noAnswer(err) {
		return wait
	}
	h.o.Logger.Warn("the lock cannot be taken, another one or none is used", "err", err)
	for _, l := range h.locks[1:] {
		wait = askInterval
		err := l.Hold(ctx, func(held context.Context) error { wait = h.lead(held, true); return nil })
		if !noAnswer(err) {
			return wait
		}
	}
	alone, cancel := context.WithTimeout(ctx, firstLockInterval) // then a lock may answer again
	defer cancel()
	h.lead(alone, false)
	return 0
}

// holdFirst works under the first lock, and notes whether its server answers.
func (h *holder) holdFirst(ctx context.Context) (wait time.Duration, err error) {
	wait = askInterval
	err = h.locks[0].Hold(ctx, func(held context.Context) error {
		h.checked(nil)
		wait = h.lead(held, false)
		return nil
	})
	if ctx.Err() == nil {
		h.checked(err)
		if errors.Is(err, lock.ErrLost) {
			h.o.Logger.Warn("lost the lock of the compensator", "err", err)
		}
	}
	return wait, err
}

// noAnswer reports whether a lock decides nothing, because its server does not answer or its key is stuck.
func noAnswer(err error) bool {
	return errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrStuck)
}

// lead does the tasks until the lock is lost or given back. Under a lock that stands in for the first one it also asks for the first one, and
// works under that when it answers. lead returns how long this process then waits before it asks again.
func (h *holder) lead(held context.Context, standsIn bool) (wait time.Duration) {
	defer h.leads.Store(false)
	select {
	case <-h.resign: // of an earlier term
	default:
	}
	for {
		h.leads.Store(true)
		var askFirst <-chan time.Time
		if standsIn {
			askFirst = time.After(firstLockInterval)
		}
		select {
		case <-held.Done():
			return askInterval
		case <-h.resign:
			return shortestStay + rand.N(longestStay-shortestStay)
		case <-askFirst:
			if wait, err := h.holdFirst(held); !noAnswer(err) {
				return wait
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
	if !noAnswer(err) {
		err = nil
	}
	stuck := errors.Is(err, lock.ErrStuck)
	h.metrics.lockAvailable.Set(zeroOrOne(err == nil || stuck))
	h.metrics.lockStuck.Set(zeroOrOne(stuck))
	h.o.LockChecked(err)
}

// repeat does a task until ctx ends, whenever this process is the holder.
func (h *holder) repeat(ctx context.Context, t Task) {
	if t.Idle == nil {
		t.Idle = func() {}
	}
	defer t.Idle()
	for ctx.Err() == nil {
		wait := idleInterval
		if h.leads.Load() {
			_ = h.calls.within(taskTimeout, "a task of the holder", func() error { wait = t.Do(ctx); return nil }) // a panic is logged
		} else {
			t.Idle()
		}
		retry.Sleep(ctx, wait)
	}
}
