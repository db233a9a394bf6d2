package bisect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

// unclearParts is into how many parts orders are split after an unclear failure. Such a failure may
// be a timeout of seconds, while answers come soon. So many small parts find an order with fewer
// timeouts than halves, and answer the other orders earlier.
const unclearParts = 16

// fault says who may be at fault for the failure of a call.
type fault int

const (
	nobodys  fault = iota // the failure says nothing about the orders: the round ends
	anOrders              // one of the orders is at fault: they are halved
	unclear               // before the orders are split, calls for single orders show whether the store works
)

// faultOf returns who may be at fault for an error of the store.
func (r *round) faultOf(err error) fault {
	switch {
	case r.ctx.Err() != nil, errors.Is(err, orderclose.ErrNoOrderAtFault), r.certain && errors.Is(err, orderclose.ErrUnavailable):
		return nobodys
	case errors.Is(err, orderclose.ErrUnavailable), errors.Is(err, ErrUnclear):
		return unclear
	}
	return anOrders
}

// search closes the orders together. If that fails, it closes parts of them, down to the orders
// that fail alone. An error ends the round. The order of its argument changes.
func (r *round) search(orders []int) error {
	err := r.close(orders)
	if err == nil {
		return nil
	}
	f := r.faultOf(err)
	switch {
	case f == nobodys:
		return err
	case len(orders) == 1:
		return r.failedAlone(orders[0], f, err)
	}
	parts := 2
	if f == unclear {
		parts = unclearParts
		if orders, err = r.searchSingles(orders); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(orders, max((len(orders)+parts-1)/parts, 1)) {
		if err := r.search(part); err != nil { //mutant:bad-order-batch
			return err
		}
	}
	return nil
}

// searchSingles closes single random orders until the store gives an answer, and returns the orders
// that it did not try. If the store is down this costs a few calls. If it works this almost always
// costs one call, and there is a success between two failures, so that no circuit breaker opens.
func (r *round) searchSingles(orders []int) (left []int, err error) {
	for before := r.answers; r.answers == before && len(orders) > 0; orders = orders[1:] {
		i := rand.IntN(len(orders))
		orders[0], orders[i] = orders[i], orders[0]
		if err := r.search(orders[:1]); err != nil {
			return nil, err
		}
	}
	return orders, nil
}

// close closes orders in one call. An order that is alone because of a failure gets the longest
// timeout, so that a timeout can be its fault.
func (r *round) close(orders []int) error {
	var part []orderclose.CloseRequest
	ids := make([]string, len(orders))
	for n, order := range orders {
		ids[n] = r.id(order)
		for _, i := range r.orders[order] {
			part = append(part, r.requests[i])
		}
	}
	ctx := r.ctx
	if len(orders) == 1 && (len(r.orders) > 1 || r.hasFailed(orders[0])) {
		ctx = Alone(ctx)
	}
	var outcomes []orderclose.Outcome
	err := r.call(ctx, func(ctx context.Context) (err error) {
		outcomes, err = r.store.CloseOrders(ctx, r.path, part)
		return err
	})
	if err == nil {
		err = CheckOutcomes(part, outcomes)
	}
	if err != nil {
		r.lastErr = err
		r.log(err, ids)
		return err
	}
	for _, order := range orders {
		for _, i := range r.orders[order] {
			if r.outcomes[i], outcomes = outcomes[0], outcomes[1:]; r.outcomes[i].Verdict == "" {
				r.outcomes[i].Verdict, r.outcomes[i].Err = orderclose.Failed, errNoVerdict
			}
		}
	}
	r.answered(ids...)
	return nil
}

// call calls the store by f, within the time limit if there is one.
func (r *round) call(ctx context.Context, f func(ctx context.Context) error) error {
	if r.Limited {
		limited, cancel := context.WithTimeout(ctx, CallTimeout) //mutant:endless-close-call
		defer cancel()
		ctx = limited
	}
	err := retry.Catch(func() error { return f(ctx) })
	if err != nil && ctx.Err() != nil && r.ctx.Err() == nil { //mutant:panic-is-outage
		err = retry.WithCauses(fmt.Errorf("no answer within %v: %w", CallTimeout, err), orderclose.ErrUnavailable)
	}
	return err
}

var errNoVerdict = errors.New("the store returned no verdict")

// log logs an error of the store that a programmer must see.
func (r *round) log(err error, ids []string) {
	logger := r.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if p, panicked := errors.AsType[*retry.PanicError](err); panicked && !r.panicked {
		r.panicked = true // once: the search for the order panics again and again
		logger.Error("the store panicked, its order is searched", "orders", len(ids), "first", ids[0], "err", p, "stack", p.Stack)
	}
	if _, broken := errors.AsType[contractError](err); broken && len(ids) > 1 {
		logger.Error("the store breaks its contract, so its orders are closed one by one", "err", err)
	}
}
