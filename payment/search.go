package payment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"orderclose"
	"orderclose/internal/closing"
	"orderclose/internal/patience"
)

const (
	// maxAlone is how many orders of a batch are asked for alone in vain: each may cost
	// the longest time-out (3 s).
	maxAlone = 3
	// maxSearch bounds how long the orders without an answer are asked for again. That
	// is enough to find one order on which the provider hangs among a hundred: seven
	// questions time out after 3 s each.
	maxSearch = 30 * time.Second
)

// batch is the requests of one CloseOrders and what became of them. Everything in it
// belongs to the goroutine of CloseOrders.
type batch struct {
	*Asking
	path     orderclose.Path
	requests []orderclose.CloseRequest
	outcomes []orderclose.Outcome
	open     map[string][]int // the requests of orders that nobody has answered for
	heard    bool             // a question was answered
	last     error            // why the last question had no answer
}

// newBatch makes those orders PaymentPending that would be closed by the outcomes of a
// preview.
func newBatch(a *Asking, path orderclose.Path, requests []orderclose.CloseRequest, outcomes []orderclose.Outcome) *batch {
	b := &batch{Asking: a, path: path, requests: requests, outcomes: outcomes, open: map[string][]int{}}
	for i, o := range outcomes {
		if o.Verdict == orderclose.Closed {
			outcomes[i].Verdict = orderclose.PaymentPending
			b.open[o.OrderID] = append(b.open[o.OrderID], i)
		}
	}
	return b
}

// askForAll asks for the orders, and settles what is answered. The error is the store's.
func (b *batch) askForAll(ctx context.Context) error {
	known, others := b.split()
	if b.suspects.Silent() && len(others) > 0 { // the provider may be down, or hang on one of them
		first := rand.IntN(len(others))
		if err := b.askAgain(ctx, others, []int{first}); errors.Is(err, errStore) {
			return err
		} else if err != nil {
			b.failedAlone(others[first], err)
			return nil
		}
		others = slices.Delete(others, first, first+1)
	}
	answers, unanswered := b.ask(ctx, others)
	b.heard = b.heard || len(answers) > 0
	if err := b.settle(ctx, others, answers); err != nil {
		return err
	}
	err := b.search(ctx, unanswered, known)
	if b.last != nil && !b.heard {
		b.suspects.SetSilent()
	}
	return err
}

// split returns the orders to ask for, in order: known are those for which the provider
// gave no answer alone before.
func (b *batch) split() (known, others []string) {
	for id := range b.open {
		if b.suspects.Has(id) {
			known = append(known, id)
		} else {
			others = append(others, id)
		}
	}
	slices.Sort(others)
	return known, others // the order of a map is random, so that each of known has its turn
}

// settle does what the provider's answers ask for. The error is the store's.
func (b *batch) settle(ctx context.Context, ids []string, answers map[string]Answer) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("asking the payment provider: %w", err)
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
	err := b.do(paid, func(part []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return b.o.Store.PayOrders(ctx, part)
	})
	if err != nil {
		return err
	}
	return b.do(unpaid, func(part []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return b.o.Store.CloseOrders(ctx, b.path, part)
	})
}

// do has something done with some requests, and notes the outcomes.
func (b *batch) do(places []int, with func([]orderclose.CloseRequest) ([]orderclose.Outcome, error)) error {
	if len(places) == 0 {
		return nil
	}
	slices.Sort(places)
	part := make([]orderclose.CloseRequest, len(places))
	for i, at := range places {
		part[i] = b.requests[at]
	}
	done, err := with(part)
	if err == nil && len(done) != len(part) {
		err = fmt.Errorf("the store gave %d outcomes for %d orders", len(done), len(part))
	}
	if err != nil {
		return err
	}
	for i, at := range places {
		b.outcomes[at] = done[i]
	}
	return nil
}

// errStore marks an error of the store in a search for orders without an answer.
var errStore = errors.New("the store failed")

// search asks again for the orders of questions that had no answer, in smaller and
// smaller questions, and for the known suspects, each alone. What was answered is
// settled at once: an answer of the provider ages. The error is the store's.
func (b *batch) search(ctx context.Context, unanswered []failedQuestion, known []string) error {
	var parts [][]string
	for _, q := range unanswered {
		b.last = q.err
		if len(q.ids) == 1 {
			b.failedAlone(q.ids[0], q.err)
			continue
		}
		half := len(q.ids) / 2
		parts = append(parts, q.ids[:half], q.ids[half:])
	}
	for _, id := range known {
		parts = append(parts, []string{id})
	}
	alone, began := 0, time.Now()
	for _, ids := range parts {
		search := closing.Search{
			Ask: func(items []int) error { return b.askAgain(ctx, ids, items) },
			Judge: func(err error) closing.Blame {
				if errors.Is(err, errStore) || errors.Is(err, patience.ErrOpen) || ctx.Err() != nil || time.Since(began) > maxSearch {
					return closing.Nobody
				}
				return closing.Anybody
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

// failedAlone remembers an order for which the provider gives no answer alone.
func (b *batch) failedAlone(id string, err error) {
	if !errors.Is(err, patience.ErrOpen) {
		b.suspects.Failed(id, true)
	}
}

// askAgain asks for some of the orders, and settles them. One that is asked for alone
// may take as long as a question ever may.
func (b *batch) askAgain(ctx context.Context, of []string, items []int) error {
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = of[item]
	}
	asking := ctx
	if len(ids) == 1 {
		asking = patience.HearOut(ctx)
	}
	said, err := b.askOne(asking, ids)
	if err != nil {
		b.last = err
		return err
	}
	b.heard = true
	answers := make(map[string]Answer, len(ids))
	for i, id := range ids {
		answers[id] = said[i]
	}
	if err := b.settle(ctx, ids, answers); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	return nil
}

// tellUnanswered tells of the orders for which there was no answer.
func (b *batch) tellUnanswered() {
	if len(b.open) == 0 {
		return
	}
	first := ""
	for id := range b.open {
		if first == "" || id < first {
			first = id
		}
	}
	b.o.Logger.Warn("the payment provider does not say whether orders are paid; they stay as they are", "orders", len(b.open), "first", first, "err", b.last)
	b.o.Metrics.PaymentAnswers(Unknown, len(b.open))
}
