// Package forecast estimates how many records leave each bucket in each interval of time.
//
// Make asks Kafka and returns a Forecast.
//
// It asks only for offsets by append time and reads no record. A record leaves its bucket a
// bucket's length after its append at the latest. Nearly all records leave just then, since
// a record is put into the largest bucket that is not longer than its remaining delay.
//
//	forecast.go  asking Kafka: bounded requests, a few at once
//	steps.go     the intervals, and counting between offsets (pure)
package forecast

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"orderclose"
	"orderclose/internal/kafka"
)

// atOnce bounds how many requests are in flight.
const atOnce = 8

// Log is what a forecast needs of Kafka. Cluster of internal/kafka implements it.
type Log interface {
	Partitions(ctx context.Context, topic string) (int, error)
	Commits(ctx context.Context, group, topic string, n int) ([]kafka.Commit, error)
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	OffsetAt(ctx context.Context, topic string, partition int, t time.Time) (int64, error)
}

// Options for a forecast.
type Options struct {
	Buckets orderclose.Buckets
	Group   func(orderclose.Bucket) string // the consumer group of a bucket
	Now     time.Time                      // the start of the forecast
	Within  time.Duration                  // the length of the forecast
}

// Forecast is the number of records that leave each bucket, by time.
type Forecast struct {
	At      time.Time `json:"at"`
	Buckets []Bucket  `json:"buckets"`
}

// Bucket is the number of records that leave one bucket, by time. Every waiting record is
// counted once: as overdue, in one step, or as later.
type Bucket struct {
	Topic   string `json:"topic"`
	Length  string `json:"bucket"`
	Overdue int64  `json:"overdue"` // records that should have left before the first step
	Steps   []Step `json:"steps"`
	Later   int64  `json:"later"` // records that leave after the last step
	// Problem is the error if Kafka did not answer for the bucket. All counts are then 0.
	Problem string `json:"problem,omitempty"`
}

// Step is the number of records that leave in [From, To).
type Step struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Records int64     `json:"records"`
}

// Make asks Kafka for offsets and returns a Forecast. An error becomes the Problem of its
// bucket and does not hide the others.
func Make(ctx context.Context, log Log, o Options) Forecast {
	edges := Edges(o.Now.UTC(), o.Within)
	f := Forecast{At: edges[0], Buckets: make([]Bucket, len(o.Buckets))}
	for i, b := range o.Buckets {
		var err error
		if f.Buckets[i], err = makeBucket(ctx, log, b, o.Group(b), edges); err != nil {
			f.Buckets[i] = sum(b, edges, nil)
			f.Buckets[i].Problem = err.Error()
		}
	}
	return f
}

// Problems counts the buckets with a problem.
func (f Forecast) Problems() (n int) {
	for _, b := range f.Buckets {
		if b.Problem != "" {
			n++
		}
	}
	return n
}

func makeBucket(ctx context.Context, log Log, b orderclose.Bucket, group string, edges []time.Time) (Bucket, error) {
	n, err := log.Partitions(ctx, b.Topic)
	if err != nil {
		return Bucket{}, err
	}
	commits, err := log.Commits(ctx, group, b.Topic, n)
	if err != nil {
		return Bucket{}, err
	}
	byPartition := make([]counts, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for p := range n {
		g.Go(func() error {
			var err error
			byPartition[p], err = countPartition(ctx, log, b, p, commits[p], edges)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Bucket{}, err
	}
	return sum(b, edges, byPartition), nil
}

// countPartition finds, for each edge, the first record that leaves at the edge or later:
// the first one appended at least a bucket's length after the edge minus that length.
func countPartition(ctx context.Context, log Log, b orderclose.Bucket, partition int, commit kafka.Commit, edges []time.Time) (counts, error) {
	first, end, err := log.Bounds(ctx, b.Topic, partition)
	if err != nil {
		return counts{}, err
	}
	first = kafka.FirstWaiting(commit, first, end)
	offsets := make([]int64, len(edges))
	for i, edge := range edges {
		appended := edge.Add(-b.Length)
		if first == end || !appended.Before(edges[0]) { // no record was appended after now
			offsets[i] = end
			continue
		}
		if offsets[i], err = log.OffsetAt(ctx, b.Topic, partition, appended); err != nil {
			return counts{}, err
		}
	}
	return count(first, end, offsets), nil
}
