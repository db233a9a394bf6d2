package payment

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/retry"
)

// maxSearch limits the time of all questions of one close, the search for the orders without an answer included. So what is answered
// is closed within the 10 s of a call of the store.
const maxSearch = 8 * time.Second

// inquiry is the bisect.Store of one CheckedStore.CloseOrders. It asks the provider about orders, and
// applies each answer at once, because an answer gets outdated. It is safe for concurrent use.
type inquiry struct {
	checked *CheckedStore // no embedded field: the probe of its database says nothing about the provider
	began   time.Time

	mu       sync.Mutex
	outcomes map[string][]orderclose.Outcome // by order, if it has an answer: one for each of its requests
	storeErr error                           // error of the store; the search ends
	lastErr  error                           // why the last question without an answer has none
}

// CloseOrders implements bisect.Store. It asks about the orders without an answer, in questions
// of at most Options.Batch orders, several at the same time.
func (q *inquiry) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if time.Since(q.began) >= maxSearch {
		return nil, orderclose.ErrNoOrderAtFault
	}
	limited, cancel := context.WithDeadline(ctx, q.began.Add(maxSearch))
	defer cancel()
	questions := slices.Collect(slices.Chunk(q.unanswered(requests), q.checked.o.Batch))
	got, failures := make([][]Answer, len(questions)), make([]error, len(questions))
	var asking sync.WaitGroup
	for i, question := range questions {
		asking.Go(func() { got[i], failures[i] = q.checked.ask(limited, question) })
	}
	asking.Wait()
	answers, err := map[string]Answer{}, ctx.Err()
	for i, question := range questions {
		if failures[i] != nil {
			err = retry.WithCauses(failures[i], orderclose.ErrUnavailable) // whatever it is, no order has failed //mutant:no-answer-pending
			continue
		}
		for j, id := range question {
			answers[id] = got[i][j]
		}
	}
	if ctx.Err() == nil {
		storeErr := retry.Catch(func() error { return q.applyAnswers(ctx, path, requests, answers) })
		if storeErr != nil {
			return nil, q.ends(storeErr)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lastErr = cmp.Or(err, q.lastErr)
	return q.of(requests), err
}

// unanswered returns the ids of the orders without an answer.
func (q *inquiry) unanswered(requests []orderclose.CloseRequest) (ids []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range requests {
		if len(q.outcomes[r.OrderID]) == 0 {
			ids = append(ids, r.OrderID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// ends keeps an error of the store, and returns one that ends the search.
func (q *inquiry) ends(storeErr error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.storeErr = storeErr
	return orderclose.ErrNoOrderAtFault
}

// applyAnswers applies the provider's answers. The error is the store's.
func (q *inquiry) applyAnswers(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest, answers map[string]Answer) error {
	var paid, unpaid []orderclose.CloseRequest // unpaid: nothing keeps the order from being closed
	var unknown []orderclose.Outcome
	for _, r := range requests {
		switch answers[r.OrderID] {
		case Paid:
			paid = append(paid, r)
		case q.checked.closes: //mutant:unpaid-answer-closes
			unpaid = append(unpaid, r)
		case Unknown:
			unknown = append(unknown, orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.PaymentPending})
		}
	}
	q.keep(unknown)
	err := q.collect(paid, func() ([]orderclose.Outcome, error) { return q.checked.o.Store.PayOrders(ctx, paid) })
	if err != nil {
		return err
	}
	return q.collect(unpaid, func() ([]orderclose.Outcome, error) { return q.checked.o.Store.CloseOrders(ctx, path, unpaid) })
}

// collect calls do, unless there are no requests, and keeps the outcomes.
func (q *inquiry) collect(requests []orderclose.CloseRequest, do func() ([]orderclose.Outcome, error)) error {
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
	q.keep(done)
	return nil
}

// keep keeps outcomes.
func (q *inquiry) keep(outcomes []orderclose.Outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range outcomes {
		q.outcomes[o.OrderID] = append(q.outcomes[o.OrderID], o)
	}
}

// of returns the outcome of each request, without a verdict if its order has no answer. The
// requests of an order must be all of its requests.
func (q *inquiry) of(requests []orderclose.CloseRequest) []orderclose.Outcome {
	outcomes, used := make([]orderclose.Outcome, len(requests)), map[string]int{}
	for i, r := range requests {
		outcomes[i].OrderID = r.OrderID
		if all := q.outcomes[r.OrderID]; len(all) > 0 {
			outcomes[i] = all[used[r.OrderID]]
			used[r.OrderID]++
		}
	}
	return outcomes
}
