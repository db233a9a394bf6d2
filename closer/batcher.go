package closer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
)

// replayAfter is the number of fresh groups in a row after which a waiting replay group
// runs. Replays delay no order that is due now, and a steady load of fresh orders never
// stops them.
const replayAfter = 10

const (
	// storeTimeout is how long one call of the store may take before it counts as
	// hanging: eight times the read timeout of one database statement.
	storeTimeout = 2 * time.Minute
	// beatEvery is how often a loop that waits for the store calls Beat on its pulse.
	beatEvery = 5 * time.Second
)

// maxQuick is how many transactions run at once, as long as each takes less than the target time.
// With more, the database makes many small transactions of what would be a few large ones, and each
// waits for the others.
const maxQuick = 2

// batcher runs the close transactions of all loops. It bounds the transactions that run
// at once, and the orders in them (limiter). Jobs of several partitions that wait share one
// transaction: a commit takes milliseconds, and each partition alone would make many small
// transactions. Fresh orders go first. If there are several workers, one at a time serves
// replays. So a fresh batch finds a free worker or waits for one transaction. A single worker
// serves both lanes. A batcher is safe for concurrent use.
type batcher struct {
	workers   int             // maximum of transactions at once, the slow ones included
	maxOrders int             // per transaction
	run       runTransaction  // closes the orders of a group
	onLimit   func(limit int) // is called with each new limit, under mu
	onHang    func()          // is called if a transaction goes on long after its context has ended

	mu          sync.Mutex
	limiter     limiter
	running     int // groups in a transaction
	slow        int // groups among them that take longer than the target time
	replaying   int // groups of the replay lane among them
	inFlight    int // orders in them
	fresh       []*job
	replays     []*job
	freshInARow int // fresh groups started in a row while a replay waited
}

// job is a batch of one loop that waits for its transaction or is in it.
type job struct {
	ctx      context.Context
	beat     func() // called every beatEvery while the job waits, unless its transaction hangs
	group    *group // the group of its transaction; nil while it waits
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
	slow   bool             // takes longer than the target time
	ended  bool             // its transaction has ended
	pulse  *partition.Pulse // beats when the transaction starts and after each call of the store
}

// newBatcher returns a batcher; its fields run and onHang must be set before it is used.
func newBatcher(l limiter, workers, maxOrders int, onLimit func(limit int)) *batcher {
	onLimit(l.limit)
	return &batcher{workers: workers, maxOrders: maxOrders, onLimit: onLimit, limiter: l}
}

// batchSize returns how many orders may go together now.
func (b *batcher) batchSize(replay bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limiter.batchSize(b.maxOrders, replay)
}

