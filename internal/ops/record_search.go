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

// recordSearch reads the partitions of orders in some topics, for one order or for many. It reads
// each offset at most once, however often find is called, up to the end that the partition had at
// the first call.
//
// If the limit covers all records of a partition, it reads them all. Otherwise it starts slack before
// the creation of the oldest order, and reads last what is only doubtful. An example: a bucket of 1 h
// has one record a second, at offsets 0 to 9,999, and records wait from offset 6,000 on. An order was
// created at 9,000 s. With a limit of 10,000 all offsets are read, and with 5,000 those of the waiting
// records. With 2,000 the search reads from offset 8,940 on, which is slack, to the end. Then it reads the
// first 940 of the offsets from 6,000 on: doubt reaches back to 5,340, and no record waits below 6,000.
type recordSearch struct {
	log    Log
	topics []HistoryTopic
	left   int64 // offsets that may still be read. Topics that come first have precedence
	acked  bool  // records that their group has acked are searched for too
	keep   func(p *searchedPartition, r wire.RawRecord)
	// prepare, if not nil, is called once for each partition. It may raise the floor.
	prepare func(ctx context.Context, p *searchedPartition) error

	counts     []int   // the number of partitions of each topic; 0: not known yet
	problems   []error // of each topic: why its number of partitions is not known
	partitions map[topicPartition]*searchedPartition
}

// topicPartition is a partition of one of the topics.
type topicPartition struct{ topic, partition int }

// searchedPartition is the state of a partition. The commit and the end are those of the first call.
type searchedPartition struct {
	topic   *HistoryTopic
	number  int
	oldest  time.Time // when the oldest order of this call was created
	loaded  bool
	commit  kafka.Commit
	floor   int64 // no record below it is searched for
	waiting int64 // no record below it waits
	end     int64
	low     int64        // each offset of [low, end) has been read or is in todo
	since   time.Time    // low covers the records of orders created then or later; zero: low covers no order yet
	likely  int64        // offsets below it are doubtful
	todo    []kafka.Span // the part of [low, end) that has not been read, the likeliest first
	read    int64        // how many offsets were read
	problem error
}

func newRecordSearch(log Log, topics []HistoryTopic, limit int64) *recordSearch {
	n := len(topics)
	return &recordSearch{log: log, topics: topics, left: limit, counts: make([]int, n), problems: make([]error, n), partitions: map[topicPartition]*searchedPartition{}}
}

// find reads the partitions of the orders. For an order without CreatedAt the limit is its only bound.
func (x *recordSearch) find(ctx context.Context, orders []orderclose.Order) {
	var wanted []*searchedPartition
	for topic := range x.topics {
		wanted = append(wanted, x.choosePartitions(ctx, topic, orders)...)
	}
	x.extendAll(ctx, wanted)
	for i, p := range wanted {
		x.readTodo(ctx, p, x.left/int64(len(wanted)-i))
	}
	for _, p := range wanted { // use what other partitions have left over
		x.readTodo(ctx, p, x.left)
	}
}

// choosePartitions returns the partitions of a topic to read for the orders.
func (x *recordSearch) choosePartitions(ctx context.Context, topic int, orders []orderclose.Order) (wanted []*searchedPartition) {
	if x.counts[topic] == 0 {
		n, err := x.log.Partitions(ctx, x.topics[topic].Topic)
		if x.problems[topic] = err; err != nil {
			return nil
		}
		x.counts[topic] = n
	}
	for _, o := range orders {
		p := x.partitionOf(topic, o.ID)
		if !slices.Contains(wanted, p) {
			wanted, p.oldest = append(wanted, p), o.CreatedAt
		} else if o.CreatedAt.Before(p.oldest) {
			p.oldest = o.CreatedAt
		}
	}
	for _, p := range wanted {
		if p.problem = nil; !p.loaded {
			p.problem = x.load(ctx, p, x.counts[topic])
		}
	}
	return wanted
}

// partitionOf returns the partition of an order's key.
func (x *recordSearch) partitionOf(topic int, id string) *searchedPartition {
	at := topicPartition{topic, kafka.PartitionOf([]byte(id), x.counts[topic])}
	if x.partitions[at] == nil {
		x.partitions[at] = &searchedPartition{topic: &x.topics[topic], number: at.partition}
	}
	return x.partitions[at]
}

