package story

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"orderclose"
	"orderclose/internal/deadletters"
	"orderclose/internal/kafka"
	"orderclose/internal/partition"
)

// atOnce bounds how many topics are looked through together.
const atOnce = 4

// When an order was made is told by another clock than when its records were appended,
// so that it only tells where to begin where not everything that waits can be read.
const (
	// slack is how long before an order was made its records are looked for.
	slack = time.Minute
	// doubt is how long before that they may be all the same, if they are not found: the
	// checkout's clock is ahead, by an hour if it takes one zone for another.
	doubt = time.Hour
)

// Log is what looking for records needs of Kafka; internal/kafka's Cluster is one.
type Log interface {
	Partitions(ctx context.Context, topic string) (int, error)
	Commits(ctx context.Context, group, topic string, n int) ([]kafka.Commit, error)
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	OffsetAt(ctx context.Context, topic string, partition int, t time.Time) (int64, error)
	Read(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error)
}

// Kind is what a topic is for.
type Kind string

// The kinds, in the order of an order's way.
const (
	Bucket Kind = "bucket"
	Close  Kind = "close"
	Replay Kind = "replay"
	Dead   Kind = "dead_letter"
	Events Kind = "events"
)

// Place is a topic that an order's records go through, and what was found of them.
type Place struct {
	Topic  string        `json:"topic"`
	Kind   Kind          `json:"kind"`
	Group  string        `json:"group,omitempty"` // who takes records out; "" if nobody does
	Length time.Duration `json:"-"`               // of a bucket

	Partition int      `json:"partition"`         // of the order's key
	Looked    int64    `json:"looked_at"`         // offsets
	Skipped   int64    `json:"skipped"`           // offsets, for the budget was spent
	Records   []Record `json:"records"`           // of the order
	Problem   string   `json:"problem,omitempty"` // why it was not, or not all, looked at
}

// waits says whether records wait in the topic for somebody to take them.
func (p Place) waits() bool { return p.Group != "" }

// after says whether records come here when closing has been tried.
func (p Place) after() bool { return p.Kind == Dead || p.Kind == Events }

// Record is a record of the order.
type Record struct {
	Offset   int64      `json:"offset"`
	Appended time.Time  `json:"appended"`
	Waits    bool       `json:"waits"`            // the group has not committed it
	Due      *time.Time `json:"due_at,omitempty"` // as it says
	Leaves   *time.Time `json:"leaves_at,omitempty"`
	Attempt  int        `json:"attempt,omitempty"`
	Cause    string     `json:"cause,omitempty"` // of the last try that failed
	NotDue   int        `json:"not_due,omitempty"`
	Lane     string     `json:"lane,omitempty"`
	Problem  string     `json:"problem,omitempty"` // why it cannot be read

	Dead    *deadletters.Letter `json:"dead_letter,omitempty"`
	Settles *orderclose.Mark    `json:"settles,omitempty"`
	Event   string              `json:"event,omitempty"` // its id
}

// Budget bounds looking. It also ends with its context.
type Budget struct {
	Records int64     // offsets of each topic
	Since   time.Time // when the order was made; zero if that is not known
}

// Look looks through the partition of the order's key in each topic: all of it, or from
// when the order was made if the budget is too small for that. A record that somebody put into another partition is not found.
func Look(ctx context.Context, log Log, places []Place, id string, b Budget) []Place {
	looked := make([]Place, len(places))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range places {
		g.Go(func() error {
			looked[i] = places[i]
			looked[i].Records = []Record{}
			if err := looked[i].look(ctx, log, id, b); err != nil {
				looked[i].Problem = err.Error()
			}
			return nil
		})
	}
	g.Wait()
	return looked
}

func (p *Place) look(ctx context.Context, log Log, id string, b Budget) error {
	n, err := log.Partitions(ctx, p.Topic)
	if err != nil {
		return err
	}
	p.Partition = kafka.PartitionOf([]byte(id), n)
	commit := kafka.Commit{Offset: -1}
	if p.Group != "" {
		commits, err := log.Commits(ctx, p.Group, p.Topic, n)
		if err != nil {
			return err
		}
		commit = commits[p.Partition]
	}
	first, end, err := log.Bounds(ctx, p.Topic, p.Partition)
	if err != nil {
		return err
	}
	waiting := kafka.FirstWaiting(commit, first, end)
	from, doubtful := first, int64(0)
	if !b.Since.IsZero() && end-first > b.Records {
		at, err := log.OffsetAt(ctx, p.Topic, p.Partition, b.Since.Add(-slack))
		if err != nil {
			return err
		}
		from = max(first, min(at, end))
		if p.waits() && waiting < from && end-waiting <= b.Records {
			from = waiting
		} else if p.waits() && waiting < from {
			at, err := log.OffsetAt(ctx, p.Topic, p.Partition, b.Since.Add(-slack-doubt))
			if err != nil {
				return err
			}
			doubtful = from - max(waiting, min(at, from))
		}
	}
	spans := within(from, waiting, end, b.Records)
	p.Skipped = end - from
	for _, s := range spans {
		p.Skipped -= s.Len()
	}
	for _, s := range spans {
		s.Partition = p.Partition
		if err := p.read(ctx, log, s, id, commit, end); err != nil {
			return err
		}
	}
	if len(p.Records) == 0 {
		p.Skipped += doubtful
	}
	return nil
}

