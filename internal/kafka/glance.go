package kafka

import (
	"context"
	"fmt"

	"orderclose"
	"orderclose/internal/partition"
)

// glanceMaxBytes bounds one glance: about sixty records of an order. A first batch that
// is larger comes whole.
const glanceMaxBytes = 16 << 10

// Glance returns some records of the partition from offset on, below end, and the offset
// at which a further glance goes on. It waits for nothing. Of a malformed record only
// offset and append time are known; a batch that nobody can read has none.
func (c *Cluster) Glance(ctx context.Context, topic string, partition int, offset, end int64) (records []orderclose.Message, next int64, err error) {
	f, err := c.fetchLittle(ctx, topic, partition, offset, glanceMaxBytes)
	if err != nil {
		return nil, offset, fmt.Errorf("look at %s/%d at %d: %w", topic, partition, offset, err)
	}
	for _, r := range f.Records {
		if r.Offset < end {
			records = append(records, *decoded(r))
		}
	}
	if f.Next == offset {
		return records, offset, fmt.Errorf("look at %s/%d at %d: the broker answers with nothing", topic, partition, offset)
	}
	return records, f.Next, nil
}

// Gaps returns the offsets from FirstWaiting to end that are not known to be done, in
// order: what was acked out of order stands in the commit's metadata. Pure.
func Gaps(c Commit, logStart, end int64) (gaps []partition.Run) {
	at := FirstWaiting(c, logStart, end)
	if at == c.Offset && !c.OldLog {
		for _, r := range partition.DecodeRuns(c.Offset, c.Metadata) {
			if first := min(r.First, end); first > at {
				gaps = append(gaps, partition.Run{First: at, End: first})
			}
			at = max(at, r.End)
		}
	}
	if at < end {
		gaps = append(gaps, partition.Run{First: at, End: end})
	}
	return gaps
}
