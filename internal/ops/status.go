package ops

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// partitionsAtOnce bounds how many partitions of a topic, or how many topics, are inspected at once, so that a cluster in trouble gets no heavy load.
const partitionsAtOnce = 8

// TopicGroup is a topic in which records wait, and the group that consumes it.
type TopicGroup struct {
	Topic string
	Group string
	// Length is the length of the bucket; 0 for the close topic, where records do not wait.
	Length time.Duration
}

// Status is the result of ReadStatus.
type Status struct {
	At     time.Time     `json:"at"` // by the clock of this machine, which Overdue is computed with
	Topics []TopicStatus `json:"topics"`
	// Processes run, or should run. Pipeline.Status sets it.
	Processes []Process `json:"processes,omitempty"`
	// Expected is how many processes should run; 0: unknown, because a group or the announcements could not be read.
	Expected int `json:"expected_processes,omitempty"`
}

// TopicStatus is the state of a topic and its group.
type TopicStatus struct {
	Topic      string            `json:"topic"`
	Group      string            `json:"group"`
	State      string            `json:"group_state"`
	Members    int               `json:"members"`
	Waiting    int64             `json:"waiting"` // records in the partitions that answered
	Partitions []PartitionStatus `json:"partitions"`
	// Problem is the error if nothing is known about the partitions.
	Problem string `json:"problem,omitempty"`

	close   bool
	members []string // their client ids
}

// PartitionStatus is the state of a partition.
type PartitionStatus struct {
	Partition int     `json:"partition"`
	Committed *int64  `json:"committed"` // null without a commit
	LogStart  int64   `json:"log_start"`
	End       int64   `json:"end"`
	Waiting   int64   `json:"waiting"` // from the commit to the end, without what was acked out of order
	Head      *Head   `json:"head,omitempty"`
	Overdue   float64 `json:"overdue_seconds"` // seconds by which Late, or else the head, is overdue; 0 if it is not due
	// Late is the most overdue record behind the head, if it is more overdue than the head. It is not searched for if the head is overdue by more than
	// OverdueLimit. If many records wait, only some of them are read; see status_scan.go.
	Late *Head `json:"late,omitempty"`
	// FarthestDue is the latest due time of the waiting records that were read: the first, the
	// last, and those among which Late was searched. Others may be due later.
	FarthestDue time.Time     `json:"farthest_due,omitzero"`
	Owner       *kafka.Member `json:"owner,omitempty"`
	// PerSecond is how many records a second were settled between two looks, and CatchUp about how many
	// seconds the backlog still takes; 0: it does not shrink. Follow sets them.
	PerSecond float64 `json:"per_second,omitempty"`
	CatchUp   float64 `json:"catch_up_seconds,omitempty"`
	// Problem is a fault of the partition, or the error that hides its state.
	Problem string `json:"problem,omitempty"`
}

// Head is a record that waits.
type Head struct {
	Offset   int64     `json:"offset"`
	Key      string    `json:"key"`
	Appended time.Time `json:"appended"`
	// Leaves is when the record should leave: at its release from a bucket; from the close
	// topic when it is due, or when it was appended if that is later.
	Leaves time.Time `json:"leaves"`
}

// ReadStatus returns the state of the targets. An error becomes the Problem of its topic or partition and does not hide the others. now returns the
// current time; it is called several times, by several goroutines at once.
func ReadStatus(ctx context.Context, log Log, targets []TopicGroup, now func() time.Time) Status {
	r := Status{At: now().UTC(), Topics: make([]TopicStatus, len(targets))}
	commits := make([][]kafka.Commit, len(targets))
	groups := make([]kafka.Group, len(targets))
	each(len(targets), func(i int) {
		r.Topics[i], commits[i], groups[i] = inspectTopic(ctx, log, targets[i])
	})
	var queries []kafka.OffsetQuery
	for i, t := range r.Topics {
		queries = append(queries, kafka.OffsetQueries(targets[i].Topic, len(t.Partitions), kafka.LogStart, kafka.LogEnd)...)
	}
	answers := log.Offsets(ctx, queries)
	for i, target := range targets { //mutant:silent-topic-hides
		t := &r.Topics[i]
		each(len(t.Partitions), func(p int) {
			in := inspection{target, log, p, commits[i][p], groups[i].Owner(p), answers[p]}
			t.Partitions[p] = in.inspect(ctx, now)
		})
		answers = answers[len(t.Partitions):]
		for _, p := range t.Partitions {
			t.Waiting += p.Waiting
		}
	}
	return r
}

