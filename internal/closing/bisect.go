// Package closing closes orders in batches, and finds the orders that a batch fails
// for. The closer and the compensator share it.
//
//	bisect.go    Bisect: for a store whose errors say who is at fault
//	culprits.go  Culprits: also for a store that one order makes hang or crash
//	suspects.go  what Culprits remembers between two batches
//	search.go    the halving
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
// that is of no order, and changes nothing. errors.ErrUnsupported says that it cannot
// tell, as a wrapper of another Store may have to.
type Prober interface {
	Probe(ctx context.Context) error
}

// Bisect closes the requests, together if that succeeds. If the batch fails and
// it is not the store's fault, it is halved, down to the orders that are to
// blame, whose outcomes are Failed, or Contended; so one bad order costs its batch a few
// transactions and nobody their close. An order that fails alone is to blame if a
// Prober's Probe succeeds after it; else the store is. Outcomes come in the order of
// the requests. The error, if any, is the store's own (orderclose.ErrUnavailable) or
// ctx's: some of the requests may have been closed, and asking again is safe.
func Bisect(ctx context.Context, s Store, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	b := newBatch(s, path, requests)
	search := Search{
		Ask:   func(items []int) error { return b.ask(ctx, items) },
		Alone: func(i int, err error) error { return b.alone(ctx, i, err) },
		Judge: func(err error) Blame {
			if errors.Is(err, orderclose.ErrUnavailable) || ctx.Err() != nil {
				return Nobody
			}
			return Item
		},
	}
	if err := search.RunAll(len(b.orders)); err != nil {
		return nil, err
	}
	return b.outcomes, nil
}

// batch is requests and what became of them. An outcome without a verdict is missing.
type batch struct {
	store    Store
	path     orderclose.Path
	requests []orderclose.CloseRequest
	outcomes []orderclose.Outcome
	orders   [][]int // the requests of each order: they stay together
}

func newBatch(s Store, path orderclose.Path, requests []orderclose.CloseRequest) batch {
	b := batch{store: s, path: path, requests: requests, outcomes: make([]orderclose.Outcome, len(requests))}
	at := make(map[string]int, len(requests))
	for i, r := range requests {
		n, known := at[r.OrderID]
		if !known {
			n = len(b.orders)
			at[r.OrderID] = n
			b.orders = append(b.orders, nil)
		}
		b.orders[n] = append(b.orders[n], i)
	}
	return b
}

// id is the id of one of the orders.
func (b *batch) id(order int) string { return b.requests[b.orders[order][0]].OrderID }

// ask closes some of the orders together.
func (b *batch) ask(ctx context.Context, orders []int) error {
	part := make([]orderclose.CloseRequest, 0, len(orders))
	for _, order := range orders {
		for _, i := range b.orders[order] {
			part = append(part, b.requests[i])
		}
	}
	outcomes, err := b.store.CloseOrders(ctx, b.path, part)
	if err == nil && len(outcomes) != len(part) {
		err = fmt.Errorf("the store gave %d outcomes for %d orders", len(outcomes), len(part))
	}
	if err != nil {
		return err
	}
	for _, order := range orders {
		for _, i := range b.orders[order] {
			if b.outcomes[i], outcomes = outcomes[0], outcomes[1:]; b.outcomes[i].Verdict == "" {
				b.outcomes[i] = outcomeOf(b.requests[i], orderclose.Failed, errNoVerdict)
			}
		}
	}
	return nil
}

func outcomeOf(r orderclose.CloseRequest, v orderclose.Verdict, err error) orderclose.Outcome {
	return orderclose.Outcome{OrderID: r.OrderID, Verdict: v, Err: err}
}

var errNoVerdict = errors.New("the store gave no verdict")

// alone gives the verdict on an order whose close alone failed with err, which is not
// orderclose.ErrUnavailable.
func (b *batch) alone(ctx context.Context, order int, err error) error {
	if errors.Is(err, orderclose.ErrContended) {
		b.give(order, orderclose.Contended, err)
		return nil
	}
	if _, fault := probe(ctx, b.store); fault != nil {
		return fmt.Errorf("%w: %w: while closing order %q failed with: %w", orderclose.ErrUnavailable, fault, b.id(order), err)
	}
	b.give(order, orderclose.Failed, err)
	return nil
}

// give gives all requests of an order a verdict.
func (b *batch) give(order int, v orderclose.Verdict, err error) {
	for _, i := range b.orders[order] {
		b.outcomes[i] = outcomeOf(b.requests[i], v, err)
	}
}

// probe asks a Prober whether the store works. known is false for a store that cannot
// tell.
func probe(ctx context.Context, s Store) (known bool, fault error) {
	p, ok := s.(Prober)
	if !ok {
		return false, nil
	}
	if fault = p.Probe(ctx); errors.Is(fault, errors.ErrUnsupported) {
		return false, nil
	}
	return true, fault
}
