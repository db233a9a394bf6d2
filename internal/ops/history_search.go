package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
)

// topicsAtOnce bounds how many topics are searched at once.
const topicsAtOnce = 4

// TopicKind is the purpose of a topic.
type TopicKind string

// The kinds, in the order in which an order passes them.
const (
	KindBucket      TopicKind = "bucket"
	KindClose       TopicKind = "close"
	KindDeadLetters TopicKind = "dead_letter"
	KindEvents      TopicKind = "events"
)

// HistoryTopic is a topic that records of an order pass, and the result of the search there.
type HistoryTopic struct {
	Topic  string        `json:"topic"`
	Kind   TopicKind     `json:"kind"`
	Group  string        `json:"group,omitempty"` // the consumer group; "" if there is none
	Length time.Duration `json:"-"`               // of a bucket

	Looked  int64    `json:"looked_at"`         // the number of offsets that were read
	Skipped int64    `json:"skipped"`           // the number of offsets that were not read, because the budget was used up
	Records []Record `json:"records"`           // the records of the order, by append time
	Problem string   `json:"problem,omitempty"` // the error that stopped the search
}

// hasGroup reports whether records wait in the topic for a consumer group.
func (topic HistoryTopic) hasGroup() bool { return topic.Group != "" }

// afterClosing reports whether records come to the topic after closing was tried.
func (topic HistoryTopic) afterClosing() bool {
	return topic.Kind == KindDeadLetters || topic.Kind == KindEvents
}

// Record is a record of the order.
type Record struct {
	Partition int       `json:"partition"`
	Offset    int64     `json:"offset"`
	Appended  time.Time `json:"appended"`
	Waits     bool      `json:"waits"`           // the group has not committed the record
	Due       time.Time `json:"due_at,omitzero"` // as the record says
	Leaves    time.Time `json:"leaves_at,omitzero"`
	Attempt   int       `json:"attempt,omitempty"`
	Cause     string    `json:"cause,omitempty"` // of the last failed attempt
	NotDue    int       `json:"not_due,omitempty"`
	Lane      string    `json:"lane,omitempty"`
	// PendingSince is since when the payment provider has no answer on the order; zero: it has, or was not asked.
	PendingSince time.Time `json:"pending_since,omitzero"`
	Problem      string    `json:"problem,omitempty"` // why the record is invalid

	Dead  *deadletters.Letter `json:"dead_letter,omitempty"`
	Event string              `json:"event,omitempty"` // the id of the event
}

// OrderTopics returns the topics that may have records of an order: the delay topics of the configured buckets, shortest first; delay topics that are
// not in the configuration, by name; the close topic, the dead letters and the events. It leaves out delay topics that do not exist. If Kafka cannot
// list the delay topics, it returns an error, with the topics of the configuration.
func OrderTopics(ctx context.Context, k *kafka.Cluster, cfg *config.Config) ([]HistoryTopic, error) {
	served, err := topics.Served(ctx, k, cfg)
	if err != nil {
		err = fmt.Errorf("list the delay topics that are not in topics.yaml: %w", err)
	}
	var all []HistoryTopic
	for _, b := range served {
		if there, failed := k.Exists(ctx, b.Topic); failed == nil && !there {
			continue
		}
		all = append(all, HistoryTopic{Topic: b.Topic, Kind: KindBucket, Group: cfg.RelayGroup(b), Length: b.Length})
	}
	return append(all,
		HistoryTopic{Topic: cfg.Topics.Close, Kind: KindClose, Group: cfg.CloserGroup()},
		HistoryTopic{Topic: cfg.Topics.DeadLetter, Kind: KindDeadLetters},
		HistoryTopic{Topic: cfg.Topics.Events, Kind: KindEvents},
	), err
}

// SearchLimit bounds a search. The context bounds it too.
type SearchLimit struct {
	Records int64     // offsets to read in each topic
	Since   time.Time // when the order was created; zero if unknown
}

// SearchTopics searches all partitions of each topic, as recordSearch describes; of the events that of the order's key.
func SearchTopics(ctx context.Context, log Log, topics []HistoryTopic, id string, limit SearchLimit) []HistoryTopic {
	results := slices.Clone(topics)
	var g errgroup.Group
	g.SetLimit(topicsAtOnce)
	for i := range results {
		g.Go(func() error {
			results[i].search(ctx, log, id, limit)
			return nil
		})
	}
	g.Wait()
	return results
}

// search sets the result of the search in one topic.
func (topic *HistoryTopic) search(ctx context.Context, log Log, id string, limit SearchLimit) {
	topic.Records = []Record{}
	x := &recordSearch{log: log, topic: topic, id: id}
	x.keep = func(r wire.RawRecord) {
		if string(r.Key()) == id {
			topic.Records = append(topic.Records, x.record(r))
		}
	}
	err := x.find(ctx, limit)
	slices.SortStableFunc(topic.Records, func(a, b Record) int { return a.Appended.Compare(b.Appended) })
	topic.Looked, topic.Skipped = x.looked, x.skipped
	if len(topic.Records) == 0 {
		topic.Skipped += x.doubtful
	}
	if err != nil {
		topic.Problem = err.Error()
	}
}

// ScanRecords reads a span and calls each with its records. read is the offset after the last one read: the end of the span unless ScanRecords fails.
// ScanRecords skips offsets that are deleted or damaged. A topic that is recreated meanwhile is an error.
func ScanRecords(ctx context.Context, log reads.Reader, topic string, s reads.Span, each func(wire.RawRecord)) (read int64, err error) {
	read, err = reads.Scan(ctx, log, topic, s, func(f wire.Fetched) error {
		for _, r := range f.Records {
			each(r)
		}
		return nil
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("timeout at offset %d of %d", read, s.End)
	}
	return read, err
}

// record describes a record of the order.
func (x *recordSearch) record(raw wire.RawRecord) Record {
	r := Record{Partition: x.number, Offset: raw.Offset, Appended: raw.AppendedAt().UTC(), Waits: x.topic.hasGroup() && x.waits(raw.Offset)}
	m, err := raw.Message()
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	switch x.topic.Kind {
	case KindDeadLetters:
		r.Dead = new(deadletters.Read(x.number, m))
	case KindEvents:
		r.Event = eventID(m.Value)
	default:
		r.travels(x.topic, m)
	}
	return r
}

// travels adds the fields of a record that travels through the pipeline.
func (r *Record) travels(topic *HistoryTopic, m wire.Message) {
	record, err := m.Decode()
	if err != nil {
		r.Problem = err.Error()
		return
	}
	r.Due, r.Attempt, r.Cause, r.NotDue, r.Lane = record.Order.Due.UTC(), record.Attempt, record.Cause, record.NotDue, record.Lane
	r.PendingSince = record.PendingSince.UTC()
	if topic.Kind == KindBucket {
		r.Leaves = orderclose.Bucket{Length: topic.Length}.Release(record.Release, r.Appended).UTC()
	}
}

// eventID returns the id of an event, or "without an id".
func eventID(value []byte) string {
	var event struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(value, &event) != nil || event.ID == "" {
		return "without an id"
	}
	return event.ID
}

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
	s := reads.Span{Partition: x.number, First: begin, End: min(end, begin+limit)}
	x.skipped += end - first - s.Len()
	return x.read(ctx, s)
}

// read passes the records of a span to keep.
func (x *recordSearch) read(ctx context.Context, s reads.Span) error {
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
