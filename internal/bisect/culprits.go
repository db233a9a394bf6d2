package bisect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// maxSingleFailures is how many orders must fail alone, without a verdict on any order,
	// before the store counts as down.
	maxSingleFailures = 3
	// maxUnanswered limits the orders of a batch that get no answer when asked for alone:
	// each may cost the longest timeout (3 s for a service). The others wait for the
	// next batch.
	maxUnanswered = 3
	// maxBatch is the limit for one call if the store sets none.
	maxBatch = 1 << 20
)

// Number of earlier failures that prove that an order is at fault if it gets no
// answer alone.
const (
	// ProofPipeline is for the closer, where a failure uses up one of four attempts:
	// the order failed this often while the store worked, and then once more. If nine
	// of ten calls of a store fail at random, 3 of 100 orders are blamed once, and
	// one in a million four times.
	ProofPipeline = 3
	// ProofSweep is for the compensator, where a failure is only a line in the
	// report. It is enough that another order got a verdict, in the same batch or
	// since the order failed before.
	ProofSweep = 0
)

// Errors of a Store, besides orderclose.ErrUnavailable, that are not always an
// order's fault.
var (
	// ErrUnclear means that an order or the store may be at fault. An order that gets
	// it alone is blamed if another order gets a verdict.
	ErrUnclear = errors.New("an order or the store may be at fault")
	// ErrRejected means that the store rejected the request. An order that is rejected
	// alone is blamed, unless the store rejects several orders and gives no verdict
	// on any.
	ErrRejected = errors.New("the store rejected the request")
	// ErrNoVerdicts means that no order of a batch got a verdict. The error wraps both
	// ErrNoVerdicts and orderclose.ErrUnavailable.
	ErrNoVerdicts = errors.New("no order gets a verdict")
)

// MaxBatch returns how many orders a store accepts in one call; 0 means any number.
func MaxBatch(s Store) int {
	if l, ok := s.(interface{ MaxBatch() int }); ok {
		return l.MaxBatch()
	}
	return 0
}

// Culprits closes orders through a store, and finds the orders on which the store
// fails, hangs or crashes. It is safe for concurrent use. Create one Culprits for
// each store with NewCulprits, because the outcome of one batch is evidence about the
// orders of another.
type Culprits struct {
	of       Store
	proof    int
	logger   *slog.Logger
	suspects Suspects
}

// NewCulprits returns Culprits for a store. proof is ProofPipeline or ProofSweep. The logger gets
// an error when the store breaks its contract; nil discards it.
func NewCulprits(s Store, proof int, logger *slog.Logger) *Culprits {
	return &Culprits{of: s, proof: proof, logger: cmp.Or(logger, slog.New(slog.DiscardHandler))}
}

// CloseOrders closes the requests, in one batch if that succeeds. If a batch fails, it
// is halved down to the orders that fail alone. Such an order is at fault
//
//   - after any error that is not listed below, and after a panic, as with Bisect;
//   - after ErrUnclear, if another order got a verdict, in this batch or since the
//     order failed before;
//   - after ErrRejected, unless the store rejected several orders and no order got a
//     verdict;
//   - after orderclose.ErrUnavailable, such as a timeout, if there is proof. With
//     ProofPipeline, the order must have failed three times before, while other orders
//     got verdicts in the calls before and after. With ProofSweep, another order must
//     have got a verdict, in this batch or since the order failed before.
//
// No order is at fault after orderclose.ErrStoreDown, or if the circuit breaker is open.
// A probe that succeeds after a failure counts, in later batches, as a verdict on another
// order. CloseOrders never asks again for an order that has its verdict: a service may
// answer that from a cache, so it would prove nothing.
//
// An order that failed alone before is asked for alone, after the others.
//
// Outcomes have the order of the requests. If the error is not nil, some outcomes have
// no verdict: those orders may have been closed, and closing them again is safe. The
// error wraps orderclose.ErrUnavailable or ctx's error, and ErrNoVerdicts if no order of
// the batch got a verdict.
func (c *Culprits) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	r := &round{Culprits: c, ctx: ctx, noVerdicts: c.suspects.NoVerdicts(), batch: newBatch(c.of, path, requests)}
	err := r.run()
	r.decide()
	missing := slices.IndexFunc(r.outcomes, func(o orderclose.Outcome) bool { return o.Verdict == "" })
	if missing < 0 {
		return r.outcomes, nil
	}
	if err == nil {
		err = r.lastErr
	}
	switch {
	case ctx.Err() != nil:
	case !r.answered:
		c.suspects.SetNoVerdicts()
		err = retry.WithCauses(err, orderclose.ErrUnavailable, ErrNoVerdicts)
	default:
		err = retry.WithCauses(err, orderclose.ErrUnavailable)
	}
	return r.outcomes, fmt.Errorf("close %d orders: order %q has no verdict: %w", len(requests), requests[missing].OrderID, err)
}

// round is one call of Culprits.CloseOrders.
type round struct {
	*Culprits
	batch
	ctx           context.Context
	noVerdicts    bool          // no order got a verdict in the last batch that failed
	answered      bool          // an order got a verdict in this batch
	unanswered    int           // orders that were asked for alone and got no answer
	aloneFailures []loneFailure // orders that failed alone
	panicked      bool          // the store panicked, and the stack was logged
	lastErr       error
}

// loneFailure is an order that failed alone.
type loneFailure struct {
	order    int
	failures int  // result of Suspects.Failed
	since    bool // result of Suspects.Failed
	err      error
}

