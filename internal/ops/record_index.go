package ops

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/wire"
)

// match is a waiting record, a pending dead letter, or a record that a closer has acknowledged.
type match struct {
	Topic     *HistoryTopic
	Partition int32
	Again     bool // a close of the order was tried before
	Offset    int64
	// Leaves is the release of a record in a bucket, and when an acknowledged one was appended, in unix milliseconds; 0 if
	// the record is invalid.
	Leaves int64
	older  int32 // the index of the next older match with this key; -1: none
}

// where returns the position of the record.
func (m match) where() string { return fmt.Sprintf("%s/%d@%d", m.Topic.Topic, m.Partition, m.Offset) }

// recordIndex searches for the waiting records of many orders, as recordSearch describes.
//
// It keeps some 70 bytes for each waiting record, under a hash of 64 bits of the record's key. So
// it may take the record of another order for that of the order: with 500 orders and a million
// records, the probability is 1 in 37 thousand million.
//
// A recordIndex belongs to one goroutine.
type recordIndex struct {
	*recordSearch
	seed     maphash.Seed
	matches  []match
	newest   map[uint64]int32 // by hash of the key: the index of the newest match
	resolved map[deadletters.Position]bool
}

// newRecordIndex returns a recordIndex that reads at most limit offsets. Topics that come first have
// precedence.
func newRecordIndex(log Log, topics []HistoryTopic, limit int64) *recordIndex {
	x := &recordIndex{newRecordSearch(log, topics, limit), maphash.MakeSeed(), nil, map[uint64]int32{}, map[deadletters.Position]bool{}}
	x.keep = x.add
	return x
}

// newAckedIndex returns a recordIndex of the records in the close topics that closers have acknowledged.
func newAckedIndex(log Log, topics []HistoryTopic) *recordIndex {
	x := newRecordIndex(log, slices.DeleteFunc(slices.Clone(topics), func(t HistoryTopic) bool { return t.Kind == KindBucket || t.Kind == KindDeadLetters }), 0)
	x.acked = true
	return x
}

// explain returns the waiting records of each order, in the order of the argument. For an
// order without CreatedAt it reads all waiting records.
func (x *recordIndex) explain(ctx context.Context, orders []orderclose.Order) []evidence {
	x.find(ctx, orders)
	all := make([]evidence, len(orders))
	for i, o := range orders {
		all[i] = evidence{matches: x.found(o.ID), notRead: x.notRead(o.ID)}
	}
	return all
}

// add adds a record that waits, or one that does not if those are searched for. An invalid record has no release.
func (x *recordIndex) add(p *searchedPartition, r wire.RawRecord) {
	if p.waits(r.Offset) == x.acked {
		return
	}
	one := match{Topic: p.topic, Partition: int32(p.number), Offset: r.Offset, older: -1}
	m, err := r.Message()
	switch resolution, isResolution := wire.DecodeResolution(&m); {
	case err != nil:
	case p.topic.Kind == KindDeadLetters && isResolution:
		x.resolved[deadletters.Position{Partition: resolution.Partition, Offset: resolution.Offset}] = true
		return
	case p.topic.Kind == KindDeadLetters && isEvent(&m):
		return // its order was closed
	case x.acked:
		one.Leaves = r.AppendedAt().UnixMilli()
	case p.topic.Kind == KindBucket:
		if due, err := m.Due(); err == nil {
			one.Leaves = orderclose.Bucket{Length: p.topic.Length}.Release(due, r.AppendedAt()).UnixMilli()
		}
	}
	// The closer adds one of these headers to a record that it retries.
	one.Again = slices.ContainsFunc([]string{wire.HeaderCause, wire.HeaderAttempt, wire.HeaderPendingSince}, func(name string) bool {
		_, there := m.Header(name)
		return there
	})
	key := maphash.Bytes(x.seed, r.Key())
	if older, ok := x.newest[key]; ok {
		one.older = older
	}
	x.newest[key] = int32(len(x.matches))
	x.matches = append(x.matches, one)
}

// isEvent reports whether a dead letter is that of an event.
func isEvent(m *wire.Message) bool {
	_, ok := m.Header(orderclose.HeaderContentType)
	return ok
}

// found returns the matches of an order, in the order in which they were read.
func (x *recordIndex) found(id string) (found []match) {
	i, ok := x.newest[maphash.String(x.seed, id)]
	for ok && i >= 0 {
		m := x.matches[i]
		i = m.older
		if m.Topic.Kind != KindDeadLetters || !x.resolved[deadletters.Position{Partition: int(m.Partition), Offset: m.Offset}] {
			found = append(found, m)
		}
	}
	slices.Reverse(found)
	return found
}

// notRead says which part of the order's partitions was not read, and why.
func (x *recordIndex) notRead(id string) string {
	for n, topic := range x.topics {
		if x.problems[n] != nil {
			return fmt.Sprintf("%s: %v", topic.Topic, x.problems[n])
		}
		switch p := x.partitionOf(n, id); {
		case p.problem != nil:
			return fmt.Sprintf("%s/%d: %v", topic.Topic, p.number, p.problem)
		case len(p.todo) > 0:
			return fmt.Sprintf("%s/%d: the budget was spent before offset %d", topic.Topic, p.number, p.todo[0].First)
		}
	}
	return ""
}
