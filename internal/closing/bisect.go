// Package closing is what the closer and the compensator share of closing
// orders in batches.
package closing

import (
	"context"
	"errors"
	"fmt"

	"orderclose"
)

// Store closes orders; see store.Store.CloseOrders for the contract. An error
// means that none of the batch was closed, or that it is not known.
type Store interface {
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Prober is a Store that can tell whether it works at all: Probe does something
// that is of no order, and changes nothing.
type Prober interface {
	Probe(ctx context.Context) error
}

// Bisect closes the requests, together if that goes well. If the batch fails and
// it is not the store's fault, it is halved, down to the orders that are to
// blame, whose outcomes are Failed, or Contended; so one bad order costs its batch a few
// transactions and nobody their close. An order that fails alone is to blame if a
// Prober's Probe succeeds after it; else the store is. Outcomes come in the order of
// the requests. The error, if any, is the store's own (orderclose.ErrUnavailable) or
// ctx's: some of the requests may have been closed, and asking again is safe.
func Bisect(ctx context.Context, s Store, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	outcomes, err := s.CloseOrders(ctx, path, requests)
	if err == nil && len(outcomes) != len(requests) {
		err = fmt.Errorf("the store gave %d outcomes for %d orders", len(outcomes), len(requests))
	}
	switch {
	case err == nil:
		return outcomes, nil
	case errors.Is(err, orderclose.ErrUnavailable), ctx.Err() != nil:
		return nil, err
	case len(requests) == 1 && errors.Is(err, orderclose.ErrContended):
		return []orderclose.Outcome{{OrderID: requests[0].OrderID, Verdict: orderclose.Contended, Err: err}}, nil
	case len(requests) == 1:
		return blame(ctx, s, requests[0].OrderID, err)
	}
	half := len(requests) / 2
	first, err := Bisect(ctx, s, path, requests[:half])
	if err != nil {
		return nil, err
	}
	second, err := Bisect(ctx, s, path, requests[half:])
	if err != nil {
		return nil, err
	}
	return append(first, second...), nil
}

// blame gives the verdict on an order whose close alone failed with err.
func blame(ctx context.Context, s Store, orderID string, err error) ([]orderclose.Outcome, error) {
	if p, ok := s.(Prober); ok {
		if fault := p.Probe(ctx); fault != nil {
			return nil, fmt.Errorf("%w: %w: while closing order %q failed with: %w", orderclose.ErrUnavailable, fault, orderID, err)
		}
	}
	return []orderclose.Outcome{{OrderID: orderID, Verdict: orderclose.Failed, Err: err}}, nil
}
