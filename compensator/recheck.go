package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
)

// Recheck makes a Compensator ask the payment provider again about orders that were closed: a payment
// may have succeeded without the shop knowing it. Closed orders are asked about also while closing is
// paused: nothing is closed. All fields are required.
type Recheck struct {
	Store ClosedStore
	Asker Asker
	// Steps are how long after its close each order is asked about, ascending. Orders closed before
	// the first start, by more than a step, are not asked about at this step. After that none is
	// left out, however long no Compensator runs.
	Steps []time.Duration
	Batch int // orders per question
	// Rate is how many orders per second the holder of the lock asks about. Without a lock every process asks at this rate.
	Rate int
}

// ClosedStore knows which orders were closed. Its calls end by themselves.
type ClosedStore interface {
	// ClosedBetween returns up to limit orders closed at or after from and before to, each with
	// OrderID and At, the time of its close, sorted by both. Of those closed at from it leaves
	// out the orders up to the id after.
	ClosedBetween(ctx context.Context, from, to time.Time, after string, limit int) ([]orderclose.Outcome, error)
	// Rechecked returns the time that KeepRechecked stored last for the name and the step, zero if
	// there is none, and the current time of the clock that sets At.
	Rechecked(ctx context.Context, name string, step time.Duration) (until, now time.Time, err error)
	KeepRechecked(ctx context.Context, name string, step time.Duration, until time.Time) error
}

// Asker asks the payment provider about closed orders, and records the late payment of each paid one. A question that
// takes 10 s counts as failed, and its context ends.
type Asker interface {
	// CloseOrders closes nothing. It returns one outcome for each request: AlreadyPaid if a late payment
	// was recorded now, PaymentPending if the provider does not know or gives no answer,
	// and otherwise AlreadyClosed. An error is the store's: then any of them may have been recorded.
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
	// Failing returns since when the provider has given no answer, and why. Zero: the last question
	// was answered.
	Failing() (since time.Time, cause string)
}

func (k *Recheck) check() error {
	if k != nil && (k.Store == nil || k.Asker == nil || len(k.Steps) == 0 || !slices.IsSorted(k.Steps) || k.Steps[0] <= 0 || k.Batch <= 0 || k.Rate <= 0) {
		return errors.New("compensator: Recheck needs Store, Asker, ascending Steps, Batch and Rate")
	}
	return nil
}

// Results of a recheck, by order.
const (
	recheckFound   = "late_payment" // the order is paid, and a late payment was recorded
	recheckNone    = "none"         // it is not paid, or its late payment is known
	recheckUnknown = "unknown"      // there is no answer; the next step asks again
	recheckGivenUp = "given_up"     // there is no answer, and no step is left
)

// rechecker asks again about closed orders. It belongs to one goroutine.
type rechecker struct {
	*Compensator
	k       *Recheck
	limiter *rate.Limiter
	steps   []recheckStep
	failing time.Time // since when each turn has ended with an error
}

// recheckStep is a step of Recheck. Its position is a time of the close in the store: all orders closed before it were asked about.
type recheckStep struct {
	after  time.Duration
	asked  orderclose.Outcome // the last order of a page that did not end a run
	silent time.Time          // when the provider first failed to answer about each order of the present page
	behind time.Duration      // by how much the position was behind after the last page
}

// recheck is the task that asks again about closed orders.
func (c *Compensator) recheck() Task {
	k := *c.o.Recheck
	k.Batch = min(k.Batch, 10*k.Rate)           // a page waits for the rate for 10 s at most: a task that takes long counts as hanging
	interval := min(time.Minute, k.Steps[0]/10) // between two looks for closed orders
	r := &rechecker{Compensator: c, k: &k, limiter: rate.NewLimiter(rate.Limit(k.Rate), k.Batch)}
	for _, after := range k.Steps {
		r.steps = append(r.steps, recheckStep{after: after})
	}
	return Task{func(ctx context.Context) time.Duration {
		if more := r.turn(ctx); more {
			return 0
		}
		return interval
	}, func() {
		r.metrics.recheckBehind.Set(0) // the process that asks has the value
		r.failing = time.Time{}
	}}
}

