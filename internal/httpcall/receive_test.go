package httpcall

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
)

// askedLater is an error that says for how long no requests are wanted.
type askedLater time.Duration

func (askedLater) Error() string               { return "later" }
func (a askedLater) RetryAfter() time.Duration { return time.Duration(a) }
func (askedLater) Unwrap() error               { return orderclose.ErrUnavailable }

func TestReply_PassesOnHowLongToWait(t *testing.T) {
	for _, row := range []struct {
		err    error
		status int
		after  string
	}{
		{nil, 200, ""},
		{errors.New("x"), 500, ""},
		{orderclose.ErrUnavailable, 503, ""},
		{askedLater(0), 503, ""},
		{askedLater(time.Millisecond), 503, "1"},
		{fmt.Errorf("x: %w", askedLater(7*time.Second)), 503, "7"},
	} {
		w := httptest.NewRecorder()
		Reply(w, "answer", row.err)
		if got := w.Header().Get("Retry-After"); w.Code != row.status || got != row.after {
			t.Errorf("%v: status %d, Retry-After %q; want %d, %q", row.err, w.Code, got, row.status, row.after)
		}
	}
}
