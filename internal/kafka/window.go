package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"orderclose"
)

// Span is a run of offsets of one partition, [First, End).
type Span struct {
	Partition int   `json:"partition"`
	First     int64 `json:"first"`
	End       int64 `json:"end"`
}

// Len is how many offsets the span has.
func (s Span) Len() int64 { return s.End - s.First }

// Window returns, by partition, the offsets of the records that were appended to
// the topic in [from, to). Partitions without any are left out. It reads no
// record.
func (c *Cluster) Window(ctx context.Context, topic string, from, to time.Time) ([]Span, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	var spans []Span
	for p := range n {
		first, err := c.OffsetAt(ctx, topic, p, from)
		if err != nil {
			return nil, err
		}
		end, err := c.OffsetAt(ctx, topic, p, to)
		if err != nil {
			return nil, err
		}
		if first < end {
			spans = append(spans, Span{p, first, end})
		}
	}
	return spans, nil
}

// OffsetAt returns the offset of the first record that was appended at t or
// later: the end of the partition if there is none yet. It reads no record.
func (c *Cluster) OffsetAt(ctx context.Context, topic string, p int, t time.Time) (int64, error) {
	res, err := c.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		topic: {kafka.TimeOffsetOf(p, orderclose.CeilMilli(t))},
	}})
	if err != nil {
		return 0, fmt.Errorf("offset of %s/%d at %s: %w", topic, p, t.Format(time.RFC3339), err)
	}
	for _, po := range res.Topics[topic] {
		if po.Error != nil {
			return 0, fmt.Errorf("offset of %s/%d at %s: %w", topic, p, t.Format(time.RFC3339), po.Error)
		}
		for offset := range po.Offsets {
			if offset >= 0 {
				return offset, nil
			}
		}
	}
	_, end, err := c.Bounds(ctx, topic, p)
	return end, err
}

// ReadSpan reads the span and calls each with what every fetch brought of it,
// until each returns an error.
func (c *Cluster) ReadSpan(ctx context.Context, topic string, s Span, each func([]orderclose.RawRecord) error) error {
	for at := s.First; at < s.End; {
		f, err := c.Fetch(ctx, topic, s.Partition, at)
		if err != nil {
			return err
		}
		if f.Lost != nil {
			return fmt.Errorf("%s/%d: offset %d is gone: %w", topic, s.Partition, at, f.Lost.Err)
		}
		if f.Corrupt != nil && f.Corrupt.First < s.End {
			return fmt.Errorf("%s/%d: offsets %d to %d cannot be read: %w", topic, s.Partition, f.Corrupt.First, f.Corrupt.Last, f.Corrupt.Err)
		}
		within := f.Records
		for len(within) > 0 && within[len(within)-1].Offset >= s.End {
			within = within[:len(within)-1]
		}
		if len(within) > 0 {
			if err := each(within); err != nil {
				return err
			}
		}
		at = f.Next
	}
	return nil
}