// within chooses which offsets of [from, end) to look at if they may be budget at
// most: half of them from the beginning on, where an order is published, half from
// the first that waits on, where its record is if it should have left. Pure.
func within(from, waiting, end, budget int64) []kafka.Span {
	if end-from <= budget {
		if from >= end {
			return nil
		}
		return []kafka.Span{{First: from, End: end}}
	}
	waiting = max(waiting, from)
	if waiting >= end { // nothing waits: the newest instead
		waiting = end - budget/2
	}
	half := budget / 2
	if waiting <= from+half { // they meet
		return []kafka.Span{{First: from, End: min(from+budget, end)}}
	}
	tail := kafka.Span{First: waiting, End: min(waiting+half, end)}
	return []kafka.Span{{First: from, End: min(from+budget-tail.Len(), waiting)}, tail}
}

// read reads a span and keeps the order's records.
func (p *Place) read(ctx context.Context, log Log, s kafka.Span, id string, commit kafka.Commit, end int64) error {
	read, err := Scan(ctx, log, p.Topic, s, func(r orderclose.RawRecord) {
		if string(r.Key()) == id {
			p.Records = append(p.Records, p.record(r, commit, end))
		}
	})
	p.Looked += read - s.First
	p.Skipped += s.End - read
	return err
}

// Scan reads a span and calls each with its records; read is where it came to, the
// span's end unless it fails. Offsets that are gone, or cannot be read, are passed
// over; a topic that was recreated meanwhile is an error.
func Scan(ctx context.Context, log kafka.LogReader, topic string, s kafka.Span, each func(orderclose.RawRecord)) (read int64, err error) {
	read, err = kafka.Scan(ctx, log, topic, s, func(f orderclose.Fetched) error {
		for _, r := range f.Records {
			each(r)
		}
		return nil
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("there was no more time at offset %d of %d", read, s.End)
	}
	return read, err
}

// record says what a record of the order is.
func (p *Place) record(raw orderclose.RawRecord, commit kafka.Commit, end int64) Record {
	r := Record{Offset: raw.Offset, Appended: raw.AppendedAt().UTC(), Waits: p.waits() && !done(commit, raw.Offset, end)}
	m, err := raw.Message()
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	switch p.Kind {
	case Dead:
		if mark, ok := orderclose.ReadMark(&m); ok {
			r.Settles = &mark
			return r
		}
		l := deadletters.Read(p.Partition, m)
		r.Dead = &l
	case Events:
		r.Event = eventID(m.Value)
	default:
		p.travels(&r, m)
	}
	return r
}

// travels reads what an order's record says.
func (p *Place) travels(r *Record, m orderclose.Message) {
	record, err := m.Decode()
	if err != nil {
		r.Problem = err.Error()
		return
	}
	due := record.Order.Due.UTC()
	r.Due, r.Attempt, r.Cause, r.NotDue, r.Lane = &due, record.Attempt, record.Cause, record.NotDue, record.Lane
	if p.Kind == Bucket {
		leaves := orderclose.Bucket{Length: p.Length}.Release(record.Release, r.Appended).UTC()
		r.Leaves = &leaves
	}
}

// done reports whether the group is done with an offset. A commit past the end is of
// an old log.
func done(c kafka.Commit, offset, end int64) bool {
	if c.OldLog || c.Offset > end {
		return false
	}
	if offset < c.Offset {
		return true
	}
	for _, run := range partition.DecodeRuns(c.Offset, c.Metadata) {
		if offset >= run.First && offset < run.End {
			return true
		}
	}
	return false
}

// eventID names an event: its id, or that it has none.
func eventID(value []byte) string {
	var event struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(value, &event) != nil || event.ID == "" {
		return "without an id"
	}
	return event.ID
}
