package outbox

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
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
		expect.Equal(t, nextPause(c.last, c.found, 10), c.want, "the pause after one of %v and %d of 10 rows", c.last, c.found)
	}
}

func TestJitter_StaysWithinAFifth(t *testing.T) {
	for range 1000 {
		d := jitter(100)
		must.That(t, d >= 80 && d <= 120, "%v", d)
	}
	expect.Equal(t, jitter(0), 0, "the jitter of 0")
}
