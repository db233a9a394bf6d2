package release

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
)

func TestDecide(t *testing.T) {
	failed := errors.New("500")
	for _, c := range []struct {
		name  string
		tried attempted
		want  time.Duration // 0: not again
		cause string
	}{
		{"all done", attempted{}, 0, ""},
		{"one refused", attempted{refused: 1, lastErr: ErrRefused}, 0, causeRefused},
		{"failed once", attempted{open: 1, failures: 1, lastErr: failed}, time.Minute, ""},
		{"failed twice", attempted{open: 1, failures: 2, lastErr: failed}, 2 * time.Minute, ""},
		{"failed three times", attempted{open: 1, refused: 1, failures: 3, lastErr: failed}, 4 * time.Minute, ""},
		{"failed four times", attempted{open: 1, failures: 4, lastErr: failed}, 0, causeFailed},
		{"unavailable", attempted{open: 1, skipped: true, lastErr: ErrUnavailable}, unavailableWait, ""},
		{"unavailable for hours", attempted{open: 1, failures: 1, skipped: true, since: 23 * time.Hour, lastErr: ErrUnavailable}, unavailableWait, ""},
		{"unavailable for a day", attempted{open: 1, skipped: true, since: 24 * time.Hour, lastErr: ErrUnavailable}, 0, causeUnavailable},
	} {
		d := decide(c.tried)
		if d.cause != c.cause || d.wait < c.want || d.wait > c.want+c.want/10 || d.settled != (c.want == 0 && c.cause == "") || (c.cause != "") != (d.detail != "") {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestResultOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want result
		away bool
	}{
		{nil, resultReleased, false},
		{fmt.Errorf("409: %w", ErrAlready), resultAlready, false},
		{fmt.Errorf("404: %w", ErrRefused), resultRefused, false},
		{errors.New("500"), resultFailed, false},
		{fmt.Errorf("503: %w", ErrUnavailable), resultFailed, true},
		{fmt.Errorf("503: %w", orderclose.ErrUnavailable), resultFailed, true},
		{fmt.Errorf("POST: %w", context.DeadlineExceeded), resultFailed, true},
	} {
		if got := resultOf(c.err); got != c.want || unavailable(c.err) != c.away {
			t.Errorf("%v: %v, away: %v; want %v, %v", c.err, got, unavailable(c.err), c.want, c.away)
		}
	}
}
