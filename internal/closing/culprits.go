package closing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"orderclose"
	"orderclose/internal/patience"
)

const (
	// maxSingles failures of orders that were asked for alone, with no verdict on any
	// order, are enough to say that the store is down.
	maxSingles = 3
	// maxWaits bounds how many orders of a batch are asked for alone in vain, with no
	// answer at all: each may cost the longest time-out (3 s of a service). The others
	// have to wait for the next batch.
	maxWaits = 3
	// maxBatch is how many orders a call has at most if the store does not say.
	maxBatch = 1 << 20
)

// What proves that an order is at fault that fails alone with no answer.
const (
	// ProofPipeline is for the closer, where a failure uses up one of four attempts: the
	// order failed so often while the store worked, and then once more. A store of which
	// nine of ten calls fail at random so blames 3 of 100 orders once, and one in a
	// million four times.
	ProofPipeline = 3
	// ProofSweep is for the compensator, where a failure has no consequence but a line
	// in the report: others in its batch got a verdict, or another order since it failed
	// before.
	ProofSweep = 0
)

// Errors of a Store besides orderclose.ErrUnavailable that need not be the fault of
// an order.
var (
	// ErrUnclear marks an answer that an order or the store may be to blame for. An
	// order that gets it alone is blamed if another order gets a verdict.
	ErrUnclear = errors.New("an order may be at fault, or the store")
	// ErrRefused marks an answer that refuses what was sent. An order that is refused
	// alone is blamed unless the store refuses several, and gives no verdict on any.
	ErrRefused = errors.New("the store refuses what was sent")
	// ErrSilent comes with orderclose.ErrUnavailable: no order gets a verdict.
	ErrSilent = errors.New("nobody gets a verdict")
)

// MaxBatch is how many orders a store takes in one call; 0: any number.
func MaxBatch(s Store) int {
	if l, ok := s.(interface{ MaxBatch() int }); ok {
		return l.MaxBatch()
	}
	return 0
}

// Culprits closes orders through a store, and finds the orders on which the store
// fails, hangs or crashes. It may be used from any goroutine. Make it with
// NewCulprits: one for each store, because what happens to one batch tells about the
// orders of another.
type Culprits struct {
	of       Store
	proof    int
	suspects Suspects
}

// NewCulprits returns Culprits for a store. proof is ProofPipeline or ProofSweep.
func NewCulprits(s Store, proof int) *Culprits { return &Culprits{of: s, proof: proof} }

// CloseOrders closes the requests, together if that succeeds. If a batch fails it is
// halved, down to the orders that fail alone:
//
//   - By an error that is none of those below, the order is at fault, as with Bisect.
//   - With ErrUnclear it is at fault if another order got a verdict, in this batch or
//     since it first failed.
//   - With orderclose.ErrUnavailable, such as a time-out, it is at fault if that
//     happened several times while the store worked: the calls before and after gave
//     others their verdicts. A store that is down for all blames nobody. Asking again
//     for an order that has its verdict would prove nothing: a service may keep such
//     answers.
//
// An order that failed alone before is asked for alone, after the others.
//
// Outcomes come in the order of the requests. If the error is not nil, some of them
// have no verdict: those orders may have been closed, and asking again is safe. The
// error is orderclose.ErrUnavailable or ctx's, and ErrSilent if no order at all got a
// verdict.
func (c *Culprits) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	r := &round{Culprits: c, ctx: ctx, silent: c.suspects.Silent(), batch: newBatch(c.of, path, requests)}
	err := r.run()
	r.decide()
	missing := slices.IndexFunc(r.outcomes, func(o orderclose.Outcome) bool { return o.Verdict == "" })
	if missing < 0 {
		return r.outcomes, nil
	}
	if err == nil {
		err = r.last
	}
	switch {
	case ctx.Err() != nil:
	case !r.heard:
		c.suspects.SetSilent()
		err = fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, ErrSilent, err)
	case !errors.Is(err, orderclose.ErrUnavailable):
		err = fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
	}
	return r.outcomes, fmt.Errorf("close %d orders, order %q has no verdict: %w", len(requests), requests[missing].OrderID, err)
}

// round is one CloseOrders of Culprits.
type round struct {
	*Culprits
	batch
	ctx    context.Context
	silent bool   // in the last batch that failed nobody got a verdict
	heard  bool   // somebody got a verdict in this one
	waits  int    // orders that were asked for alone, and got no answer
	lone   []lone // orders that failed alone
	last   error
}

