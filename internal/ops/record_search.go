package ops

import (
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// The creation time of an order and the append times of its records come from different
// clocks. So the creation time is used only to choose a start if not all records can be read.
const (
	// slack is how long before the creation of an order, by the checkout's clock, its records
	// may have been appended, by a broker's clock.
	slack = time.Minute
	// doubt is how much earlier than slack the offsets begin that are still doubtful: the clock
	// of a checkout with a wrong time zone may be an hour ahead.
	doubt = time.Hour
)

// recordSearch reads the partition of an order in one topic, each offset at most once, up to the end that the partition has
// when the search begins.
//
// If the limit covers all records of the partition, it reads them all. Otherwise it starts slack before
// the creation of the order, and reads last what is only doubtful. An example: a bucket of 1 h
// has one record a second, at offsets 0 to 9,999, and records wait from offset 6,000 on. An order was
// created at 9,000 s. With a limit of 10,000 all offsets are read, and with 5,000 those of the waiting
// records. With 2,000 the search reads from offset 8,940 on, which is slack, to the end. Then it reads the
// first 940 of the offsets from 6,000 on: doubt reaches back to 5,340, and no record waits below 6,000.
type recordSearch struct {
	log   Log
	topic *HistoryTopic
	keep  func(r wire.RawRecord)
	// prepare, if not nil, is called before the search. It may raise the floor.
	prepare func(ctx context.Context) error

	number  int // of the partition
	commit  kafka.Commit
	floor   int64 // no record below it is searched for
	waiting int64 // no record below it waits
	end     int64
	likely  int64        // offsets below it are doubtful
	todo    []kafka.Span // what has not been read, the likeliest first
	looked  int64        // how many offsets were read
}

// find reads at most limit offsets of the partition of an order. If it is not known when the order was created, the limit is the only bound.
func (x *recordSearch) find(ctx context.Context, o orderclose.Order, limit int64) error {
	n, err := x.log.Partitions(ctx, x.topic.Topic)
	if err != nil {
		return err
	}
	x.number = kafka.PartitionOf([]byte(o.ID), n)
	if err := x.load(ctx, n); err != nil {
		return err
	}
	if err := x.choose(ctx, o.CreatedAt, limit); err != nil {
		return err
	}
	for limit > 0 && len(x.todo) > 0 {
		s := x.todo[0]
		s.End = min(s.End, s.First+limit)
		n, err := x.read(ctx, s)
		if x.todo[0].First += n; x.todo[0].Len() == 0 {
			x.todo = x.todo[1:]
		}
		if limit -= n; err != nil {
			return err
		}
	}
	return nil
}

// load reads the commit and the bounds of the partition, which is one of n.
func (x *recordSearch) load(ctx context.Context, n int) error {
	x.commit.Offset = -1
	if x.topic.hasGroup() {
		commits, err := x.log.Commits(ctx, x.topic.Group, x.topic.Topic, n)
		if err != nil {
			return err
		}
		x.commit = commits[x.number]
	}
	var err error
	if x.floor, x.end, err = x.log.Bounds(ctx, x.topic.Topic, x.number); err != nil {
		return err
	}
	x.waiting = kafka.FirstWaiting(x.commit, x.floor, x.end)
	if x.prepare != nil {
		return x.prepare(ctx)
	}
	return nil
}

// choose sets which offsets to read, of which limit may be read. If the limit covers all, choose does not depend on the clock of
// the order.
func (x *recordSearch) choose(ctx context.Context, created time.Time, limit int64) (err error) {
	doubtful := x.floor
	if x.likely = x.floor; !created.IsZero() && x.end-x.floor > limit {
		if x.likely, doubtful, err = x.chooseStart(ctx, created, limit); err != nil {
			return err
		}
	}
	below := x.end
	for _, from := range []int64{x.likely, doubtful} {
		if from < below {
			x.todo = append(x.todo, chooseSpans(x.number, from, x.waiting, below, limit)...)
			below = from
		}
	}
	return nil
}

// chooseStart returns from which offset on the records of an order are likely to be, and from
// which on its waiting records may be if its clock is wrong.
func (x *recordSearch) chooseStart(ctx context.Context, created time.Time, limit int64) (likely, doubtful int64, err error) {
	at, err := x.log.OffsetAt(ctx, x.topic.Topic, x.number, created.Add(-slack))
	if err != nil {
		return 0, 0, err
	}
	likely = max(x.floor, min(at, x.end))
	switch {
	case !x.topic.hasGroup() || likely <= x.waiting:
		return likely, likely, nil
	case x.end-x.waiting <= limit:
		return x.waiting, x.waiting, nil
	}
	at, err = x.log.OffsetAt(ctx, x.topic.Topic, x.number, created.Add(-slack-doubt))
	return likely, max(x.waiting, min(at, likely)), err
}

// chooseSpans divides the offsets [from, end) of a partition, the likeliest first, of which limit can be
// read. One half of the limit is for the offsets from from on: the order was published about there. The other
// half is for the first waiting records: a record that should have left is about there. For example, of [0, 100)
// with the first waiting record at 50, [0, 5), [50, 100) and [5, 50) are read in this order, which with a limit of
// 10 ends at offset 54. It is a pure function.
func chooseSpans(partition int, from, waiting, end, limit int64) []kafka.Span {
	span := func(first, end int64) kafka.Span { return kafka.Span{Partition: partition, First: first, End: end} }
	half := limit / 2
	if waiting >= end { // no record waits: read the newest instead
		waiting = end - half
	}
	if end-from <= limit || waiting <= from+half {
		return []kafka.Span{span(from, end)}
	}
	return []kafka.Span{span(from, from+half), span(waiting, end), span(from+half, waiting)}
}

// read passes the records of a span to keep, and returns how many of its offsets were read.
func (x *recordSearch) read(ctx context.Context, s kafka.Span) (offsets int64, err error) {
	read, err := ScanRecords(ctx, x.log, x.topic.Topic, s, x.keep)
	x.looked += read - s.First
	return read - s.First, err
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
