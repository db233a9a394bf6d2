package compensator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// Control connects a Compensator to the control topic and lets it schedule orders
// again. All fields but ReplayTopic and Lock are required.
type Control struct {
	Kafka     Kafka
	Store     DueStore
	Producers Producers
	Group     string                    // consumer group that holds the position in Topic
	Topic     string                    // the control topic, with one partition
	Buckets   func() orderclose.Buckets // the buckets in use now
	// CloseTopic and ReplayTopic hold records of orders that were due already.
	CloseTopic, ReplayTopic string
	MaxDelay                func() time.Duration // the current maximum delay
	// Lock keeps other processes from acting on the same losses. It must not be the
	// lock for sweeps, because regular sweeps go on meanwhile. Without one every
	// process acts, which is harmless but costs database time.
	Lock Lock
}

// Types of a Kafka, and what a Control needs to append records: Log of pipeline.Connections.
type (
	Position  = wire.Position
	Fetched   = wire.Fetched
	Producers = send.KeyedProducers
)

// Kafka is the part of Kafka that a Compensator uses to read the control topic: Log of
// pipeline.Connections. A Compensator is not a member of its group, because a membership costs
// heartbeats. Any process may act on a loss; the lock selects one.
type Kafka interface {
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	Read(ctx context.Context, at Position) (Fetched, error)
	// Position returns the committed offset of the group, negative if there is none.
	Position(ctx context.Context, group, topic string, partition int) (int64, error)
	// SetPosition commits an offset for a group without members.
	SetPosition(ctx context.Context, group, topic string, partition int, offset int64) error
}

// DueStore is an optional interface of a Store. It also returns orders that are not due yet.
// Package pipeline schedules orders again after a loss of records only if the store that it
// sweeps implements DueStore.
type DueStore interface {
	// DueBetween returns up to limit unpaid orders due between from and to, ordered
	// and paged as in Store.Overdue.
	DueBetween(ctx context.Context, from, to time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
}

func (k *Control) check() error {
	if k != nil && (k.Kafka == nil || k.Store == nil || k.Producers == nil || k.Group == "" || k.Topic == "" || k.Buckets == nil || k.CloseTopic == "" || k.MaxDelay == nil) {
		return errors.New("compensator: Control needs Kafka, Store, Producers, Group, Topic, Buckets, CloseTopic and MaxDelay")
	}
	return nil
}

// dueWithin returns how far ahead the orders of the lost records may have been due. For a
// bucket this is the length of the next larger open bucket, and for the largest bucket and
// for an unknown topic the maximum delay. Orders in the close and the replay topic
// were due already. An empty log of an unknown topic belongs to a bucket that is being
// added: relays serve it before records are appended to it.
func (k *Control) dueWithin(lost notice, buckets orderclose.Buckets) time.Duration {
	if lost.Topic == k.CloseTopic || lost.Topic == k.ReplayTopic {
		return 0
	}
	i := slices.IndexFunc(buckets, func(b orderclose.Bucket) bool { return b.Topic == lost.Topic })
	if i < 0 && lost.empty() { //mutant:added-bucket-loss
		return 0
	}
	if i >= 0 {
		for _, larger := range buckets[i+1:] {
			if !larger.Draining { // records for a draining bucket are put into a smaller one //mutant:draining-not-rescheduled
				return larger.Length
			}
		}
	}
	return k.MaxDelay()
}

// formerListTime is how long a list of buckets counts after it was replaced, beside the length of the
// bucket: other programs may still pick from it.
const formerListTime = time.Hour

// usedBuckets remembers when each bucket of the recent lists was last in use: records that were put
// into a bucket by a former list may still be there. It belongs to one goroutine.
type usedBuckets map[usedBucket]time.Time

type usedBucket struct {
	topic             string
	length, dueWithin time.Duration
}

// mayHoldRecords reports whether records that were put into the bucket until last may still be there.
func (b usedBucket) mayHoldRecords(last, now time.Time) bool {
	return now.Sub(last) <= b.length+formerListTime
}

// update notes the list in use now. It forgets buckets in which no record can be any more.
func (u usedBuckets) update(k *Control, buckets orderclose.Buckets, now time.Time) {
	for _, b := range buckets {
		u[usedBucket{b.Topic, b.Length, k.dueWithin(notice{Lost: wire.Lost{Topic: b.Topic}}, buckets)}] = now
	}
	maps.DeleteFunc(u, func(b usedBucket, last time.Time) bool { return !b.mayHoldRecords(last, now) })
}

// dueWithin returns the longest Control.dueWithin of the lists that were in use since a lost record was put
// into its bucket. buckets is the list in use now.
func (u usedBuckets) dueWithin(k *Control, lost notice, buckets orderclose.Buckets, now time.Time) time.Duration {
	longest := k.dueWithin(lost, buckets)
	for b, last := range u {
		if b.topic == lost.Topic && b.mayHoldRecords(last, now) {
			longest = max(longest, b.dueWithin)
		}
	}
	return longest
}

const (
	// gatherTime is how long further losses are awaited after the first. A process
	// that loses one partition often loses more, and one sweep is enough for all.
	gatherTime = 10 * time.Second
	// clockSkewTolerance is the largest expected difference between the clock that wrote
	// created_at and the brokers' clock. A larger difference raises an alert.
	clockSkewTolerance = time.Second
)

// notice is the notice of one loss.
type notice struct {
	wire.Lost
	reportedAt time.Time // when it was appended, by the brokers' clock; zero if unknown
}

// empty reports that the log had no records. There is one such notice for each
// partition at a first start.
func (n notice) empty() bool { return n.Last < n.First }

// losses sums up the losses that have to be dealt with. Its methods are pure.
type losses struct {
	count      int
	empty      int           // how many are losses of empty logs
	since      time.Time     // when the first notice was read
	dueWithin  time.Duration // how far ahead the orders may be due
	reportedAt time.Time     // when the last loss was reported, by the brokers' clock; zero if unknown for any loss
}

// with returns the losses and one more, whose orders may be due as far ahead as dueWithin.
func (l losses) with(n notice, dueWithin time.Duration, now time.Time) losses {
	switch {
	case l.count == 0:
		l.since, l.reportedAt = now, n.reportedAt
	case n.reportedAt.IsZero() || l.reportedAt.IsZero():
		l.reportedAt = time.Time{}
	case n.reportedAt.After(l.reportedAt):
		l.reportedAt = n.reportedAt
	}
	l.count++
	if n.empty() {
		l.empty++
	}
	l.dueWithin = max(l.dueWithin, dueWithin)
	return l
}

// unaffected reports that the order's record cannot have been lost: the order was created
// after the last loss was reported. A creation time after now, by the database's
// clock, comes from a clock that is ahead. Such an order may have been created much
// earlier, so it counts as affected.
func (l losses) unaffected(o orderclose.Order, now time.Time) bool {
	if l.reportedAt.IsZero() || o.CreatedAt.IsZero() {
		return false
	}
	return o.CreatedAt.After(l.reportedAt.Add(clockSkewTolerance)) && !o.CreatedAt.After(now.Add(clockSkewTolerance))
}
