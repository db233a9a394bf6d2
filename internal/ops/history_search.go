package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/wire"
)

// topicsAtOnce bounds how many topics are searched at once.
const topicsAtOnce = 4

// The creation time of an order and the append times of its records come from different
// clocks. So the creation time is used only to choose a start if not all waiting records
// can be read.
const (
	// slack is how long before the creation of an order, by the checkout's clock, its records
	// may have been appended, by a broker's clock.
	slack = time.Minute
	// doubt is how much earlier than slack the offsets begin that are still doubtful: the clock
	// of a checkout with a wrong time zone may be an hour ahead.
	doubt = time.Hour
)

// HistoryLog is what a search needs of Kafka. Cluster of internal/kafka implements it.
type HistoryLog interface {
	Partitions(ctx context.Context, topic string) (int, error)
	Commits(ctx context.Context, group, topic string, n int) ([]kafka.Commit, error)
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	OffsetAt(ctx context.Context, topic string, partition int, t time.Time) (int64, error)
	Read(ctx context.Context, at wire.Position) (wire.Fetched, error)
	ReadLittle(ctx context.Context, at wire.Position) (wire.Fetched, error)
}

// little reads with small fetches.
type little struct{ log HistoryLog }

func (l little) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	return l.log.ReadLittle(ctx, at)
}

// TopicKind is the purpose of a topic.
type TopicKind string

// The kinds, in the order in which an order passes them.
const (
	KindBucket      TopicKind = "bucket"
	KindClose       TopicKind = "close"
	KindReplay      TopicKind = "replay"
	KindDeadLetters TopicKind = "dead_letter"
	KindEvents      TopicKind = "events"
)

// HistoryTopic is a topic that records of an order pass, and the result of the search there.
type HistoryTopic struct {
	Topic  string        `json:"topic"`
	Kind   TopicKind     `json:"kind"`
	Group  string        `json:"group,omitempty"` // the consumer group; "" if there is none
	Length time.Duration `json:"-"`               // of a bucket

	Partition int      `json:"partition"`         // the partition of the order's key
	Looked    int64    `json:"looked_at"`         // the number of offsets that were read
	Skipped   int64    `json:"skipped"`           // the number of offsets that were not read, because the budget was used up
	Records   []Record `json:"records"`           // the records of the order
	Problem   string   `json:"problem,omitempty"` // the error that stopped the search
}

// hasGroup reports whether records wait in the topic for a consumer group.
func (p HistoryTopic) hasGroup() bool { return p.Group != "" }

// afterClosing reports whether records come to the topic after closing was tried.
func (p HistoryTopic) afterClosing() bool { return p.Kind == KindDeadLetters || p.Kind == KindEvents }

// Record is a record of the order.
type Record struct {
	Offset   int64      `json:"offset"`
	Appended time.Time  `json:"appended"`
	Waits    bool       `json:"waits"`            // the group has not committed the record
	Due      *time.Time `json:"due_at,omitempty"` // as the record says
	Leaves   *time.Time `json:"leaves_at,omitempty"`
	Attempt  int        `json:"attempt,omitempty"`
	Cause    string     `json:"cause,omitempty"` // of the last failed attempt
	NotDue   int        `json:"not_due,omitempty"`
	Lane     string     `json:"lane,omitempty"`
	Problem  string     `json:"problem,omitempty"` // why the record is invalid

	Dead    *deadletters.Letter `json:"dead_letter,omitempty"`
	Settles *wire.Resolution    `json:"settles,omitempty"`
	Event   string              `json:"event,omitempty"` // the id of the event
}

// SearchLimit bounds a search. The context bounds it too.
type SearchLimit struct {
	Records int64     // offsets to read in each topic
	Since   time.Time // when the order was created; zero if unknown
	// Letters, if not nil, knows the dead letters of orders. The search reads only these, and what
	// was appended since.
	Letters LetterIndex
}

// LetterIndex returns the offsets of an order's records in a partition of the dead-letter topic, in
// order, as far as they are below next. ok is false if the index does not have all of them.
// OfOrder of deadletters.Catalog is one.
type LetterIndex func(partition int, order string) (offsets []int64, next int64, ok bool)

// SearchTopics searches the partition of the order's key in each topic: all of it, or from the
// creation of the order if the budget is too small. It does not find a record that a
// producer put into another partition.
func SearchTopics(ctx context.Context, log HistoryLog, topics []HistoryTopic, id string, b SearchLimit) []HistoryTopic {
	results := make([]HistoryTopic, len(topics))
	var g errgroup.Group
	g.SetLimit(topicsAtOnce)
	for i := range topics {
		g.Go(func() error {
			results[i] = topics[i]
			results[i].Records = []Record{}
			if err := results[i].search(ctx, log, id, b); err != nil {
				results[i].Problem = err.Error()
			}
			return nil
		})
	}
	g.Wait()
	return results
}

