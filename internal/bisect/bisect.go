// Package bisect closes orders in batches, and finds the orders that make a batch fail.
//
// The closer and the compensator use Culprits, for a store over many batches. The HTTP
// handler of a service that closes orders uses Bisect, for one batch. The payment check
// uses Search and Suspects for questions to the payment provider, and the release worker
// uses Suspects for events.
//
//	bisect.go    Bisect: for a store whose errors tell whether an order is at fault
//	culprits.go  Culprits: also for a store that a single order makes hang or crash
//	suspects.go  what Culprits remembers between two batches
//	search.go    the halving
package bisect

import (
	"context"
	"errors"
	"fmt"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

// Store closes orders; see store.Store.CloseOrders for the contract. After an error,
// no order of the batch was closed, or it is unknown which were. A panic counts as an error that
// is the fault of an order: it becomes a *retry.PanicError.
type Store interface {
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Prober is a Store that can check whether it works: Probe does a write that belongs
// to no order, and leaves no change. It returns errors.ErrUnsupported if it cannot
// check, for example in a wrapper of a Store that is no Prober.
type Prober interface {
	Probe(ctx context.Context) error
}

// Probe checks whether a store works. It returns errors.ErrUnsupported if the store is no Prober.
func Probe(ctx context.Context, s Store) error {
	if p, ok := s.(Prober); ok {
		return p.Probe(ctx)
	}
	return errors.ErrUnsupported
}

// Bisect closes the requests, in one batch if that succeeds. If the batch fails and
// an order may be at fault, Bisect halves it down to the orders at fault; their
// outcomes are Failed or Contended. So a bad order costs its batch a few
// transactions, and the other orders are closed. An order that fails alone is at
// fault, unless the store is a Prober whose Probe then fails too. Outcomes have the
// order of the requests. An error is the store's own (orderclose.ErrUnavailable) or
// ctx's: some of the requests may have been closed, and closing them again is safe.
func Bisect(ctx context.Context, s Store, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	b := newBatch(s, path, requests)
	search := Search{
		Ask:   func(items []int) error { return b.ask(ctx, items) },
		Alone: func(i int, err error) error { return b.alone(ctx, i, err) },
		Classify: func(err error) Blame {
			if errors.Is(err, orderclose.ErrUnavailable) || ctx.Err() != nil {
				return NotItems
			}
			return ItemFault
		},
	}
	if err := search.RunAll(len(b.orders)); err != nil {
		return nil, err
	}
	return b.outcomes, nil
}

// batch holds requests and their outcomes. An outcome without a verdict is missing.
type batch struct {
	store    Store
	path     orderclose.Path
	requests []orderclose.CloseRequest
	outcomes []orderclose.Outcome
	orders   [][]int // indexes of the requests of each order, which are asked for together
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

// contractError says how a store breaks its contract.
type contractError string

func (e contractError) Error() string {
	return string(e) + ": it must return one outcome for each request, in the order of the requests"
}

// CheckOutcomes returns an error if a store did not return one outcome for each request, in the
// order of the requests.
func CheckOutcomes(requests []orderclose.CloseRequest, outcomes []orderclose.Outcome) error {
	if len(outcomes) != len(requests) {
		return contractError(fmt.Sprintf("the store returned %d outcomes for %d requests", len(outcomes), len(requests)))
	}
	for i, o := range outcomes {
		if o.OrderID != requests[i].OrderID {
			return contractError(fmt.Sprintf("the store returned outcome %d for order %q, want %q", i, o.OrderID, requests[i].OrderID))
		}
	}
	return nil
}

// id returns the id of an order of the batch.
func (b *batch) id(order int) string { return b.requests[b.orders[order][0]].OrderID }

// ask closes some of the orders together.
func (b *batch) ask(ctx context.Context, orders []int) error {
	part := make([]orderclose.CloseRequest, 0, len(orders))
	for _, order := range orders {
		for _, i := range b.orders[order] {
			part = append(part, b.requests[i])
		}
	}
	var outcomes []orderclose.Outcome
	err := retry.Catch(func() (err error) {
		outcomes, err = b.store.CloseOrders(ctx, b.path, part)
		return err
	})
	if err == nil {
		err = CheckOutcomes(part, outcomes)
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

var errNoVerdict = errors.New("the store returned no verdict")

// alone sets the outcome of an order whose close failed with err when it was alone in
// its batch. err is not orderclose.ErrUnavailable.
func (b *batch) alone(ctx context.Context, order int, err error) error {
	if errors.Is(err, orderclose.ErrContended) {
		b.setVerdict(order, orderclose.Contended, err)
		return nil
	}
	if _, fault := probe(ctx, b.store); fault != nil {
		return retry.WithCauses(fmt.Errorf("%w: close of order %q failed with: %w", fault, b.id(order), err), orderclose.ErrUnavailable)
	}
	b.setVerdict(order, orderclose.Failed, err)
	return nil
}

// setVerdict sets the verdict of all requests of an order.
func (b *batch) setVerdict(order int, v orderclose.Verdict, err error) {
	for _, i := range b.orders[order] {
		b.outcomes[i] = outcomeOf(b.requests[i], v, err)
	}
}

// probe checks whether the store works. known is false if the store cannot check.
func probe(ctx context.Context, s Store) (known bool, fault error) {
	if fault = retry.Catch(func() error { return Probe(ctx, s) }); errors.Is(fault, errors.ErrUnsupported) {
		return false, nil
	}
	return true, fault
}