// lone is an order that failed alone.
type lone struct {
	order    int
	failures int  // see Suspects.Failed
	since    bool // likewise
	err      error
}

var errLater = errors.New("it failed alone before and is asked for again later")

// run asks for all orders: those that never failed alone first.
func (r *round) run() (err error) {
	search := Search{Ask: r.askFor, Alone: r.failedAlone, Judge: r.judge}
	var known, others []int
	for i := range r.orders {
		if r.isSuspect(i) {
			known = append(known, i)
		} else {
			others = append(others, i)
		}
	}
	if r.silent { // one order is enough to see that the store is still down
		if others, err = search.single(others); err != nil {
			return err
		}
	}
	most := MaxBatch(r.store)
	if most == 0 {
		most = maxBatch
	}
	for part := range slices.Chunk(others, most) {
		if err := search.Run(part); err != nil {
			return err
		}
	}
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	for i := range known {
		if r.waits >= maxWaits {
			r.last = fmt.Errorf("%w: %w", orderclose.ErrUnavailable, errLater)
			return nil
		}
		if err := search.Run(known[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// askFor asks for some of the orders. One that is asked for alone, because of a
// failure, may take as long as a call ever may: only then a time-out is its fault.
func (r *round) askFor(orders []int) error {
	ctx := r.ctx
	if r.patient(orders) {
		ctx = patience.HearOut(ctx)
	}
	suspect := len(orders) == 1 && r.isSuspect(orders[0])
	if err := r.ask(ctx, orders); err != nil {
		if r.last = err; !suspect && r.judge(err) == Anybody {
			r.suspects.FailedTogether()
		}
		return err
	}
	r.heard = true
	ids := make([]string, len(orders))
	for j, i := range orders {
		ids[j] = r.id(i)
	}
	r.suspects.Heard(ids...)
	return nil
}

// patient says whether a call for these orders gets the longest time-out.
func (r *round) patient(orders []int) bool {
	return len(orders) == 1 && (len(r.orders) > 1 || r.isSuspect(orders[0]))
}

func (r *round) isSuspect(order int) bool { return r.suspects.Has(r.id(order)) }

func (r *round) judge(err error) Blame {
	switch {
	case r.ctx.Err() != nil, errors.Is(err, patience.ErrOpen): // no call was made
		return Nobody
	case errors.Is(err, orderclose.ErrStoreDown):
		return Nobody
	case errors.Is(err, orderclose.ErrUnavailable), errors.Is(err, ErrUnclear), errors.Is(err, ErrRefused):
		return Anybody
	}
	return Item
}

// failedAlone notes an order that failed alone. It ends the round when enough orders
// have.
func (r *round) failedAlone(i int, err error) error {
	if r.judge(err) == Item {
		if err := r.alone(r.ctx, i, err); err != nil {
			return err
		}
		r.heard = true
		r.suspects.Heard()
		return nil
	}
	away := errors.Is(err, orderclose.ErrUnavailable)
	failures, since := r.suspects.Failed(r.id(i), r.patient([]int{i}))
	r.lone = append(r.lone, lone{i, failures, since, err})
	if away {
		r.waits++
	}
	switch known, fault := probe(r.ctx, r.store); {
	case fault != nil:
		return fmt.Errorf("%w: %w: while closing order %q failed with: %w", orderclose.ErrUnavailable, fault, r.id(i), err)
	case known:
		r.suspects.Heard()
	}
	if r.waits >= maxWaits || r.overwhelmed() {
		return err
	}
	return nil
}

// overwhelmed says that several orders failed alone and none got a verdict, or one if
// that was so in the batch before: the store is down.
func (r *round) overwhelmed() bool {
	return !r.heard && (len(r.lone) >= maxSingles || len(r.lone) > 0 && r.silent)
}

// decide blames those orders that are certain to be at fault.
func (r *round) decide() {
	for _, l := range r.lone {
		certain := false
		switch {
		case errors.Is(l.err, orderclose.ErrUnavailable) && r.proof == ProofSweep:
			certain = l.since || r.heard && r.waits < maxWaits
		case errors.Is(l.err, orderclose.ErrUnavailable):
			certain = l.failures >= r.proof
		case errors.Is(l.err, ErrRefused):
			certain = r.heard || l.since || !r.overwhelmed()
		default:
			certain = r.heard || l.since
		}
		if certain {
			r.give(l.order, orderclose.Failed, l.err)
			r.suspects.Blamed(r.id(l.order))
		}
	}
}
