package payment

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/retry"
)

// maxSearch limits the time of a search for the orders without an answer. It is enough to find one
// order among a hundred on which the provider hangs: seven questions time out after 3 s each.
const maxSearch = 30 * time.Second

// batch is the bisect.Store of one CheckedStore.CloseOrders. It asks the provider about orders, and
// applies each answer at once, because an answer gets outdated. It belongs to one goroutine.
type batch struct {
	checked  *CheckedStore // no embedded field: the probe of its database says nothing about the provider
	began    time.Time
	outcomes map[string][]orderclose.Outcome // by order, if it has an answer: one for each of its requests
	storeErr error                           // error of the store; the search ends
	lastErr  error                           // why the last question without an answer has none
}

// CloseOrders implements bisect.Store. It asks about the orders without an answer, in questions
// of at most Options.Batch orders, several at the same time.
func (b *batch) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if b.lastErr != nil && time.Since(b.began) > maxSearch {
		return nil, orderclose.ErrNoOrderAtFault
	}
	var ids []string
	for _, r := range requests {
		if len(b.outcomes[r.OrderID]) == 0 {
			ids = append(ids, r.OrderID)
		}
	}
	slices.Sort(ids)
	parts := slices.Collect(slices.Chunk(slices.Compact(ids), b.checked.o.Batch))
	got, failures := make([][]Answer, len(parts)), make([]error, len(parts))
	var questions sync.WaitGroup
	for i, part := range parts {
		questions.Go(func() { got[i], failures[i] = b.checked.ask(ctx, part) })
	}
	questions.Wait()
	answers, err := make(map[string]Answer, len(ids)), ctx.Err()
	for i, part := range parts {
		if failures[i] != nil {
			b.lastErr = failures[i]
			err = retry.WithCauses(b.lastErr, orderclose.ErrUnavailable) // whatever it is, no order has failed
			continue
		}
		for j, id := range part {
			answers[id] = got[i][j]
		}
	}
	if ctx.Err() == nil {
		b.storeErr = retry.Catch(func() error { return b.settle(ctx, path, requests, answers) })
	}
	if b.storeErr != nil {
		return nil, orderclose.ErrNoOrderAtFault
	}
	return b.of(requests), err
}

// settle applies the provider's answers. The error is the store's.
func (b *batch) settle(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest, answers map[string]Answer) error {
	var paid, unpaid []orderclose.CloseRequest
	for _, r := range requests {
		switch answers[r.OrderID] {
		case Paid:
			paid = append(paid, r)
		case Unpaid:
			unpaid = append(unpaid, r)
		case Unknown:
			b.outcomes[r.OrderID] = append(b.outcomes[r.OrderID], orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.PaymentPending})
		}
	}
	err := b.apply(paid, func() ([]orderclose.Outcome, error) { return b.checked.o.Store.PayOrders(ctx, paid) })
	if err != nil {
		return err
	}
	return b.apply(unpaid, func() ([]orderclose.Outcome, error) { return b.checked.o.Store.CloseOrders(ctx, path, unpaid) })
}

// apply calls do, unless there are no requests, and keeps the outcomes.
func (b *batch) apply(requests []orderclose.CloseRequest, do func() ([]orderclose.Outcome, error)) error {
	if len(requests) == 0 {
		return nil
	}
	done, err := do()
	if err == nil {
		err = bisect.CheckOutcomes(requests, done)
	}
	if err != nil {
		return err
	}
	for _, o := range done {
		b.outcomes[o.OrderID] = append(b.outcomes[o.OrderID], o)
	}
	return nil
}

// of returns the outcome of each request, without a verdict if its order has no answer. The
// requests of an order must be all of its requests.
func (b *batch) of(requests []orderclose.CloseRequest) []orderclose.Outcome {
	outcomes, used := make([]orderclose.Outcome, len(requests)), map[string]int{}
	for i, r := range requests {
		outcomes[i].OrderID = r.OrderID
		if all := b.outcomes[r.OrderID]; len(all) > 0 {
			outcomes[i] = all[used[r.OrderID]]
			used[r.OrderID]++
		}
	}
	return outcomes
}
