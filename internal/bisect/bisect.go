// Package bisect calls a store of orders with batches. If a batch fails, a Lane splits it, and so finds the orders that make it fail.
//
// The compensator has a Lane beside its turns, for pages that failed. Search closes one batch: the closer, the payment check with its questions to
// the payment provider, and by Bisect the HTTP handler of a service that closes orders.
//
//	bisect.go   what a store is
//	lane.go     Lane: the search for orders at fault
//	search.go   Search: a batch, its Lane, and who is at fault
//	call.go     Caller and Limits: calls within limits of time
package bisect

import (
	"context"
	"errors"
	"fmt"

	"github.com/orderclose/orderclose"
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

// MaxBatch returns how many orders a store accepts in one call; 0 means any number.
func MaxBatch(s Store) int {
	if l, ok := s.(interface{ MaxBatch() int }); ok {
		return l.MaxBatch()
	}
	return 0
}

// Wrapped is a Store that passes the calls of Probe and MaxBatch on. A wrapper of a Store embeds it.
type Wrapped struct{ Store }

// Probe implements Prober.
func (w Wrapped) Probe(ctx context.Context) error { return Probe(ctx, w.Store) }

// LimitsItself reports whether the Store limits the time of its calls.
func (w Wrapped) LimitsItself() bool { return LimitsItself(w.Store) }

// MaxBatch returns how many orders the Store accepts in one call; 0 means any number.
func (w Wrapped) MaxBatch() int { return MaxBatch(w.Store) }

// aloneKey is the context key of Alone.
type aloneKey struct{}

// Alone returns the context of a call that should get the longest time limit, such as one that decides whether
// its one order is at fault.
func Alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

// IsAlone reports whether a call decides whether its one order is at fault. It should get the
// longest timeout: only then can a timeout be the order's fault.
func IsAlone(ctx context.Context) bool { return ctx.Value(aloneKey{}) != nil }

// searchKey is the context key of Searching.
type searchKey struct{}

// Searching returns the context of a call of a Lane. Its failure must not count as one of the store, so it opens no circuit breaker. With alone it
// gets the longest time limit, too.
func Searching(ctx context.Context, alone bool) context.Context {
	if alone {
		ctx = Alone(ctx)
	}
	return context.WithValue(ctx, searchKey{}, true)
}

// IsSearching reports whether a call is one of a Lane.
func IsSearching(ctx context.Context) bool { return ctx.Value(searchKey{}) == true }

// Fresh returns the context of a call whose failure counts, whatever its caller searches: a question to a payment provider is one of its own.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, searchKey{}, false) }

// LimitsItself reports whether a store limits the time of its calls: a service by the durations of earlier calls, or a payment provider.
func LimitsItself(s Store) bool {
	l, ok := s.(interface{ LimitsItself() bool })
	return ok && l.LimitsItself()
}

// Fault is the error of an order that cannot be closed, with its cause. Search puts the cause into the Outcome of the order.
type Fault struct {
	Cause orderclose.FailureCause
	Err   error
}

// Error returns the cause and the text of Err.
func (f *Fault) Error() string { return string(f.Cause) + ": " + f.Err.Error() }

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }

// CauseOf returns the cause of a Fault in err; "": there is none.
func CauseOf(err error) orderclose.FailureCause {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Cause
	}
	return ""
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

// Bisect closes the requests by a Search for one batch, of a store whose errors tell whether an order is at fault. An error is the store's own
// (orderclose.ErrUnavailable) or ctx's: some of the requests may have been closed, and closing them again is safe.
func Bisect(ctx context.Context, s Store, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes, err := (&Search{Certain: true}).Close(ctx, s, path, requests)
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}
