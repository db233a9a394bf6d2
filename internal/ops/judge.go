package ops

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// Judge says whether all is well. It lists causes before their consequences: the first problem explains the
// state. It is a pure function.
func Judge(facts Facts) Verdict {
	f := Findings{Facts: facts, kinds: map[ProblemKind]Kind{}}
	for _, c := range facts.Checks {
		for _, k := range c.Finds {
			f.kinds[k.Name] = k
		}
	}
	for _, c := range facts.Checks {
		if facts.Answers[c.Name].Err != nil {
			f.fault(c)
		}
		if c.Judge != nil {
			c.Judge(&f)
		}
	}
	return f.verdict()
}

// Findings are what the checks have found so far.
type Findings struct {
	Facts
	kinds map[ProblemKind]Kind
	all   []Problem
}

// Add adds a finding, and returns it for more to be said until the next one is added.
func (f *Findings) Add(kind ProblemKind, count int, detail string) *Problem {
	k := f.kinds[kind]
	f.all = append(f.all, Problem{Is: k, Kind: cmp.Or(k.As, kind), Severity: k.Severity, Detail: detail, Count: count, Runbook: k.Runbook})
	return &f.all[len(f.all)-1]
}

// Found returns the first finding of a kind; nil: there is none.
func (f *Findings) Found(kind ProblemKind) *Problem {
	if i := slices.IndexFunc(f.all, func(p Problem) bool { return p.Is.Name == kind }); i >= 0 {
		return &f.all[i]
	}
	return nil
}

// fault adds a finding for the error of a check, unless its server has no name. A late answer is no refusal.
func (f *Findings) fault(c Check) {
	a, kind := f.Answers[c.Name], NotAnswered
	if i := slices.IndexFunc(c.Finds, func(k Kind) bool { return k.Errors != nil && k.Errors(a.Err) }); i >= 0 {
		kind = c.Finds[i].Name
	}
	switch {
	case kind == "", errors.Is(a.Err, ErrNoDatabase), errors.Is(a.Err, errUnused), errors.Is(a.Err, ErrNoKafka) && kind != KafkaAway:
	case kind == NotAnswered, errors.Is(a.Err, errNotYet):
		f.Add(NotAnswered, 1, c.Name+": "+a.Err.Error()).Is.Name = ProblemKind(c.Name)
	default:
		// Redis ends some errors with a dot.
		p := f.Add(kind, 0, strings.TrimSuffix(a.Err.Error(), "."))
		if a.Known() { // a first question cannot tell when the fault began
			p.Since = a.Since
		}
		f.began(p, c.Failing)
	}
}

// began sets since when there is a problem, if a process knows an earlier moment.
func (f *Findings) began(p *Problem, what string) {
	for _, process := range AskStatus.Of(f.Facts).Value.Processes {
		since := time.UnixMilli(process.Failing[what]).UTC()
		if process.State == Present && process.Failing[what] > 0 && (p.Since.IsZero() || since.Before(p.Since)) {
			p.Since = since
		}
	}
}