// turn asks about a page of orders for each step, for half of taskTimeout. The next turn begins with the next step. more says that orders are left.
func (r *rechecker) turn(ctx context.Context) (more bool) {
	failingFor, err, failed := time.Duration(0), error(nil), error(nil)
	for began, i := time.Now(), 0; i < len(r.steps) && time.Since(began) < taskTimeout/2; i++ {
		r.steps[0].behind, failed = r.page(ctx, &r.steps[0])
		r.steps, err = append(r.steps[1:], r.steps[0]), cmp.Or(err, failed)
	}
	behind := slices.MaxFunc(r.steps, func(a, b recheckStep) int { return cmp.Compare(a.behind, b.behind) }).behind // of all steps
	switch {
	case err == nil:
		r.failing = time.Time{}
	case r.failing.IsZero() && ctx.Err() == nil:
		r.failing = time.Now()
		r.o.Logger.Warn("asking the payment provider about closed orders failed, will retry", "err", err)
	case ctx.Err() == nil: // a page may fail before it is known how many orders are left
		failingFor = time.Since(r.failing)
	}
	r.metrics.recheckBehind.Set(max(behind, failingFor).Seconds())
	return behind > 0 && err == nil
}

// page asks about one page of orders, and stores the position after it. It returns by how much the position
// is behind, also with an error; 0: no order is left.
func (r *rechecker) page(ctx context.Context, step *recheckStep) (behind time.Duration, err error) {
	from, now, err := r.k.Store.Rechecked(ctx, r.o.Name, step.after)
	if err != nil {
		return 0, err
	}
	to := now.Add(-step.after)
	if from.IsZero() || from.After(to) { // the first start, or the clock was set back //mutant:recheck-gap-skipped
		from = to
	}
	after := ""
	if step.asked.At.Equal(from) {
		after = step.asked.OrderID
	}
	page, err := r.k.Store.ClosedBetween(ctx, from, to, after, r.k.Batch)
	if err != nil {
		return 0, err
	}
	if len(page) > 0 {
		if err := r.ask(ctx, page, step); err != nil {
			return to.Sub(page[0].At), err
		}
	}
	step.asked = orderclose.Outcome{}
	if len(page) == r.k.Batch {
		last := page[len(page)-1]
		step.asked, to, behind = last, last.At, max(to.Sub(last.At), 1)
	}
	return behind, r.k.Store.KeepRechecked(ctx, r.o.Name, step.after, to)
}

// ask asks about a page of orders. If the provider answers for none of them, the page is asked about
// again later, until the provider has answered about other orders meanwhile. Other orders without an answer are left
// to the next step.
func (r *rechecker) ask(ctx context.Context, page []orderclose.Outcome, step *recheckStep) error {
	if err := r.limiter.WaitN(ctx, len(page)); err != nil {
		return err
	}
	requests := make([]orderclose.CloseRequest, len(page))
	for i, o := range page {
		requests[i] = orderclose.CloseRequest{OrderID: o.OrderID}
	}
	var outcomes []orderclose.Outcome
	err := r.calls.call(ctx, "the question to the payment provider about closed orders", callTimeout, func(ctx context.Context) (err error) {
		outcomes, err = r.k.Asker.CloseOrders(ctx, orderclose.PathSweep, requests)
		return err
	})
	if err != nil {
		return err
	}
	unknown, found := []string(nil), 0
	for _, o := range outcomes {
		if o.Verdict == orderclose.AlreadyPaid {
			found++
		} else if o.Verdict == orderclose.PaymentPending {
			unknown = append(unknown, o.OrderID)
		}
	}
	since, cause := r.k.Asker.Failing()
	if len(unknown) == len(page) && !since.IsZero() && (step.silent.IsZero() || !since.After(step.silent)) {
		if step.silent.IsZero() {
			step.silent = time.Now()
		}
		return fmt.Errorf("the payment provider has answered no question since %s: %s", since.UTC().Format(time.RFC3339), cause)
	}
	step.silent = time.Time{}
	without := recheckUnknown
	if step.after == r.k.Steps[len(r.k.Steps)-1] && len(unknown) > 0 {
		without = recheckGivenUp
		r.o.Logger.Error("payment provider has no answer on closed orders, they are not asked about again: look whether they were paid", "orders", len(unknown),
			"ids", strings.Join(unknown, " "))
	}
	for result, orders := range map[string]int{recheckFound: found, recheckNone: len(page) - found - len(unknown), without: len(unknown)} {
		r.metrics.rechecked.WithLabelValues(result).Add(float64(orders))
	}
	return nil
}
