package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// peekMaxBytes is smaller than any batch of many records. The broker sends the first
	// batch whole, however large it is, and with this limit no other batch.
	peekMaxBytes = 1 << 10
	// peekMaxWait is the longest time that the broker waits for a first byte. The record
	// usually exists, and then the broker answers at once.
	peekMaxWait = 100 * time.Millisecond
	// maxPeeks bounds how many batches without a record are skipped, such as transaction
	// markers.
	maxPeeks = 100
)

// Peek returns the first record of the partition in [offset, end), or nil if there is none.
// It skips corrupt batches. Of a malformed record only the offset and the append time are
// known. Peek fetches little more than the batch of the record.
func (c *Cluster) Peek(ctx context.Context, topic string, partition int, offset, end int64) (*wire.Message, error) {
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
			return nil, fmt.Errorf("look at %s/%d at %d: the broker sent no batch", topic, partition, offset)
		}
		offset = f.Next
	}
	return nil, fmt.Errorf("look at %s/%d: %d batches before offset %d have no record", topic, partition, maxPeeks, offset)
}

func decoded(r wire.RawRecord) *wire.Message {
	m, err := r.Message()
	if err != nil {
		return &wire.Message{Offset: r.Offset, Appended: r.AppendedAt()}
	}
	return &m
}

func (c *Cluster) fetchLittle(ctx context.Context, topic string, partition int, offset int64, bytes int32) (wire.Fetched, error) {
	var raw *rawFetched
	err := repeat(ctx, leaderTimeout, leaderMoves, func() (err error) {
		raw, err = c.fetchRaw(ctx, wire.Position{Topic: topic, Partition: partition, Offset: offset}, fetchLimits{peekMaxWait, bytes})
		return err
	})
	if err != nil {
		return wire.Fetched{}, err
	}
	return c.split(ctx, topic, partition, raw, offset)
}
