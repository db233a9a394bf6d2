package outbox

import (
	"math/rand/v2"
	"time"
)

// Pauses between looks at an outbox in which there was less than a batch. A row
// waits half a pause on average. A look that finds nothing is one statement by key,
// so that a quiet outbox costs two to four such statements a second per process.
const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 500 * time.Millisecond
)

// nextPause returns how long to wait until the next look, after a pause and a look
// that found so many rows: not at all after a full batch, briefly while something
// comes, longer while nothing does.
func nextPause(last time.Duration, found, batch int) time.Duration {
	switch {
	case found >= batch:
		return 0
	case found > 0:
		return shortestPause
	}
	return min(max(2*last, shortestPause), longestPause)
}

// jitter spreads d by a fifth to either side, so that processes do not look in
// step.
func jitter(d time.Duration) time.Duration { return d - d/5 + rand.N(max(2*d/5, 1)) }
