// Package backlog reads what waits: records in each topic, by partition, and overdue orders in the database.
//
//	status.go   topics and partitions: bounded requests, a few at once; searching behind a head that is not due
//	judge.go    what is overdue, and what to do about it (pure)
//	overdue.go  how many orders are overdue in the database
package backlog

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/topics"
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
	// Silent are the addresses of brokers that do not answer. Pipeline.Status sets it.
	Silent []string `json:"silent_brokers,omitempty"`
	// Members are those of the groups, by name.
	Members []Member `json:"members,omitempty"`
}

// Member is a process in the groups of some topics, as Kafka reports it.
type Member struct {
	Name       string           `json:"process"` // role@host:pid:port, or the client id of another program and the host
	Host       string           `json:"host"`    // from which it is connected, as the brokers see it
	Partitions map[string][]int `json:"partitions"`
	// PerSecond is how many records a second were settled in its partitions between two looks, and Stuck says that some of them have overdue
	// records and none of them moves, while others move theirs. Follow sets them.
	PerSecond float64 `json:"per_second,omitempty"`
	Stuck     bool    `json:"stuck,omitempty"`
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

	Closes  bool           `json:"-"` // closers read it
	InGroup []kafka.Member `json:"-"`
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
	// OverdueLimit. If many records wait, only some of them are read; see scan.
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

// Log is what ReadStatus needs of Kafka. Log of internal/kafka/reads implements it.
type Log interface {
	reads.Offsets
	Commits(ctx context.Context, group, topic string, n int) ([]kafka.Commit, error)
	Group(ctx context.Context, group, topic string) (kafka.Group, error)
	Peek(ctx context.Context, topic string, partition int, offset, end int64) (*wire.Message, error)
	ReadSome(ctx context.Context, topic string, partition int, offset, end int64, maxBytes int32) (records []wire.Message, next int64, err error)
}

// Topics returns the topics in which records wait: the delay topics of the configured
// buckets and of other buckets that still hold records, shortest bucket first, then the close
// topic. It returns no error of Kafka: other buckets are then left out, and ReadStatus reports the same error for each topic.
func Topics(ctx context.Context, k *kafka.Cluster, cfg *config.Config) []TopicGroup {
	buckets, _ := topics.Served(ctx, k, cfg) // otherwise each topic reports the same problem
	var all []TopicGroup
	for _, b := range buckets {
		all = append(all, TopicGroup{Topic: b.Topic, Group: cfg.RelayGroup(b), Length: b.Length})
	}
	return append(all, TopicGroup{Topic: cfg.Topics.Close, Group: cfg.CloserGroup()})
}

// ReadStatus returns the state of the targets. An error becomes the Problem of its topic or partition and does not hide the others. Each of three
// rounds of requests takes as long as round at most: for the topics and their groups, the ends of the partitions, and what waits in them. now
// returns the current time; it is called several times, by several goroutines at once.
func ReadStatus(ctx context.Context, log Log, targets []TopicGroup, round time.Duration, now func() time.Time) Status {
	r := Status{At: now().UTC(), Topics: make([]TopicStatus, len(targets))}
	commits := make([][]kafka.Commit, len(targets))
	groups := make([]kafka.Group, len(targets))
	first, cancel := context.WithTimeout(ctx, round)
	defer cancel()
	each(len(targets), func(i int) {
		r.Topics[i], commits[i], groups[i] = inspectTopic(first, log, targets[i])
	})
	var queries []kafka.OffsetQuery
	for i, t := range r.Topics {
		queries = append(queries, kafka.OffsetQueries(targets[i].Topic, len(t.Partitions), kafka.LogStart, kafka.LogEnd)...)
	}
	second, cancel := context.WithTimeout(ctx, round)
	defer cancel()
	answers := log.Offsets(second, queries)
	third, cancel := context.WithTimeout(ctx, round)
	defer cancel()
	for i, target := range targets { //mutant:silent-topic-hides
		t := &r.Topics[i]
		each(len(t.Partitions), func(p int) {
			in := inspection{target, log, p, commits[i][p], groups[i].Owner(p), answers[p]}
			t.Partitions[p] = in.inspect(third, now)
		})
		answers = answers[len(t.Partitions):]
		for _, p := range t.Partitions {
			t.Waiting += p.Waiting
		}
	}
	r.Members = members(r.Topics)
	return r
}

// members returns the processes in the groups of the topics, by name. It is a pure function.
func members(topics []TopicStatus) []Member {
	byName := map[string]Member{}
	for _, t := range topics {
		for _, in := range t.InGroup {
			name := MemberName(&in)
			m, known := byName[name]
			if !known {
				m = Member{Name: name, Host: in.Host, Partitions: map[string][]int{}}
				byName[name] = m
			}
			m.Partitions[t.Topic] = append(m.Partitions[t.Topic], in.Partitions...)
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
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
	t := TopicStatus{Topic: target.Topic, Group: target.Group, Partitions: []PartitionStatus{}, Closes: target.Length == 0}
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
	t.State, t.Members, t.InGroup = group.State, len(group.Members), group.Members
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

// Bounds of the search behind a head, per partition. A glance reads some dozens of records.
const (
	// maxFirstGaps is how many of the first gaps are searched. A gap is a run of records that are not acked, between records that are.
	maxFirstGaps = 4
	// lastGapBytes is how much one fetch reads at the start of the last gap, which extends to the end
	// of the log. Records that the owner has not read are there.
	lastGapBytes = 4 * reads.GlanceBytes
	// samples is how many glances are spread evenly over the rest of the last gap.
	samples = 4
)

// scanned is the result of a search behind a head.
type scanned struct {
	worst    *Head     // the most overdue record; nil: none is overdue
	farthest time.Time // the latest due time; zero: no record has one
	read     int64     // the offset up to which the last gap was read, from its start on
}

// scan searches the records that are not acked for the most overdue one. The head is not always the most overdue: append times and due times are only
// nearly in order. If a broker's clock was wrong for a minute, a head that is due in an hour may be followed by records that are due now. scan reads a
// bounded number of records.
func (in *inspection) scan(ctx context.Context, gaps []wire.Run, now time.Time) (seen scanned, err error) {
	last := gaps[len(gaps)-1]
	glance := func(from int64, maxBytes int32) (next int64, err error) {
		records, next, err := in.log.ReadSome(ctx, in.Topic, in.partition, from, last.End, maxBytes) //mutant:first-gap-only
		for _, m := range records {
			if !open(gaps, m.Offset) {
				continue
			}
			seen.farthest = laterDue(seen.farthest, &m)
			if h := in.headOf(&m); h.Leaves.Before(now) && (seen.worst == nil || h.Leaves.Before(seen.worst.Leaves)) {
				seen.worst = h
			}
		}
		return next, err
	}
	for _, g := range gaps[:min(len(gaps)-1, maxFirstGaps)] {
		if _, err := glance(g.First, reads.GlanceBytes); err != nil {
			return seen, err
		}
	}
	if seen.read, err = glance(last.First, lastGapBytes); err != nil {
		return seen, err
	}
	for _, offset := range spread(seen.read, last.End) {
		if _, err := glance(offset, reads.GlanceBytes); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// laterDue returns the due time of m if it is after due, and due otherwise. It is a pure function.
func laterDue(due time.Time, m *wire.Message) time.Time {
	if d, err := m.Due(); err == nil && d.After(due) {
		return d
	}
	return due
}

// open reports whether an offset is in one of the gaps. It is a pure function.
func open(gaps []wire.Run, offset int64) bool {
	return slices.ContainsFunc(gaps, func(g wire.Run) bool { return g.First <= offset && offset < g.End })
}

// spread returns a few offsets between at and end, evenly spaced. It is a pure function.
func spread(at, end int64) (offsets []int64) {
	if at >= end {
		return nil
	}
	step := max((end-at)/samples, 1)
	for i := int64(0); i < samples && at+i*step < end; i++ {
		offsets = append(offsets, at+i*step)
	}
	return offsets
}

// headOf converts a record of the topic to a Head.
func (t TopicGroup) headOf(m *wire.Message) *Head {
	return &Head{Offset: m.Offset, Key: string(m.Key), Appended: printable(m.Appended), Leaves: printable(leaves(t.Length, m))}
}
