package ops

import (
	"context"
	"sync"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/retry"
)

// ClockSkewWarning is the smallest difference between two clocks that doctor, console and log report.
const ClockSkewWarning = 250 * time.Millisecond

// factTimeout bounds each question of Facts but the status.
const factTimeout = 15 * time.Second

// latenessWithin is how far back the verdict looks for orders that were early.
const latenessWithin = time.Hour

// Facts asks all servers at once, for Judge. It leaves out DeadLetters and ConfigBroken, which the caller
// may know. What a server does not answer is a Fault, or is left out.
func (p Pipeline) Facts(ctx context.Context) Facts {
	f := Facts{Now: time.Now(), SweepPeriod: p.Config.Compensator.Period}
	var all sync.WaitGroup
	ask := func(question func(ctx context.Context)) {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, factTimeout)
			defer cancel()
			question(ctx)
		})
	}
	all.Go(func() { f.Status, f.Kafka.Err = p.statusTwice(ctx) })
	if p.Kafka != nil {
		ask(func(ctx context.Context) { f.Sweeps, _ = p.Sweeps(ctx, 0) })
		ask(func(ctx context.Context) { f.Lateness, _ = p.Lateness(ctx, latenessWithin) })
		ask(func(ctx context.Context) { f.Topics, _ = p.TopicsPlan(ctx) })
	}
	if p.Store != nil {
		ask(func(ctx context.Context) { f.DatabaseOffset, _ = DatabaseOffset(ctx, p.Store.Now) })
		ask(func(ctx context.Context) { f.Overdue, f.Database.Err = p.OverdueOrders(ctx) })
	}
	ask(func(ctx context.Context) { f.Writes.Err = p.Writable(ctx) })
	ask(func(ctx context.Context) { f.Lock.Err = p.Lockable(ctx) })
	ask(func(ctx context.Context) {
		kept, err := p.Pauser()
		if err == nil {
			f.Pauses, err = kept.Pauses(ctx)
		}
		f.PausesErr = err
	})
	all.Wait()
	return f
}

// secondLook is the time between two statuses by which statusTwice sees whether a backlog shrinks.
const secondLook = time.Second

// statusTwice is Status. If a record is overdue, it looks twice.
func (p Pipeline) statusTwice(ctx context.Context) (Status, error) {
	r, err := p.Status(ctx)
	if _, found := r.Worst(OverdueLimit); err == nil && found && retry.Sleep(ctx, secondLook) {
		before := r
		r, err = p.Status(ctx)
		r.Follow(before)
	}
	return r, err
}

// ClosesInDatabase reports whether orders are closed in the database, rather than by a service.
func (p Pipeline) ClosesInDatabase() bool {
	return p.Store != nil && !p.OwnStore && p.Config.Closer.Kind != config.KindHTTP
}

// Writable tries the writes of a close, and rolls them back. It returns nil if orders are not closed in
// the database. A user who may only read learns at least whether the server is read-only.
func (p Pipeline) Writable(ctx context.Context) error {
	if !p.ClosesInDatabase() {
		return nil
	}
	return p.Store.TakesWrites(ctx)
}

// Lockable returns an error if the lock of the sweep cannot be taken, because Redis does not answer or
// refuses writes, or if its key never expires (compensator.ErrLockStuck). It returns nil without Redis.
func (p Pipeline) Lockable(ctx context.Context) error {
	if p.Redis == nil {
		return nil
	}
	c := p.Config.Compensator.Lock
	lock, err := compensator.NewLock(compensator.LockOptions{Client: p.Redis, Key: c.Key, Expiry: c.Expiry, Extend: c.Extend})
	if err != nil {
		return err
	}
	return lock.Available(ctx)
}

// DatabaseOffset returns the smallest possible offset of a clock from that of this machine,
// measured by the fastest of three answers.
func DatabaseOffset(ctx context.Context, now func(context.Context) (time.Time, error)) (offset time.Duration, err error) {
	best := time.Duration(-1)
	for range 3 {
		sent := time.Now()
		at, err := now(ctx)
		answered := time.Now()
		if err != nil {
			return 0, err
		}
		if trip := answered.Sub(sent); best < 0 || trip < best {
			best, offset = trip, leastOffset(sent, answered, at)
		}
	}
	return offset, nil
}

// leastOffset returns the smallest possible offset of a clock that showed at, cut to milliseconds,
// at some time between sent and answered. It is a pure function.
func leastOffset(sent, answered, at time.Time) time.Duration {
	switch most := at.Add(time.Millisecond); {
	case at.After(answered):
		return at.Sub(answered)
	case most.Before(sent):
		return most.Sub(sent)
	}
	return 0
}
