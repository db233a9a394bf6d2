package bisect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// maxAlone is how many orders are asked for alone in a batch, without an answer on any order meanwhile, before the store counts as down.
	maxAlone = 3
	// maxFailed bounds Search.failed. Beyond it all is forgotten: then it only takes longer to blame an order.
	maxFailed = 1000
	// unlimited is the limit of a call that has none.
	unlimited time.Duration = math.MaxInt64
)

// ErrUnclear is an error of a Store that answered, while an order or the store itself may be at
// fault: it rejected the request, or could not read or process it.
var ErrUnclear = errors.New("an order or the store may be at fault")

// Search closes batches of orders through a store, and finds the orders on which the store fails, hangs or crashes, by a Lane. It is safe for
// concurrent use. Use one Search for each store, because one batch shows what the others need to know. The zero value is ready to use.
type Search struct {
	// Lenient blames no order for a call without an answer.
	Lenient bool
	// Certain says that a store that is unavailable is down, whatever the orders.
	Certain bool
	// Limit is the time limit of a call. Those of the Lane have that of the Caller, which is shorter. Default: the store limits its calls.
	Limit time.Duration
	// Caller makes the calls.
	Caller Caller

	answers atomic.Int64 // calls that showed that the store works
	silent  atomic.Bool  // the last batch ended without an answer on any order, and there was none since
	mu      sync.Mutex
	failed  map[string]int64 // by order that failed alone, and has no answer since: answers before its first such call, or when it was last at fault
}

// Close closes the requests through the store, in one call if that succeeds. Otherwise a Lane finds the orders that fail alone. The error of such
// an order says who is at fault:
//
//   - Nobody, if it wraps orderclose.ErrNoOrderAtFault: no order was tried. Close ends.
//   - Unclear, if it wraps orderclose.ErrUnavailable (no answer, such as a timeout) or ErrUnclear. The order is to blame if the store has
//     answered another call since the order was first asked for alone, or was last to blame. A probe that succeeds counts as an answer.
//     An order whose first call was for it alone is to blame only if it fails again, because the connection may have broken.
//   - The order, after any other error and after a panic, unless a probe fails too.
//
// An order that is to blame is Failed. One that has failed before, alone or by the Attempt of its request, is not in the first call, so it delays
// no other. The search makes one call at a time until a call gets no answer: then other calls need not wait for its limit.
//
// Outcomes have the order of the requests. If the error is not nil, some outcomes have no verdict: those orders may have been closed, and
// closing them again is safe. The error wraps orderclose.ErrUnavailable or ctx's error.
func (s *Search) Close(ctx context.Context, store Store, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	b := &batch{search: s, store: store, path: path, requests: requests, outcomes: make([]orderclose.Outcome, len(requests)), began: s.answers.Load()}
	err := cmp.Or(b.run(ctx), b.lastErr)
	b.blame()
	missing := slices.IndexFunc(b.outcomes, func(o orderclose.Outcome) bool { return o.Verdict == "" })
	if missing < 0 {
		return b.outcomes, nil
	}
	if ctx.Err() == nil {
		err = retry.WithCauses(err, orderclose.ErrUnavailable)
		s.silent.Store(s.answers.Load() == b.began)
	}
	return b.outcomes, fmt.Errorf("close %d orders: order %q has no verdict: %w", len(requests), requests[missing].OrderID, err)
}

// answer counts a call that showed that the store works, and gave verdicts on some orders.
func (s *Search) answer(ids ...string) {
	s.answers.Add(1)
	s.silent.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.failed, id)
	}
}

// hasFailed reports whether a request is of an order that has failed before.
func (s *Search) hasFailed(q orderclose.CloseRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, failed := s.failed[q.OrderID]
	return !s.Certain && (failed || q.Attempt > 0)
}

// isAtFault takes note of an order that failed alone. It reports whether the store has answered a call since the first such call for the order. before is
// answers when the last such call began.
func (s *Search) isAtFault(id string, before int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, known := s.failed[id]; known {
		before = first
	}
	if s.failed == nil || len(s.failed) >= maxFailed {
		s.failed = map[string]int64{}
	}
	s.failed[id] = s.answers.Load()
	return s.failed[id] > before //mutant:blame-when-down
}

// batch is one call of Search.Close.
type batch struct {
	search   *Search
	store    Store
	path     orderclose.Path
	requests []orderclose.CloseRequest
	outcomes []orderclose.Outcome // one for each request; without a verdict until there is one
	began    int64                // Search.answers when the batch began

	mu       sync.Mutex
	unclear  []loneFailure
	noAnswer bool  // a call got no answer
	lastErr  error // of the last call that failed
}

// order is the indexes of the requests for one order, which are asked for together.
type order []int

// loneFailure is an order that failed alone, where it is unclear who is at fault.
type loneFailure struct {
	order  order
	before int64 // Search.answers when its call began; math.MaxInt64: the order is at fault only if it had failed before
	err    error
}

// orders returns the orders of the batch, in the order of their first requests.
func (b *batch) orders() (orders []order) {
	at := make(map[string]int, len(b.requests))
	for i, q := range b.requests {
		n, known := at[q.OrderID]
		if !known {
			n = len(orders)
			at[q.OrderID] = n
			orders = append(orders, nil)
		}
		orders[n] = append(orders[n], i)
	}
	return orders
}

// id returns the id of an order.
func (b *batch) id(o order) string { return b.requests[o[0]].OrderID }

