package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/wire"
)

// Checks returns the checks of the core, causes before their consequences. A status costs Kafka some requests for each
// partition: with one each 5 s an open page cost 1.7 % of a core while a million records waited.
func Checks() []Check {
	const soon, often, seldom, limit = 5 * time.Second, 10 * time.Second, time.Minute, 30 * time.Second
	// While the database closes nothing, the records and orders that wait for it belong to that problem.
	unclosed := []ProblemKind{OrdersOverdue, closesOverdue, closerFrozen, ClosesSlow} //mutant:closer-blamed
	differs := func(err error) bool { _, is := errors.AsType[*store.SchemaError](err); return is }
	allSweeps := func(p Pipeline, ctx context.Context) (Sweeps, error) { return p.Sweeps(ctx, 0) }
	all := func(error) bool { return true }
	return []Check{
		{Name: string(AskStatus), Every: often, Limit: limit, Ask: AskStatus.By(followedStatus()), Finds: []Kind{
			{Name: KafkaAway, Errors: all, Severity: Urgent, Runbook: "kafka-is-down", Blind: true, InDoctor: true,
				Hides: []ProblemKind{"sweeps", "compensations", "topics", "dead letters"}},
			{Name: NotAnswered, Severity: Today, Runbook: "a-partition-cannot-be-read", Blind: true}}},
		{Name: string(AskSchema), Every: 5 * seldom, Limit: often, Ask: AskSchema.By(Pipeline.Schema),
			Finds: []Kind{
				{Name: SchemaDiffers, Errors: differs, Severity: Today, Runbook: "the-schema-differs", InDoctor: true,
					Hides: []ProblemKind{"schema", "compensations", "late payments"}}}},
		{Name: string(AskOverdue), Every: soon, Limit: soon, Rest: restOverdue, Ask: AskOverdue.By(Pipeline.OverdueExplained),
			Failing: wire.FailingWrites, Judge: func(f *Findings) { f.closesNothing(DatabaseAway) }, Finds: []Kind{
				{Name: DatabaseAway, Errors: all, Severity: Urgent, Runbook: "the-database-is-down-or-slow", Blind: true, InDoctor: true,
					Hides: append([]ProblemKind{WritesRefused, "clock of the database", "compensations", "late payments", "schema", "pauses", PausesUnknown}, unclosed...)}}},
		{Name: string(AskWrites), Every: soon, Limit: often, Ask: AskWrites.By(only(Pipeline.Writable)),
			Doubts: string(AskOverdue), Failing: wire.FailingWrites, Judge: func(f *Findings) { f.closesNothing(WritesRefused) }, Finds: []Kind{
				{Name: WritesRefused, Errors: all, Severity: Urgent, Runbook: "the-database-takes-no-writes", InDoctor: true, Hides: unclosed}}},
		{Name: string(AskLock), Every: soon, Limit: soon, Ask: AskLock.By(only(Pipeline.Lockable)),
			Failing: wire.FailingLock, Finds: []Kind{
				{Name: LockRefused, Errors: all, Severity: Today, Runbook: "redis-or-the-lock-is-down", InDoctor: true}}},
		{Name: string(AskOffset), Every: seldom, Limit: soon, Ask: AskOffset.By(Pipeline.DatabaseOffset), Judge: (*Findings).clocks, Finds: []Kind{
			{Errors: all}, // without a finding
			{Name: ClocksDiffer, Severity: Today, Runbook: "clocks-differ", InDoctor: true}}},
		{Judge: (*Findings).frozen, Finds: []Kind{
			{Name: ProcessFrozen, Severity: Urgent, Runbook: "a-process-does-not-answer"},
			{Name: closerFrozen, As: ProcessFrozen, Severity: Urgent, Runbook: "a-process-does-not-answer"}}},
		{Judge: (*Findings).records, Finds: []Kind{
			{Name: RecordsOverdue, Severity: Urgent, Runbook: Behind{}.runbook()},
			{Name: closesOverdue, As: RecordsOverdue, Severity: Urgent, Runbook: Behind{Topic: TopicStatus{close: true}}.runbook()}}},
		{Judge: (*Findings).orders, Finds: []Kind{{Name: OrdersOverdue, Severity: Urgent, Runbook: "orders-are-overdue-in-the-database"}}},
		{Judge: (*Findings).closesSlow, Finds: []Kind{{Name: ClosesSlow, Severity: Today, Runbook: "the-backlog-drains-slowly"}}},
		{Judge: (*Findings).unread, Finds: []Kind{
			{Name: TopicUnread, Severity: Urgent, Runbook: "a-partition-cannot-be-read", Blind: true, Page: "/delays#drift-heading"}}},
		{Name: string(AskLetters), Limit: limit, Ask: AskLetters.By(Pipeline.pendingLetters), Judge: (*Findings).letters, Finds: []Kind{
			{Name: LettersPending, Severity: Today, Runbook: "dead-letters", InDoctor: true, Page: "/dead-letters"}}},
		{Name: string(AskPauses), Every: soon, Limit: often, Ask: AskPauses.By(Pipeline.Pauses),
			Judge: (*Findings).pauses, Finds: []Kind{
				{Name: ClosingPaused, Severity: Today, Runbook: "closing-is-paused", Page: "/delays#pauses-heading", Hides: []ProblemKind{closerFrozen}},
				{Name: PausesUnknown, Errors: all, Severity: Urgent, Runbook: "closing-is-paused", Blind: true, Page: "/delays#pauses-heading"}}},
		{Judge: (*Findings).gone, Finds: []Kind{{Name: ProcessGone, Severity: Today, Runbook: "a-process-does-not-answer"}}},
		{Name: string(AskTopics), Every: seldom, Limit: limit, Ask: AskTopics.By(Pipeline.TopicsPlan),
			Judge: (*Findings).topics, Finds: []Kind{
				{Errors: AccessDenied}, // a viewer need not see their settings
				{Name: TopicsDiffer, Severity: Today, Runbook: "topics-differ", InDoctor: true, Page: "/delays#drift-heading"},
				{Name: NoTopics, As: TopicsDiffer, Severity: Today, Runbook: "topics-differ", Blind: true, InDoctor: true, Page: "/delays#drift-heading",
					Hides: []ProblemKind{TopicUnread, "sweeps", "dead letters"}}}},
		{Name: string(AskConfig), Every: often, Limit: soon, Ask: AskConfig.By(only(Pipeline.broken)), Finds: []Kind{
			{Name: ConfigBroken, Errors: all, Severity: Today, Runbook: "topicsyaml-was-refused", InDoctor: true, Page: "/delays"}}},
		{Name: string(AskSweeps), Every: often, Limit: limit, Ask: AskSweeps.By(allSweeps)},
		{Name: string(AskHours), Every: often, Limit: limit, Ask: AskHours.By(Pipeline.Hours), Judge: (*Findings).hours, Finds: []Kind{
			{Name: SweepFound, Severity: Today, Runbook: "the-compensator-finds-orders", Page: "/sweeps"},
			{Name: SweepMissing, Severity: Urgent, Runbook: "the-compensator-is-late", Page: "/sweeps", Hides: []ProblemKind{SweepFailed}},
			{Name: SweepFailed, Severity: Urgent, Runbook: "the-compensator-is-late", Page: "/sweeps"}}},
		{Name: string(AskLate), Every: often, Limit: soon, Ask: AskLate.By(Pipeline.CountLate), Judge: (*Findings).payments, Finds: []Kind{
			{Name: PaymentsLate, Severity: Today, Runbook: "money-came-after-a-close"}}},
	}
}

