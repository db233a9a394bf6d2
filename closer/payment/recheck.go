package payment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

// RecheckOptions configure a Recheck. All fields but Logger and Metrics are required.
type RecheckOptions struct {
	Name  string // identifies the pipeline in the Store
	Store ClosedStore
	Asker Asker
	// Steps are how long after its close each order is asked about, ascending. Orders closed before
	// the first start, by more than a step, are not asked about at this step. After that none is
	// left out, however long nobody asks.
	Steps   []time.Duration
	Batch   int            // orders per question
	Rate    int            // orders per second that are asked about
	Logger  *slog.Logger   // default: warnings and errors, to slog.Default
	Metrics RecheckMetrics // default: none
}

// RecheckMetrics receives what a Recheck has found. Package pipeline implements it for Prometheus.
type RecheckMetrics interface {
	// Rechecked counts orders by the result of a question about them.
	Rechecked(result string, orders int)
	// RecheckBehind sets by how much the questions are late, or for how long they have failed.
	RecheckBehind(d time.Duration)
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

// Results of RecheckMetrics.Rechecked.
const (
	RecheckFound   = "late_payment" // the order is paid, and a late payment was recorded
	RecheckNone    = "none"         // it is not paid, or its late payment is known
	RecheckUnknown = "unknown"      // there is no answer; the next step asks again
	RecheckGivenUp = "given_up"     // there is no answer, and no step is left
)

const (
	// questionTimeout is how long a question about a page may take, and turnTime how long Do asks.
	questionTimeout = 10 * time.Second
	turnTime        = 150 * time.Second
)

// Recheck asks the payment provider again about orders that were closed: a payment may have succeeded without the shop knowing it. It asks
// also while closing is paused: nothing is closed. Make it with NewRecheck. It belongs to one goroutine.
type Recheck struct {
	o       RecheckOptions
	limiter *rate.Limiter
	steps   []recheckStep
	failing time.Time // since when each turn has ended with an error
}

// recheckStep is a step of RecheckOptions. Its position is a time of the close in the store: all orders closed before it were asked about.
type recheckStep struct {
	after  time.Duration
	asked  orderclose.Outcome // the last order of a page that did not end a run
	silent time.Time          // when the provider first failed to answer about each order of the present page
	behind time.Duration      // by how much the position was behind after the last page
}

// NewRecheck returns a Recheck, or an error if the options are invalid.
func NewRecheck(o RecheckOptions) (*Recheck, error) {
	if o.Store == nil || o.Asker == nil || len(o.Steps) == 0 || !slices.IsSorted(o.Steps) || o.Steps[0] <= 0 || o.Batch <= 0 || o.Rate <= 0 {
		return nil, errors.New("payment: RecheckOptions need Store, Asker, ascending Steps, Batch and Rate")
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	o.Logger = retry.LimitLogs(o.Logger)
	o.Batch = min(o.Batch, 10*o.Rate) // a page waits for the rate for 10 s at most, so that Do ends soon
	r := &Recheck{o: o, limiter: rate.NewLimiter(rate.Limit(o.Rate), o.Batch)}
	for _, after := range o.Steps {
		r.steps = append(r.steps, recheckStep{after: after})
	}
	return r, nil
}

// Do asks about orders whose time has come, for less than three minutes. It returns the time until the next call.
func (r *Recheck) Do(ctx context.Context) (next time.Duration) {
	if more := r.turn(ctx); more {
		return 0
	}
	return min(time.Minute, r.o.Steps[0]/10) // between two looks for closed orders
}

// Idle says that another process asks.
func (r *Recheck) Idle() {
	r.o.Metrics.RecheckBehind(0)
	r.failing = time.Time{}
}

// turn asks about a page of orders for each step, for turnTime. The next turn begins with the next step. more says that orders are left.
func (r *Recheck) turn(ctx context.Context) (more bool) {
	failingFor, err, failed := time.Duration(0), error(nil), error(nil)
	for began, i := time.Now(), 0; i < len(r.steps) && time.Since(began) < turnTime; i++ {
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
	r.o.Metrics.RecheckBehind(max(behind, failingFor))
	return behind > 0 && err == nil
}

// page asks about one page of orders, and stores the position after it. It returns by how much the position
// is behind, also with an error; 0: no order is left.
func (r *Recheck) page(ctx context.Context, step *recheckStep) (behind time.Duration, err error) {
	from, now, err := r.o.Store.Rechecked(ctx, r.o.Name, step.after)
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
	page, err := r.o.Store.ClosedBetween(ctx, from, to, after, r.o.Batch)
	if err != nil {
		return 0, err
	}
	if len(page) > 0 {
		if err := r.ask(ctx, page, step); err != nil {
			return to.Sub(page[0].At), err
		}
	}
	step.asked = orderclose.Outcome{}
	if len(page) == r.o.Batch {
		last := page[len(page)-1]
		step.asked, to, behind = last, last.At, max(to.Sub(last.At), 1)
	}
	return behind, r.o.Store.KeepRechecked(ctx, r.o.Name, step.after, to)
}

// ask asks about a page of orders. If the provider answers for none of them, the page is asked about
// again later, until the provider has answered about other orders meanwhile. Other orders without an answer are left
// to the next step.
func (r *Recheck) ask(ctx context.Context, page []orderclose.Outcome, step *recheckStep) error {
	if err := r.limiter.WaitN(ctx, len(page)); err != nil {
		return err
	}
	requests := make([]orderclose.CloseRequest, len(page))
	for i, o := range page {
		requests[i] = orderclose.CloseRequest{OrderID: o.OrderID}
	}
	limited, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	outcomes, err := r.o.Asker.CloseOrders(limited, orderclose.PathSweep, requests)
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
	since, cause := r.o.Asker.Failing()
	if len(unknown) == len(page) && !since.IsZero() && (step.silent.IsZero() || !since.After(step.silent)) {
		if step.silent.IsZero() {
			step.silent = time.Now()
		}
		return fmt.Errorf("the payment provider has answered no question since %s: %s", since.UTC().Format(time.RFC3339), cause)
	}
	step.silent = time.Time{}
	without := RecheckUnknown
	if step.after == r.o.Steps[len(r.o.Steps)-1] && len(unknown) > 0 {
		without = RecheckGivenUp
		r.o.Logger.Error("payment provider has no answer on closed orders, they are not asked about again: look whether they were paid", "orders", len(unknown),
			"ids", strings.Join(unknown, " "))
	}
	for result, orders := range map[string]int{RecheckFound: found, RecheckNone: len(page) - found - len(unknown), without: len(unknown)} {
		r.o.Metrics.Rechecked(result, orders)
	}
	return nil
}
