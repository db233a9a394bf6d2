package release

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// maxRetries is how often an event whose release failed is tried again, after 1, 2
	// and 4 minutes, each up to a tenth longer so that those that failed together do
	// not come back together.
	maxRetries = 3
	firstRetry = time.Minute
	// sparedWait is how soon a partition's events are tried again after the service
	// was known to be away.
	sparedWait = breakerPause
	// patience is for how long the service may be away before an event is given up all
	// the same: somebody should look, and a dead letter can be sent again.
	patience = 24 * time.Hour
)

// Causes of dead letters.
const (
	causeRefused     = "release_refused"
	causeFailed      = "release_failed"
	causeUnavailable = "release_unavailable"
)

// resultOf classifies the answer of a Releaser.
func resultOf(err error) Result {
	switch {
	case err == nil:
		return Released
	case errors.Is(err, ErrAlready):
		return Already
	case errors.Is(err, ErrRefused):
		return Refused
	}
	return Failed
}

// unavailable says whether an answer is the service's fault rather than the
// release's. One that did not come in time is.
func unavailable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// tried is how it stands with an event after a try.
type tried struct {
	left     int           // releases that are not settled
	refused  int           // releases that never will be
	failures int           // tries that were used up, this one included
	spared   bool          // this one uses none up: the service was not called
	since    time.Duration // the first try
	last     error         // of the last release that was refused or failed
}

// decision is what to do with an event.
type decision struct {
	settled       bool
	wait          time.Duration // else: how long until the next try
	all           bool          // no other need be tried before either
	cause, detail string        // of its dead letter, if it is given up
}

// decide says what to do with an event after a try.
func decide(t tried) decision {
	switch {
	case t.left == 0 && t.refused == 0:
		return decision{settled: true}
	case t.left == 0:
		return decision{cause: causeRefused, detail: fmt.Sprintf("%d releases are refused, the last: %v", t.refused, t.last)}
	case t.since >= patience:
		return decision{cause: causeUnavailable, detail: fmt.Sprintf("%d releases could not be made in %v: %v", t.left+t.refused, patience, t.last)}
	case t.spared:
		return decision{wait: stretch(sparedWait), all: true}
	case t.failures > maxRetries:
		return decision{cause: causeFailed, detail: fmt.Sprintf("%d releases failed or are refused after %d tries, the last: %v", t.left+t.refused, t.failures, t.last)}
	}
	return decision{wait: stretch(firstRetry << (t.failures - 1))}
}

// stretch is d and up to a tenth of it.
func stretch(d time.Duration) time.Duration { return d + rand.N(d/10) }
