package closer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"orderclose"
	"orderclose/internal/closing"
	"orderclose/internal/partition"
)

// replayTurn is after how many fresh batches in a row one of the replay lane has
// its turn, if one waits: replays delay no order that is due now, and never stand
// still.
const replayTurn = 10

const (
	// storeTimeout is how long one call of the store may take before it counts as hanging:
	// eight times what the database has to answer one statement.
	storeTimeout = 2 * time.Minute
	// aliveEvery is how often a loop that waits for the store shows a sign of life.
	aliveEvery = 5 * time.Second
)

// pulseKey is the context's key for the pulse of a group of turns.
type pulseKey struct{}

// turns lets batches into transactions, at most so many at once, and not more
// orders than the pace allows. What waits meanwhile goes together, whichever
// partitions it is of: with a commit that takes milliseconds, a transaction for
// each partition would be many small ones. Fresh orders go first. Of several workers,
// replays occupy at most half, so that a fresh batch finds one free or waits for one
// transaction; a single worker serves both.
type turns struct {
	workers int
	batch   int             // orders that go together at most
	run     transaction     // closes them
	tell    func(limit int) // hears of each change of the pace

	mu        sync.Mutex
	pace      pace
	running   int // groups inside
	replaying int // of the replay lane among them
	inFlight  int // orders in them
	fresh     []*turn
	replays   []*turn
	inARow    int // fresh groups let in while a replay waited
}

// transaction closes orders. With an error some of them, or all, have no verdict; there
// may be no outcomes at all then. Its context ends when nobody waits for it any more.
type transaction func(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)

// turn is a batch that waits for its turn, or has it.
type turn struct {
	ctx      context.Context
	alive    func() // is called now and then while it waits, unless its transaction hangs
	group    *group // that it goes with; nil while it waits for its turn
	requests []orderclose.CloseRequest
	done     chan struct{} // closed when outcomes and err are set
	outcomes []orderclose.Outcome
	err      error
}

// group is turns of one lane that go together.
type group struct {
	turns  []*turn
	replay bool
	orders int
	pulse  *partition.Pulse // of its transactions
}

func newTurns(p pace, workers, batch int, run transaction, tell func(limit int)) *turns {
	tell(p.limit)
	return &turns{workers: workers, batch: batch, run: run, tell: tell, pace: p}
}

// allowed is how many orders may go together at present.
func (t *turns) allowed(replay bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pace.batch(t.batch, replay)
}

