package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/topics"
)

// bucketsRetryInterval is the interval between checks of the delay topics while some of them
// cannot be checked.
const bucketsRetryInterval = 5 * time.Second

// ActiveBuckets returns the buckets into which records are put now: those of topics.yaml whose topics exist.
func (a *App) ActiveBuckets() orderclose.Buckets { return *a.picked.Load() }

// keepBuckets tells the parts each minute, and when topics.yaml has changed, which buckets relays serve and into which ones records are
// put. It returns when ctx ends.
func (a *App) keepBuckets(ctx context.Context, relaying bool) {
	var warned time.Time
	served := a.config().Buckets
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.changed:
		}
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		picked, err := a.existingBuckets(limited)
		if relaying {
			known, failed := served, error(nil)
			if served, failed = topics.Served(limited, a.conns.Kafka, a.config()); failed != nil {
				served, err = topics.Union(served, known), errors.Join(err, failed)
			}
		}
		cancel()
		every := guardInterval
		if err != nil {
			every = bucketsRetryInterval
			if ctx.Err() == nil && time.Since(warned) >= warnInterval {
				warned = time.Now()
				a.o.Logger.Warn("some delay topics cannot be checked", "err", err)
			}
		}
		a.picked.Store(&picked)
		for _, notify := range a.subscribers {
			notify(served, picked)
		}
		timer.Reset(every)
	}
}

// existingBuckets returns the configured buckets whose topics exist, or all if there is none. A bucket whose topic cannot be checked is
// among them; then there is an error.
func (a *App) existingBuckets(ctx context.Context) (there orderclose.Buckets, err error) {
	all := a.config().Buckets
	for _, b := range all {
		failed := a.exists(ctx, b.Topic)
		if errors.Is(failed, errNoTopic) { //mutant:bucket-without-topic
			continue
		}
		there, err = append(there, b), errors.Join(err, failed)
	}
	if len(there) == 0 {
		there = slices.Clone(all)
	}
	return there, err
}
