package httpclose

import (
	"errors"
	"fmt"
	"time"

	"orderclose"
	"orderclose/internal/signed"
)

const (
	// sloppiness is how far behind its own clock a service may say that an order's
	// due time, which has not come, lies: it may read its clock again to say so.
	sloppiness = time.Minute
	// stale is how long ago, by the clock here, a due time may be that a service says
	// has not come. Its clock is no further behind, or it would refuse signatures.
	stale = signed.MaxAge
	// nextLook is how soon an order is asked for again of which it says so.
	nextLook = time.Second
	// maxDetail is how many bytes of a detail are kept.
	maxDetail = 1000
)

// outcome reads what the service said of an order at a moment by the clock here.
// What it cannot have meant is Failed.
func outcome(r orderclose.CloseRequest, v wireVerdict, here time.Time) orderclose.Outcome {
	o := orderclose.Outcome{OrderID: r.OrderID, Verdict: v.Verdict, Due: r.Due, At: here}
	due, dueErr := readTime(v.DueAt)
	if dueErr == nil && !due.IsZero() {
		o.Due = due
	}
	now, nowErr := readTime(v.Now)
	told := nowErr == nil && !now.IsZero()
	if told {
		o.At = now
	}
	switch v.Verdict {
	case orderclose.Closed:
		return closed(o, told)
	case orderclose.NotDue:
		return notDue(o, due, here, errors.Join(dueErr, nowErr))
	case orderclose.NotFound:
		o.Due = time.Time{}
		return o
	case orderclose.AlreadyPaid, orderclose.AlreadyClosed, orderclose.PaymentPending:
		return o
	case orderclose.Contended, orderclose.Failed:
		o.Err = errors.New("the service does not say why")
		if v.Detail != "" {
			o.Err = fmt.Errorf("the service says: %s", signed.Cut(v.Detail, maxDetail))
		}
		return o
	}
	return failed(o, fmt.Errorf("the service gave a verdict that does not exist, %q", signed.Cut(string(v.Verdict), 40)))
}

// closed sees to it that the lateness of an order is never made up: without the
// service's clock it is counted from the clock here, which is not to call
// anything early, and without a due time it is 0.
func closed(o orderclose.Outcome, told bool) orderclose.Outcome {
	if o.Due.IsZero() || !told && o.At.Before(o.Due) {
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

// notDue wants to know when the order is due, and that this has not passed: by the
// service's clock, and by the one here not for long, or an answer that a service keeps
// and repeats would be asked for without end.
func notDue(o orderclose.Outcome, due, here time.Time, err error) orderclose.Outcome {
	switch {
	case err != nil:
		return failed(o, fmt.Errorf("the service says not_due with a time that is not RFC 3339: %w", err))
	case due.IsZero():
		return failed(o, errors.New("the service says not_due and not when it is due: send due_at"))
	case o.At.Sub(due) > sloppiness:
		return failed(o, fmt.Errorf("the service says not_due at %s, and that it was due at %s", writeTime(o.At), writeTime(due)))
	case here.Sub(due) > stale:
		return failed(o, fmt.Errorf("the service says not_due at %s, and that it is due at %s, which is %v ago: does it repeat an answer that was not final?",
			writeTime(o.At), writeTime(due), here.Sub(due).Round(time.Second)))
	case due.Sub(o.At) < nextLook:
		o.At = due.Add(-nextLook)
	}
	return o
}

func failed(o orderclose.Outcome, err error) orderclose.Outcome {
	o.Verdict, o.Err = orderclose.Failed, err
	return o
}

// verdicts sorts a reply by the orders that were asked for. What was said of
// others is counted; two different verdicts of one order are none that can be
// believed.
func verdicts(asked []orderclose.CloseRequest, said []wireVerdict, here time.Time) (got map[string]orderclose.Outcome, strays int) {
	byID := make(map[string]orderclose.CloseRequest, len(asked))
	for _, r := range asked {
		byID[r.OrderID] = r
	}
	first := make(map[string]wireVerdict, len(asked))
	got = make(map[string]orderclose.Outcome, len(asked))
	for _, v := range said {
		r, known := byID[v.OrderID]
		before, again := first[v.OrderID]
		switch {
		case !known:
			strays++
		case !again:
			first[v.OrderID] = v
			got[v.OrderID] = outcome(r, v, here)
		case before.Verdict != v.Verdict:
			got[v.OrderID] = failed(got[v.OrderID], fmt.Errorf("the service gave two verdicts, %q and %q",
				signed.Cut(string(before.Verdict), 40), signed.Cut(string(v.Verdict), 40)))
		}
	}
	return got, strays
}
