package config

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
)

const (
	// DefaultRolloutDelay is the delay from reading a changed list of buckets to using it. By
	// then the relays must have read the same file: a mounted ConfigMap reaches all pods
	// within the kubelet's sync period of a minute and the delay of the kubelet's cache.
	DefaultRolloutDelay = 2 * time.Minute
	existsInterval      = 5 * time.Second
	warnInterval        = 30 * time.Second
)

// Rollout is the delayed switch to a changed list of buckets.
type Rollout struct {
	Buckets orderclose.Buckets
	Delay   time.Duration // the shortest delay, from the call of Await
	// Exists reports whether a topic exists. Nil: every topic is assumed to exist.
	Exists func(ctx context.Context, topic string) (bool, error)
	Logger *slog.Logger
}

// Await returns true when producers may use the buckets: Settle has passed, and the topic
// of each bucket that is not draining exists. Until then Await checks the topics
// periodically and logs the missing ones. It returns false when ctx ends.
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
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// missing names the topics that do not exist, and those that cannot be checked with the error.
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
