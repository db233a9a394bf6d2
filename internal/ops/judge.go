package ops

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/wire"
)

// Judge says whether all is well. It lists causes before their consequences. It is a pure function.
func Judge(f Facts) Verdict {
	j := judgement{Facts: f, problems: []Problem{}}
	j.servers()
	j.waiting()
	j.pauses()
	j.sweeps()
	j.losses()
	j.settings()
	j.processes()
	slices.SortStableFunc(j.problems, func(a, b Problem) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	v := Verdict{State: Well, Problems: j.problems}
	switch {
	case f.Kafka.Err != nil || f.Database.Err != nil:
		v.State = Unknown
	case len(v.Problems) > 0 && v.Problems[0].Severity == Urgent:
		v.State = ActNow
	case len(v.Problems) > 0 && v.Problems[0].Severity == Today:
		v.State = LookToday
	}
	return v
}

// judgement is a verdict in the making.
type judgement struct {
	Facts
	problems []Problem
}

// add adds a problem, and returns it for more to be said.
func (j *judgement) add(kind ProblemKind, count int, detail string) *Problem {
	j.problems = append(j.problems, Problem{Kind: kind, Severity: kinds[kind].severity, Detail: detail, Count: count, Runbook: kinds[kind].runbook})
	return &j.problems[len(j.problems)-1]
}

// fault adds a problem if there is a fault. Otherwise it returns nil.
func (j *judgement) fault(kind ProblemKind, is Fault) *Problem {
	if is.Err == nil {
		return nil
	}
	p := j.add(kind, 0, is.Err.Error())
	p.Since = is.Since
	return p
}

// servers judges Kafka, database and Redis.
func (j *judgement) servers() {
	j.fault(KafkaAway, j.Kafka)
	cause := j.fault(DatabaseAway, j.Database)
	if cause == nil {
		cause = j.fault(WritesRefused, j.Writes)
	}
	if cause != nil { // that is why records of the close topic wait
		cause.Orders, _ = j.Status.splitClosing()
		cause.Orders = cmp.Or(j.Overdue.Orders, cause.Orders)
	}
	if p := j.fault(LockRefused, j.Lock); p != nil {
		p.Runbook = LockRunbook(j.Lock.Err)
	}
	if j.DatabaseOffset.Abs() > ClockSkewWarning {
		j.add(ClocksDiffer, 0, fmt.Sprintf("the database's clock differs from that of this machine by %v", j.DatabaseOffset.Round(time.Millisecond)))
	}
}

// LockRunbook returns the section of the runbook for an error of Pipeline.Lockable.
func LockRunbook(err error) string {
	if errors.Is(err, compensator.ErrLockStuck) {
		return "the-lock-is-stuck"
	}
	return kinds[LockRefused].runbook
}

// waiting judges what waits in Kafka and in the database. What waits because the database closes nothing
// belongs to that problem.
func (j *judgement) waiting() {
	status, stopped := j.Status, j.Database.Err != nil || j.Writes.Err != nil
	if stopped {
		_, status.Topics = status.splitClosing()
	}
	if worst, found := status.Worst(OverdueLimit); found {
		p := j.add(RecordsOverdue, worst.Count, fmt.Sprintf("%s/%d: %.0f s; %s", worst.Topic.Topic, worst.Partition.Partition, worst.Partition.Overdue, worst.Next()))
		p.Runbook = worst.runbook()
		p.Since = status.At.Add(-time.Duration(worst.Partition.Overdue * float64(time.Second)))
		if worst.Topic.replay && worst.Partition.CatchUp > 0 {
			p.Severity = Today
		}
	}
	if n, first := j.Status.firstProblem(); n > 0 {
		j.add(TopicUnread, n, first)
	}
	if severity := j.Overdue.Severity(j.DeadLetters); severity != "" && !stopped {
		detail := j.Overdue.String()
		if _, inKafka := j.Status.Worst(OverdueGrace); !inKafka && j.Kafka.Err == nil && !j.Status.At.IsZero() {
			detail += "; no record is overdue in Kafka: the closers have acknowledged these orders without closing them, or their records are missing"
		}
		p := j.add(OrdersOverdue, 0, detail)
		p.Severity, p.Orders, p.Since = severity, j.Overdue.Orders, j.Overdue.Oldest.Add(OverdueGrace)
	}
	for _, s := range j.Lateness.Stages {
		if s.Early > 0 {
			j.add(RecordsEarly, s.Early, s.Topic)
		}
	}
	if j.DeadLetters > 0 {
		j.add(LettersPending, j.DeadLetters, "")
	}
}

func (j *judgement) pauses() {
	if len(j.Pauses) > 0 {
		j.add(ClosingPaused, len(j.Pauses), describePause(j.Pauses[0])).Since = j.Pauses[0].CreatedAt
	}
	if j.PausesErr != nil && j.Database.Err == nil && j.Kafka.Err == nil && !errors.Is(j.PausesErr, ErrNoDatabase) {
		j.add(PausesUnknown, 0, j.PausesErr.Error())
	}
}

// sweeps judges the last sweep.
func (j *judgement) sweeps() {
	if len(j.Sweeps.Sweeps) == 0 {
		return
	}
	last := j.Sweeps.Sweeps[0]
	ended := last.StartedAt.Add(time.Duration(last.TookMillis) * time.Millisecond)
	if last.Error != "" || last.Failed > 0 {
		if p := j.add(SweepFailed, last.Failed, last.Error); last.Error == "" {
			p.Severity = Today // single orders, which the next sweep tries again
		}
	}
	period := cmp.Or(time.Duration(last.PeriodMillis)*time.Millisecond, j.SweepPeriod)
	if period > 0 && j.Now.Sub(ended) > 2*period {
		j.add(SweepMissing, 0, stamp(ended))
	}
	if last.Closed > 0 {
		j.add(SweepFound, last.Closed, describeCauses(last.Causes))
	}
}

// losses judges the losses of records. One is over when the sweep that it started has closed its orders.
func (j *judgement) losses() {
	n, newest := recentLosses(j.Sweeps.Losses, j.Now)
	if n == 0 {
		return
	}
	p := j.add(RecordsLost, n, fmt.Sprintf("%s/%d: %s", newest.Topic, newest.Partition, newest.Reason))
	p.Since = newest.At
	if slices.ContainsFunc(j.Sweeps.Sweeps, func(s wire.Sweep) bool {
		return s.Why == wire.SweepLosses && s.Error == "" && s.Failed == 0 && s.StartedAt.After(newest.At)
	}) {
		p.Severity = Healed
	}
}

// settings judges topics, topics.yaml and the delays in it.
func (j *judgement) settings() {
	if n := len(j.Topics.Would) + len(j.Topics.Left); n > 0 {
		first := slices.Concat(j.Topics.Left, j.Topics.Would)[0]
		j.add(TopicsDiffer, n, first.Topic+": "+first.What)
	}
	if j.ConfigBroken != nil {
		j.add(ConfigBroken, 0, j.ConfigBroken.Error())
	}
	fallen := fallenDelays(j.Sweeps.Delays, j.Now)
	if len(fallen) == 0 {
		return
	}
	p := j.add(DelayFell, len(fallen), fallen[0].describe())
	p.Since, p.Process = fallen[0].At, fallen[0].Process
	if !fallen[0].rose.At.IsZero() && j.Now.After(fallen[0].over()) {
		p.Severity = Healed
	}
}

func (j *judgement) processes() {
	for _, process := range j.Status.Processes {
		if process.State == Gone {
			j.add(ProcessGone, 0, "it is in no group, and has not said that it stops; it last announced itself at "+stamp(process.Announced)).Process = process.Name
		}
	}
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
