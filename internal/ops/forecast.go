package ops

import (
	"cmp"
	"context"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
)

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

// ForecastStep is the number of records that leave, or were appended, in [From, To).
type ForecastStep struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Records int64     `json:"records"`
}

// NewForecast asks Kafka for offsets by append time, reads no record, and returns a Forecast.
// A record leaves its bucket a bucket's length after its append at the latest. Nearly all
// records leave just then, since a record is put into the largest bucket that is not longer
// than its remaining delay. An error becomes the Problem of its bucket and does not hide the
// others. group returns the consumer group of a bucket. within are the limits of the steps, ahead of
// now, from 0 on, ascending.
func NewForecast(ctx context.Context, log Log, buckets orderclose.Buckets, group func(orderclose.Bucket) string, now time.Time,
	within []time.Duration) Forecast {
	edges := make([]time.Time, len(within))
	for i, ahead := range within {
		edges[i] = now.UTC().Add(ahead)
	}
	f := Forecast{At: edges[0], Buckets: make([]BucketForecast, len(buckets))}
	commits, errs := make([][]kafka.Commit, len(buckets)), make([]error, len(buckets))
	each(len(buckets), func(i int) {
		b := buckets[i]
		n, err := log.Partitions(ctx, b.Topic)
		if err == nil {
			commits[i], err = log.Commits(ctx, group(b), b.Topic, n)
		}
		errs[i] = err
	})
	var queries []kafka.OffsetQuery // of all buckets, so that each leader gets few requests
	for i, b := range buckets {
		queries = append(queries, kafka.OffsetQueries(b.Topic, len(commits[i]), moments(b, edges, edges[0])...)...)
	}
	answers := log.Offsets(ctx, queries)
	for i, b := range buckets {
		n := len(commits[i])
		var err error
		f.Buckets[i], err = countBucket(b, edges, commits[i], answers[:n])
		if answers, err = answers[n:], cmp.Or(errs[i], err); err != nil {
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

// moments returns the moments that countBucket needs of each partition of a bucket: the bounds, and
// one for each edge at which a record may leave that exists now. A record leaves a bucket's length
// after its append. So the first record that leaves at an edge or later is the first record that was
// appended at the edge minus that length, or later.
func moments(b orderclose.Bucket, edges []time.Time, now time.Time) []kafka.Moment {
	at := []kafka.Moment{kafka.LogStart, kafka.LogEnd}
	for _, edge := range edges {
		if appended := edge.Add(-b.Length); appended.Before(now) { // no record was appended after now
			at = append(at, kafka.MomentOf(appended))
		}
	}
	return at
}

// countBucket counts the waiting records of a bucket between the edges. The answers are those to its
// moments. After an error no record is counted.
func countBucket(b orderclose.Bucket, edges []time.Time, commits []kafka.Commit, answers []kafka.OffsetAnswer) (BucketForecast, error) {
	f := newBucketForecast(b, edges)
	for p, a := range answers {
		if a.Err != nil {
			return newBucketForecast(b, edges), a.Err
		}
		first, end := a.Offsets[0], a.Offsets[1]
		offsets := a.Offsets[2:]
		for len(offsets) < len(edges) {
			offsets = append(offsets, end)
		}
		f.count(kafka.FirstWaiting(commits[p], first, end), end, offsets)
	}
	return f, nil
}
