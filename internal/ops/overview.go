package ops

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// Fault is why a server did not answer, or refused. The zero value is no fault.
type Fault struct {
	Err   error
	Since time.Time // zero: unknown
}

// Facts are what is known about a pipeline at one moment. An error says that its server did not
// answer, and that the fact beside it is unknown.
type Facts struct {
	Status   Status
	Kafka    Fault // of Status
	Database Fault
	Writes   Fault // the database refuses the writes of a close
	Lock     Fault // Redis refuses the lock of the sweep
	// DatabaseOffset is by how much the database's clock is ahead of that of this machine; 0: unknown.
	DatabaseOffset time.Duration

	Pauses       []wire.Pause
	PausesErr    error
	Topics       TopicsPlan
	ConfigBroken error // topics.yaml cannot be used

	Now         time.Time
	Sweeps      Sweeps
	SweepPeriod time.Duration // between two regular sweeps, if the last sweep does not say it
	Lateness    Lateness
	DeadLetters int // pending

	Overdue OverdueOrders // in the database
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
	WritesRefused  ProblemKind = "writes_refused"  // the database refuses the writes of a close
	RecordsOverdue ProblemKind = "records_overdue" // records should have left their topic
	TopicUnread    ProblemKind = "topic_unread"    // the state of a topic or partition is unknown
	OrdersOverdue  ProblemKind = "orders_overdue"  // the database has unpaid orders that should have been closed
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
	ProcessGone    ProblemKind = "process_gone"    // a process should run and does not
	LockRefused    ProblemKind = "lock_refused"    // Redis does not answer, or takes no writes
	ClocksDiffer   ProblemKind = "clocks_differ"   // the clocks of this machine and the database differ
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
	WritesRefused: {Urgent, "the-database-takes-no-writes"}, LockRefused: {Today, "redis-is-down"}, ProcessGone: {Today, "a-process-does-not-answer"}, ClocksDiffer: {Today, "clocks-differ"},
	RecordsOverdue: {Urgent, ""}, TopicUnread: {Urgent, "a-partition-cannot-be-read"},
	OrdersOverdue: {Urgent, "orders-are-overdue-in-the-database"},
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
	fault := func(kind ProblemKind, is Fault) {
		if is.Err != nil {
			add(kind, 0, is.Err.Error())
			all[len(all)-1].Since = is.Since
		}
	}
	status := f.Status
	fault(KafkaAway, f.Kafka)
	if fault(DatabaseAway, f.Database); f.Database.Err == nil {
		fault(WritesRefused, f.Writes)
	}
	stopped := f.Database.Err != nil || f.Writes.Err != nil
	if stopped { // that is why records of the close topic wait
		cause := &all[len(all)-1]
		cause.Orders, status.Topics = status.splitClosing()
		cause.Orders = cmp.Or(f.Overdue.Orders, cause.Orders)
	}
	if worst, found := status.Worst(OverdueLimit); found {
		add(RecordsOverdue, worst.Count, fmt.Sprintf("%s/%d: %.0f s; %s", worst.Topic.Topic, worst.Partition.Partition, worst.Partition.Overdue, worst.Next()))
		all[len(all)-1].Runbook = worst.runbook()
		all[len(all)-1].Since = status.At.Add(-time.Duration(worst.Partition.Overdue * float64(time.Second)))
		if worst.Topic.replay && worst.Partition.CatchUp > 0 {
			all[len(all)-1].Severity = Today
		}
	}
	if n, first := f.Status.firstProblem(); n > 0 {
		add(TopicUnread, n, first)
	}
	if severity := f.Overdue.Severity(); severity != "" && !stopped {
		detail := f.Overdue.String()
		if _, inKafka := f.Status.Worst(OverdueGrace); !inKafka && f.Kafka.Err == nil && !f.Status.At.IsZero() {
			detail += "; no record is overdue in Kafka: the closers have acknowledged these orders without closing them, or their records are missing"
		}
		add(OrdersOverdue, 0, detail)
		last := &all[len(all)-1]
		last.Severity, last.Orders, last.Since = severity, f.Overdue.Orders, f.Overdue.Oldest.Add(OverdueGrace)
	}
	if len(f.Pauses) > 0 {
		add(ClosingPaused, len(f.Pauses), describePause(f.Pauses[0]))
		all[len(all)-1].Since = f.Pauses[0].CreatedAt
	}
	if f.PausesErr != nil && f.Database.Err == nil && f.Kafka.Err == nil && !errors.Is(f.PausesErr, ErrNoDatabase) {
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
	fault(LockRefused, f.Lock)
	for _, process := range f.Status.Processes {
		if process.State == Gone {
			add(ProcessGone, 0, "it is in no group, and has not said that it stops; it last announced itself at "+stamp(process.Announced))
			all[len(all)-1].Process = process.Name
		}
	}
	if f.DatabaseOffset.Abs() > ClockSkewWarning {
		add(ClocksDiffer, 0, fmt.Sprintf("the database's clock differs from that of this machine by %v", f.DatabaseOffset.Round(time.Millisecond)))
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
	case f.Kafka.Err != nil || f.Database.Err != nil:
		v.State = Unknown
	case len(all) > 0 && v.Problems[0].Severity == Urgent:
		v.State = ActNow
	case len(all) > 0 && v.Problems[0].Severity == Today:
		v.State = LookToday
	}
	return v
}

// Title returns the kind in words, such as "writes refused".
func (p Problem) Title() string { return strings.ReplaceAll(string(p.Kind), "_", " ") }

// Text describes the problem in one line, without title and severity.
func (p Problem) Text() string {
	var parts []string
	if p.Process != "" {
		parts = append(parts, p.Process)
	}
	if p.Count > 1 {
		parts = append(parts, fmt.Sprint(p.Count))
	}
	if p.Detail != "" {
		parts = append(parts, p.Detail)
	}
	if p.Orders > 0 {
		parts = append(parts, fmt.Sprintf("%d orders wait", p.Orders))
	}
	if !p.Since.IsZero() {
		parts = append(parts, "since "+stamp(p.Since))
	}
	return strings.Join(parts, "; ")
}

// splitClosing returns the number of records that wait to be closed, and the other topics.
func (r Status) splitClosing() (waiting int64, others []TopicStatus) {
	for _, t := range r.Topics {
		if t.close {
			waiting += t.Waiting
		} else {
			others = append(others, t)
		}
	}
	return waiting, others
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
