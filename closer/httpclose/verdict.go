package httpclose

import (
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/signature"
)

const (
	// clockSkewTolerance is how far a due time may lie before the time in the same not_due verdict: the service may have read its clock twice.
	clockSkewTolerance = time.Minute
	// maxPastDue is how far a due time in a not_due verdict may lie in the past by the local clock. A service's clock is not further behind, since it
	// would reject the signature.
	maxPastDue = signature.MaxAge
	// minRetryDelay is the minimum time until an order with a not_due verdict is tried again.
	minRetryDelay = time.Second
	// maxDetail limits a detail, in bytes.
	maxDetail = 1000
)

// outcome converts the service's verdict on an order; localNow is the time by the local clock. A contradictory verdict becomes Failed.
func outcome(r orderclose.CloseRequest, v wireVerdict, localNow time.Time) orderclose.Outcome {
	o := orderclose.Outcome{OrderID: r.OrderID, Verdict: v.Verdict, Due: r.Due, At: localNow}
	due, dueErr := readTime(v.DueAt)
	if dueErr == nil && !due.IsZero() {
		o.Due = due
	}
	now, nowErr := readTime(v.Now)
	hasNow := nowErr == nil && !now.IsZero()
	if hasNow {
		o.At = now
	}
	switch v.Verdict {
	case orderclose.Closed:
		return closed(o, hasNow)
	case orderclose.NotDue:
		return notDue(o, hasNow, due, localNow, errors.Join(dueErr, nowErr))
	case orderclose.NotFound:
		o.Due = time.Time{}
		return o
	case orderclose.AlreadyPaid, orderclose.AlreadyClosed, orderclose.Excluded, orderclose.Paused, orderclose.PaymentPending:
		return o
	case orderclose.Contended, orderclose.Failed:
		o.Err = errors.New("the service gave no detail")
		if v.Detail != "" {
			o.Err = fmt.Errorf("the service says: %s", httpcall.Cut(v.Detail, maxDetail))
		}
		return o
	}
	return failed(o, fmt.Errorf("the service gave an unknown verdict, %q", httpcall.Cut(string(v.Verdict), 40)))
}

// closed corrects the times of a closed order. If the service did not send its clock, the local clock counts, but never makes the close early.
// Without a due time the lateness is 0.
func closed(o orderclose.Outcome, hasNow bool) orderclose.Outcome {
	if o.Due.IsZero() || !hasNow && o.At.Before(o.Due) {
		o.Due, o.At = later(o.Due, o.At), later(o.Due, o.At)
	}
	return o
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// notDue checks a not_due verdict. The due time must be given, must not have passed by the service's clock, and must not have passed long ago by the
// local clock. Otherwise the store would ask again and again, and get the same answer, if the service repeats an answer from a cache.
func notDue(o orderclose.Outcome, hasNow bool, due, localNow time.Time, err error) orderclose.Outcome {
	switch {
	case err != nil:
		return failed(o, fmt.Errorf("not_due verdict with a time that is not RFC 3339: %w", err))
	case due.IsZero():
		return failed(o, errors.New("not_due verdict without due_at: send due_at"))
	case hasNow && o.At.Sub(due) > clockSkewTolerance:
		return failed(o, fmt.Errorf("not_due verdict at %s, but due_at is %s", writeTime(o.At), writeTime(due)))
	case localNow.Sub(due) > maxPastDue:
		return failed(o, fmt.Errorf("not_due verdict at %s, but due_at is %s, which is %v ago: does the service repeat a cached answer?",
			writeTime(o.At), writeTime(due), localNow.Sub(due).Round(time.Second)))
	case due.Sub(o.At) < minRetryDelay:
		o.At = due.Add(-minRetryDelay)
	}
	return o
}

func failed(o orderclose.Outcome, err error) orderclose.Outcome {
	o.Verdict, o.Err = orderclose.Failed, err
	return o
}

// verdicts assigns the verdicts of a reply to the orders of the request. It counts
// verdicts on other orders in others. An order with two different verdicts is Failed.
func verdicts(asked []orderclose.CloseRequest, answer []wireVerdict, localNow time.Time) (got map[string]orderclose.Outcome, others int) {
	byID := make(map[string]orderclose.CloseRequest, len(asked))
	for _, r := range asked {
		byID[r.OrderID] = r
	}
	first := make(map[string]wireVerdict, len(asked))
	got = make(map[string]orderclose.Outcome, len(asked))
	for _, v := range answer {
		r, known := byID[v.OrderID]
		before, again := first[v.OrderID]
		switch {
		case !known:
			others++
		case !again:
			first[v.OrderID] = v
			got[v.OrderID] = outcome(r, v, localNow)
		case before.Verdict != v.Verdict: //mutant:first-verdict-accepted
			got[v.OrderID] = failed(got[v.OrderID], fmt.Errorf("the service gave two verdicts, %q and %q",
				httpcall.Cut(string(before.Verdict), 40), httpcall.Cut(string(v.Verdict), 40)))
		}
	}
	return got, others
}
