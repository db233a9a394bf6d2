// Package forecast says how many records leave each bucket when. It asks Kafka
// for offsets by time only and reads no record: a record leaves its bucket at the
// latest when it has been there for the bucket's length, and nearly all do just
// then, since a record is put where it has nearly that long to wait.
//
//	forecast.go  asking: bounded requests, a few at once
//	steps.go     when to look, and how many leave in between (pure)
package forecast

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"orderclose"
	"orderclose/internal/kafka"
)

// atOnce bounds how many requests are under way together.
const atOnce = 8

// Log is what a forecast needs of Kafka; internal/kafka's Cluster is one.
type Log interface {
	Partitions(ctx context.Context, topic string) (int, error)
	Commits(ctx context.Context, group, topic string, n int) ([]kafka.Commit, error)
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	OffsetAt(ctx context.Context, topic string, partition int, t time.Time) (int64, error)
}

// Options for a forecast.
type Options struct {
	Buckets orderclose.Buckets
	Group   func(orderclose.Bucket) string
	Now     time.Time     // where it begins
	Within  time.Duration // how far it looks ahead
}

// Forecast is what leaves the buckets when.
type Forecast struct {
	At      time.Time `json:"at"`
	Buckets []Bucket  `json:"buckets"`
}

// Bucket is what leaves one bucket when. Every record that waits is counted once:
// as overdue, in one step, or as later.
type Bucket struct {
	Topic   string `json:"topic"`
	Length  string `json:"bucket"`
	Overdue int64  `json:"overdue"` // should have left before the first step
	Steps   []Step `json:"steps"`
	Later   int64  `json:"later"` // leave after the last step
	// Problem says why nothing is known of the bucket; then all counts are 0.
	Problem string `json:"problem,omitempty"`
}

// Step is how many records leave in [From, To).
type Step struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Records int64     `json:"records"`
}

// Make asks for offsets and puts a Forecast together. What cannot be asked is a Problem
// of its bucket, and does not hide the others.
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

// countPartition asks, for each edge, for the offset of the first record that
// leaves there or later: the first that was appended a bucket's length before.
func countPartition(ctx context.Context, log Log, b orderclose.Bucket, partition int, commit kafka.Commit, edges []time.Time) (counts, error) {
	first, end, err := log.Bounds(ctx, b.Topic, partition)
	if err != nil {
		return counts{}, err
	}
	first = kafka.FirstWaiting(commit, first, end)
	offsets := make([]int64, len(edges))
	for i, edge := range edges {
		appended := edge.Add(-b.Length)
		if first == end || !appended.Before(edges[0]) { // nothing is appended later than now
			offsets[i] = end
			continue
		}
		if offsets[i], err = log.OffsetAt(ctx, b.Topic, partition, appended); err != nil {
			return counts{}, err
		}
	}
	return count(first, end, offsets), nil
}
