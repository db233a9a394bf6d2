package config

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// DefaultRolloutDelay is the delay from reading a changed list of buckets to using it. By
	// then the relays must have read the same file: a mounted ConfigMap reaches all pods
	// within the kubelet's sync period of a minute and the delay of the kubelet's cache.
	DefaultRolloutDelay = 2 * time.Minute
	// existsInterval is the time between two checks while topics are missing.
	existsInterval = 5 * time.Second
	// warnInterval is the time between two log lines about missing topics.
	warnInterval = 30 * time.Second
)

// Rollout is the delayed switch to a changed list of buckets.
type Rollout struct {
	Buckets orderclose.Buckets
	Delay   time.Duration // how long Await waits at least
	// Exists reports whether a topic exists. Nil: every topic is assumed to exist.
	Exists func(ctx context.Context, topic string) (bool, error)
	Logger *slog.Logger
}

// Await returns true when producers may use the buckets: Delay has passed, and the topic
// of each bucket that is not draining exists. While topics are missing, Await checks them
// every 5 s and logs them every 30 s. It returns false when ctx ends.
func (a Rollout) Await(ctx context.Context) bool {
	settled := time.Now().Add(a.Delay)
	var lastWarning time.Time
	for {
		missing := a.missing(ctx)
		wait := max(time.Until(settled), 0)
		if len(missing) == 0 && wait == 0 {
			return true
		}
		if len(missing) > 0 && time.Since(lastWarning) >= warnInterval {
			lastWarning = time.Now()
			a.Logger.Warn("topics missing, still using the previous buckets: run orderclose topics apply", "missing", strings.Join(missing, ", "))
		}
		if len(missing) > 0 {
			wait = existsInterval
		}
		if !retry.Sleep(ctx, wait) {
			return false
		}
	}
}

// missing returns the names of the topics that do not exist. It also returns the topics that
// cannot be checked, each with the error. It leaves out the topics of draining buckets.
func (a Rollout) missing(ctx context.Context) []string {
	if a.Exists == nil {
		return nil
	}
	var names []string
	for _, b := range a.Buckets.Open() {
		switch there, err := a.Exists(ctx, b.Topic); {
		case err != nil:
			names = append(names, b.Topic+" ("+err.Error()+")")
		case !there:
			names = append(names, b.Topic)
		}
	}
	return names
}