// Kinds that people see as another one.
const (
	closesOverdue ProblemKind = "closes_overdue" // records should have left the close topic
	closerFrozen  ProblemKind = "closer_frozen"  // a process holds partitions of these topics, and moves nothing
	NoTopics      ProblemKind = "no_topics"      // no topic of topics.yaml exists, as before topics apply
)

// failureRunbook is the section of the runbook on orders that cannot be closed.
const failureRunbook = "an-order-cannot-be-closed"

// secondLook is the time between the first two statuses, by which Follow sees whether a backlog shrinks.
const secondLook = time.Second

// followedStatus returns Pipeline.Status, with what Follow sets by the status before. The first time it may look twice.
func followedStatus() func(Pipeline, context.Context) (Status, error) {
	var before Status
	return func(p Pipeline, ctx context.Context) (Status, error) {
		s, err := p.Status(ctx)
		if _, late := s.Worst(frozenAfter); late && before.At.IsZero() && retry.Sleep(ctx, secondLook) {
			before = s
			s, err = p.Status(ctx)
		}
		s.Follow(before)
		before = s
		return s, err
	}
}

// restOverdue is how much longer the count of overdue orders lasts while nothing is overdue.
func restOverdue(answer any) time.Duration {
	if o := answer.(OverdueOrders); o.Orders+o.Paused > 0 {
		return 0
	}
	return 10 * time.Second
}