var errLater = errors.New("it failed alone before and is tried again later")

// run asks for all orders, suspects last.
func (r *round) run() (err error) {
	search := Search{Ask: r.askFor, Alone: r.failedAlone, Classify: r.classify}
	var suspects, others []int
	for i := range r.orders {
		if r.isSuspect(i) {
			suspects = append(suspects, i)
		} else {
			others = append(others, i)
		}
	}
	if r.noVerdicts { // one order is enough to see that the store is still down
		if others, err = search.askSingles(others); err != nil {
			return err
		}
	}
	limit := MaxBatch(r.store)
	if limit == 0 {
		limit = maxBatch
	}
	for part := range slices.Chunk(others, limit) {
		if err := search.Run(part); err != nil {
			return err
		}
	}
	rand.Shuffle(len(suspects), func(i, j int) { suspects[i], suspects[j] = suspects[j], suspects[i] })
	for i := range suspects {
		if r.unanswered >= maxUnanswered {
			r.lastErr = fmt.Errorf("%w: %w", orderclose.ErrUnavailable, errLater)
			return nil
		}
		if err := search.Run(suspects[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// askFor asks for some of the orders. An order that is asked for alone because of a
// failure gets the longest timeout: only then can a timeout be its fault.
func (r *round) askFor(orders []int) error {
	ctx := r.ctx
	if r.longTimeout(orders) {
		ctx = httpcall.WithMaxTimeout(ctx)
	}
	suspect := len(orders) == 1 && r.isSuspect(orders[0])
	if err := r.ask(ctx, orders); err != nil {
		if r.lastErr = err; !suspect && r.classify(err) == Unclear {
			r.suspects.FailedTogether()
		}
		if p, panicked := errors.AsType[*retry.PanicError](err); panicked && !r.panicked {
			r.panicked = true // once: the search for the order panics again and again
			r.logger.Error("the store panicked, its order is searched", "orders", len(orders), "first", r.id(orders[0]), "err", p, "stack", p.Stack)
		}
		if _, broken := errors.AsType[contractError](err); broken && len(orders) > 1 {
			r.logger.Error("the store breaks its contract, so its orders are closed one by one", "err", err)
		}
		return err
	}
	r.answered = true
	ids := make([]string, len(orders))
	for j, i := range orders {
		ids[j] = r.id(i)
	}
	r.suspects.StoreAnswered(ids...)
	return nil
}

// longTimeout reports whether a call for these orders gets the longest timeout.
func (r *round) longTimeout(orders []int) bool {
	return len(orders) == 1 && (len(r.orders) > 1 || r.isSuspect(orders[0]))
}

func (r *round) isSuspect(order int) bool { return r.suspects.Has(r.id(order)) }

// classify returns who may be at fault for an error of the store.
func (r *round) classify(err error) Blame {
	switch {
	case r.ctx.Err() != nil, errors.Is(err, httpcall.ErrBreakerOpen): // no call was made
		return NotItems
	case errors.Is(err, orderclose.ErrStoreDown):
		return NotItems
	case errors.Is(err, orderclose.ErrUnavailable), errors.Is(err, ErrUnclear), errors.Is(err, ErrRejected):
		return Unclear
	}
	return ItemFault
}

// failedAlone records an order that failed alone. It ends the round once the store
// counts as down, or too many orders got no answer.
func (r *round) failedAlone(i int, err error) error {
	if r.classify(err) == ItemFault {
		if err := r.alone(r.ctx, i, err); err != nil {
			return err
		}
		r.answered = true
		r.suspects.StoreAnswered()
		return nil
	}
	noAnswer := errors.Is(err, orderclose.ErrUnavailable)
	failures, since := r.suspects.Failed(r.id(i), r.longTimeout([]int{i}))
	r.aloneFailures = append(r.aloneFailures, loneFailure{i, failures, since, err})
	if noAnswer {
		r.unanswered++
	}
	switch known, fault := probe(r.ctx, r.store); {
	case fault != nil:
		return retry.WithCauses(fmt.Errorf("%w: close of order %q failed with: %w", fault, r.id(i), err), orderclose.ErrUnavailable)
	case known:
		r.suspects.StoreAnswered()
	}
	if r.unanswered >= maxUnanswered || r.storeDown() {
		return err
	}
	return nil
}

// storeDown reports whether the store counts as down: several orders failed alone and
// no order got a verdict. One failure is enough if no order got a verdict in the last
// failed batch.
func (r *round) storeDown() bool {
	return !r.answered && (len(r.aloneFailures) >= maxSingleFailures || len(r.aloneFailures) > 0 && r.noVerdicts)
}

// decide blames the orders that are proved to be at fault.
func (r *round) decide() {
	for _, l := range r.aloneFailures {
		atFault := false
		switch {
		case errors.Is(l.err, orderclose.ErrUnavailable) && r.proof == ProofSweep:
			atFault = l.since || r.answered && r.unanswered < maxUnanswered
		case errors.Is(l.err, orderclose.ErrUnavailable):
			atFault = l.failures >= r.proof
		case errors.Is(l.err, ErrRejected):
			atFault = r.answered || l.since || !r.storeDown()
		default:
			atFault = r.answered || l.since
		}
		if atFault {
			r.setVerdict(l.order, orderclose.Failed, l.err)
			r.suspects.Blamed(r.id(l.order))
		}
	}
}