// close closes the first of the requests, as many as the limiter allows when the job
// starts. If ctx ends, close returns at once, and the orders may or may not be closed.
// close calls beat every few seconds, but stops when a call of the store takes longer
// than storeTimeout.
func (b *batcher) close(ctx context.Context, requests []orderclose.CloseRequest, replay bool, beat func()) ([]orderclose.Outcome, error) {
	j := &job{ctx: ctx, beat: beat, requests: requests, done: make(chan struct{})}
	b.mu.Lock()
	if replay {
		b.replays = append(b.replays, j)
	} else {
		b.fresh = append(b.fresh, j)
	}
	b.admit()
	b.mu.Unlock()
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-j.done:
			return j.outcomes, j.err
		case <-ctx.Done():
			waiting = false
		case <-tick.C:
			b.mu.Lock()
			hangs := j.group != nil && j.group.pulse.Silent() > storeTimeout
			b.mu.Unlock()
			if !hangs {
				beat()
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	same := func(other *job) bool { return other == j }
	b.fresh, b.replays = slices.DeleteFunc(b.fresh, same), slices.DeleteFunc(b.replays, same)
	b.admit() // the jobs after this one may fit now
	return nil, ctx.Err()
}

// admit starts groups while the limits allow. The caller holds b.mu.
func (b *batcher) admit() {
	for {
		queue, replay := b.nextLane()
		if queue == nil {
			return
		}
		g := b.gather(queue, replay)
		if replay {
			b.freshInARow = 0
			b.replaying++
		} else {
			b.freshInARow++
		}
		if len(b.replays) == 0 {
			b.freshInARow = 0
		}
		b.running++
		b.inFlight += g.orders
		go b.runGroup(g)
	}
}

// nextLane returns the lane that the next group comes from. It returns nil if no job
// waits, no worker is free, or the next job would exceed the limit beside the running
// groups. A job that runs alone may exceed the limit.
func (b *batcher) nextLane() (queue *[]*job, replay bool) {
	replayFits := len(b.replays) > 0 && b.replaying == 0
	switch {
	case replayFits && (len(b.fresh) == 0 || b.freshInARow >= replayAfter):
		queue, replay = &b.replays, true
	case len(b.fresh) > 0:
		queue = &b.fresh
	default:
		return nil, false
	}
	first := b.limiter.batchSize(len((*queue)[0].requests), replay)
	if b.running >= b.workers || b.running-b.slow >= maxQuick || b.running > 0 && b.inFlight+first > b.limiter.limit {
		return nil, false
	}
	return queue, replay
}

// gather takes the first job of the queue, cut to the size that the limiter allows, and
// the jobs after it that fit whole.
func (b *batcher) gather(queue *[]*job, replay bool) *group {
	first := (*queue)[0]
	*queue = (*queue)[1:]
	first.requests = first.requests[:b.limiter.batchSize(len(first.requests), replay)]
	g := &group{jobs: []*job{first}, replay: replay, orders: len(first.requests), pulse: &partition.Pulse{}}
	g.pulse.Beat()
	room := min(b.limiter.batchSize(b.maxOrders, replay), b.limiter.limit-b.inFlight)
	for len(*queue) > 0 && g.orders+len((*queue)[0].requests) <= room {
		g.jobs = append(g.jobs, (*queue)[0])
		g.orders += len((*queue)[0].requests)
		*queue = (*queue)[1:]
	}
	for _, j := range g.jobs {
		j.group = g
	}
	return g
}

// runGroup closes the orders of a group and gives each job its outcomes.
func (b *batcher) runGroup(g *group) {
	ctx, cancel := groupContext(g.jobs)
	defer cancel()
	ctx = withPulse(ctx, g.pulse)
	requests := make([]orderclose.CloseRequest, 0, g.orders)
	for _, j := range g.jobs {
		requests = append(requests, j.requests...)
	}
	late := time.AfterFunc(b.limiter.target, func() { b.noteSlow(g) })
	returned := partition.WatchCall(ctx, func() { b.onHang() }) // its worker serves nobody until it returns
	outcomes, err := b.run(ctx, requests)
	returned()
	for _, j := range g.jobs {
		if j.err = err; outcomes != nil {
			j.outcomes, outcomes = outcomes[:len(j.requests):len(j.requests)], outcomes[len(j.requests):]
		}
		close(j.done)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	late.Stop()
	g.ended = true
	if g.slow {
		b.slow--
	}
	b.running--
	b.inFlight -= g.orders
	if g.replay {
		b.replaying--
	}
	b.admit()
}

// noteSlow starts another group, because the given one takes longer than the target time: it may wait
// for a lock, or for a service.
func (b *batcher) noteSlow(g *group) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.ended {
		return
	}
	g.slow = true
	b.slow++
	b.admit()
}

// groupContext returns a context that ends when the contexts of all jobs have ended.
func groupContext(all []*job) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	left := atomic.Int64{}
	left.Store(int64(len(all)))
	stops := make([]func() bool, len(all))
	for i, j := range all {
		stops[i] = context.AfterFunc(j.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// updateLimit changes the limiter and starts the jobs that the new limit allows.
func (b *batcher) updateLimit(update func(l *limiter, inFlight int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.limiter.limit
	update(&b.limiter, b.inFlight)
	if b.limiter.limit != before {
		b.onLimit(b.limiter.limit)
	}
	b.admit()
}
