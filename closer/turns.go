package closer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"orderclose"
)

// replayTurn is after how many fresh batches in a row one of the replay lane has
// its turn, if one waits: replays delay no order that is due now, and never stand
// still.
const replayTurn = 10

// turns lets batches into their transactions, at most so many at once, and not
// more orders than the pace allows. Fresh ones go first, and replays never take
// more than half the places, so that a fresh batch waits for one transaction at
// most.
type turns struct {
	workers int
	tell    func(limit int) // hears of each change of the pace

	mu        sync.Mutex
	pace      pace
	running   int // batches inside
	replaying int // of the replay lane among them
	inFlight  int // orders in them
	fresh     []*turn
	replays   []*turn
	inARow    int // fresh batches let in while a replay waited
}

// turn is a batch that waits for its turn, or has it.
type turn struct {
	orders int // wanted; once it has its turn, granted
	replay bool
	begin  chan struct{} // closed when it is let in
}

func newTurns(p pace, workers int, tell func(limit int)) *turns {
	tell(p.limit)
	return &turns{workers: workers, tell: tell, pace: p}
}

// batch is how many orders may go together at present.
func (t *turns) batch(most int, replay bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pace.batch(most, replay)
}

// enter waits for the turn of a batch of so many orders, or for the end of ctx. It
// returns how many of them the pace allows by then. Whoever gets in must leave.
func (t *turns) enter(ctx context.Context, orders int, replay bool) (granted int, leave func(), err error) {
	me := &turn{orders: orders, replay: replay, begin: make(chan struct{})}
	t.mu.Lock()
	if replay {
		t.replays = append(t.replays, me)
	} else {
		t.fresh = append(t.fresh, me)
	}
	t.admit()
	t.mu.Unlock()
	select {
	case <-me.begin:
		return me.orders, func() { t.leave(me) }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	same := func(other *turn) bool { return other == me }
	t.fresh, t.replays = slices.DeleteFunc(t.fresh, same), slices.DeleteFunc(t.replays, same)
	select {
	case <-me.begin: // let in at the same moment
		t.out(me)
	default:
	}
	t.admit() // who stood behind may fit
	return 0, nil, ctx.Err()
}

func (t *turns) leave(w *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out(w)
	t.admit()
}

func (t *turns) out(w *turn) {
	t.running--
	t.inFlight -= w.orders
	if w.replay {
		t.replaying--
	}
}

// admit lets in whoever may. t.mu is held.
func (t *turns) admit() {
	for next := t.next(); next != nil; next = t.next() {
		if next.replay {
			t.replays, t.inARow = t.replays[1:], 0
			t.replaying++
		} else {
			t.fresh = t.fresh[1:]
			t.inARow++
		}
		if len(t.replays) == 0 {
			t.inARow = 0
		}
		next.orders = t.pace.batch(next.orders, next.replay)
		t.running++
		t.inFlight += next.orders
		close(next.begin)
	}
}

// next is whose turn it is, or nil if nobody can be let in: no place is free, or
// the next would be more than the pace allows and is not alone.
func (t *turns) next() *turn {
	var next *turn
	replayMay := len(t.replays) > 0 && t.replaying < max(t.workers/2, 1)
	switch {
	case replayMay && (len(t.fresh) == 0 || t.inARow >= replayTurn):
		next = t.replays[0]
	case len(t.fresh) > 0:
		next = t.fresh[0]
	default:
		return nil
	}
	if t.running >= t.workers || t.running > 0 && t.inFlight+t.pace.batch(next.orders, next.replay) > t.pace.limit {
		return nil
	}
	return next
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
	switch {
	case err == nil:
		s.turns.change(func(p *pace, inFlight int) { p.took(done{len(requests), inFlight, began, time.Since(began)}) })
	case errors.Is(err, orderclose.ErrUnavailable) && ctx.Err() == nil:
		s.turns.change(func(p *pace, _ int) { p.failed(time.Now()) })
	}
	return outcomes, err
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
