// Package status looks at the pipeline from outside: what waits in each
// partition, how long overdue it is, and whose it is. It asks Kafka only,
// changes nothing, and needs no part of the pipeline to be running.
//
//	status.go  looking: bounded requests, a few at once
//	scan.go    looking behind a head that is not due
//	judge.go   what is overdue, and what to do about it (pure)
package status

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"orderclose"
	"orderclose/internal/kafka"
)

// atOnce bounds how many partitions are looked at together: a cluster in trouble
// is not to be troubled more.
const atOnce = 8

// Log is what a look needs of Kafka; internal/kafka's Cluster is one.
type Log interface {
	Partitions(ctx context.Context, topic string) (int, error)
	Commits(ctx context.Context, group, topic string, n int) ([]kafka.Commit, error)
	Group(ctx context.Context, group, topic string) (kafka.Group, error)
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
	OffsetAt(ctx context.Context, topic string, partition int, t time.Time) (int64, error)
	Peek(ctx context.Context, topic string, partition int, offset, end int64) (*orderclose.Message, error)
	Glance(ctx context.Context, topic string, partition int, offset, end int64) (records []orderclose.Message, next int64, err error)
}

// Place is a topic that records wait in, and the group that takes them out.
type Place struct {
	Topic string
	Group string
	// Length is the bucket's; 0 for the close topic, which holds nothing back.
	Length time.Duration
	// Whole: it is the smallest bucket, which takes whatever is shorter and is read
	// whole.
	Whole bool
}

// Report is what a look has seen.
type Report struct {
	At     time.Time `json:"at"` // by this machine's clock, as all that is overdue or in a window
	Topics []Topic   `json:"topics"`
}

// Topic is a topic with its group.
type Topic struct {
	Topic      string      `json:"topic"`
	Group      string      `json:"group"`
	State      string      `json:"group_state"`
	Members    int         `json:"members"`
	Waiting    int64       `json:"waiting"` // of the partitions that answered
	Window     int64       `json:"window"`  // of these too
	Partitions []Partition `json:"partitions"`
	// Problem says why nothing is known of the partitions.
	Problem string `json:"problem,omitempty"`

	close bool
}

// Partition is one partition of a topic.
type Partition struct {
	Partition int    `json:"partition"`
	Committed *int64 `json:"committed"` // null if nothing was
	LogStart  int64  `json:"log_start"`
	End       int64  `json:"end"`
	Waiting   int64  `json:"waiting"` // from the commit to the end, less what was acked out of order
	// Window is how many of the waiting records the partition's owner holds in memory,
	// because they may leave soon: those that were appended long enough ago. A fetch
	// brings a few more; an owner over its share of the memory holds less. Nobody
	// holds any of a partition that nobody owns, nor of the close topic.
	Window  int64   `json:"window"`
	Head    *Head   `json:"head,omitempty"`
	Overdue float64 `json:"overdue_seconds"` // how long ago the head was to leave, or Late
	// Late is the record behind the head that is overdue the most, if it is more overdue
	// than the head. Of many that wait only some are looked at; see scan.go.
	Late  *Head         `json:"late,omitempty"`
	Owner *kafka.Member `json:"owner,omitempty"`
	// Problem says what is wrong with the partition, or why little is known of it.
	Problem string `json:"problem,omitempty"`
}

// Head is the first record at or after the commit: the one that holds it.
type Head struct {
	Offset   int64     `json:"offset"`
	Key      string    `json:"key"`
	Appended time.Time `json:"appended"`
	// Leaves is when it is to leave: its release from a bucket; from the close topic
	// when it is due, or was appended if that was later.
	Leaves time.Time `json:"leaves"`
}

// Look looks at the places. What cannot be seen is a Problem of its topic or
// partition, and does not hide the rest. now is read once per partition.
func Look(ctx context.Context, log Log, places []Place, now func() time.Time) Report {
	r := Report{At: now().UTC(), Topics: make([]Topic, len(places))}
	commits := make([][]kafka.Commit, len(places))
	groups := make([]kafka.Group, len(places))
	each(len(places), func(i int) {
		r.Topics[i], commits[i], groups[i] = lookAtTopic(ctx, log, places[i])
	})
	for i, place := range places {
		t := &r.Topics[i]
		each(len(t.Partitions), func(p int) {
			t.Partitions[p] = lookAtPartition(ctx, log, place, p, commits[i][p], groups[i].Owner(p), now)
		})
		for _, p := range t.Partitions {
			t.Waiting += p.Waiting
			t.Window += p.Window
		}
	}
	return r
}

// each calls f with 0 to n-1, a few at once, and returns when all have returned.
func each(n int, f func(i int)) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error {
			f(i)
			return nil
		})
	}
	g.Wait()
}

func lookAtTopic(ctx context.Context, log Log, place Place) (Topic, []kafka.Commit, kafka.Group) {
	t := Topic{Topic: place.Topic, Group: place.Group, Partitions: []Partition{}, close: place.Length == 0}
	n, err := log.Partitions(ctx, place.Topic)
	var commits []kafka.Commit
	if err == nil {
		commits, err = log.Commits(ctx, place.Group, place.Topic, n)
	}
	var group kafka.Group
	if err == nil {
		group, err = log.Group(ctx, place.Group, place.Topic)
	}
	if err != nil {
		t.Problem = err.Error()
		return t, nil, group
	}
	t.State, t.Members = group.State, len(group.Members)
	t.Partitions = make([]Partition, n)
	return t, commits, group
}

func lookAtPartition(ctx context.Context, log Log, place Place, partition int, commit kafka.Commit, owner *kafka.Member, now func() time.Time) Partition {
	p := Partition{Partition: partition, Owner: owner}
	if commit.Offset >= 0 {
		p.Committed = &commit.Offset
	}
	var err error
	if p.LogStart, p.End, err = log.Bounds(ctx, place.Topic, partition); err != nil {
		p.Problem = err.Error()
		return p
	}
	p.Problem = gap(commit, p.LogStart, p.End)
	first := kafka.FirstWaiting(commit, p.LogStart, p.End)
	if p.Waiting = kafka.Waiting(commit, p.LogStart, p.End); p.Waiting == 0 {
		return p
	}
	m, err := log.Peek(ctx, place.Topic, partition, first, p.End)
	if err != nil {
		p.Problem = err.Error()
		return p
	}
	if m == nil { // markers of transactions, and no record
		p.Waiting = 0
		return p
	}
	p.Head = headOf(place, m)
	at := now()
	p.Overdue = max(0, at.Sub(p.Head.Leaves)).Seconds()
	if p.Overdue <= OverdueLimit.Seconds() && p.Waiting > 1 {
		if p.Late, err = scan(ctx, log, place, partition, kafka.Gaps(commit, p.LogStart, p.End), at); err != nil {
			p.Problem = err.Error()
		}
		if p.Late != nil && !p.Late.Leaves.Before(p.Head.Leaves) {
			p.Late = nil
		}
		if p.Late != nil {
			p.Overdue = at.Sub(p.Late.Leaves).Seconds()
		}
	}
	if owner == nil || place.Length == 0 {
		return p
	}
	below := p.End
	if !place.Whole {
		if below, err = log.OffsetAt(ctx, place.Topic, partition, unreadFrom(place.Length, now())); err != nil {
			p.Problem = err.Error()
			return p
		}
	}
	p.Window = kafka.WaitingBelow(commit, p.LogStart, p.End, below)
	return p
}