// close closes the first of the requests when it is their turn, as many as the pace
// allows by then. If ctx ends it returns at once, and they may have been closed. alive is called
// each few seconds meanwhile, but no more once a call of the store takes longer than
// storeTimeout.
func (t *turns) close(ctx context.Context, requests []orderclose.CloseRequest, replay bool, alive func()) ([]orderclose.Outcome, error) {
	me := &turn{ctx: ctx, alive: alive, requests: requests, done: make(chan struct{})}
	t.mu.Lock()
	if replay {
		t.replays = append(t.replays, me)
	} else {
		t.fresh = append(t.fresh, me)
	}
	t.admit()
	t.mu.Unlock()
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-me.done:
			return me.outcomes, me.err
		case <-ctx.Done():
			waiting = false
		case <-tick.C:
			t.mu.Lock()
			hangs := me.group != nil && me.group.pulse.Silent() > storeTimeout
			t.mu.Unlock()
			if !hangs {
				alive()
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	same := func(other *turn) bool { return other == me }
	t.fresh, t.replays = slices.DeleteFunc(t.fresh, same), slices.DeleteFunc(t.replays, same)
	t.admit() // who stood behind may fit
	return nil, ctx.Err()
}

// admit lets in whoever may. t.mu is held.
func (t *turns) admit() {
	for {
		queue, replay := t.next()
		if queue == nil {
			return
		}
		g := t.gather(queue, replay)
		if replay {
			t.inARow = 0
			t.replaying++
		} else {
			t.inARow++
		}
		if len(t.replays) == 0 {
			t.inARow = 0
		}
		t.running++
		t.inFlight += g.orders
		go t.serve(g)
	}
}

// next is the lane whose turn it is, or nil if nobody can be let in: no place is
// free, or the next would be more than the pace allows and is not alone.
func (t *turns) next() (queue *[]*turn, replay bool) {
	replayMay := len(t.replays) > 0 && t.replaying < max(t.workers/2, 1)
	switch {
	case replayMay && (len(t.fresh) == 0 || t.inARow >= replayTurn):
		queue, replay = &t.replays, true
	case len(t.fresh) > 0:
		queue = &t.fresh
	default:
		return nil, false
	}
	first := t.pace.batch(len((*queue)[0].requests), replay)
	if t.running >= t.workers || t.running > 0 && t.inFlight+first > t.pace.limit {
		return nil, false
	}
	return queue, replay
}

// gather takes the first of the queue, cut to what the pace allows, and those behind
// it that fit beside it as they are.
func (t *turns) gather(queue *[]*turn, replay bool) *group {
	first := (*queue)[0]
	*queue = (*queue)[1:]
	first.requests = first.requests[:t.pace.batch(len(first.requests), replay)]
	g := &group{turns: []*turn{first}, replay: replay, orders: len(first.requests), pulse: &partition.Pulse{}}
	g.pulse.Beat()
	most := min(t.pace.batch(t.batch, replay), t.pace.limit-t.inFlight)
	for len(*queue) > 0 && g.orders+len((*queue)[0].requests) <= most {
		g.turns = append(g.turns, (*queue)[0])
		g.orders += len((*queue)[0].requests)
		*queue = (*queue)[1:]
	}
	for _, turn := range g.turns {
		turn.group = g
	}
	return g
}

// serve closes the orders of a group, and gives each turn what became of its own.
func (t *turns) serve(g *group) {
	ctx, cancel := whileWanted(g.turns)
	defer cancel()
	ctx = context.WithValue(ctx, pulseKey{}, g.pulse)
	requests := make([]orderclose.CloseRequest, 0, g.orders)
	for _, turn := range g.turns {
		requests = append(requests, turn.requests...)
	}
	outcomes, err := t.run(ctx, requests)
	for _, turn := range g.turns {
		if turn.err = err; outcomes != nil {
			turn.outcomes, outcomes = outcomes[:len(turn.requests):len(turn.requests)], outcomes[len(turn.requests):]
		}
		close(turn.done)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.inFlight -= g.orders
	if g.replay {
		t.replaying--
	}
	t.admit()
}

// whileWanted returns a context that ends with the last of those who wait.
func whileWanted(all []*turn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	left := atomic.Int64{}
	left.Store(int64(len(all)))
	stops := make([]func() bool, len(all))
	for i, turn := range all {
		stops[i] = context.AfterFunc(turn.ctx, func() {
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

// timed is a Store whose transactions set the pace.
type timed struct {
	Store
	turns *turns
}

// CloseOrders implements Store. A batch of which an order failed, or whose row
// somebody held, says nothing about how busy the store is.
func (s timed) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	began := time.Now()
	outcomes, err := s.Store.CloseOrders(ctx, path, requests)
	if pulse, ok := ctx.Value(pulseKey{}).(*partition.Pulse); ok {
		pulse.Beat()
	}
	if err == nil && !slices.ContainsFunc(outcomes, func(o orderclose.Outcome) bool { return o.Verdict == orderclose.Contended }) {
		s.turns.change(func(p *pace, inFlight int) { p.took(done{len(requests), inFlight, began, time.Since(began)}) })
	}
	return outcomes, err
}

// MaxBatch is how many orders the Store takes at once; 0: any number.
func (s timed) MaxBatch() int { return closing.MaxBatch(s.Store) }

// Probe implements closing.Prober, for a Store that does.
func (s timed) Probe(ctx context.Context) error {
	if p, ok := s.Store.(closing.Prober); ok {
		return p.Probe(ctx)
	}
	return errors.ErrUnsupported
}

// change changes the pace, and lets in who may by the new one.
func (t *turns) change(how func(p *pace, inFlight int)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.pace.limit
	how(&t.pace, t.inFlight)
	if t.pace.limit != before {
		t.tell(t.pace.limit)
	}
	t.admit()
}
