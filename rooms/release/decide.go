package release

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/orderclose/orderclose"
)

const (
	// maxEventRetries is how often an event is retried: after 1, 2 and 4 minutes. Each wait
	// gets a jitter of up to a tenth, so that events that failed together are not
	// retried together. An attempt during which the service was unavailable uses up no
	// retry.
	maxEventRetries = 3
	firstRetry      = time.Minute
	// unavailableWait is the pause of a partition after an attempt in which the service
	// was not called.
	unavailableWait = breakerPause
	// giveUpAfter is how long the service may be unavailable before an event is given
	// up. An operator should look at it then; a dead letter can be sent again.
	giveUpAfter = 24 * time.Hour
)

// Causes of dead letters.
const (
	causeRefused     = "release_refused"
	causeFailed      = "release_failed"
	causeUnavailable = "release_unavailable"
)

// resultOf converts the error of a Releaser to a result.
func resultOf(err error) result {
	switch {
	case err == nil:
		return resultReleased
	case errors.Is(err, ErrAlready):
		return resultAlready
	case errors.Is(err, ErrRefused):
		return resultRefused
	}
	return resultFailed
}

// unavailable reports whether an error is the service's fault rather than the
// release's. A timeout is the service's.
func unavailable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, orderclose.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// attempted is the state of an event after an attempt.
type attempted struct {
	open     int           // releases that are not settled
	refused  int           // releases that the service refused for good
	failures int           // attempts that were used up, including this one
	skipped  bool          // this attempt does not count: no call failed, and the open releases were not called
	since    time.Duration // time since the first attempt
	lastErr  error         // error of the last release that was refused or failed
}

// decision is what to do with an event.
type decision struct {
	settled       bool
	wait          time.Duration // if not settled: pause before the next attempt
	pauseAll      bool          // pause all events of the partition
	cause, detail string        // of the dead letter, if the event is given up
}

// decide returns what to do with an event after an attempt.
func decide(t attempted) decision {
	switch {
	case t.open == 0 && t.refused == 0:
		return decision{settled: true}
	case t.open == 0:
		return decision{cause: causeRefused, detail: fmt.Sprintf("%d releases were refused, the last: %v", t.refused, t.lastErr)}
	case t.since >= giveUpAfter:
		return decision{cause: causeUnavailable, detail: fmt.Sprintf("%d releases failed for %v: %v", t.open+t.refused, giveUpAfter, t.lastErr)}
	case t.skipped:
		return decision{wait: withJitter(unavailableWait), pauseAll: true}
	case t.failures > maxEventRetries:
		return decision{cause: causeFailed, detail: fmt.Sprintf("%d releases failed or were refused in %d attempts, the last: %v",
			t.open+t.refused, t.failures, t.lastErr)}
	}
	return decision{wait: withJitter(firstRetry << (t.failures - 1))}
}

// withJitter returns d plus a jitter of up to a tenth.
func withJitter(d time.Duration) time.Duration { return d + rand.N(d/10) }
