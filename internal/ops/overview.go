package ops

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// Facts are what is known about a pipeline at one moment. An error says that its server did not
// answer, and that the fact beside it is unknown.
type Facts struct {
	Status       Status
	StatusErr    error
	DatabaseErr  error
	Pauses       []wire.Pause
	PausesErr    error
	Topics       TopicsPlan
	ConfigBroken error // topics.yaml cannot be used

	Now         time.Time
	Sweeps      Sweeps
	SweepPeriod time.Duration // between two regular sweeps
	Lateness    Lateness
	DeadLetters int // pending
}

// lossIsRecent is how long a loss of records counts as a problem. The sweep that it started has ended
// by then.
const lossIsRecent = time.Hour

// ProblemKind names a kind of problem of a pipeline.
type ProblemKind string

// The kinds of problems, the most urgent first.
const (
	KafkaAway      ProblemKind = "kafka_away"      // Kafka does not answer
	DatabaseAway   ProblemKind = "database_away"   // the database does not answer
	RecordsOverdue ProblemKind = "records_overdue" // records should have left their topic
	TopicUnread    ProblemKind = "topic_unread"    // the state of a topic or partition is unknown
	ClosingPaused  ProblemKind = "closing_paused"  // somebody has paused the closes
	PausesUnknown  ProblemKind = "pauses_unknown"  // whether somebody has is unknown
	RecordsEarly   ProblemKind = "records_early"   // orders were closed, or records forwarded, before they were due
	SweepFailed    ProblemKind = "sweep_failed"    // the last sweep ended early, or could not close orders
	SweepMissing   ProblemKind = "sweep_missing"   // no sweep has finished for two periods
	SweepFound     ProblemKind = "sweep_found"     // the last sweep closed orders that the pipeline had missed
	RecordsLost    ProblemKind = "records_lost"    // a log has lost records
	LettersPending ProblemKind = "letters_pending" // dead letters wait for a person
	TopicsDiffer   ProblemKind = "topics_differ"   // the topics differ from topics.yaml
	ConfigBroken   ProblemKind = "config_broken"   // topics.yaml has a mistake
)

// ProblemKinds returns all kinds.
func ProblemKinds() []ProblemKind {
	return append(slices.Collect(maps.Keys(runbookSections)), RecordsOverdue)
}

// runbookSections has the section of the runbook for each kind but RecordsOverdue, which has one for each topic.
var runbookSections = map[ProblemKind]string{
	KafkaAway: "kafka-is-down", DatabaseAway: "the-database-is-down-or-slow",
	TopicUnread: "a-partition-cannot-be-read", ClosingPaused: "closing-is-paused", PausesUnknown: "closing-is-paused",
	RecordsEarly: "something-was-early", SweepFailed: "no-sweep-has-finished", SweepMissing: "no-sweep-has-finished",
	SweepFound: "the-sweep-finds-orders", RecordsLost: "the-log-has-lost-records", LettersPending: "dead-letters",
	TopicsDiffer: "topics-differ", ConfigBroken: "topicsyaml-was-refused",
}

// RunbookSections returns the sections of the runbook that problems refer to.
func RunbookSections() []string {
	return append(slices.Collect(maps.Values(runbookSections)), Overdue{}.runbook(), Overdue{Topic: TopicStatus{close: true}}.runbook())
}

// Problem is one thing that is wrong.
type Problem struct {
	Kind ProblemKind `json:"kind"`
	// Detail is what was found, such as a topic and a number of seconds, or an error.
	Detail string `json:"detail"`
	// Count is how many topics, partitions or pauses it concerns; 0 if it is not counted.
	Count int `json:"count,omitempty"`
	// Runbook is the section of the runbook, as the end of its URL.
	Runbook string `json:"runbook"`
}

// State says whether all is well.
type State string

// The states.
const (
	Well      State = "well"      // everything was asked, and nothing is wrong
	Attention State = "attention" // something is wrong
	Unknown   State = "unknown"   // a server did not answer
)

// Verdict is whether all is well with a pipeline.
type Verdict struct {
	State    State     `json:"state"`
	Problems []Problem `json:"problems"` // the most urgent first
}

