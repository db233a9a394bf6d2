package kafka

import (
	"context"
	"fmt"
	"time"

	"orderclose"
)

const (
	// peekMaxBytes is less than any batch of many records: a broker answers with
	// the first batch whole, however large it is, and with no other beside it.
	peekMaxBytes = 1 << 10
	// peekMaxWait is for a record that is there: it is not waited for.
	peekMaxWait = 100 * time.Millisecond
	// maxPeeks bounds how many batches without a record, such as the markers of
	// transactions, are passed over.
	maxPeeks = 100
)

// Peek returns the first record of the partition in [offset, end), or nil if there
// is none. A batch that nobody can read is passed over; of a malformed record
// only offset and append time are known. It asks for little more than the
// record's batch.
func (c *Cluster) Peek(ctx context.Context, topic string, partition int, offset, end int64) (*orderclose.Message, error) {
	for range maxPeeks {
		if offset >= end {
			return nil, nil
		}
		f, err := c.fetchLittle(ctx, topic, partition, offset, peekMaxBytes)
		if err != nil {
			return nil, fmt.Errorf("look at %s/%d at %d: %w", topic, partition, offset, err)
		}
		if len(f.Records) > 0 {
			if f.Records[0].Offset >= end {
				return nil, nil
			}
			return decoded(f.Records[0]), nil
		}
		if f.Next == offset {
			return nil, fmt.Errorf("look at %s/%d at %d: the broker answers with nothing", topic, partition, offset)
		}
		offset = f.Next
	}
	return nil, fmt.Errorf("look at %s/%d: no record in %d batches before %d", topic, partition, maxPeeks, offset)
}

func decoded(r orderclose.RawRecord) *orderclose.Message {
	m, err := r.Message()
	if err != nil {
		return &orderclose.Message{Offset: r.Offset, Appended: r.AppendedAt()}
	}
	return &m
}

func (c *Cluster) fetchLittle(ctx context.Context, topic string, partition int, offset int64, bytes int32) (orderclose.Fetched, error) {
	raw, err := c.fetchRaw(ctx, orderclose.Position{Topic: topic, Partition: partition, Offset: offset}, fetchLimits{peekMaxWait, bytes})
	if err != nil {
		return orderclose.Fetched{}, err
	}
	return c.split(ctx, topic, partition, raw, offset)
}