// closesNothing adds to a fault of the database how many orders wait because of it. A schema that differs is then the cause.
func (f *Findings) closesNothing(kind ProblemKind) {
	p := f.Found(kind)
	if p == nil {
		return
	}
	_, closes := AskStatus.Of(f.Facts).Value.split()
	for _, t := range closes {
		p.Orders += t.Waiting
	}
	p.Orders = cmp.Or(AskOverdue.Of(f.Facts).Value.Orders, p.Orders)
	if cause := f.Found(SchemaDiffers); cause != nil {
		cause.Severity = Urgent
	}
}

func (f *Findings) clocks() {
	if by := AskOffset.Of(f.Facts).Value; by.Abs() > ClockSkewWarning {
		f.Add(ClocksDiffer, 0, fmt.Sprintf("the database's clock differs from that of this machine by %v", by.Round(time.Millisecond)))
	}
}

// frozen judges the processes that hold partitions and move nothing in them: they are a cause of overdue records. Who
// reads in place of the closers closes no order.
func (f *Findings) frozen() {
	status := AskStatus.Of(f.Facts).Value
	limit := frozenAfter.Seconds()
	for _, process := range status.Processes {
		kind, overdue, where := ProcessFrozen, 0.0, ""
		for _, t := range status.Topics { // those of the closers are the last
			if process.State != Frozen || t.close && overdue >= limit {
				continue
			}
			for _, p := range t.Partitions {
				if p.Owner != nil && p.Owner.ClientID == process.Name && p.Overdue > overdue {
					overdue, where = p.Overdue, fmt.Sprintf("%s/%d", t.Topic, p.Partition)
					if t.close {
						kind = closerFrozen
					}
				}
			}
		}
		if overdue >= limit {
			p := f.Add(kind, 0, fmt.Sprintf("its group still has it, and its positions stand; %s is overdue by %.0f s", where, overdue))
			p.Process, p.Since = process.Name, status.At.Add(-time.Duration(overdue*float64(time.Second)))
		}
	}
}

// records judges what waits in Kafka, before the close and for it.
func (f *Findings) records() {
	status := AskStatus.Of(f.Facts).Value
	late := func(kind ProblemKind, topics []TopicStatus) {
		worst, found := Status{Topics: topics}.Worst(OverdueLimit)
		if !found {
			return
		}
		next, section := worst.Next(), f.kinds[kind].Runbook
		if o := AskOverdue.Of(f.Facts).Value; kind == closesOverdue && o.locked() {
			next, section = o.Failure.String(), failureRunbook
		}
		p := f.Add(kind, worst.Count, fmt.Sprintf("%s/%d at offset %d: %.0f s; %s", worst.Topic.Topic, worst.Partition.Partition, worst.Record().Offset,
			worst.Partition.Overdue, next))
		p.Since, p.Runbook = status.At.Add(-time.Duration(worst.Partition.Overdue*float64(time.Second))), section
	}
	delays, closes := status.split()
	late(RecordsOverdue, delays)
	late(closesOverdue, closes)
}

// orders judges what waits in the database.
func (f *Findings) orders() {
	overdue, status := AskOverdue.Of(f.Facts).Value, AskStatus.Of(f.Facts)
	severity := overdue.Severity(AskLetters.Of(f.Facts).Value.Total())
	if severity == "" {
		return
	}
	detail, unknown := overdue.String(), len(f.failing(wire.FailingPayment)) > 0
	if _, inKafka := status.Value.Worst(OverdueGrace); !inKafka && !unknown && status.Err == nil && status.Known() {
		detail += status.Value.strangers() + status.Value.databases() + "; no record is overdue in Kafka" + overdue.why()
	}
	if unknown {
		detail += "; the payment provider gives no answer, or answers unknown"
	}
	p := f.Add(OrdersOverdue, 0, detail)
	p.Severity, p.Orders, p.Since = severity, overdue.Orders, overdue.Oldest.Add(OverdueGrace)
	if unknown {
		p.Runbook = "the-payment-provider-does-not-answer"
	}
	if overdue.Failure != nil && severity == Today || overdue.locked() {
		p.Runbook = failureRunbook
	}
}

