package send

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// MinRest and MaxRest bound how long a partition rests after an append that left records, unless
// Options say otherwise.
const (
	MinRest = 50 * time.Millisecond
	MaxRest = 4 * time.Second
)

// logEvery is the time between two log lines about a partition that goes on to fail.
const logEvery = time.Minute

// AllPartitions stands for the look-up of a topic's partitions.
const AllPartitions = -1

// Destination is a partition of a topic, or AllPartitions.
type Destination struct {
	Topic     string
	Partition int
}

// failure is the state of a partition whose last append left records.
type failure struct {
	since  time.Time     // begin of the first append that left records
	rest   time.Duration // the length of the last rest
	until  time.Time     // no append begins before this time
	busy   bool          // an append is in flight
	logged time.Time     // time of the last log line
}

// health holds the partitions whose last append left records. It is safe for concurrent use.
type health struct {
	minRest, maxRest time.Duration
	logger           *slog.Logger
	mu               sync.Mutex // protects failing
	failing          map[Destination]*failure
}

func newHealth(o Options) *health {
	return &health{
		minRest: cmp.Or(o.MinRest, MinRest), maxRest: cmp.Or(o.MaxRest, MaxRest),
		logger: o.Logger, failing: map[Destination]*failure{},
	}
}

// begin reports whether the last append to a partition failed. If wait is not 0, the partition rests for
// that long, or is being tried. Otherwise an append begins, and the caller must call end.
func (h *health) begin(to Destination) (failed bool, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.failing[to]
	switch {
	case f == nil:
		return false, 0
	case f.busy:
		return true, h.minRest
	}
	wait = max(time.Until(f.until), 0) //mutant:leaderless-tried-always
	f.busy = wait == 0
	return true, wait
}

// end notes the result of an append. If records are left, it sets for how long the partition rests.
func (h *health) end(ctx context.Context, to Destination, r *Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, f := time.Now(), h.failing[to]
	logger := h.logger.With("to", to.Topic)
	if to.Partition != AllPartitions {
		logger = logger.With("to_partition", to.Partition)
	}
	if len(r.Left) == 0 {
		if delete(h.failing, to); f != nil {
			logger.Info("topic accepts records again", "failed_since", f.since)
		}
		return
	}
	if f == nil {
		f = &failure{since: r.Began}
		h.failing[to] = f
	}
	f.rest = min(max(2*f.rest, h.minRest), h.maxRest)
	f.busy, f.until, r.Pause = false, now.Add(f.rest), f.rest //mutant:failing-topic-retried
	if errors.Is(ctx.Err(), context.Canceled) || now.Sub(f.logged) < logEvery {
		return
	}
	f.logged = now
	message := "append failed, will retry"
	if to.Partition == AllPartitions {
		message = "partition lookup failed, will retry"
	}
	logger.Warn(message, "records", len(r.Left), "failing_since", f.since, "err", r.Err)
}

// failed reports whether the last append to a partition left records.
func (h *health) failed(to Destination) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failing[to] != nil
}

// Resting returns until when partitions of a topic rest, and since when they have failed: the
// latest and the earliest such time. Both are zero if the last append to each partition left no record.
// A rest that is over has an end in the past.
func (s *Sender) Resting(topic string) (until, since time.Time) {
	h := s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	for to, f := range h.failing {
		if to.Topic != topic {
			continue
		}
		if f.until.After(until) {
			until = f.until
		}
		if since.IsZero() || f.since.Before(since) {
			since = f.since
		}
	}
	return until, since
}

// FailingSince returns since when a partition has not accepted all records that were sent to it:
// the earliest such time, or zero if there is none. It forgets a partition that is not tried
// again when it has rested, because the caller has no more records for it.
func (s *Sender) FailingSince() (since time.Time) {
	h := s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	for to, f := range h.failing {
		switch {
		case !f.busy && time.Since(f.until) > time.Second:
			delete(h.failing, to)
		case since.IsZero() || f.since.Before(since):
			since = f.since
		}
	}
	return since
}
