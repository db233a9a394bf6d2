package kafka

import (
	"context"
	"fmt"

	"github.com/orderclose/orderclose/internal/wire"
)

// GlanceBytes is a usual limit of one ReadSome: about sixty records of orders, in bytes.
const GlanceBytes = 16 << 10

// littleMaxBytes is the limit of one ReadLittle: about sixty dead letters, in bytes.
const littleMaxBytes = 64 << 10

// ReadSome returns some records of the partition in [offset, end), and the offset from which
// the next ReadSome continues. It fetches at most maxBytes; the broker sends a larger first batch
// whole. So each partition has a request of its own: in an answer about several partitions only the
// first batch of the first one may exceed the limit, and a batch of a producer usually does.
//
// ReadSome waits at most 100 ms for records. Of a malformed record only the offset and the append
// time are known. A corrupt batch has no records.
func (c *Cluster) ReadSome(ctx context.Context, topic string, partition int, offset, end int64, maxBytes int32) (records []wire.Message, next int64, err error) {
	f, err := c.fetchLittle(ctx, topic, partition, offset, maxBytes)
	if err != nil {
		return nil, offset, fmt.Errorf("look at %s/%d at %d: %w", topic, partition, offset, err)
	}
	for _, r := range f.Records {
		if r.Offset < end {
			records = append(records, *decoded(r))
		}
	}
	if f.Next == offset {
		return records, offset, fmt.Errorf("look at %s/%d at %d: the broker sent no batch", topic, partition, offset)
	}
	return records, f.Next, nil
}

// ReadLittle is Read with at most 64 KB, and waits at most 100 ms for a record. A larger first
// batch comes whole.
func (c *Cluster) ReadLittle(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	at, err := c.withTopicID(ctx, at)
	if err != nil {
		return wire.Fetched{}, err
	}
	return c.read(ctx, at, fetchLimits{peekMaxWait, littleMaxBytes})
}

// Gaps returns the runs of offsets between FirstWaiting and end that are not known to be
// done, in order. The offsets that were acked above the commit are in the commit's metadata.
// It makes no request.
func Gaps(c Commit, logStart, end int64) (gaps []wire.Run) {
	at := FirstWaiting(c, logStart, end)
	if at == c.Offset && !c.FromDeletedLog {
		for _, r := range wire.DecodeRuns(c.Offset, c.Metadata) {
			if first := min(r.First, end); first > at {
				gaps = append(gaps, wire.Run{First: at, End: first})
			}
			at = max(at, r.End)
		}
	}
	if at < end {
		gaps = append(gaps, wire.Run{First: at, End: end})
	}
	return gaps
}