func (p *HistoryTopic) search(ctx context.Context, log HistoryLog, id string, b SearchLimit) error {
	n, err := log.Partitions(ctx, p.Topic)
	if err != nil {
		return err
	}
	p.Partition = kafka.PartitionOf([]byte(id), n)
	commit, first, end, err := p.bounds(ctx, log, p.Partition, n)
	if err != nil {
		return err
	}
	if p.Kind == KindDeadLetters && b.Letters != nil {
		if first, err = p.readIndexed(ctx, log, b.Letters, id, first, end); err != nil {
			return err
		}
	}
	waiting := kafka.FirstWaiting(commit, first, end)
	from, doubtfulOffsets := first, int64(0)
	if !b.Since.IsZero() && end-first > b.Records {
		at, err := log.OffsetAt(ctx, p.Topic, p.Partition, b.Since.Add(-slack))
		if err != nil {
			return err
		}
		from = max(first, min(at, end))
		if p.hasGroup() && waiting < from && end-waiting <= b.Records {
			from = waiting
		} else if p.hasGroup() && waiting < from {
			at, err := log.OffsetAt(ctx, p.Topic, p.Partition, b.Since.Add(-slack-doubt))
			if err != nil {
				return err
			}
			doubtfulOffsets = from - max(waiting, min(at, from))
		}
	}
	spans := within(from, waiting, end, b.Records)
	p.Skipped = end - from - kafka.TotalLen(spans)
	for _, s := range spans {
		s.Partition = p.Partition
		if err := p.read(ctx, log, s, id, commit, end); err != nil {
			return err
		}
	}
	if len(p.Records) == 0 {
		p.Skipped += doubtfulOffsets
	}
	return nil
}

// bounds returns what the topic's group has committed for one of n partitions, and the bounds of the
// partition.
func (p *HistoryTopic) bounds(ctx context.Context, log HistoryLog, partition, n int) (commit kafka.Commit, first, end int64, err error) {
	commit.Offset = -1
	if p.hasGroup() {
		commits, err := log.Commits(ctx, p.Group, p.Topic, n)
		if err != nil {
			return commit, 0, 0, err
		}
		commit = commits[partition]
	}
	first, end, err = log.Bounds(ctx, p.Topic, partition)
	return commit, first, end, err
}

// readIndexed reads the records of the order that the index knows, and returns the offset from which on
// the log is still to be searched.
func (p *HistoryTopic) readIndexed(ctx context.Context, log HistoryLog, index LetterIndex, id string, first, end int64) (from int64, err error) {
	offsets, next, ok := index(p.Partition, id)
	if !ok || next > end { // the topic may have been recreated since
		return first, nil
	}
	for _, offset := range offsets {
		if offset >= first {
			s := kafka.Span{Partition: p.Partition, First: offset, End: offset + 1}
			if err := p.read(ctx, little{log}, s, id, kafka.Commit{Offset: -1}, end); err != nil {
				return first, err
			}
		}
	}
	return max(first, next), nil
}

// within chooses which offsets of [from, end) to read, at most budget of them. If the budget is
// too small for all, one half is read from from on: the order was published about there. The
// other half is read from the first waiting record on: a record that should have left is about
// there. It is a pure function.
func within(from, waiting, end, budget int64) []kafka.Span {
	if end-from <= budget {
		if from >= end {
			return nil
		}
		return []kafka.Span{{First: from, End: end}}
	}
	waiting = max(waiting, from)
	if waiting >= end { // no record waits: read the newest instead
		waiting = end - budget/2
	}
	half := budget / 2
	if waiting <= from+half { // the halves overlap
		return []kafka.Span{{First: from, End: min(from+budget, end)}}
	}
	tail := kafka.Span{First: waiting, End: min(waiting+half, end)}
	return []kafka.Span{{First: from, End: min(from+budget-tail.Len(), waiting)}, tail}
}

// read reads a span and keeps the records of the order.
func (p *HistoryTopic) read(ctx context.Context, log kafka.LogReader, s kafka.Span, id string, commit kafka.Commit, end int64) error {
	read, err := ScanRecords(ctx, log, p.Topic, s, func(r wire.RawRecord) {
		if string(r.Key()) == id {
			p.Records = append(p.Records, p.record(r, commit, end))
		}
	})
	p.Looked += read - s.First
	p.Skipped += s.End - read
	return err
}

// ScanRecords reads a span and calls each with its records. read is the offset after the last one
// read: the end of the span unless ScanRecords fails. ScanRecords skips offsets that are deleted or
// damaged. A topic that is recreated meanwhile is an error.
func ScanRecords(ctx context.Context, log kafka.LogReader, topic string, s kafka.Span, each func(wire.RawRecord)) (read int64, err error) {
	read, err = kafka.Scan(ctx, log, topic, s, func(f wire.Fetched) error {
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
func (p *HistoryTopic) record(raw wire.RawRecord, commit kafka.Commit, end int64) Record {
	r := Record{Offset: raw.Offset, Appended: raw.AppendedAt().UTC(), Waits: p.hasGroup() && !done(commit, raw.Offset, end)}
	m, err := raw.Message()
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	switch p.Kind {
	case KindDeadLetters:
		if resolution, ok := wire.DecodeResolution(&m); ok {
			r.Settles = &resolution
			return r
		}
		l := deadletters.Read(p.Partition, m)
		r.Dead = &l
	case KindEvents:
		r.Event = eventID(m.Value)
	default:
		p.travels(&r, m)
	}
	return r
}

// travels adds the fields of a record that travels through the pipeline.
func (p *HistoryTopic) travels(r *Record, m wire.Message) {
	record, err := m.Decode()
	if err != nil {
		r.Problem = err.Error()
		return
	}
	due := record.Order.Due.UTC()
	r.Due, r.Attempt, r.Cause, r.NotDue, r.Lane = &due, record.Attempt, record.Cause, record.NotDue, record.Lane
	if p.Kind == KindBucket {
		leaves := orderclose.Bucket{Length: p.Length}.Release(record.Release, r.Appended).UTC()
		r.Leaves = &leaves
	}
}

// done reports whether the group has acked an offset. A commit past the end belongs to an
// old log.
func done(c kafka.Commit, offset, end int64) bool {
	if c.FromDeletedLog || c.Offset > end {
		return false
	}
	if offset < c.Offset {
		return true
	}
	for _, run := range wire.DecodeRuns(c.Offset, c.Metadata) {
		if offset >= run.First && offset < run.End {
			return true
		}
	}
	return false
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