// failing returns the processes that meet a fault, by its key in wire.Process.Failing.
func (f *Findings) failing(fault string) (names []string) {
	for _, process := range AskStatus.Of(f.Facts).Value.Processes {
		if process.State == Present && process.Failing[fault] > 0 {
			names = append(names, process.Name)
		}
	}
	return names
}

// closesSlow names the closers whose limit is at its minimum, if something is overdue.
func (f *Findings) closesSlow() {
	slow := f.failing(wire.FailingLimit)
	if late := cmp.Or(f.Found(RecordsOverdue), f.Found(closesOverdue), f.Found(OrdersOverdue)); late != nil && len(slow) > 0 { //mutant:slow-closes-unseen
		f.began(f.Add(ClosesSlow, len(slow), slow[0]+" closes a few orders at once, because transactions take longer than closer.target_latency"), wire.FailingLimit)
	}
}

func (f *Findings) unread() {
	if n, first := AskStatus.Of(f.Facts).Value.firstProblem(); n > 0 {
		f.Add(TopicUnread, n, first)
	}
}

func (f *Findings) letters() {
	if pending := AskLetters.Of(f.Facts).Value; pending.Total() > 0 {
		f.Add(LettersPending, pending.Total(), describeCauses(pending))
	}
}

func (f *Findings) pauses() {
	if on := AskPauses.Of(f.Facts).Value; len(on) > 0 {
		f.Add(ClosingPaused, len(on), describePause(on[0])).Since = on[0].CreatedAt
	}
}

func (f *Findings) gone() {
	for _, process := range AskStatus.Of(f.Facts).Value.Processes {
		if process.State == Gone {
			p := f.Add(ProcessGone, 0, "it is in none of its groups, and has not said that it stops")
			if p.Process = process.Name; process.EverySeconds > 0 {
				p.Detail, p.Since = "it is silent, and has not said that it stops", process.Announced
			}
		}
	}
}

func (f *Findings) topics() {
	plan := AskTopics.Of(f.Facts).Value
	missing := slices.DeleteFunc(slices.Clone(plan.Would), func(d kafka.Finding) bool { return !d.By.Create })
	if differ := slices.Concat(plan.Left, plan.Would); len(missing) > 0 && len(missing) == plan.Topics {
		f.Add(NoTopics, 0, fmt.Sprintf("none of the %d topics of topics.yaml exists", plan.Topics))
	} else if len(differ) > 0 {
		f.Add(TopicsDiffer, len(differ), differ[0].Topic+": "+differ[0].What)
	}
}

// hours judges the compensations. A period that runs may have no row yet, and two full ones have one each.
func (f *Findings) hours() {
	known := AskHours.Of(f.Facts).Value
	if len(known.Hours) == 0 {
		return
	}
	if newest := known.Hours[0]; newest.Missed > 0 {
		f.Add(SweepFound, int(newest.Missed), describeCounts(newest.Counts)).Since = newest.Begin
	}
	if i := slices.IndexFunc(known.Hours, func(h overdue.Hour) bool { return h.State != "" }); i >= 0 && known.Hours[i].State == overdue.Unfinished {
		f.Add(SweepFailed, 0, "half of the period was over").Since = known.Hours[i].Begin
	}
	finished, oldest := known.LastFinished().Begin, known.Hours[len(known.Hours)-1].Begin
	if due := f.Now.Truncate(known.Period).Add(-2 * known.Period); finished.Before(due) && oldest.Before(due) { //mutant:missing-hours-unseen
		f.Add(SweepMissing, 0, "").Since = finished
	}
}

// payments judges the payments that came after a close.
func (f *Findings) payments() {
	if late := AskLate.Of(f.Facts).Value; late.Unresolved > 0 {
		f.Add(PaymentsLate, int(late.Unresolved), "the oldest was found "+text.Stamp(late.Oldest)).Since = late.Oldest
	}
}

func describePause(p wire.Pause) string {
	return cmp.Or(p.Category, "all orders") + ", " + p.Until.UTC().Format(time.RFC3339) + ": " + p.Reason
}

func describeCounts(c overdue.Counts) string {
	return fmt.Sprintf("%d missed, %d after a pause, %d after a failure, %d not closed", c.Missed, c.AfterPause, c.AfterFailure, c.NotClosed)
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
