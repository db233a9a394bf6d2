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

// rechecker asks again about closed orders. It belongs to one goroutine. The position of each step is a
// time of the close in the store: all orders closed before it were asked about.
type rechecker struct {
	*Compensator
	k       *Recheck
	limiter *rate.Limiter
	asked   map[time.Duration]orderclose.Outcome // by step: the last order of a page that did not end a run
	// failing is, by step, when the provider first failed to answer about each order of the present page. answered is when it
	// last answered about any order.
	failing  map[time.Duration]time.Time
	answered time.Time
	broken   map[time.Duration]time.Time // by step: since when each of its pages has ended with an error
}

// recheck is the work that asks again about closed orders.
func (c *Compensator) recheck() Work {
	k := *c.o.Recheck
	k.Batch = min(k.Batch, 10*k.Rate)           // a page waits for the rate for 10 s at most: a work that takes long counts as hanging
	interval := min(time.Minute, k.Steps[0]/10) // between two looks for closed orders
	r := &rechecker{c, &k, rate.NewLimiter(rate.Limit(k.Rate), k.Batch), map[time.Duration]orderclose.Outcome{}, map[time.Duration]time.Time{}, time.Time{},
		map[time.Duration]time.Time{}}
	failing := false
	do := func(ctx context.Context) time.Duration {
		more, err := r.turn(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			c.o.Logger.Warn("asking the payment provider about closed orders failed, will retry", "in", interval, "err", err)
		}
		if failing = err != nil; more && !failing {
			return 0
		}
		return interval
	}
	return Work{do, func() {
		r.metrics.recheckBehind.Set(0) // the process that asks has the value
		clear(r.broken)
	}}
}

// turn asks about one page of orders for each step. So no step waits for another. It reports whether more orders are left.
func (r *rechecker) turn(ctx context.Context) (more bool, err error) {
	behind := time.Duration(0)
	for _, step := range r.k.Steps {
		left, failed := r.page(ctx, step)
		if failed == nil {
			delete(r.broken, step)
		} else if r.broken[step].IsZero() {
			r.broken[step] = time.Now()
		} else {
			left = max(left, time.Since(r.broken[step])) // a page may fail before it is known how many orders are left
		}
		behind, err = max(behind, left), cmp.Or(err, failed)
	}
	r.metrics.recheckBehind.Set(behind.Seconds())
	return behind > 0, err
}

// page asks about one page of orders, and stores the position after it. It returns by how much the position
// is behind, also with an error; 0: no order is left.
func (r *rechecker) page(ctx context.Context, step time.Duration) (behind time.Duration, err error) {
	from, now, err := r.k.Store.Rechecked(ctx, r.o.Name, step)
	if err != nil {
		return 0, err
	}
	to := now.Add(-step)
	if from.IsZero() || from.After(to) { // the first start, or the clock was set back //mutant:recheck-gap-skipped
		from = to
	}
	after := ""
	if last := r.asked[step]; last.At.Equal(from) {
		after = last.OrderID
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
	r.asked[step] = orderclose.Outcome{}
	if len(page) == r.k.Batch {
		last := page[len(page)-1]
		r.asked[step], to, behind = last, last.At, max(to.Sub(last.At), 1)
	}
	return behind, r.k.Store.KeepRechecked(ctx, r.o.Name, step, to)
}

// ask asks about a page of orders. If the provider answers for none of them, the page is asked about
// again later, until the provider has answered about other orders meanwhile. Other orders without an answer are left
// to the next step.
func (r *rechecker) ask(ctx context.Context, page []orderclose.Outcome, step time.Duration) error {
	if err := r.limiter.WaitN(ctx, len(page)); err != nil {
		return err
	}
	requests := make([]orderclose.CloseRequest, len(page))
	for i, o := range page {
		requests[i] = orderclose.CloseRequest{OrderID: o.OrderID}
	}
	outcomes, err := call(ctx, r.calls, "the question to the payment provider about closed orders", func(ctx context.Context) ([]orderclose.Outcome, error) {
		return r.k.Asker.CloseOrders(ctx, orderclose.PathSweep, requests)
	})
	if err != nil {
		return err
	}
	var unknown []string
	found := 0
	for _, o := range outcomes {
		if o.Verdict == orderclose.AlreadyPaid {
			found++
		} else if o.Verdict == orderclose.PaymentPending {
			unknown = append(unknown, o.OrderID)
		}
	}
	began := r.failing[step]
	if since, cause := r.k.Asker.Failing(); len(unknown) == len(page) && !since.IsZero() && (began.IsZero() || !r.answered.After(began)) {
		if began.IsZero() {
			r.failing[step] = time.Now()
		}
		return fmt.Errorf("the payment provider has answered no question since %s: %s", since.UTC().Format(time.RFC3339), cause)
	}
	if delete(r.failing, step); len(unknown) < len(page) {
		r.answered = time.Now()
	}
	count := func(result string, orders int) { r.metrics.rechecked.WithLabelValues(result).Add(float64(orders)) }
	count(recheckFound, found)
	count(recheckNone, len(page)-found-len(unknown))
	switch {
	case step != r.k.Steps[len(r.k.Steps)-1]:
		count(recheckUnknown, len(unknown))
	case len(unknown) > 0:
		count(recheckGivenUp, len(unknown))
		r.o.Logger.Error("payment provider has no answer on closed orders, they are not asked about again: look whether they were paid", "orders", len(unknown),
			"ids", strings.Join(unknown, " "))
	}
	return nil
}
