package outbox

import (
	"math/rand/v2"
	"time"
)

// Limits of the pause after a poll that found less than a full batch. A row waits
// half a pause on average. A poll that finds nothing is one statement by primary key.
// So a quiet outbox costs each process one such statement a second.
const (
	shortestPause = 100 * time.Millisecond
	longestPause  = time.Second
)

// nextPause returns the pause before the next poll, given the last pause and how many
// rows the last poll found: none after a full batch, short while rows come, longer
// while none come.
func nextPause(last time.Duration, found, batch int) time.Duration {
	switch {
	case found >= batch:
		return 0
	case found > 0:
		return shortestPause
	}
	return min(max(2*last, shortestPause), longestPause)
}

// jitter changes d by up to a fifth in either direction, so that processes do not
// poll in step.
func jitter(d time.Duration) time.Duration { return d - d/5 + rand.N(max(2*d/5, 1)) }
