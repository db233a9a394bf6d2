package ops

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/kafka"
)

// noon is the time at which tests ask.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// partitionOffsets is a log that answers about one offset at a time.
type partitionOffsets interface {
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	OffsetAt(ctx context.Context, topic string, partition int, t time.Time) (int64, error)
}

// offsetsOf answers queries as Offsets of a kafka.Cluster does.
func offsetsOf(ctx context.Context, log partitionOffsets, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	answers := make([]kafka.OffsetAnswer, len(queries))
	for i, q := range queries {
		for _, m := range q.At {
			var offset, first, end int64
			var err error
			switch m {
			case kafka.LogStart, kafka.LogEnd:
				if first, end, err = log.Bounds(ctx, q.Topic, q.Partition); m == kafka.LogStart {
					offset = first
				} else {
					offset = end
				}
			default:
				offset, err = log.OffsetAt(ctx, q.Topic, q.Partition, time.UnixMilli(int64(m)))
			}
			if answers[i].Offsets = append(answers[i].Offsets, offset); err != nil {
				answers[i].Err = err
			}
		}
	}
	return answers
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
