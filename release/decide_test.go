package release

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	failed := errors.New("500")
	for _, c := range []struct {
		name  string
		tried tried
		want  time.Duration // 0: not again
		cause string
	}{
		{"all done", tried{}, 0, ""},
		{"one refused", tried{refused: 1, last: ErrRefused}, 0, causeRefused},
		{"failed once", tried{left: 1, failures: 1, last: failed}, time.Minute, ""},
		{"failed twice", tried{left: 1, failures: 2, last: failed}, 2 * time.Minute, ""},
		{"failed three times", tried{left: 1, refused: 1, failures: 3, last: failed}, 4 * time.Minute, ""},
		{"failed four times", tried{left: 1, failures: 4, last: failed}, 0, causeFailed},
		{"known to be away", tried{left: 1, spared: true, last: ErrUnavailable}, sparedWait, ""},
		{"away for hours", tried{left: 1, failures: 1, spared: true, since: 23 * time.Hour, last: ErrUnavailable}, sparedWait, ""},
		{"away for a day", tried{left: 1, spared: true, since: 24 * time.Hour, last: ErrUnavailable}, 0, causeUnavailable},
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
		want Result
		away bool
	}{
		{nil, Released, false},
		{fmt.Errorf("409: %w", ErrAlready), Already, false},
		{fmt.Errorf("404: %w", ErrRefused), Refused, false},
		{errors.New("500"), Failed, false},
		{fmt.Errorf("503: %w", ErrUnavailable), Failed, true},
		{fmt.Errorf("POST: %w", context.DeadlineExceeded), Failed, true},
	} {
		if got := resultOf(c.err); got != c.want || unavailable(c.err) != c.away {
			t.Errorf("%v: %v, away: %v; want %v, %v", c.err, got, unavailable(c.err), c.want, c.away)
		}
	}
}