// Judge says whether all is well. It is a pure function.
func Judge(f Facts) Verdict {
	var all []Problem
	add := func(kind ProblemKind, count int, detail string) {
		all = append(all, Problem{Kind: kind, Detail: detail, Count: count, Runbook: runbookSections[kind]})
	}
	if f.StatusErr != nil {
		add(KafkaAway, 0, f.StatusErr.Error())
	}
	if f.DatabaseErr != nil {
		add(DatabaseAway, 0, f.DatabaseErr.Error())
	}
	if worst, found := f.Status.Worst(OverdueLimit); found {
		add(RecordsOverdue, worst.Count, fmt.Sprintf("%s/%d: %.0f s; %s", worst.Topic.Topic, worst.Partition.Partition, worst.Partition.Overdue, worst.Next()))
		all[len(all)-1].Runbook = worst.runbook()
	}
	if n, first := f.Status.firstProblem(); n > 0 {
		add(TopicUnread, n, first)
	}
	if len(f.Pauses) > 0 {
		add(ClosingPaused, len(f.Pauses), describePause(f.Pauses[0]))
	}
	if f.PausesErr != nil && f.DatabaseErr == nil && f.StatusErr == nil {
		add(PausesUnknown, 0, f.PausesErr.Error())
	}
	for _, s := range f.Lateness.Stages {
		if s.Early > 0 {
			add(RecordsEarly, s.Early, s.Topic)
		}
	}
	if len(f.Sweeps.Sweeps) > 0 {
		last := f.Sweeps.Sweeps[0]
		ended := last.StartedAt.Add(time.Duration(last.TookMillis) * time.Millisecond)
		if last.Error != "" || last.Failed > 0 {
			add(SweepFailed, last.Failed, last.Error)
		}
		if f.SweepPeriod > 0 && f.Now.Sub(ended) > 2*f.SweepPeriod {
			add(SweepMissing, 0, stamp(ended))
		}
		if last.Closed > 0 {
			add(SweepFound, last.Closed, describeCauses(last.Causes))
		}
	}
	if n, first := recentLosses(f.Sweeps.Losses, f.Now); n > 0 {
		add(RecordsLost, n, first)
	}
	if f.DeadLetters > 0 {
		add(LettersPending, f.DeadLetters, "")
	}
	if n := len(f.Topics.Would) + len(f.Topics.Left); n > 0 {
		first := slices.Concat(f.Topics.Left, f.Topics.Would)[0]
		add(TopicsDiffer, n, first.Topic+": "+first.What)
	}
	if f.ConfigBroken != nil {
		add(ConfigBroken, 0, f.ConfigBroken.Error())
	}
	v := Verdict{State: Well, Problems: append([]Problem{}, all...)}
	switch {
	case f.StatusErr != nil || f.DatabaseErr != nil:
		v.State = Unknown
	case len(all) > 0:
		v.State = Attention
	}
	return v
}

func describePause(p wire.Pause) string {
	what := PathName(p.Path)
	if p.Category != "" {
		what += ", " + p.Category
	}
	return what + ", " + p.Until.UTC().Format(time.RFC3339) + ": " + p.Reason
}

func describeCauses(causes map[string]int) string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		parts = append(parts, fmt.Sprintf("%d %s", causes[cause], cause))
	}
	return strings.Join(parts, ", ")
}

// recentLosses counts the lost records of the last while, and describes the newest loss.
func recentLosses(losses []Loss, now time.Time) (n int, newest string) {
	for _, l := range losses {
		if now.Sub(l.At) < lossIsRecent && l.Offsets > 0 {
			n += int(l.Offsets)
			newest = cmp.Or(newest, fmt.Sprintf("%s/%d: %s", l.Topic, l.Partition, l.Reason))
		}
	}
	return n, newest
}

// firstProblem counts the topics and partitions with a problem, and describes the first.
func (r Status) firstProblem() (n int, first string) {
	for _, t := range r.Topics {
		if t.Problem != "" {
			n++
			first = cmp.Or(first, t.Topic+": "+t.Problem)
		}
		for _, p := range t.Partitions {
			if p.Problem != "" {
				n++
				first = cmp.Or(first, fmt.Sprintf("%s/%d: %s", t.Topic, p.Partition, p.Problem))
			}
		}
	}
	return n, first
}
