package ops

import (
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// slack is how long before the creation of an order, by the checkout's clock, its records may have been appended, by a broker's
// clock: the checkout may have a wrong time zone.
const slack = time.Hour + time.Minute

// recordSearch reads a part of the partitions of one topic, up to the ends that they have when the search begins.
type recordSearch struct {
	log   Log
	topic *HistoryTopic
	id    string // of the order
	keep  func(r wire.RawRecord)

	number  int // of the partition that is read
	commit  kafka.Commit
	end     int64
	looked  int64 // how many offsets were read
	skipped int64 // how many were not, because of the limit
	// doubtful is how many offsets were not read although records wait there, because they are from before the order was created: its
	// clock may be wrong by more than slack.
	doubtful int64
}

// find reads all partitions of a topic, each with an equal part of the limit. Records of events are in the partition of their key.
func (x *recordSearch) find(ctx context.Context, limit SearchLimit) error {
	n, err := x.log.Partitions(ctx, x.topic.Topic)
	if err != nil {
		return err
	}
	commits := slices.Repeat([]kafka.Commit{{Offset: -1}}, n)
	if x.topic.hasGroup() {
		if commits, err = x.log.Commits(ctx, x.topic.Group, x.topic.Topic, n); err != nil {
			return err
		}
	}
	first, end := 0, n
	if x.topic.Kind == KindEvents {
		first = kafka.PartitionOf([]byte(x.id), n)
		end = first + 1
	}
	for x.number = first; x.number < end; x.number++ {
		x.commit = commits[x.number]
		if err := x.partition(ctx, limit.Since, max(limit.Records/int64(end-first), 1)); err != nil {
			return err
		}
	}
	return nil
}

// partition reads at most limit offsets of a partition: all, if they are no more. Otherwise it begins slack before the
// creation of the order, or where records wait if that is later: an order of several hops waits far from its creation. If it is not known
// when the order was created, it reads the newest.
func (x *recordSearch) partition(ctx context.Context, created time.Time, limit int64) error {
	first, end, err := x.log.Bounds(ctx, x.topic.Topic, x.number)
	if err != nil {
		return err
	}
	x.end = end
	waiting := kafka.FirstWaiting(x.commit, first, end)
	begin := first
	switch {
	case end-first <= limit: // does not depend on the clock of the order
	case created.IsZero():
		begin = end - limit
	default:
		at, err := x.log.OffsetAt(ctx, x.topic.Topic, x.number, created.Add(-slack))
		if err != nil {
			return err
		}
		first = max(first, min(at, end))
		if begin = first; x.topic.hasGroup() && waiting < end {
			begin = max(first, waiting)
			x.doubtful += begin - waiting
		}
	}
	s := kafka.Span{Partition: x.number, First: begin, End: min(end, begin+limit)}
	x.skipped += end - first - s.Len()
	return x.read(ctx, s)
}

// read passes the records of a span to keep.
func (x *recordSearch) read(ctx context.Context, s kafka.Span) error {
	read, err := ScanRecords(ctx, x.log, x.topic.Topic, s, x.keep)
	x.looked += read - s.First
	x.skipped += s.End - read
	return err
}

// waits reports whether the topic's group has not acked an offset. A commit past the end belongs to an
// old log. In a topic without a group every record waits.
func (x *recordSearch) waits(offset int64) bool {
	c := x.commit
	if c.Offset > x.end {
		return true
	}
	return offset >= c.Offset && !slices.ContainsFunc(wire.DecodeRuns(c.Offset, c.Metadata), func(run wire.Run) bool {
		return offset >= run.First && offset < run.End
	})
}
