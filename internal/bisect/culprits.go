package bisect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// maxAlone limits the orders of a batch that get no answer when asked for alone: each may
	// cost the longest timeout (3 s for a service). The others wait for the next batch. If so
	// many orders failed alone and no order got a verdict, the store counts as down.
	maxAlone = 3
	// maxBatch is the limit for one call if the store sets none.
	maxBatch = 1 << 20
)

// CallTimeout limits one call, if Culprits.Limited is set.
const CallTimeout = 10 * time.Second

var (
	// ErrUnclear is an error of a Store that answered, while an order or the store itself may be at
	// fault: it rejected the request, or could not read or process it.
	ErrUnclear = errors.New("an order or the store may be at fault")
	// ErrNoVerdicts means that no order of a batch got a verdict. The error wraps both
	// ErrNoVerdicts and orderclose.ErrUnavailable.
	ErrNoVerdicts = errors.New("no order gets a verdict")
)

// Culprits closes orders through a store, and finds the orders on which the store
// fails, hangs or crashes. It is safe for concurrent use. Use one Culprits for each store, because
// the outcome of one batch is evidence about the orders of another. The zero value is ready to use.
type Culprits struct {
	// Lenient blames no order for a call without an answer.
	Lenient bool
	// Limited gives the context of each call a time limit. Without it the store limits its calls.
	Limited bool
	// Logger gets an error when the store panics or breaks its contract. Default: discarded.
	Logger *slog.Logger

	certain bool         // an unavailable store is down, whatever the orders
	silent  atomic.Bool  // no order got a verdict in the last batch that failed
	answers atomic.Int64 // calls that showed that the store works
	mu      sync.Mutex
	failed  map[string]int64 // answers when an order that has no verdict since failed alone, or was blamed, by its id
}

// Close closes the requests through the store, in one batch if that succeeds. If a batch fails, it
// is split down to the orders that fail alone. The error of such an order says who is at fault:
//
//   - Nobody, if it wraps orderclose.ErrNoOrderAtFault: no order was tried. Close ends.
//   - Unclear, if it wraps orderclose.ErrUnavailable (no answer, such as a timeout) or ErrUnclear.
//     The order is blamed if the store has answered another call since, or between this failure and the one
//     before. A probe that succeeds counts as an answer.
//   - The order, after any other error and after a panic, unless a probe fails too.
//
// An order that is blamed is Failed. Close never asks again for an order that has its verdict: a
// service may answer that from a cache, so it would prove nothing. An order that failed alone before is asked for alone, after the
// others, which it delays only once.
//
// Outcomes have the order of the requests. If the error is not nil, some outcomes have
// no verdict: those orders may have been closed, and closing them again is safe. The
// error wraps orderclose.ErrUnavailable or ctx's error, and ErrNoVerdicts if no order of
// the batch got a verdict.
func (c *Culprits) Close(ctx context.Context, s Store, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	r := newRound(ctx, c, s, path, requests)
	err := cmp.Or(r.run(), r.lastErr)
	r.blame()
	missing := slices.IndexFunc(r.outcomes, func(o orderclose.Outcome) bool { return o.Verdict == "" })
	switch {
	case missing < 0:
		return r.outcomes, nil
	case ctx.Err() != nil:
	case r.answers == 0:
		c.silent.Store(true)
		err = retry.WithCauses(err, orderclose.ErrUnavailable, ErrNoVerdicts)
	default:
		err = retry.WithCauses(err, orderclose.ErrUnavailable)
	}
	return r.outcomes, fmt.Errorf("close %d orders: order %q has no verdict: %w", len(requests), requests[missing].OrderID, err)
}

// round is one call of Culprits.Close.
type round struct {
	*Culprits
	ctx       context.Context
	store     Store
	path      orderclose.Path
	requests  []orderclose.CloseRequest
	outcomes  []orderclose.Outcome // one for each request; without a verdict until there is one
	orders    [][]int              // indexes of the requests of each order, which are asked for together
	wasSilent bool                 // Culprits.silent when the round began

	answers    int           // calls that showed that the store works
	failures   []loneFailure // orders that failed alone, where it is unclear who is at fault
	unanswered int           // how many of them got no answer
	panicked   bool          // the store panicked, and the stack was logged
	lastErr    error         // of the last call that failed
}

// loneFailure is an order that failed alone.
type loneFailure struct {
	order   int
	answers int64 // Culprits.answers then
	err     error
}

