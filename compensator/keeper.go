package compensator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// KeeperLockExpiry is how long a keeper that was killed keeps others from its works.
	KeeperLockExpiry = 30 * time.Second
	// keeperRetry is the interval between two attempts to take the keeper's lock: with its expiry, 45 s until another process works.
	keeperRetry = 15 * time.Second
	// idleInterval is how often a work that waits asks whether this process has become the keeper.
	idleInterval = time.Second
)

// Work is what one of all Compensators does again and again, beside its sweeps.
type Work struct {
	// Do does the work once, and returns the time until the next call. It ends soon when ctx ends.
	Do func(ctx context.Context) (next time.Duration)
	// Idle is called about each second while another process does the work, and when Run ends. It may be nil.
	Idle func()
}

// keeper does works, each in its own goroutine, while this process has the keeper's lock. The lock only saves work: without a lock, or
// while the server of the lock is unavailable, every process does the works. A process that has lost the lock goes on until it knows
// that another process has it.
type keeper struct {
	c      *Compensator
	leads  atomic.Bool   // this process does the works
	resign chan struct{} // gives the lock back, so that another process may try
}

// run does the works until ctx ends.
func (k *keeper) run(ctx context.Context, works []Work) {
	var running sync.WaitGroup
	for _, w := range works {
		running.Go(func() { k.work(ctx, w) })
	}
	for ctx.Err() == nil {
		var err error
		if k.c.o.KeeperLock == nil {
			k.lead(ctx)
		} else {
			err = k.c.holdLock(ctx, k.c.o.KeeperLock, k.lead)
		}
		k.leads.Store(!errors.Is(err, ErrHeld))
		retry.Sleep(ctx, keeperRetry)
	}
	running.Wait()
}

// lead returns when the lock is lost or given back.
func (k *keeper) lead(held context.Context) error {
	k.leads.Store(true)
	select {
	case <-held.Done():
	case <-k.resign:
	}
	return nil
}

// giveBack gives the lock back, if this process has it. A process that cannot do its works must not keep others from them.
func (k *keeper) giveBack() {
	select {
	case k.resign <- struct{}{}: //mutant:keeper-keeps-lock
	default:
	}
}

func (k *keeper) work(ctx context.Context, w Work) {
	idle := func() {
		if w.Idle != nil {
			w.Idle()
		}
	}
	defer idle()
	for ctx.Err() == nil {
		wait := idleInterval
		if k.leads.Load() {
			wait = w.Do(ctx)
		} else {
			idle()
		}
		retry.Sleep(ctx, wait)
	}
}
