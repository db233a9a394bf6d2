package ops

import (
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
)

// Appended is how many records were appended to a topic, by time.
type Appended struct {
	Topic string         `json:"topic"`
	Steps []ForecastStep `json:"steps"` // the oldest first
}

// Appended returns how many records reached the close topic within the last while, in steps of equal
// length. It asks for offsets by append time, and reads no record. Records that Kafka has deleted
// are not counted.
func (p Pipeline) Appended(ctx context.Context, within time.Duration, steps int) (Appended, error) {
	if err := p.reachKafka(ctx); err != nil {
		return Appended{}, err
	}
	return countAppended(ctx, p.Kafka, p.Config.Topics.Close, time.Now(), within, steps)
}

func countAppended(ctx context.Context, log ForecastLog, topic string, now time.Time, within time.Duration, steps int) (Appended, error) {
	step := within / time.Duration(steps)
	edges := make([]time.Time, steps+1)
	for i := range edges {
		edges[i] = now.UTC().Truncate(step).Add(step - within + time.Duration(i)*step)
	}
	n, err := log.Partitions(ctx, topic)
	if err != nil {
		return Appended{}, err
	}
	b := orderclose.Bucket{Topic: topic} // as if each record left when it was appended
	byPartition, err := countBucket(edges, slices.Repeat([]kafka.Commit{{Offset: -1}}, n), log.Offsets(ctx, kafka.OffsetQueries(topic, n, moments(b, edges, now)...)))
	return Appended{topic, sum(b, edges, byPartition).Steps}, err
}
