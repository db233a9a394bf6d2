package bisect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
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

// Time limits of a call, if Culprits.Limited is set.
const (
	// CallTimeout limits one call: eight times the read timeout of one database statement.
	CallTimeout = 2 * time.Minute
	// shortTimeout limits the calls of a search. It begins with a call that had no answer within
	// CallTimeout, and ends when a batch has got all its verdicts, or after shortFor. It also limits
	// calls for an order that had no verdict when it was asked for alone. So the order on which a store
	// waits is found within minutes, and a store that is slow gets the whole time again.
	shortTimeout = 10 * time.Second
	shortFor     = 5 * time.Minute
)

// Values of Culprits.Proof.
const (
	// ProofPipeline is for the closer, where being blamed uses up one of four attempts. If nine of
	// ten calls of a store fail at random, 3 of 100 orders are blamed once, and one in a million
	// four times.
	ProofPipeline = 3
	// NoProof blames no order for a call without an answer.
	NoProof = math.MaxInt
)

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
	// Proof is how many failures without an answer must be proved to be an order's fault
	// (Suspects) before the next one is blamed on the order. It is 0 for the sweep, where a
	// failure is only a line in the report.
	Proof int
	// Limited gives the context of each call a time limit. Without it the store limits its calls.
	Limited bool
	// Logger gets an error when the store panics or breaks its contract. Default: discarded.
	Logger *slog.Logger

	certain  bool // an unavailable store is down, whatever the orders
	suspects Suspects
	silent   atomic.Bool // no order got a verdict in the last batch that failed
	// hung is when a call had no answer within CallTimeout; nil: never, or a batch has got all its verdicts since
	hung atomic.Pointer[time.Time]
}

// Close closes the requests through the store, in one batch if that succeeds. If a batch fails, it
// is split down to the orders that fail alone. The error of such an order says who is at fault:
//
//   - Nobody, if it wraps orderclose.ErrNoOrderAtFault: no order was tried. Close ends.
//   - Unclear, if it wraps orderclose.ErrUnavailable (no answer, such as a timeout) or ErrUnclear.
//     The order is blamed if other orders got verdicts in this batch, or since the order failed
//     alone before. If there was no answer, Proof earlier failures must be proved too. A probe that
//     succeeds after the failure counts as a verdict on another order.
//   - The order, after any other error and after a panic, unless a probe fails too.
//
// An order that is blamed is Failed. Close never asks again for an order that has its verdict: a
// service may answer that from a cache, so it would prove nothing. An order that failed alone before
// is asked for alone, after the others.
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
		c.hung.Store(nil)
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
	short      bool          // a call had no answer within CallTimeout, so that the next ones get shortTimeout
	lastErr    error         // of the last call that failed
}

// loneFailure is an order that failed alone.
type loneFailure struct {
	order  int
	proved int  // result of Suspects.Failed
	again  bool // result of Suspects.Failed
	err    error
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

var errLater = errors.New("it failed alone before and is tried again later")

// run asks for all orders, suspects last.
func (r *round) run() (err error) {
	var suspects, others []int
	for i := range r.orders {
		if r.suspects.Has(r.id(i)) {
			suspects = append(suspects, i)
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
	rand.Shuffle(len(suspects), func(i, j int) { suspects[i], suspects[j] = suspects[j], suspects[i] })
	for i := range suspects {
		if r.unanswered >= maxAlone {
			return fmt.Errorf("%w: %w", orderclose.ErrUnavailable, errLater)
		}
		if err := r.search(suspects[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// id returns the id of an order of the round.
func (r *round) id(order int) string { return r.requests[r.orders[order][0]].OrderID }

// answered records a call that showed that the store works, and the orders on which it gave verdicts.
func (r *round) answered(ids ...string) {
	r.answers++
	r.silent.Store(false)
	r.suspects.Answered(ids...)
}

// setVerdict sets the verdict of all requests of an order.
func (r *round) setVerdict(order int, v orderclose.Verdict, err error) {
	for _, i := range r.orders[order] {
		r.outcomes[i] = orderclose.Outcome{OrderID: r.id(order), Verdict: v, Err: err}
	}
}

// failedAlone records an order that failed alone. An error ends the round: the store counts as
// down, or too many orders got no answer.
func (r *round) failedAlone(order int, f fault, err error) error {
	switch {
	case f == unclear:
		proved, again := r.suspects.Failed(r.id(order))
		r.failures = append(r.failures, loneFailure{order, proved, again, err})
		if errors.Is(err, orderclose.ErrUnavailable) {
			r.unanswered++
		}
	case errors.Is(err, orderclose.ErrContended):
		r.setVerdict(order, orderclose.Contended, err)
		r.answered()
		return nil
	}
	broken := retry.Catch(func() error { return Probe(r.ctx, r.store) })
	unknown := errors.Is(broken, errors.ErrUnsupported)
	switch {
	case broken != nil && !unknown:
		return retry.WithCauses(fmt.Errorf("%w: close of order %q failed with: %w", broken, r.id(order), err), orderclose.ErrUnavailable)
	case f == anOrders: // so the store works
		r.setVerdict(order, orderclose.Failed, err)
		r.answered()
	case !unknown:
		r.suspects.Answered()
	}
	if r.unanswered >= maxAlone || r.answers == 0 && (r.wasSilent || len(r.failures) >= maxAlone) {
		return err
	}
	return nil
}

// blame gives the verdict Failed to the orders that are proved to be at fault.
func (r *round) blame() {
	others := r.answers > 0 && r.unanswered < maxAlone // else the store may have gone down since they got verdicts
	for _, l := range r.failures {
		proof := 0
		if errors.Is(l.err, orderclose.ErrUnavailable) {
			proof = r.Proof
		}
		if (others || l.again) && l.proved >= proof { //mutant:blame-when-down
			r.setVerdict(l.order, orderclose.Failed, l.err)
			r.suspects.Blamed(r.id(l.order))
		}
	}
}
