package deadletters

import (
	"context"
	"slices"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// OfOrder returns where the dead letters of an order, and their resolutions, are in a partition: the
// offsets that are in the catalog, in order, and next, the first offset that is not in it yet. Some
// offsets may belong to another order with the same hash. ok is false if the catalog does not have all
// dead letters below next. OfOrder reads no record.
func (c *Catalog) OfOrder(partition int, order string) (offsets []int64, next int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	next = c.next[partition].Offset
	all := c.index.partitions[partition]
	if !c.state.Complete || all != nil && all.left > 0 {
		return nil, 0, false
	}
	if all == nil {
		return nil, next, true
	}
	hash := c.index.hash(order)
	for i := range all.n {
		if e := all.at(i); e.key == hash {
			if offsets = append(offsets, e.offset); e.resolved != 0 {
				offsets = append(offsets, e.resolved)
			}
		}
	}
	slices.Sort(offsets)
	return offsets, next, true
}

// Letter returns the dead letter at a position, or nil if there is none. If the catalog has not
// read the position yet, Letter reads it from Kafka; then the dead letter counts as pending.
func (c *Catalog) Letter(ctx context.Context, at Position) (*Letter, error) {
	found, err := c.Letters(ctx, []Position{at})
	if err != nil {
		return nil, err
	}
	if len(found.Letters) > 0 {
		return &found.Letters[0], nil
	}
	c.mu.RLock()
	next := c.next[at.Partition].Offset
	c.mu.RUnlock()
	if at.Offset < next {
		return nil, nil
	}
	return c.readAhead(ctx, at)
}

// readAhead reads the dead letter at a position from Kafka. It returns nil if there is none.
func (c *Catalog) readAhead(ctx context.Context, at Position) (l *Letter, err error) {
	n, err := c.log.Partitions(ctx, c.topic)
	if err != nil || at.Partition >= n {
		return nil, err
	}
	bounds := c.log.Offsets(ctx, []kafka.OffsetQuery{{Topic: c.topic, Partition: at.Partition, At: []kafka.Moment{kafka.LogStart, kafka.LogEnd}}})[0]
	if bounds.Err != nil || at.Offset < bounds.Offsets[0] || at.Offset >= bounds.Offsets[1] {
		return nil, bounds.Err
	}
	span := kafka.Span{Partition: at.Partition, First: at.Offset, End: at.Offset + 1}
	_, err = kafka.Scan(ctx, Little{c.log}, c.topic, span, func(f wire.Fetched) error {
		for _, m := range messages(f.Records) {
			if _, resolves := wire.DecodeResolution(&m); m.Offset == at.Offset && !resolves {
				read := Read(at.Partition, m)
				l = &read
			}
		}
		return nil
	})
	return l, err
}
