package closer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/partition"
)

const (
	// quickSlots is how many transactions run at once, as long as each takes less
	// than the target time. With more, the database makes many small transactions of what would be a
	// few large ones, and each waits for the others.
	quickSlots = 2
	// slotTime is the longest time for which a transaction keeps its slot. A longer target time does not change that.
	slotTime = 500 * time.Millisecond
)

// batcher combines the jobs of all loops into groups that share a transaction: a commit takes
// milliseconds, and each partition alone would make many small transactions. It decides which
// groups run: two that are quick, and the limiter bounds the orders in all of them. Its caller runs the groups that add, slow, leave and
// ended return. A batcher is safe for concurrent use.
type batcher struct {
	workers   int           // maximum of groups that run, the slow ones included
	maxOrders int           // in a group
	onLimit   func(float64) // gets each new limit, under mu

	mu      sync.Mutex
	limiter limiter
	running []*group
	waiting []*job
}

// job is a batch of one loop that waits for its transaction or is in it.
type job struct {
	group    *group // nil while the job waits
	requests []orderclose.CloseRequest
	again    []string      // why a request comes late from the start: wire.LaneReplay, or the cause of a retry; "": it is fresh
	done     chan struct{} // closed when outcomes and err are set
	outcomes []orderclose.Outcome
	err      error
}

// group is the jobs that share a transaction.
type group struct {
	jobs   []*job
	orders int
	slow   bool            // takes longer than the target time, or than slotTime
	loops  int             // that still wait for it
	ctx    context.Context // ends when no loop waits any longer
	cancel context.CancelFunc
	pulse  partition.Pulse // beats when the group starts and after each call of the store
}

// newBatcher returns a batcher.
func newBatcher(l limiter, workers, maxOrders int, onLimit func(float64)) *batcher {
	onLimit(float64(l.limit))
	return &batcher{workers: workers, maxOrders: maxOrders, onLimit: onLimit, limiter: l}
}

// batchSize returns how many orders may go together now.
func (b *batcher) batchSize() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(b.maxOrders, b.limiter.limit)
}

// add queues a job.
func (b *batcher) add(j *job) []*group {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, j)
	return b.next()
}

// leave removes a job, because its loop does not wait for it any longer.
func (b *batcher) leave(j *job) []*group {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(other *job) bool { return other == j })
	if j.group != nil {
		if j.group.loops--; j.group.loops == 0 {
			j.group.cancel()
		}
	}
	return b.next() // the jobs after this one may fit now
}

// newJob returns a job.
func newJob(requests []orderclose.CloseRequest, again []string) *job {
	return &job{requests: requests, again: again, done: make(chan struct{})}
}

// slow notes that a group takes longer than its target time: it may wait for a lock, or for a service.
func (b *batcher) slow(g *group) []*group {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.slow = true
	return b.next()
}

// ended removes a group whose transaction has ended.
func (b *batcher) ended(g *group) []*group {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.cancel()
	b.running = slices.DeleteFunc(b.running, func(other *group) bool { return other == g })
	return b.next()
}

// hangs reports whether a call of the store for the group of a job has exceeded its time limit.
func (b *batcher) hangs(j *job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return j.group != nil && j.group.pulse.Silent() > bisect.CallTimeout
}

// observe passes a call of the store that succeeded to the limiter.
func (b *batcher) observe(began time.Time) {
	b.limit(func() {
		inFlight := 0
		for _, g := range b.running {
			inFlight += g.orders
		}
		b.limiter.observe(sample{inFlight, began, time.Since(began)})
	})
}

// failed tells the limiter that the store is unavailable.
func (b *batcher) failed() { b.limit(func() { b.limiter.failed(time.Now()) }) }

// limit changes the limiter.
func (b *batcher) limit(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	b.onLimit(float64(b.limiter.limit))
}

// counts are what running groups use of the limits.
type counts struct{ orders, workers, quick int }

func (b *batcher) counts() (c counts) {
	for _, g := range b.running {
		if !g.slow { //mutant:lock-wait-blocks
			c.quick++
		}
		c.workers++
		c.orders += g.orders
	}
	return c
}

// next returns the groups that the limits allow to start now. A group of the smallest size may exceed the limit if all others are
// slow. The caller holds b.mu.
func (b *batcher) next() (groups []*group) {
	for used := b.counts(); len(b.waiting) > 0 && used.workers < b.workers && used.quick < quickSlots; used = b.counts() {
		needs := min(len(b.waiting[0].requests), b.limiter.limit)
		room := b.limiter.limit - used.orders
		if needs > room {
			if used.quick > 0 {
				break
			}
			needs = min(needs, max(room, b.limiter.minLimit))
		}
		g := b.gather(needs, max(needs, min(room, b.maxOrders)))
		b.running, groups = append(b.running, g), append(groups, g)
	}
	return groups
}

// gather takes the first job that waits, cut to the orders that it needs, and the jobs after it
// that fit whole into the room. The loop of the first job sends the rest of it again.
func (b *batcher) gather(needs, room int) *group {
	first := b.waiting[0]
	first.requests = first.requests[:needs]
	g := &group{}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.pulse.Beat()
	for len(b.waiting) > 0 && g.orders+len(b.waiting[0].requests) <= room {
		j := b.waiting[0]
		b.waiting = b.waiting[1:]
		j.group = g
		g.jobs = append(g.jobs, j)
		g.orders += len(j.requests)
		g.loops++
	}
	return g
}
