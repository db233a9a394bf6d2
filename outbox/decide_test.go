package outbox

import (
	"testing"
	"time"
)

func TestNextPause(t *testing.T) {
	for _, c := range []struct {
		last  time.Duration
		found int
		want  time.Duration
	}{
		{0, 10, 0},
		{longestPause, 10, 0},
		{0, 0, shortestPause},
		{shortestPause, 0, 2 * shortestPause},
		{longestPause, 0, longestPause},
		{longestPause, 1, shortestPause},
		{2 * time.Second, 0, longestPause}, // after a failure
	} {
		if got := nextPause(c.last, c.found, 10); got != c.want {
			t.Errorf("after a pause of %v and %d of 10 rows: %v, want %v", c.last, c.found, got, c.want)
		}
	}
}

func TestJitter_StaysWithinAFifth(t *testing.T) {
	for range 1000 {
		if d := jitter(100); d < 80 || d > 120 {
			t.Fatal(d)
		}
	}
	if jitter(0) != 0 {
		t.Error("jitter of 0 is not 0")
	}
}
