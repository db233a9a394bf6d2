package deadletters

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// FollowedLog is what Watch and a Catalog need of Kafka. Cluster of internal/kafka implements it.
type FollowedLog interface {
	Partitions(ctx context.Context, topic string) (int, error)
	Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer
	TopicID(ctx context.Context, topic string) ([16]byte, error)
	Read(ctx context.Context, at wire.Position) (wire.Fetched, error)
	ReadLittle(ctx context.Context, at wire.Position) (wire.Fetched, error)
}

// Little is a kafka.LogReader with small fetches: those of ReadLittle.
type Little struct {
	Log interface {
		ReadLittle(ctx context.Context, at wire.Position) (wire.Fetched, error)
	}
}

// Read implements kafka.LogReader.
func (l Little) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	return l.Log.ReadLittle(ctx, at)
}

// readOne returns the record at an offset, or nil if retention has deleted it.
func readOne(ctx context.Context, log FollowedLog, topic string, at Position) (found *wire.Message, err error) {
	span := kafka.Span{Partition: at.Partition, First: at.Offset, End: at.Offset + 1}
	_, err = kafka.Scan(ctx, Little{log}, topic, span, func(f wire.Fetched) error {
		for _, m := range messages(f.Records) {
			if m.Offset == at.Offset {
				found = &m
			}
		}
		if f.Free != nil {
			f.Free()
		}
		return nil
	})
	return found, err
}

// subscriber gets what a follower reads.
type subscriber interface {
	// add adds the next records of a partition, in order, also to the index of the follower.
	add(partition int, batch []wire.Message)
	// forget removes the records below an offset, because retention deleted them. pending is how many
	// of them the index had as pending.
	forget(partition int, below int64, pending int)
	// restart removes all records of a partition. Its offsets belong to other records now, and it
	// is read again from its beginning.
	restart(partition int)
}

// follower reads a dead-letter topic from its beginning, without a group, and then what is
// appended to it. It belongs to one goroutine.
type follower struct {
	log   FollowedLog
	topic string
	to    subscriber
	index *Index // which are pending

	id       [16]byte              // of the topic; zero: not known, or the brokers have no topic ids
	spans    map[int]kafka.Span    // by partition: its offsets when they were last requested
	next     map[int]wire.Position // by partition: the position of the next read
	readable bool                  // a read was allowed
}

func newFollower(log FollowedLog, topic string, to subscriber) *follower {
	return &follower{log: log, topic: topic, to: to, index: NewIndex(), spans: map[int]kafka.Span{}, next: map[int]wire.Position{}}
}

// run calls poll at each interval until ctx ends. It logs the first of the errors in a row.
func (f *follower) run(ctx context.Context, logger *slog.Logger, interval time.Duration, failure string, poll func(context.Context) error) {
	for failing := false; ; {
		err := poll(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			logger.Warn(failure, "topic", f.topic, "err", err)
		}
		if failing = err != nil; !retry.Sleep(ctx, interval) {
			return
		}
	}
}

// poll reads each partition to its present end. A partition that fails does not hold up the
// others. poll returns the first error.
func (f *follower) poll(ctx context.Context) error {
	n, err := f.log.Partitions(ctx, f.topic)
	if err != nil {
		return err
	}
	switch id, err := f.log.TopicID(ctx, f.topic); {
	case errors.Is(err, kafka.ErrNoTopicIDs): // only Read can notice a new topic
	case err != nil:
		return err
	case id != f.id:
		if f.id != ([16]byte{}) { // the new topic may have as many records as the old one
			for p := range f.next {
				f.restart(p)
			}
			clear(f.spans)
		}
		f.id = id
	}
	var failed error
	// Of all partitions first: progress needs the total.
	for p, bounds := range f.log.Offsets(ctx, kafka.OffsetQueries(f.topic, n, kafka.LogStart, kafka.LogEnd)) {
		failed = cmp.Or(failed, f.look(ctx, p, bounds))
	}
	for p := range n {
		failed = cmp.Or(failed, f.catchUp(ctx, p))
	}
	return failed
}

// look takes over the bounds of a partition, and removes what retention deleted.
func (f *follower) look(ctx context.Context, p int, bounds kafka.OffsetAnswer) error {
	if bounds.Err != nil {
		return bounds.Err
	}
	first, end := bounds.Offsets[0], bounds.Offsets[1]
	f.spans[p] = kafka.Span{Partition: p, First: first, End: end}
	if end < f.next[p].Offset {
		f.restart(p)
	}
	f.to.forget(p, first, f.index.Forget(p, first))
	if !f.readable { // report missing access now, and not with the first dead letter
		if _, err := f.log.ReadLittle(ctx, wire.Position{Topic: f.topic, Partition: p, Offset: end, NoWait: true}); err != nil {
			return err
		}
		f.readable = true
	}
	return nil
}

// catchUp reads a partition to the end that look found.
func (f *follower) catchUp(ctx context.Context, p int) error {
	s := f.spans[p]
	s.First, s.Log = max(s.First, f.next[p].Offset), f.next[p].Log
	_, err := kafka.Scan(ctx, f.log, f.topic, s, func(read wire.Fetched) error {
		f.to.add(p, messages(read.Records))
		if read.Free != nil {
			read.Free()
		}
		f.next[p] = wire.Position{Offset: min(read.Next, s.End), Log: read.Log}
		return nil
	})
	if errors.Is(err, kafka.ErrRecreated) {
		f.restart(p)
		bounds := f.log.Offsets(ctx, []kafka.OffsetQuery{{Topic: f.topic, Partition: p, At: []kafka.Moment{kafka.LogStart, kafka.LogEnd}}})[0]
		if err = f.look(ctx, p, bounds); err == nil {
			err = f.catchUp(ctx, p)
		}
	}
	return err
}

// restart forgets a partition, so that it is read from its beginning.
func (f *follower) restart(p int) {
	f.index.Forget(p, math.MaxInt64)
	f.to.restart(p)
	delete(f.next, p)
}

// progress returns how many offsets of the topic were read, and their total.
func (f *follower) progress() (read, total int64) {
	for p, s := range f.spans {
		read += max(min(f.next[p].Offset, s.End)-s.First, 0)
		total += s.Len()
	}
	return read, total
}
