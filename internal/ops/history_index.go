package ops

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// Match is a waiting record, or a pending dead letter.
type Match struct {
	Topic     string
	Kind      TopicKind
	Partition int
	Offset    int64
	Leaves    time.Time // the release of a record in a bucket; zero if the record is invalid
	Again     bool      // a close of the order was tried before
}

// Matches are the records that a RecordIndex found for one order.
type Matches struct {
	Found []Match
	// NotRead says what was not read, and why. It is empty if every partition that may have a
	// record of the order was read.
	NotRead string
}

// RecordIndex searches for the waiting records of many orders. It reads each offset at most once,
// however often Find is called, up to the end that the partition had at the first call. It reads
// all waiting records. If the budget is too small for that, it starts some time before the
// creation of the oldest order that Find was called with.
//
// It keeps some 60 bytes for each waiting record, under a hash of 64 bits of the record's key. So
// it may take the record of another order for that of the order: with 500 orders and a million
// records, the probability is 1 in 37 thousand million.
//
// A RecordIndex belongs to one goroutine.
type RecordIndex struct {
	log    HistoryLog
	topics []HistoryTopic
	left   int64 // offsets that may still be read
	seed   maphash.Seed

	counts  []int // the number of partitions of each topic; 0: not known yet
	states  map[topicPartition]*partitionState
	matches []storedMatch
	last    map[uint64]int32                  // by hash of the key: the index of the last match with the key
	settled map[topicPartition]map[int64]bool // offsets of the resolved dead letters
}

// topicPartition is a partition of one of the topics.
type topicPartition struct{ topic, partition int }

// partitionState is the state of a partition. Commit and end are those of the first question.
type partitionState struct {
	loaded  bool
	commit  kafka.Commit
	floor   int64 // no record below it waits
	end     int64
	low     int64        // each offset of [low, end) has been read or is in todo
	since   time.Time    // low covers the records of orders created then or later; zero: low covers no order yet
	todo    []kafka.Span // the part of [low, end) that has not been read
	problem error
}

// storedMatch is a stored Match. Those with the same key form a linked list.
type storedMatch struct {
	leaves, offset   int64
	before           int32 // the index of the next older one with this key; -1: none
	topic, partition int32
	again            bool
}

// NewRecordIndex returns a RecordIndex that reads at most budget offsets. Topics that come first have
// precedence.
func NewRecordIndex(log HistoryLog, topics []HistoryTopic, budget int64) *RecordIndex {
	return &RecordIndex{
		log: log, topics: topics, left: budget, seed: maphash.MakeSeed(), counts: make([]int, len(topics)),
		states: map[topicPartition]*partitionState{}, last: map[uint64]int32{}, settled: map[topicPartition]map[int64]bool{},
	}
}

// Find returns the waiting records of each order, in the order of the argument. For an
// order without CreatedAt it reads all waiting records.
func (x *RecordIndex) Find(ctx context.Context, orders []orderclose.Order) []Matches {
	var requests []request
	notRead := ""
	for n, p := range x.topics {
		partitions, err := x.choosePartitions(ctx, n, orders)
		if err != nil && notRead == "" {
			notRead = fmt.Sprintf("%s: %v", p.Topic, err)
		}
		requests = append(requests, partitions...)
	}
	x.extendAll(ctx, requests)
	for i, a := range requests {
		x.read(ctx, a.at, x.left/int64(len(requests)-i))
	}
	for _, a := range requests { // use the budget that other partitions have left over
		x.read(ctx, a.at, x.left)
	}
	all := make([]Matches, len(orders))
	for i, o := range orders {
		all[i] = Matches{x.found(o.ID), notRead}
		if notRead == "" {
			all[i].NotRead = x.notRead(o.ID)
		}
	}
	return all
}

// request is a partition to read, and the creation time of the oldest order to find there.
type request struct {
	at     topicPartition
	oldest time.Time
}

// choosePartitions returns the partitions of a topic to read for the orders.
func (x *RecordIndex) choosePartitions(ctx context.Context, topic int, orders []orderclose.Order) ([]request, error) {
	if x.counts[topic] == 0 {
		n, err := x.log.Partitions(ctx, x.topics[topic].Topic)
		if err != nil {
			return nil, err
		}
		x.counts[topic] = n
	}
	oldest := map[int]time.Time{}
	for _, o := range orders {
		p := x.partition(topic, o.ID)
		if t, ok := oldest[p]; !ok || o.CreatedAt.Before(t) {
			oldest[p] = o.CreatedAt
		}
	}
	var requests []request
	for _, partition := range slices.Sorted(maps.Keys(oldest)) {
		at := topicPartition{topic, partition}
		requests = append(requests, request{at, oldest[partition]})
		if x.states[at] == nil {
			x.states[at] = &partitionState{}
		}
		p := x.states[at]
		if p.problem = nil; !p.loaded {
			p.problem = x.load(ctx, at, p)
		}
	}
	return requests, nil
}

func (x *RecordIndex) partition(topic int, id string) int {
	return kafka.PartitionOf([]byte(id), x.counts[topic])
}

// extendAll decides for each partition from which offset on to read. If the budget covers
// all waiting records, they are all read. Otherwise each partition gets an equal share.
func (x *RecordIndex) extendAll(ctx context.Context, requests []request) {
	left, all := x.left, int64(0)
	for _, a := range requests {
		all += x.states[a.at].unread()
	}
	for i, a := range requests {
		p, room := x.states[a.at], left
		if all > x.left {
			room = left / int64(len(requests)-i)
		}
		if p.problem == nil {
			p.problem = x.extend(ctx, a.at, p, a.oldest, room)
		}
		left -= min(room, p.pending())
	}
}

