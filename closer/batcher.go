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
	// freshSlots is how many transactions of fresh orders run at once, as long as each takes less
	// than the target time. With more, the database makes many small transactions of what would be a
	// few large ones, and each waits for the others. Replays have one more slot.
	freshSlots = 2
	// slotTime is the longest time for which a transaction keeps its slot. A longer target time does not change that.
	slotTime = 500 * time.Millisecond
	// replayAfter is the number of fresh groups in a row after which a waiting replay group
	// runs. Replays delay no order that is due now, and a steady load of fresh orders never
	// stops them.
	replayAfter = 10
)

// batcher combines the jobs of all loops into groups that share a transaction: a commit takes
// milliseconds, and each partition alone would make many small transactions. It decides which
// groups run: fresh orders go first and have two slots, replays have one, and the limiter bounds the
// orders in all of them. Its caller runs the groups that add, slow, leave and ended return. A batcher
// is safe for concurrent use.
type batcher struct {
	workers   int           // maximum of groups that run, the slow ones included
	maxOrders int           // in a group
	onLimit   func(float64) // gets each new limit, under mu

	mu             sync.Mutex
	limiter        limiter
	lowest         time.Time // since when the limit is at its minimum; zero: it is not
	running        []*group
	fresh, replays []*job // that wait
	freshInARow    int    // fresh groups started in a row while a replay waited
}

// job is a batch of one loop that waits for its transaction or is in it.
type job struct {
	replay   bool
	group    *group // nil while the job waits
	requests []orderclose.CloseRequest
	done     chan struct{} // closed when outcomes and err are set
	outcomes []orderclose.Outcome
	err      error
}

// group is the jobs of one lane that share a transaction.
type group struct {
	jobs   []*job
	replay bool
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
func (b *batcher) batchSize(replay bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limiter.batchSize(b.maxOrders, replay)
}

// add queues a job.
func (b *batcher) add(j *job) []*group {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queue(j.replay)
	*queue = append(*queue, j)
	return b.next()
}

// leave removes a job, because its loop does not wait for it any longer.
func (b *batcher) leave(j *job) []*group {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queue(j.replay)
	*queue = slices.DeleteFunc(*queue, func(other *job) bool { return other == j })
	if j.group != nil {
		if j.group.loops--; j.group.loops == 0 {
			j.group.cancel()
		}
	}
	return b.next() // the jobs after this one may fit now
}

// newJob returns a job.
func newJob(requests []orderclose.CloseRequest, replay bool) *job {
	return &job{replay: replay, requests: requests, done: make(chan struct{})}
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
	switch {
	case b.limiter.limit > b.limiter.minLimit:
		b.lowest = time.Time{}
	case b.lowest.IsZero():
		b.lowest = time.Now()
	}
}

// lowestSince returns since when the limit has been at its minimum; zero: it is not.
func (b *batcher) lowestSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lowest
}

// queue returns the jobs of a lane that wait.
func (b *batcher) queue(replay bool) *[]*job {
	if replay {
		return &b.replays
	}
	return &b.fresh
}

// counts are what running groups use of the limits.
type counts struct{ fresh, replays, orders, workers, quick int }

func (b *batcher) counts() (c counts) {
	for _, g := range b.running {
		switch {
		case g.replay:
			c.replays++
		case !g.slow: //mutant:lock-wait-blocks
			c.fresh++
		}
		if !g.slow {
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
	for used := b.counts(); used.workers < b.workers; used = b.counts() {
		mayReplay := len(b.replays) > 0 && used.replays == 0 //mutant:replays-take-workers
		replay := mayReplay && (len(b.fresh) == 0 || b.freshInARow >= replayAfter)
		queue := b.queue(replay)
		if len(*queue) == 0 || !replay && used.fresh >= freshSlots {
			break
		}
		needs := b.limiter.batchSize(len((*queue)[0].requests), replay)
		room := b.limiter.limit - used.orders
		if needs > room {
			if used.quick > 0 {
				break
			}
			needs = min(needs, max(room, b.limiter.minLimit))
		}
		if b.freshInARow++; replay || len(b.replays) == 0 {
			b.freshInARow = 0
		}
		g := gather(queue, needs, max(needs, min(room, b.limiter.batchSize(b.maxOrders, replay))))
		b.running, groups = append(b.running, g), append(groups, g)
	}
	return groups
}

// gather takes the first job of the queue, cut to the orders that it needs, and the jobs after it
// that fit whole into the room. The loop of the first job sends the rest of it again.
func gather(queue *[]*job, needs, room int) *group {
	first := (*queue)[0]
	first.requests = first.requests[:needs]
	g := &group{replay: first.replay}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.pulse.Beat()
	for len(*queue) > 0 && g.orders+len((*queue)[0].requests) <= room {
		j := (*queue)[0]
		*queue = (*queue)[1:]
		j.group = g
		g.jobs = append(g.jobs, j)
		g.orders += len(j.requests)
		g.loops++
	}
	return g
}
