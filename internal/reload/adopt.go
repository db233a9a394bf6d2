package reload

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"orderclose"
)

const (
	// DefaultSettle is how long after it was read a changed list of buckets is picked
	// from. By then the relays must have read the same file: a mounted ConfigMap
	// reaches all its pods within the kubelet's sync period of a minute and the delay
	// of its cache.
	DefaultSettle = 2 * time.Minute
	askEvery      = 5 * time.Second
	complainEvery = 30 * time.Second
)

// Adoption is a list of buckets that is to be picked from.
type Adoption struct {
	Buckets orderclose.Buckets
	Settle  time.Duration // from now on, at the least
	// Exists says whether there is such a topic. Nil: nobody can say, and it is
	// believed.
	Exists func(ctx context.Context, topic string) (bool, error)
	Logger *slog.Logger
}

// Await returns true when the buckets may be picked from: all have had the time to
// read the file, and each topic that would be picked exists. It asks until that is
// so, and says in the log what it waits for; it returns false when ctx ends.
func (a Adoption) Await(ctx context.Context) bool {
	settled := time.Now().Add(a.Settle)
	var complained time.Time
	for {
		missing := a.missing(ctx)
		wait := max(time.Until(settled), 0)
		if len(missing) == 0 && wait == 0 {
			return true
		}
		if len(missing) > 0 && time.Since(complained) >= complainEvery {
			complained = time.Now()
			a.Logger.Warn("the buckets before are still picked: run orderclose topics apply", "missing", strings.Join(missing, ", "))
		}
		if len(missing) > 0 {
			wait = askEvery
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

// missing names the topics that are not there, each with the reason if nobody knows.
func (a Adoption) missing(ctx context.Context) []string {
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