// extend decides from which offset on to read a partition for an order created then. If room
// covers all waiting records, it reads them all and does not depend on the order's clock.
func (x *RecordIndex) extend(ctx context.Context, at topicPartition, p *partitionState, created time.Time, room int64) error {
	if p.low == p.floor {
		return nil
	}
	if created.IsZero() || p.unread() <= room {
		p.readFrom(at.partition, p.floor)
		return nil
	}
	if !p.since.IsZero() && !created.Before(p.since) {
		return nil
	}
	for _, before := range []time.Duration{slack, slack + doubt} { // the likelier part is read first
		offset, err := x.log.OffsetAt(ctx, x.topics[at.topic].Topic, at.partition, created.Add(-before))
		if err != nil {
			return err
		}
		p.readFrom(at.partition, max(p.floor, offset))
	}
	p.since = created
	return nil
}

// readFrom adds the offsets from from on to todo.
func (p *partitionState) readFrom(partition int, from int64) {
	if from < p.low {
		p.todo = append(p.todo, kafka.Span{Partition: partition, First: from, End: p.low})
		p.low = from
	}
}

// pending returns how many offsets are in todo.
func (p *partitionState) pending() int64 { return kafka.TotalLen(p.todo) }

// unread returns how many offsets from floor on have not been read.
func (p *partitionState) unread() int64 { return p.pending() + p.low - p.floor }

// load reads the commit and the bounds of a partition.
func (x *RecordIndex) load(ctx context.Context, at topicPartition, p *partitionState) error {
	commit, first, end, err := x.topics[at.topic].bounds(ctx, x.log, at.partition, x.counts[at.topic])
	if err == nil {
		p.loaded, p.commit, p.end, p.low, p.floor = true, commit, end, end, kafka.FirstWaiting(commit, first, end)
	}
	return err
}

// read reads the spans in todo, at most budget offsets.
func (x *RecordIndex) read(ctx context.Context, at topicPartition, budget int64) {
	p := x.states[at]
	for p.problem == nil && budget > 0 && len(p.todo) > 0 {
		s := p.todo[0]
		s.End = min(s.End, s.First+budget)
		read, err := ScanRecords(ctx, x.log, x.topics[at.topic].Topic, s, func(r wire.RawRecord) { x.add(at, p, r) })
		p.problem = err
		budget -= read - s.First
		x.left -= read - s.First
		if p.todo[0].First = read; read >= p.todo[0].End {
			p.todo = p.todo[1:]
		}
	}
}

// add stores a record that waits. An invalid record is stored without its release.
func (x *RecordIndex) add(at topicPartition, p *partitionState, r wire.RawRecord) {
	topic := x.topics[at.topic]
	if topic.Group != "" && done(p.commit, r.Offset, p.end) {
		return
	}
	s := storedMatch{offset: r.Offset, topic: int32(at.topic), partition: int32(at.partition)}
	m, err := r.Message()
	switch resolution, isResolution := wire.DecodeResolution(&m); {
	case err != nil:
	case topic.Kind == KindDeadLetters && isResolution:
		dead := topicPartition{at.topic, resolution.Partition}
		if x.settled[dead] == nil {
			x.settled[dead] = map[int64]bool{}
		}
		x.settled[dead][resolution.Offset] = true
		return
	case topic.Kind == KindDeadLetters && isEvent(&m):
		return // its order was closed
	case topic.Kind == KindBucket:
		if due, err := m.Due(); err == nil {
			s.leaves = orderclose.Bucket{Length: topic.Length}.Release(due, r.AppendedAt()).UnixMilli()
		}
	}
	// The closer adds one of these headers to a record that it retries.
	for _, key := range []string{wire.HeaderCause, wire.HeaderAttempt, wire.HeaderPendingSince} {
		if _, there := m.Header(key); there {
			s.again = true
		}
	}
	key := maphash.Bytes(x.seed, r.Key())
	if before, ok := x.last[key]; ok {
		s.before = before
	} else {
		s.before = -1
	}
	x.last[key] = int32(len(x.matches))
	x.matches = append(x.matches, s)
}

// isEvent reports whether a dead letter is that of an event.
func isEvent(m *wire.Message) bool {
	_, ok := m.Header(orderclose.HeaderContentType)
	return ok
}

// found returns the stored records of an order, in the order in which they were read.
func (x *RecordIndex) found(id string) (found []Match) {
	i, ok := x.last[maphash.String(x.seed, id)]
	for ok && i >= 0 {
		s := x.matches[i]
		i = s.before
		topic := x.topics[s.topic]
		if topic.Kind == KindDeadLetters && x.settled[topicPartition{int(s.topic), int(s.partition)}][s.offset] {
			continue
		}
		match := Match{Topic: topic.Topic, Kind: topic.Kind, Partition: int(s.partition), Offset: s.offset, Again: s.again}
		if s.leaves != 0 {
			match.Leaves = time.UnixMilli(s.leaves).UTC()
		}
		found = append(found, match)
	}
	slices.Reverse(found)
	return found
}

// notRead says which part of the order's partitions was not read, and why.
func (x *RecordIndex) notRead(id string) string {
	for topic := range x.topics {
		at := topicPartition{topic, x.partition(topic, id)}
		p := x.states[at]
		switch name := x.topics[topic].Topic; {
		case p.problem != nil:
			return fmt.Sprintf("%s/%d: %v", name, at.partition, p.problem)
		case len(p.todo) > 0:
			return fmt.Sprintf("%s/%d: the budget was spent before offset %d", name, at.partition, p.todo[0].First)
		}
	}
	return ""
}
