package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// GlanceBytes is a usual limit of one ReadSome: about sixty records of orders, in bytes.
	GlanceBytes = 16 << 10
	// LittleBytes is the limit of a fetch of a few dead letters: about sixty of them, in bytes.
	LittleBytes = 64 << 10
	// peekMaxBytes is smaller than any batch of many records. The broker sends the first
	// batch whole, however large it is, and with this limit no other batch.
	peekMaxBytes = 1 << 10
	// maxPeeks bounds how many batches without a record are skipped, such as transaction
	// markers.
	maxPeeks = 100
)

// ReadSome returns some records of the partition in [offset, end), and the offset from which
// the next ReadSome continues. It fetches at most maxBytes; the broker sends a larger first batch
// whole. So each partition has a request of its own: in an answer about several partitions only the
// first batch of the first one may exceed the limit, and a batch of a producer usually does.
//
// Of a malformed record only the offset and the append time are known. A corrupt batch has no records.
// Offsets that the log does not have are an error.
func (c *Cluster) ReadSome(ctx context.Context, topic string, partition int, offset, end int64, maxBytes int32) (records []wire.Message, next int64, err error) {
	var f wire.Fetched
	err = repeat(ctx, leaderTimeout, leaderMoves, func() (err error) {
		f, err = c.read(ctx, wire.Position{Topic: topic, Partition: partition, Offset: offset, MaxBytes: maxBytes})
		return err
	})
	if err == nil && f.Lost != nil {
		err = f.Lost.Err
	} else if err == nil && f.Next == offset {
		err = errors.New("the broker sent no batch")
	}
	if err != nil {
		return nil, offset, fmt.Errorf("look at %s/%d at %d: %w", topic, partition, offset, err)
	}
	for _, r := range f.Records {
		if r.Offset < end {
			records = append(records, decoded(r))
		}
	}
	return records, f.Next, nil
}

// decoded returns the message of a record.
func decoded(r wire.RawRecord) wire.Message {
	m, err := r.Message()
	if err != nil {
		return wire.Message{Offset: r.Offset, Appended: r.AppendedAt()}
	}
	return m
}

// Peek returns the first record of the partition in [offset, end), or nil if there is none. It is
// ReadSome that fetches little more than the batch of the record.
func (c *Cluster) Peek(ctx context.Context, topic string, partition int, offset, end int64) (*wire.Message, error) {
	for range maxPeeks {
		if offset >= end {
			return nil, nil
		}
		records, next, err := c.ReadSome(ctx, topic, partition, offset, end, peekMaxBytes)
		if err != nil {
			return nil, err
		}
		if len(records) > 0 {
			return &records[0], nil
		}
		offset = next
	}
	return nil, fmt.Errorf("look at %s/%d: %d batches before offset %d have no record", topic, partition, maxPeeks, offset)
}
