package deadletters

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// follow reads the topic from its beginning, without a group, and then at each interval what was
// appended, until ctx ends. It calls caughtUp each time it has read to the end, and logs the first of the
// errors in a row.
func (c *Catalog) follow(ctx context.Context, interval time.Duration, failure string, caughtUp func()) {
	for failing := false; ; {
		err := c.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			caughtUp()
		case !failing:
			c.logger.Warn(failure, "topic", c.topic, "err", err)
		}
		if failing = err != nil; !retry.Sleep(ctx, interval) {
			return
		}
	}
}

// poll reads the new records and sets the state.
func (c *Catalog) poll(ctx context.Context) error {
	began := time.Now()
	err := c.read(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.publish(func(s *CatalogState) {
		switch {
		case err == nil:
			s.At, s.Complete, s.Problem, s.FailingSince = time.Now(), true, "", time.Time{}
		case s.Problem == "":
			s.FailingSince = began
			fallthrough
		default:
			s.Problem = err.Error()
		}
	})
	return err
}

// read reads each partition to its present end. A partition that fails does not hold up the
// others. read returns the first error.
func (c *Catalog) read(ctx context.Context) error {
	n, err := c.log.Partitions(ctx, c.topic)
	if err != nil {
		return err
	}
	switch id, err := c.log.TopicID(ctx, c.topic); {
	case err != nil:
		return err
	case id != c.id:
		if c.id != ([16]byte{}) { // the new topic may have as many records as the old one //mutant:recreated-dead-letters
			for p := range c.next {
				c.restart(p)
			}
			clear(c.spans)
		}
		c.id = id
	}
	var failed error
	// Of all partitions first: progress needs the total.
	for p, bounds := range c.log.Offsets(ctx, kafka.OffsetQueries(c.topic, n, kafka.LogStart, kafka.LogEnd)) {
		failed = cmp.Or(failed, c.look(ctx, p, bounds))
	}
	for p := range n {
		failed = cmp.Or(failed, c.catchUp(ctx, p))
	}
	return failed
}

// look takes over the bounds of a partition, and removes what retention deleted.
func (c *Catalog) look(ctx context.Context, p int, bounds kafka.OffsetAnswer) error {
	if bounds.Err != nil {
		return bounds.Err
	}
	first, end := bounds.Offsets[0], bounds.Offsets[1]
	c.spans[p] = kafka.Span{Partition: p, First: first, End: end}
	if end < c.next[p].Offset {
		c.restart(p)
	}
	c.forget(p, first)
	if !c.readable { // report missing access now, and not with the first dead letter
		if _, err := c.log.Read(ctx, wire.Position{Topic: c.topic, Partition: p, Offset: end, NoWait: true, MaxBytes: kafka.LittleBytes}); err != nil {
			return err
		}
		c.readable = true
	}
	return nil
}

// catchUp reads a partition to the end that look found.
func (c *Catalog) catchUp(ctx context.Context, p int) error {
	s := c.spans[p]
	s.First, s.Log = max(s.First, c.next[p].Offset), c.next[p].Log
	_, err := kafka.Scan(ctx, c.log, c.topic, s, func(read wire.Fetched) error {
		c.add(p, messages(read.Records), wire.Position{Offset: min(read.Next, s.End), Log: read.Log})
		if read.Free != nil {
			read.Free()
		}
		if time.Since(c.published) >= publishInterval {
			c.publish(func(*CatalogState) {})
		}
		return nil
	})
	if errors.Is(err, kafka.ErrRecreated) {
		c.restart(p)
		bounds := c.log.Offsets(ctx, []kafka.OffsetQuery{{Topic: c.topic, Partition: p, At: []kafka.Moment{kafka.LogStart, kafka.LogEnd}}})[0]
		if err = c.look(ctx, p, bounds); err == nil {
			err = c.catchUp(ctx, p)
		}
	}
	return err
}

// progress returns how many offsets of the topic were read, and their total.
func (c *Catalog) progress() (read, total int64) {
	for p, s := range c.spans {
		read += max(min(c.next[p].Offset, s.End)-s.First, 0)
		total += s.Len()
	}
	return read, total
}