func newRound(ctx context.Context, c *Culprits, s Store, path orderclose.Path, requests []orderclose.CloseRequest) *round {
	r := &round{Culprits: c, ctx: ctx, store: s, path: path, requests: requests, wasSilent: c.silent.Load(),
		outcomes: make([]orderclose.Outcome, len(requests))}
	at := make(map[string]int, len(requests))
	for i, q := range requests {
		n, known := at[q.OrderID]
		if !known {
			n = len(r.orders)
			at[q.OrderID] = n
			r.orders = append(r.orders, nil)
		}
		r.orders[n] = append(r.orders[n], i)
	}
	return r
}

// run asks for all orders.
func (r *round) run() (err error) {
	var others, again []int
	for i := range r.orders {
		if r.hasFailed(i) {
			again = append(again, i)
		} else {
			others = append(others, i)
		}
	}
	if r.wasSilent { // one order is enough to see that the store is still down
		if others, err = r.searchSingles(others); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(others, cmp.Or(MaxBatch(r.store), maxBatch)) {
		if err := r.search(part); err != nil {
			return err
		}
	}
	rand.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] }) // not all of them may get their turn
	for i := range again {
		if err := r.search(again[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// hasFailed reports whether an order failed alone before, and has no verdict since.
func (r *round) hasFailed(order int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, failed := r.failed[r.id(order)]
	return failed
}

// id returns the id of an order of the round.
func (r *round) id(order int) string { return r.requests[r.orders[order][0]].OrderID }

// answered records a call that showed that the store works, and the orders on which it gave verdicts.
func (r *round) answered(ids ...string) {
	r.answers++
	r.silent.Store(false)
	r.Culprits.answers.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		delete(r.failed, id)
	}
}

// setVerdict sets the verdict of all requests of an order.
func (r *round) setVerdict(order int, v orderclose.Verdict, err error) {
	for _, i := range r.orders[order] {
		r.outcomes[i] = orderclose.Outcome{OrderID: r.id(order), Verdict: v, Err: err, Cause: CauseOf(err)}
	}
}

// failedAlone records an order that failed alone. An error ends the round: the store counts as
// down, or too many orders got no answer.
func (r *round) failedAlone(order int, f fault, err error) error {
	switch {
	case f == unclear:
		r.failures = append(r.failures, loneFailure{order, r.Culprits.answers.Load(), err})
		if errors.Is(err, orderclose.ErrUnavailable) {
			r.unanswered++
		}
	case errors.Is(err, orderclose.ErrContended):
		r.setVerdict(order, orderclose.Contended, err)
		r.answered()
		return nil
	}
	broken := r.call(r.ctx, func(ctx context.Context) error { return Probe(ctx, r.store) })
	unknown := errors.Is(broken, errors.ErrUnsupported)
	switch {
	case broken != nil && !unknown:
		return retry.WithCauses(fmt.Errorf("%w: close of order %q failed with: %w", broken, r.id(order), err), orderclose.ErrUnavailable)
	case f == anOrders: // so the store works
		r.setVerdict(order, orderclose.Failed, err)
		r.answered()
	case !unknown:
		r.Culprits.answers.Add(1)
	}
	if r.unanswered >= maxAlone || r.answers == 0 && (r.wasSilent || len(r.failures) >= maxAlone) {
		return err
	}
	return nil
}

// maxRemembered limits Culprits.failed. Beyond it all is forgotten: then it only takes longer to blame an order.
const maxRemembered = 1000

// blame gives the verdict Failed to the orders that are at fault, and remembers when they failed.
func (r *round) blame() {
	for _, l := range r.failures {
		lenient := r.Lenient && errors.Is(l.err, orderclose.ErrUnavailable)
		r.mu.Lock()
		before, again := r.failed[r.id(l.order)]
		since := (again || len(r.orders) > 1) && r.Culprits.answers.Load() > l.answers // else its call may have had a short time limit
		if !lenient && (since || again && l.answers > before) {                        //mutant:blame-when-down,hang-never-blamed
			r.setVerdict(l.order, orderclose.Failed, l.err)
			l.answers = r.Culprits.answers.Load()
		}
		if r.failed == nil || len(r.failed) >= maxRemembered {
			r.failed = map[string]int64{}
		}
		r.failed[r.id(l.order)] = l.answers
		r.mu.Unlock()
	}
}