// each calls f with 0 to n-1, partitionsAtOnce at a time, and returns when all calls have returned.
func each(n int, f func(i int)) {
	var g errgroup.Group
	g.SetLimit(partitionsAtOnce)
	for i := range n {
		g.Go(func() error {
			f(i)
			return nil
		})
	}
	g.Wait()
}

func inspectTopic(ctx context.Context, log Log, target TopicGroup) (TopicStatus, []kafka.Commit, kafka.Group) {
	t := TopicStatus{Topic: target.Topic, Group: target.Group, Partitions: []PartitionStatus{}, close: target.Length == 0}
	var commits []kafka.Commit
	var group kafka.Group
	n, err := log.Partitions(ctx, target.Topic)
	if err == nil {
		commits, err = log.Commits(ctx, target.Group, target.Topic, n)
	}
	if err == nil {
		group, err = log.Group(ctx, target.Group, target.Topic)
	}
	if err != nil {
		t.Problem = err.Error()
		return t, nil, group
	}
	t.State, t.Members = group.State, len(group.Members)
	for _, m := range group.Members {
		t.members = append(t.members, m.ClientID)
	}
	t.Partitions = make([]PartitionStatus, n)
	return t, commits, group
}

// inspection is what the state of a partition is computed from.
type inspection struct {
	TopicGroup
	log       Log
	partition int
	commit    kafka.Commit
	owner     *kafka.Member // nil: none
	bounds    kafka.OffsetAnswer
}

// inspect returns the state of the partition. It reads the head, and searches behind it.
func (in *inspection) inspect(ctx context.Context, now func() time.Time) PartitionStatus {
	p := PartitionStatus{Partition: in.partition, Owner: in.owner}
	if in.commit.Offset >= 0 {
		p.Committed = &in.commit.Offset
	}
	if in.bounds.Err != nil {
		p.Problem = in.bounds.Err.Error()
		return p
	}
	p.LogStart, p.End = in.bounds.Offsets[0], in.bounds.Offsets[1]
	p.Problem = missingOffsets(in.commit, p.LogStart, p.End)
	first := kafka.FirstWaiting(in.commit, p.LogStart, p.End)
	if p.Waiting = kafka.Waiting(in.commit, p.LogStart, p.End); p.Waiting == 0 {
		return p
	}
	m, err := in.log.Peek(ctx, in.Topic, in.partition, first, p.End)
	if err != nil {
		p.Problem = err.Error()
		return p
	}
	if m == nil { // only transaction markers, and no record
		p.Waiting = 0
		return p
	}
	p.Head = in.headOf(m)
	in.searchBehind(ctx, &p, m, now())
	return p
}

// searchBehind sets the fields that need records behind the head.
func (in *inspection) searchBehind(ctx context.Context, p *PartitionStatus, head *wire.Message, now time.Time) {
	p.Overdue = max(0, now.Sub(p.Head.Leaves)).Seconds()
	gaps := kafka.Gaps(in.commit, p.LogStart, p.End)
	var seen scanned
	if p.Overdue <= OverdueLimit.Seconds() && p.Waiting > 1 { //mutant:first-record-only
		var err error
		if seen, err = in.scan(ctx, gaps, now); err != nil {
			p.Problem = err.Error()
		}
		if seen.worst != nil && seen.worst.Leaves.Before(p.Head.Leaves) {
			p.Late, p.Overdue = seen.worst, now.Sub(seen.worst.Leaves).Seconds()
		}
	}
	seen.farthest = laterDue(seen.farthest, head)
	if end := gaps[len(gaps)-1].End; end-1 > head.Offset && end > seen.read {
		last, err := in.log.Peek(ctx, in.Topic, in.partition, end-1, end)
		if err != nil {
			p.Problem = err.Error()
		}
		if last != nil {
			seen.farthest = laterDue(seen.farthest, last)
		}
	}
	if !seen.farthest.IsZero() {
		p.FarthestDue = printable(seen.farthest)
	}
}