// verdict leaves out the findings that others hide, and sums up the questions without an answer.
func (f *Findings) verdict() Verdict {
	var hidden []ProblemKind
	for _, p := range f.all {
		hidden = append(hidden, p.Is.Hides...)
	}
	v := Verdict{State: Well, Problems: []Problem{}}
	var unanswered []string
	for _, p := range f.all {
		switch {
		case slices.Contains(hidden, p.Is.Name), p.Severity == "":
		case p.Kind == NotAnswered:
			unanswered = append(unanswered, p.Detail)
		default:
			v.Problems = append(v.Problems, p)
		}
	}
	if len(unanswered) > 0 { //mutant:unanswered-left-out
		v.Problems = slices.Insert(v.Problems, 0, *f.Add(NotAnswered, len(unanswered), strings.Join(unanswered, "; ")))
	}
	slices.SortStableFunc(v.Problems, func(a, b Problem) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	has := func(is func(Problem) bool) bool { return slices.ContainsFunc(v.Problems, is) }
	switch {
	case has(func(p Problem) bool { return p.Severity == Urgent && !p.Is.Blind }):
		v.State = ActNow
	case has(func(p Problem) bool { return p.Is.Blind }):
		v.State = Unknown
	case has(func(p Problem) bool { return p.Severity == Today }):
		v.State = LookToday
	}
	return v
}
<<<<<<< HEAD

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

// fault adds a problem for the error of an answer. It returns nil if there is no error.
func fault[T any](j *judgement, kind ProblemKind, a Answer[T]) *Problem {
	if a.Err == nil {
		return nil
	}
	// Redis ends some errors with a dot.
	p := j.add(kind, 0, strings.TrimSuffix(a.Err.Error(), "."))
	if a.Known() { // a first question cannot tell when the fault began
		p.Since = a.Since
	}
	return p
}

// began sets since when there is a problem, if it is not nil and a process knows an earlier moment.
func (j *judgement) began(p *Problem, what string) {
	for _, process := range j.Status.Value.Processes {
		since := time.UnixMilli(process.Failing[what]).UTC()
		if p != nil && process.State == Present && process.Failing[what] > 0 && (p.Since.IsZero() || since.Before(p.Since)) {
			p.Since = since
		}
	}
}

// servers judges Kafka, database and Redis.
func (j *judgement) servers() {
	j.notAnswered()
	if !errors.Is(j.Status.Err, errUnused) || j.Overdue.Err != nil {
		fault(j, KafkaAway, j.Status)
	}
	if j.schemaDiffers() {
		if p := fault(j, SchemaDiffers, j.Schema); j.databaseStops() {
			p.Severity = Urgent // and the cause
		}
	}
	cause := fault(j, DatabaseAway, j.Overdue)
	if cause == nil {
		cause = fault(j, WritesRefused, j.Writes)
	}
	j.began(cause, wire.FailingWrites)
	if cause != nil { // that is why records of the close topic wait
		cause.Orders, _ = j.Status.Value.splitClosing()
		cause.Orders = cmp.Or(j.Overdue.Value.Orders, cause.Orders)
	}
	if p := fault(j, LockRefused, j.Lock); p != nil {
		j.began(p, wire.FailingLock)
	}
	var differ []string
	for than, by := range map[string]time.Duration{"that of this machine": j.Offset.Value, "the brokers' clock": j.Ahead.Value} {
		if by.Abs() > ClockSkewWarning {
			differ = append(differ, fmt.Sprintf("the database's clock differs from %s by %v", than, by.Round(time.Millisecond)))
		}
	}
	if slices.Sort(differ); len(differ) > 0 {
		j.add(ClocksDiffer, 0, strings.Join(differ, "; "))
	}
}

// schemaDiffers reports whether this program cannot use the schema. A shadow run has none.
func (j *judgement) schemaDiffers() bool {
	_, differs := errors.AsType[*store.SchemaError](j.Schema.Err)
	return differs && !j.shadow()
}

// notAnswered adds a problem for the questions without an answer, of servers that answer others.
func (j *judgement) notAnswered() {
	var why []string
	for question, err := range map[string]*error{"Kafka": &j.Status.Err, "database": &j.Overdue.Err, "writes": &j.Writes.Err, "lock": &j.Lock.Err} { // a late answer is no refusal
		if errors.Is(*err, errNotYet) {
			why, *err = append(why, question+": "+errNotYet.Error()), nil
		}
	}
	slices.Sort(why)
	ask := func(question string, server, err error) {
		if server == nil && err != nil {
			why = append(why, question+": "+err.Error())
		}
	}
	ask("sweeps", j.Status.Err, j.Sweeps.Err)
	if hidden := (*kafka.AccessError)(nil); !errors.As(j.Topics.Err, &hidden) { // a viewer need not see their settings
		ask("topics", j.Status.Err, j.Topics.Err)
	}
	ask("dead letters", j.Status.Err, j.Letters.Err)
	ask("clock of the database", j.Overdue.Err, j.Offset.Err)
	if !j.shadow() && !j.schemaDiffers() { // otherwise there may be no table late_payments
		ask("late payments", j.Overdue.Err, j.Late.Err)
		ask("schema", j.Overdue.Err, j.Schema.Err)
	}
	if len(why) > 0 { //mutant:unanswered-left-out
		j.add(NotAnswered, len(why), strings.Join(why, "; "))
	}
}

// databaseStops reports whether the database closes nothing.
func (j *judgement) databaseStops() bool { return j.Overdue.Err != nil || j.Writes.Err != nil } //mutant:closer-blamed

// waiting judges what waits in Kafka and in the database. What waits because the database closes nothing
// belongs to that problem.
func (j *judgement) waiting() {
	status := j.Status.Value
	if j.databaseStops() {
		_, status.Topics = status.splitClosing()
	}
	if worst, found := status.Worst(OverdueLimit); found {
		p := j.add(RecordsOverdue, worst.Count, fmt.Sprintf("%s/%d at offset %d: %.0f s; %s", worst.Topic.Topic, worst.Partition.Partition, worst.Record().Offset, worst.Partition.Overdue, worst.Next()))
		p.Runbook = worst.runbook()
		p.Since = status.At.Add(-time.Duration(worst.Partition.Overdue * float64(time.Second)))
		if worst.Topic.replay && worst.Partition.CatchUp > 0 {
			p.Severity = Today
		}
	}
	overdue, letters := j.Overdue.Value, j.Letters.Value.Total()
	if severity := overdue.Severity(letters); severity != "" && !j.databaseStops() {
		detail := overdue.String()
		if j.shadow() { //mutant:shadow-late-urgent
			severity = Today
			detail += "; a shadow run reads the close topic and closes nothing: they are late by the job that closes the orders today"
		} else if _, inKafka := j.Status.Value.Worst(OverdueGrace); !inKafka && j.Status.Err == nil && j.Status.Known() {
			detail += j.strangers() + j.databases() + "; no record is overdue in Kafka" + j.whyOverdue()
		}
		p := j.add(OrdersOverdue, 0, detail)
		p.Severity, p.Orders, p.Since = severity, overdue.Orders, overdue.Oldest.Add(OverdueGrace)
		if overdue.Failure != nil && severity == Today {
			p.Runbook = failureRunbook
		}
	}
	if slices.ContainsFunc(j.problems, func(p Problem) bool { return p.Kind == RecordsOverdue || p.Kind == OrdersOverdue }) {
		j.closesSlow()
	}
	if n, first := j.Status.Value.firstProblem(); n > 0 {
		j.add(TopicUnread, n, first)
	}
	if letters > 0 {
		j.add(LettersPending, letters, describeCauses(j.Letters.Value))
	}
}

// closesSlow names the closers whose limit is at its minimum.
func (j *judgement) closesSlow() {
	var slow []string
	for _, process := range j.Status.Value.Processes {
		if process.State == Present && process.Failing[wire.FailingLimit] > 0 {
			slow = append(slow, process.Name)
		}
	}
	if len(slow) > 0 { //mutant:slow-closes-unseen
		j.began(j.add(ClosesSlow, len(slow), slow[0]+" closes a few orders at once, because transactions take longer than closer.target_latency"), wire.FailingLimit)
	}
}

// shadow reports whether a shadow run reads the close topic, and another job closes the orders.
func (j *judgement) shadow() bool {
	return slices.ContainsFunc(j.Status.Value.Topics, func(t TopicStatus) bool { return t.shadow })
}

func (j *judgement) pauses() {
	if on := j.Pauses.Value; len(on) > 0 {
		j.add(ClosingPaused, len(on), describePause(on[0])).Since = on[0].CreatedAt
	}
	if j.Overdue.Err == nil && j.Status.Err == nil && !j.shadow() { // which has no table of pauses
		fault(j, PausesUnknown, j.Pauses)
	}
}

// payments judges the payments that came after a close.
func (j *judgement) payments() {
	if late := j.Late.Value; late.Unresolved > 0 {
		j.add(PaymentsLate, int(late.Unresolved), "the oldest was found "+stamp(late.Oldest)).Since = late.Oldest
	}
}

// failureRunbook is the section of the runbook on orders that cannot be closed.
const failureRunbook = "an-order-cannot-be-closed"

// sweeps judges the last sweep. A series of sweeps that overdue orders have started counts only for what it found.
func (j *judgement) sweeps() {
	all := j.Sweeps.Value.Sweeps
	if len(all) == 0 {
		return
	}
	if newest := all[0]; newest.Closed > newest.Causes[string(compensator.OnItsWay)] { // the closer would have retried the others
		j.add(SweepFound, newest.Closed, describeCauses(newest.Causes)).Since = newest.Ended()
	}
	all = slices.DeleteFunc(slices.Clone(all), func(s wire.Sweep) bool { return s.Why == wire.SweepOverdue }) //mutant:series-hides-missing-sweep
	if len(all) == 0 {
		return
	}
	last := all[0]
	if last.Error != "" || last.Failed > 0 {
		p := j.add(SweepFailed, last.Failed, last.Error)
		if last.Error == "" {
			p.Severity, p.Runbook = Today, failureRunbook // single orders, which the next sweep tries again
			if len(last.Failures) > 0 {
				p.Detail = last.Failures[0].String()
			}
		}
		for _, s := range all {
			if s.Error == "" && s.Failed == 0 {
				break
			}
			p.Since = s.StartedAt // the first that failed
		}
	}
	period := cmp.Or(time.Duration(last.PeriodMillis)*time.Millisecond, j.SweepPeriod)
	if period > 0 && j.Now.Sub(last.Ended()) > 2*period {
		j.add(SweepMissing, 0, "").Since = last.Ended()
	}
}

// settings judges topics, topics.yaml and the delays in it.
func (j *judgement) settings() {
	if differ := slices.Concat(j.Topics.Value.Left, j.Topics.Value.Would); len(differ) > 0 {
		j.add(TopicsDiffer, len(differ), differ[0].Topic+": "+differ[0].What)
	}
	fault(j, ConfigBroken, j.Config)
	fallen := fallenDelays(j.Sweeps.Value.Delays, j.Now)
	if len(fallen) == 0 {
		return
	}
	p := j.add(DelayFell, len(fallen), fallen[0].describe())
	p.Since, p.Process = fallen[0].At, fallen[0].Process
	switch {
	case !fallen[0].rose.At.IsZero() && j.Now.After(fallen[0].over()):
		p.Severity = Healed
	case j.Now.Sub(p.Since) < fallIsFresh:
		p.Severity = Urgent
	}
}

func (j *judgement) processes() {
	for _, process := range j.Status.Value.Processes {
		if process.State == Gone {
			p := j.add(ProcessGone, 0, "it is in none of its groups, and has not said that it stops")
			if p.Process = process.Name; process.EverySeconds > 0 {
				p.Detail, p.Since = "it is silent, and has not said that it stops", process.Announced
			}
		}
	}
}

// frozen judges the processes that hold partitions and move nothing in them: they are a cause of overdue records.
// While the database or a pause stops the closes, the closers wait for that. A replay and a shadow run close no order
// that is due.
func (j *judgement) frozen() {
	status, stopped := j.Status.Value, j.databaseStops() || len(j.Pauses.Value) > 0
	for _, process := range status.Processes {
		if process.State != Frozen {
			continue
		}
		overdue, where := 0.0, ""
		for _, t := range status.Topics {
			if t.replay || t.shadow || t.close && stopped {
				continue
			}
			for _, p := range t.Partitions {
				if p.Owner != nil && p.Owner.ClientID == process.Name && p.Overdue > overdue {
					overdue, where = p.Overdue, fmt.Sprintf("%s/%d", t.Topic, p.Partition)
				}
			}
		}
		if overdue >= frozenAfter.Seconds()+max(0, -j.Ahead.Value.Seconds()) { // a relay waits for a database that seems to be behind
			p := j.add(ProcessFrozen, 0, fmt.Sprintf("its group still has it, and its positions stand; %s is overdue by %.0f s", where, overdue))
			p.Process, p.Since = process.Name, status.At.Add(-time.Duration(overdue*float64(time.Second)))
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
	what := wire.PathName(p.Path)
	if p.Category != "" {
		what += ", " + p.Category
	}
	return what + ", " + p.Until.UTC().Format(time.RFC3339) + ": " + p.Reason
}

func describeCauses(causes map[string]int) string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		if n := causes[cause]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, cause))
		}
	}
	return strings.Join(parts, ", ")
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
=======
>>>>>>> 115eee96 (Status, doctor and console read one list of checks, a cause names the findings that it hides, and the check of a shadow run is in its room)
