package ops

import (
	"testing"
	"time"
)

func TestLeastOffset_IsTheSmallestPossible(t *testing.T) {
	ms := func(n int) time.Time { return time.UnixMilli(int64(n)) }
	for _, c := range []struct {
		sent, answered, at int
		want               time.Duration
	}{
		{100, 110, 105, 0}, {100, 110, 110, 0}, {100, 110, 99, 0},
		{100, 110, 400, 290 * time.Millisecond}, {100, 110, 50, -49 * time.Millisecond},
	} {
		if got := leastOffset(ms(c.sent), ms(c.answered), ms(c.at)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
