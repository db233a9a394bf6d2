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
	SweepPeriod time.Duration // between two regular sweeps, if the last sweep does not say it
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
	DelayFell      ProblemKind = "delay_fell"      // a delay has fallen to half or less within a day
)

// Severity says how urgent a problem is.
type Severity string

// The severities, the most urgent first.
const (
	Urgent Severity = "urgent" // orders are late or early, or will be
	Today  Severity = "today"  // somebody should look today
	Healed Severity = "healed" // it is over
)

// rank is smaller for what is more urgent.
func (s Severity) rank() int { return slices.Index([]Severity{Urgent, Today, Healed}, s) }

// kinds has, for each kind, the severity and the section of the runbook. RecordsOverdue has a
// section for each topic.
var kinds = map[ProblemKind]struct {
	severity Severity
	runbook  string
}{
	KafkaAway: {Urgent, "kafka-is-down"}, DatabaseAway: {Urgent, "the-database-is-down-or-slow"},
	RecordsOverdue: {Urgent, ""}, TopicUnread: {Urgent, "a-partition-cannot-be-read"},
	ClosingPaused: {Today, "closing-is-paused"}, PausesUnknown: {Urgent, "closing-is-paused"},
	RecordsEarly: {Urgent, "something-was-early"}, SweepFailed: {Urgent, "no-sweep-has-finished"}, SweepMissing: {Urgent, "no-sweep-has-finished"},
	SweepFound: {Today, "the-sweep-finds-orders"}, RecordsLost: {Today, "the-log-has-lost-records"}, LettersPending: {Today, "dead-letters"},
	TopicsDiffer: {Today, "topics-differ"}, ConfigBroken: {Today, "topicsyaml-was-refused"},
	DelayFell: {Today, "the-delay-of-a-category-was-wrong"},
}

// ProblemKinds returns all kinds.
func ProblemKinds() []ProblemKind { return slices.Collect(maps.Keys(kinds)) }

// RunbookSections returns the sections of the runbook that problems refer to.
func RunbookSections() (all []string) {
	for kind, k := range kinds {
		if kind != RecordsOverdue {
			all = append(all, k.runbook)
		}
	}
	return append(all, Overdue{}.runbook(), Overdue{Topic: TopicStatus{close: true}}.runbook())
}

// Problem is one thing that is wrong.
type Problem struct {
	Kind     ProblemKind `json:"kind"`
	Severity Severity    `json:"severity"`
	// Detail is what was found, such as a topic and a number of seconds, or an error.
	Detail string `json:"detail"`
	// Count is how many topics, partitions or pauses it concerns; 0 if it is not counted.
	Count int `json:"count,omitempty"`
	// Orders is how many orders wait because of it; 0 if they are not counted.
	Orders int64 `json:"orders,omitempty"`
	// Since is when it began, or when it was first seen; zero if that is unknown.
	Since time.Time `json:"since,omitzero"`
	// Process is the process that it concerns, as role@host:pid:port; "": none, or several.
	Process string `json:"process,omitempty"`
	// Runbook is the section of the runbook, as the end of its URL.
	Runbook string `json:"runbook"`
}

// State says whether all is well.
type State string

// The states.
const (
	Well      State = "well"    // everything was asked, and nothing is wrong
	LookToday State = "today"   // orders close on time, and something is wrong
	ActNow    State = "urgent"  // orders are late or early, or will be
	Unknown   State = "unknown" // a server did not answer
)

// Verdict is whether all is well with a pipeline.
type Verdict struct {
	State    State     `json:"state"`
	Problems []Problem `json:"problems"` // the most urgent first
}

// Judge says whether all is well. It lists causes before their consequences. It is a pure function.
func Judge(f Facts) Verdict {
	var all []Problem
	add := func(kind ProblemKind, count int, detail string) {
		all = append(all, Problem{Kind: kind, Severity: kinds[kind].severity, Detail: detail, Count: count, Runbook: kinds[kind].runbook})
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
		if worst.Topic.replay && worst.Partition.CatchUp > 0 {
			all[len(all)-1].Severity = Today
		}
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
		period := cmp.Or(time.Duration(last.PeriodMillis)*time.Millisecond, f.SweepPeriod)
		if period > 0 && f.Now.Sub(ended) > 2*period {
			add(SweepMissing, 0, stamp(ended))
		}
		if last.Closed > 0 {
			add(SweepFound, last.Closed, describeCauses(last.Causes))
		}
	}
	if n, newest := recentLosses(f.Sweeps.Losses, f.Now); n > 0 {
		add(RecordsLost, n, fmt.Sprintf("%s/%d: %s", newest.Topic, newest.Partition, newest.Reason))
		p := &all[len(all)-1]
		p.Since = newest.At
		if slices.ContainsFunc(f.Sweeps.Sweeps, func(s wire.Sweep) bool {
			return s.Why == wire.SweepLosses && s.Error == "" && s.Failed == 0 && s.StartedAt.After(newest.At)
		}) {
			p.Severity = Healed
		}
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
	if fallen := fallenDelays(f.Sweeps.Delays, f.Now); len(fallen) > 0 {
		add(DelayFell, len(fallen), fallen[0].describe())
		p := &all[len(all)-1]
		p.Since, p.Process = fallen[0].At, fallen[0].Process
		if !fallen[0].rose.At.IsZero() && f.Now.After(fallen[0].over()) {
			p.Severity = Healed
		}
	}
	v := Verdict{State: Well, Problems: append([]Problem{}, all...)}
	slices.SortStableFunc(v.Problems, func(a, b Problem) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	switch {
	case f.StatusErr != nil || f.DatabaseErr != nil:
		v.State = Unknown
	case len(all) > 0 && v.Problems[0].Severity == Urgent:
		v.State = ActNow
	case len(all) > 0 && v.Problems[0].Severity == Today:
		v.State = LookToday
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

// recentLosses counts the lost records of the last while, and returns the newest loss.
func recentLosses(losses []Loss, now time.Time) (n int, newest Loss) {
	for _, l := range losses {
		if now.Sub(l.At) < lossIsRecent && l.Offsets > 0 {
			if n += int(l.Offsets); newest.At.IsZero() {
				newest = l
			}
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
