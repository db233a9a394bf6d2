package orderclose_test

import (
	"errors"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// The cause is that of the Store, or follows from the verdict. The text of a server cannot name one.
func TestWhy_TakesNoCauseFromTheTextOfAnError(t *testing.T) {
	text := errors.New("close 1 orders: locked: a trigger says so")
	for _, c := range []struct {
		o        orderclose.Outcome
		cause    orderclose.FailureCause
		sentence string
	}{
		{orderclose.Outcome{Verdict: orderclose.Failed, Err: text}, orderclose.Unexplained, text.Error()},
		{orderclose.Outcome{Verdict: orderclose.Failed, Err: text, Cause: orderclose.RefusedByTrigger}, orderclose.RefusedByTrigger,
			"refused_by_trigger: " + text.Error()},
		{orderclose.Outcome{Verdict: orderclose.Contended}, orderclose.Locked, "locked: the store says contended"},
		{orderclose.Outcome{Verdict: orderclose.NotFound, Err: text}, orderclose.RowNotFound, "row_not_found: " + text.Error()},
		{orderclose.Outcome{Verdict: orderclose.Failed, Err: orderclose.ErrUnavailable}, orderclose.NoAnswer, "no_answer: " + orderclose.ErrUnavailable.Error()},
		{orderclose.Outcome{Verdict: orderclose.Closed, Err: text}, "", ""},
	} {
		cause, sentence := c.o.Why()
		expect.That(t, cause == c.cause && sentence == c.sentence, "%+v: %s, %q", c.o, cause, sentence)
	}
}
