package payment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// maxAlone is how many orders of a batch may get no answer when asked for alone,
	// before the search ends: each may cost the longest timeout (3 s).
	maxAlone = 3
	// maxSearch limits the time of a search. It is enough to find one order among a
	// hundred on which the provider hangs: seven questions time out after 3 s each.
	maxSearch = 30 * time.Second
)

// batch holds the requests of one CloseOrders and their outcomes. It belongs to the
// goroutine of CloseOrders.
type batch struct {
	*CheckedStore
	path     orderclose.Path
	requests []orderclose.CloseRequest
	outcomes []orderclose.Outcome
	open     map[string][]int // indexes of the requests of orders without an answer
	answered bool             // a question was answered
	lastErr  error            // why the last failed question had no answer
}

// newBatch takes the outcomes of a preview and changes those that would be Closed to
// PaymentPending, until the provider has answered.
func newBatch(a *CheckedStore, path orderclose.Path, requests []orderclose.CloseRequest, outcomes []orderclose.Outcome) *batch {
	b := &batch{CheckedStore: a, path: path, requests: requests, outcomes: outcomes, open: map[string][]int{}}
	for i, o := range outcomes {
		if o.Verdict == orderclose.Closed {
			outcomes[i].Verdict = orderclose.PaymentPending
			b.open[o.OrderID] = append(b.open[o.OrderID], i)
		}
	}
	return b
}

// askForAll asks for all orders and applies the answers. The error is the store's.
func (b *batch) askForAll(ctx context.Context) error {
	suspects, others := b.split()
	if b.suspects.NoVerdicts() && len(others) > 0 { // the provider may be down, or hang on one of them
		first := rand.IntN(len(others))
		if err := b.askSome(ctx, others, []int{first}); errors.Is(err, errStore) {
			return err
		} else if err != nil {
			b.failedAlone(others[first], err)
			return nil
		}
		others = slices.Delete(others, first, first+1)
	}
	answers, unanswered := b.ask(ctx, others)
	b.answered = b.answered || len(answers) > 0
	if err := b.settle(ctx, others, answers); err != nil {
		return err
	}
	err := b.search(ctx, unanswered, suspects)
	if b.lastErr != nil && !b.answered {
		b.suspects.SetNoVerdicts()
	}
	return err
}

// split returns the orders to ask for. suspects are the orders for which the provider gave
// no answer when it was asked for them alone. others is sorted.
func (b *batch) split() (suspects, others []string) {
	for id := range b.open {
		if b.suspects.Has(id) {
			suspects = append(suspects, id)
		} else {
			others = append(others, id)
		}
	}
	slices.Sort(others)
	return suspects, others // the order of suspects is random, so that each suspect is sometimes asked for first
}

// settle applies the provider's answers. The error is the store's.
func (b *batch) settle(ctx context.Context, ids []string, answers map[string]Answer) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ask the payment provider: %w", err)
	}
	var paid, unpaid []int
	for _, id := range ids {
		switch answers[id] {
		case Paid:
			paid = append(paid, b.open[id]...)
		case Unpaid:
			unpaid = append(unpaid, b.open[id]...)
		case "":
			continue
		}
		delete(b.open, id)
	}
	err := b.apply(paid, func(part []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return b.o.Store.PayOrders(ctx, part)
	})
	if err != nil {
		return err
	}
	return b.apply(unpaid, func(part []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return b.o.Store.CloseOrders(ctx, b.path, part)
	})
}

// apply calls with for some requests, and stores the outcomes.
func (b *batch) apply(indexes []int, with func([]orderclose.CloseRequest) ([]orderclose.Outcome, error)) error {
	if len(indexes) == 0 {
		return nil
	}
	slices.Sort(indexes)
	part := make([]orderclose.CloseRequest, len(indexes))
	for i, index := range indexes {
		part[i] = b.requests[index]
	}
	done, err := with(part)
	if err == nil {
		err = bisect.CheckOutcomes(part, done)
	}
	if err != nil {
		return err
	}
	for i, index := range indexes {
		b.outcomes[index] = done[i]
	}
	return nil
}

// errStore marks an error of the store during a search.
var errStore = errors.New("the store failed")

// search splits the questions that had no answer into smaller and smaller ones, and
// asks for each suspect alone. It applies each answer at once, because an
// answer gets outdated. The error is the store's.
func (b *batch) search(ctx context.Context, unanswered []failedQuestion, suspects []string) error {
	var parts [][]string
	for _, q := range unanswered {
		b.lastErr = q.err
		if len(q.ids) == 1 {
			b.failedAlone(q.ids[0], q.err)
			continue
		}
		half := len(q.ids) / 2
		parts = append(parts, q.ids[:half], q.ids[half:])
	}
	for _, id := range suspects {
		parts = append(parts, []string{id})
	}
	alone, began := 0, time.Now()
	for _, ids := range parts {
		search := bisect.Search{
			Ask: func(items []int) error { return b.askSome(ctx, ids, items) },
			Classify: func(err error) bisect.Blame {
				if errors.Is(err, errStore) || errors.Is(err, httpcall.ErrBreakerOpen) || ctx.Err() != nil || time.Since(began) > maxSearch {
					return bisect.NotItems
				}
				return bisect.Unclear
			},
			Alone: func(i int, err error) error {
				b.failedAlone(ids[i], err)
				if alone++; alone >= maxAlone {
					return err
				}
				return nil
			},
		}
		if err := search.RunAll(len(ids)); errors.Is(err, errStore) {
			return err
		} else if err != nil {
			return nil
		}
	}
	return nil
}

// failedAlone records an order that the provider did not answer for when asked for
// alone.
func (b *batch) failedAlone(id string, err error) {
	if !errors.Is(err, httpcall.ErrBreakerOpen) {
		b.suspects.Failed(id, true)
	}
}

// askSome asks for some of the orders and applies the answers. A question about one
// order gets the longest timeout.
func (b *batch) askSome(ctx context.Context, of []string, items []int) error {
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = of[item]
	}
	asking := ctx
	if len(ids) == 1 {
		asking = httpcall.WithMaxTimeout(ctx)
	}
	got, err := b.askOne(asking, ids)
	if err != nil {
		b.lastErr = err
		return err
	}
	b.answered = true
	answers := make(map[string]Answer, len(ids))
	for i, id := range ids {
		answers[id] = got[i]
	}
	if err := b.settle(ctx, ids, answers); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	return nil
}

// logUnanswered logs and counts the orders without an answer.
func (b *batch) logUnanswered() {
	if len(b.open) == 0 {
		return
	}
	first := ""
	for id := range b.open {
		if first == "" || id < first {
			first = id
		}
	}
	b.o.Logger.Warn("payment provider gave no answer, orders stay pending", "orders", len(b.open), "first", first, "err", b.lastErr, retry.Stack(b.lastErr))
	b.o.Metrics.PaymentAnswers(Unknown, len(b.open))
}