// run asks for all orders. An error ends the batch.
func (b *batch) run(ctx context.Context) error {
	orders := b.orders()
	if b.search.silent.Load() && len(orders) > 0 { // one order is enough to see that the store is still down
		i := rand.IntN(len(orders))
		orders[0], orders[i] = orders[i], orders[0]
		err := b.askAlone(Alone(ctx), orders[0])
		if err != nil || b.search.silent.Load() {
			return err
		}
		orders = orders[1:]
	}
	var first, again []order
	for _, o := range orders {
		if b.search.hasFailed(b.requests[o[0]]) {
			again = append(again, o)
		} else {
			first = append(first, o)
		}
	}
	lane := Lane[order]{Call: b.ask, Calls: b.callsAtOnce}
	for part := range slices.Chunk(first, max(cmp.Or(MaxBatch(b.store), len(first)), 1)) {
		err := b.call(ctx, part)
		if err != nil && len(part) == 1 {
			// Its call may have had a short limit, or a connection that broke: only an order that fails again is at fault.
			err = b.failedAlone(ctx, loneFailure{part[0], math.MaxInt64, err})
		} else if err != nil && !isNobodys(ctx, err) {
			lane.Add(part)
			err = nil //mutant:bad-order-batch
		}
		if err != nil {
			return err
		}
	}
	rand.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] }) // not all of them may get their turn
	lane.Add(again)
	lane.Start(ctx)
	return lane.Wait()
}

// callsAtOnce returns how many calls the Lane makes at once: few while the store may be down.
func (b *batch) callsAtOnce() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.noAnswer:
		return 1
	case b.search.answers.Load() == b.began:
		return maxAlone
	}
	return LaneCalls
}

// isNobodys reports whether an error says nothing about the orders.
func isNobodys(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, orderclose.ErrNoOrderAtFault)
}

// ask makes a call of the Lane.
func (b *batch) ask(ctx context.Context, orders []order) error {
	if ctx = Searching(ctx, len(orders) == 1); len(orders) > 1 {
		return b.call(ctx, orders)
	}
	return b.askAlone(ctx, orders[0])
}

// askAlone asks for an order. An error ends the batch.
func (b *batch) askAlone(ctx context.Context, o order) error {
	before := b.search.answers.Load()
	err := b.call(ctx, []order{o})
	if err == nil {
		return nil
	}
	return b.failedAlone(ctx, loneFailure{o, before, err})
}

// failedAlone sees who is at fault for a call with one order that has failed. An error ends the batch.
func (b *batch) failedAlone(ctx context.Context, f loneFailure) error {
	unclear := errors.Is(f.err, orderclose.ErrUnavailable) || errors.Is(f.err, ErrUnclear)
	switch {
	case isNobodys(ctx, f.err):
		return f.err
	case !unclear && errors.Is(f.err, orderclose.ErrContended):
		b.decide(f.order, orderclose.Contended, f.err)
		return nil
	}
	broken := Within(ctx, b.limit(), func(ctx context.Context) error { return Probe(ctx, b.store) })
	switch {
	case broken == nil:
		b.search.answer()
	case !errors.Is(broken, errors.ErrUnsupported):
		err := fmt.Errorf("%w: close of order %q failed with: %w", broken, b.id(f.order), f.err)
		return retry.WithCauses(err, orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault)
	}
	if !unclear { // so the store works
		b.decide(f.order, orderclose.Failed, f.err)
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unclear = append(b.unclear, f)
	if len(b.unclear) >= maxAlone && b.search.answers.Load() == b.began {
		return retry.WithCauses(f.err, orderclose.ErrNoOrderAtFault)
	}
	return nil
}

// blame gives the verdict Failed to the orders that failed alone while the store has answered others.
func (b *batch) blame() {
	for _, f := range b.unclear {
		atFault := b.search.isAtFault(b.id(f.order), f.before)
		if atFault && !(b.search.Lenient && errors.Is(f.err, orderclose.ErrUnavailable)) { //mutant:hang-never-blamed
			b.verdict(f.order, orderclose.Failed, f.err)
		}
	}
}

// decide sets the verdict on an order that the store has answered by an error.
func (b *batch) decide(o order, v orderclose.Verdict, err error) {
	b.verdict(o, v, err)
	b.search.answer(b.id(o))
}

// verdict sets the verdict of all requests of an order.
func (b *batch) verdict(o order, v orderclose.Verdict, err error) {
	for _, i := range o {
		b.outcomes[i] = orderclose.Outcome{OrderID: b.id(o), Verdict: v, Err: err, Cause: CauseOf(err)}
	}
}

// call closes orders in one call.
func (b *batch) call(ctx context.Context, orders []order) error {
	var part []orderclose.CloseRequest
	ids := make([]string, len(orders))
	for n, o := range orders {
		ids[n] = b.id(o)
		for _, i := range o {
			part = append(part, b.requests[i])
		}
	}
	limit := b.limit()
	if b.search.Limit > 0 && IsSearching(ctx) {
		limit = min(b.search.Caller.Limit(b.store, len(part), part[0].Attempt), limit)
	}
	outcomes, _, err := b.search.Caller.Close(ctx, b.store, b.path, part, limit)
	if err != nil {
		if b.search.Certain && errors.Is(err, orderclose.ErrUnavailable) {
			err = retry.WithCauses(err, orderclose.ErrNoOrderAtFault)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lastErr, b.noAnswer = err, b.noAnswer || errors.Is(err, orderclose.ErrUnavailable)
		return err
	}
	for _, i := range slices.Concat(orders...) {
		if b.outcomes[i], outcomes = outcomes[0], outcomes[1:]; b.outcomes[i].Verdict == "" {
			b.outcomes[i].Verdict, b.outcomes[i].Err = orderclose.Failed, errNoVerdict
		}
	}
	b.search.answer(ids...)
	return nil
}

// limit returns the time limit of a call.
func (b *batch) limit() time.Duration { return cmp.Or(b.search.Limit, unlimited) }

var errNoVerdict = errors.New("the store returned no verdict")
