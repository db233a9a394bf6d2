package ops

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
)

// ForecastLog is what a forecast needs of Kafka. Cluster of internal/kafka implements it.
type ForecastLog interface {
	Partitions(ctx context.Context, topic string) (int, error)
	Commits(ctx context.Context, group, topic string, n int) ([]kafka.Commit, error)
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	OffsetAt(ctx context.Context, topic string, partition int, t time.Time) (int64, error)
}

// ForecastOptions for a forecast.
type ForecastOptions struct {
	Buckets orderclose.Buckets
	Group   func(orderclose.Bucket) string // the consumer group of a bucket
	Now     time.Time                      // the start of the forecast
	Edges   []time.Duration                // the limits of the steps, ahead of Now, from 0 on, ascending
}

// Forecast is the number of records that leave each bucket, by time.
type Forecast struct {
	At      time.Time        `json:"at"`
	Buckets []BucketForecast `json:"buckets"`
}

// BucketForecast is the number of records that leave one bucket, by time. Every waiting record is
// counted once: as overdue, in one step, or as later.
type BucketForecast struct {
	Topic   string         `json:"topic"`
	Length  string         `json:"bucket"`
	Overdue int64          `json:"overdue"` // records that should have left before the first step
	Steps   []ForecastStep `json:"steps"`
	Later   int64          `json:"later"` // records that leave after the last step
	// Problem is the error if Kafka did not answer for the bucket. All counts are then 0.
	Problem string `json:"problem,omitempty"`
}

// ForecastStep is the number of records that leave in [From, To).
type ForecastStep struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Records int64     `json:"records"`
}

// NewForecast asks Kafka for offsets by append time, reads no record, and returns a Forecast.
// A record leaves its bucket a bucket's length after its append at the latest. Nearly all
// records leave just then, since a record is put into the largest bucket that is not longer
// than its remaining delay. An error becomes the Problem of its bucket and does not hide the
// others.
func NewForecast(ctx context.Context, log ForecastLog, o ForecastOptions) Forecast {
	edges := make([]time.Time, len(o.Edges))
	for i, ahead := range o.Edges {
		edges[i] = o.Now.UTC().Add(ahead)
	}
	f := Forecast{At: edges[0], Buckets: make([]BucketForecast, len(o.Buckets))}
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

func makeBucket(ctx context.Context, log ForecastLog, b orderclose.Bucket, group string, edges []time.Time) (BucketForecast, error) {
	n, err := log.Partitions(ctx, b.Topic)
	if err != nil {
		return BucketForecast{}, err
	}
	commits, err := log.Commits(ctx, group, b.Topic, n)
	if err != nil {
		return BucketForecast{}, err
	}
	byPartition := make([]counts, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(partitionsAtOnce)
	for p := range n {
		g.Go(func() error {
			var err error
			byPartition[p], err = countPartition(ctx, log, b, p, commits[p], edges)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return BucketForecast{}, err
	}
	return sum(b, edges, byPartition), nil
}

// countPartition counts the waiting records of a partition between the edges. A record leaves a
// bucket's length after its append. So the first record that leaves at an edge or later is the
// first record that was appended at the edge minus that length, or later.
func countPartition(ctx context.Context, log ForecastLog, b orderclose.Bucket, partition int, commit kafka.Commit, edges []time.Time) (counts, error) {
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