// load reads the commit and the bounds of one of n partitions.
func (x *recordSearch) load(ctx context.Context, p *searchedPartition, n int) error {
	p.commit.Offset = -1
	if p.topic.hasGroup() {
		commits, err := x.log.Commits(ctx, p.topic.Group, p.topic.Topic, n)
		if err != nil {
			return err
		}
		p.commit = commits[p.number]
	}
	first, end, err := x.log.Bounds(ctx, p.topic.Topic, p.number)
	if err != nil {
		return err
	}
	p.waiting, p.end, p.low = kafka.FirstWaiting(p.commit, first, end), end, end
	if p.floor = p.waiting; x.acked {
		p.floor = first
	}
	if x.prepare != nil {
		err = x.prepare(ctx, p)
	}
	p.loaded = err == nil
	return err
}

// extendAll decides for each partition from which offset on to read. If the limit covers
// all records, they are all read. Otherwise each partition gets an equal share.
func (x *recordSearch) extendAll(ctx context.Context, wanted []*searchedPartition) {
	left, all := x.left, int64(0)
	for _, p := range wanted {
		all += p.unread()
	}
	for i, p := range wanted {
		room := left
		if all > x.left {
			room = left / int64(len(wanted)-i)
		}
		if p.problem == nil {
			p.problem = x.extend(ctx, p, room)
		}
		left -= min(room, kafka.TotalLen(p.todo))
	}
}

// unread returns how many offsets from floor on have not been read.
func (p *searchedPartition) unread() int64 { return kafka.TotalLen(p.todo) + p.low - p.floor }

// extend decides from which offset on to read a partition, of which room offsets may be read. If room
// covers all records, it reads them all and does not depend on the order's clock.
func (x *recordSearch) extend(ctx context.Context, p *searchedPartition, room int64) (err error) {
	likely, doubtful := p.floor, p.floor
	if !p.oldest.IsZero() && p.unread() > room {
		if !p.since.IsZero() && !p.oldest.Before(p.since) {
			return nil
		}
		if likely, doubtful, err = x.chooseStart(ctx, p, room); err != nil {
			return err
		}
		p.likely, p.since = likely, p.oldest
	}
	for _, from := range []int64{likely, doubtful} {
		if from < p.low {
			p.todo = append(p.todo, chooseSpans(p.number, from, p.waiting, p.low, room)...)
			p.low = from
		}
	}
	return nil
}

// chooseStart returns from which offset on the records of the oldest order are likely to be, and from
// which on its waiting records may be if its clock is wrong.
func (x *recordSearch) chooseStart(ctx context.Context, p *searchedPartition, room int64) (likely, doubtful int64, err error) {
	at, err := x.log.OffsetAt(ctx, p.topic.Topic, p.number, p.oldest.Add(-slack))
	if err != nil {
		return 0, 0, err
	}
	likely = max(p.floor, min(at, p.end))
	switch waits := p.topic.hasGroup() || !x.acked; {
	case !waits || likely <= p.waiting:
		return likely, likely, nil
	case p.end-p.waiting <= room:
		return p.waiting, p.waiting, nil
	}
	at, err = x.log.OffsetAt(ctx, p.topic.Topic, p.number, p.oldest.Add(-slack-doubt))
	return likely, max(p.waiting, min(at, likely)), err
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

// readTodo reads the spans in todo, at most limit offsets.
func (x *recordSearch) readTodo(ctx context.Context, p *searchedPartition, limit int64) {
	for p.problem == nil && limit > 0 && len(p.todo) > 0 {
		s := p.todo[0]
		s.End = min(s.End, s.First+limit)
		var n int64
		n, p.problem = x.read(ctx, p, s)
		limit, x.left = limit-n, x.left-n
		if p.todo[0].First += n; p.todo[0].Len() == 0 {
			p.todo = p.todo[1:]
		}
	}
}

// read passes the records of a span to keep, and returns how many of its offsets were read.
func (x *recordSearch) read(ctx context.Context, p *searchedPartition, s kafka.Span) (offsets int64, err error) {
	read, err := ScanRecords(ctx, x.log, p.topic.Topic, s, func(r wire.RawRecord) { x.keep(p, r) })
	p.read += read - s.First
	return read - s.First, err
}

// waits reports whether the topic's group has not acked an offset. A commit past the end belongs to an
// old log. In a topic without a group every record waits.
func (p *searchedPartition) waits(offset int64) bool {
	c := p.commit
	if c.FromDeletedLog || c.Offset > p.end {
		return true
	}
	return offset >= c.Offset && !slices.ContainsFunc(wire.DecodeRuns(c.Offset, c.Metadata), func(run wire.Run) bool {
		return offset >= run.First && offset < run.End
	})
}
