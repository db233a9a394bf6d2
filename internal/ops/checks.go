package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/topics"
)

// Checks returns the checks but that of package webhook, causes before their consequences. A status costs Kafka some requests for each
// partition: with one each 5 s an open page cost 1.7 % of a core while a million records waited.
func Checks() []health.Check {
	const soon, often, seldom, limit = 5 * time.Second, 10 * time.Second, time.Minute, 30 * time.Second
	// While the database closes nothing, the records and orders that wait for it belong to that problem.
	unclosed := []health.ProblemKind{health.OrdersOverdue, closesOverdue, closerStuck} //mutant:closer-blamed
	differs := func(err error) bool { _, is := errors.AsType[*store.SchemaError](err); return is }
	unfit := func(err error) bool { _, is := errors.AsType[*store.MappingError](err); return is }
	all := func(error) bool { return true }
	return []health.Check{
		{Name: string(health.KafkaCheck), Every: often, Limit: limit, Ask: ask(health.KafkaCheck, followedStatus()), Finds: []health.Kind{
			{Name: health.KafkaAway, Errors: all, Severity: health.Urgent, Runbook: "kafka-is-down", Blind: true, InDoctor: true,
				Hides: []health.ProblemKind{"compensations", "topics", "dead letters"}},
			{Name: health.BrokersSilent, Severity: health.Today, Runbook: "kafka-is-down", InDoctor: true,
				Hides: []health.ProblemKind{health.TopicUnread, "topics", "dead letters"}},
			{Name: health.NotAnswered, Severity: health.Today, Runbook: "a-partition-cannot-be-read", Blind: true}}, Judge: judged(findings.brokers)},
		{Name: string(SchemaCheck), Every: 5 * seldom, Limit: often, Ask: ask(SchemaCheck, Pipeline.Schema),
			Finds: []health.Kind{
				{Name: health.SchemaDiffers, Errors: differs, Severity: health.Today, Runbook: "the-schema-differs", InDoctor: true,
					Hides: []health.ProblemKind{"schema", "compensations", "late payments", "outboxes"}}}},
		{Name: string(OverdueCheck), Every: soon, Limit: soon, Rest: restOverdue, Ask: ask(OverdueCheck, Pipeline.OverdueExplained),
			Judge: judged(func(f findings) {
				f.closesNothing(health.DatabaseAway)
				f.closesNothing(health.DelaysDiffer)
			}), Finds: []health.Kind{
				{Name: health.DelaysDiffer, Errors: func(err error) bool { return errors.Is(err, store.ErrDelays) }, Severity: health.Urgent,
					Runbook: "the-schema-differs", InDoctor: true, Hides: append([]health.ProblemKind{health.WritesRefused}, unclosed...)},
				{Name: health.DatabaseAway, Errors: all, Severity: health.Urgent, Runbook: "the-database-is-down-or-slow", Blind: true, InDoctor: true,
					Hides: append([]health.ProblemKind{health.WritesRefused, "clock of the database", "compensations", "late payments", "schema", "pauses",
						"outboxes", health.PausesUnknown}, unclosed...)}}},
		{Name: string(WritesCheck), Every: soon, Limit: often, Ask: ask(WritesCheck, only(Pipeline.Writable)), Doubts: string(OverdueCheck),
			Judge: judged(func(f findings) { f.closesNothing(health.WritesRefused) }), Finds: []health.Kind{
				{Name: health.WritesRefused, Errors: all, Severity: health.Urgent, Runbook: "the-database-takes-no-writes", InDoctor: true, Hides: unclosed}}},
		{Name: string(MonthsCheck), Every: seldom, Limit: often, Ask: ask(MonthsCheck, only(Pipeline.monthsFit)), Finds: []health.Kind{
			{Name: monthAhead, As: health.TablesUnfit, Errors: func(err error) bool { return errors.Is(err, errAhead) }, Severity: health.Today,
				Runbook: failureRunbook},
			{Name: health.TablesUnfit, Errors: unfit, Severity: health.Urgent, Runbook: failureRunbook},
			{Errors: all}}}, // without a finding
		{Name: string(LockCheck), Every: soon, Limit: soon, Ask: ask(LockCheck, only(Pipeline.Lockable)), Finds: []health.Kind{
			{Name: health.LockRefused, Errors: all, Severity: health.Today, Runbook: "redis-or-the-lock-is-down", InDoctor: true}}},
		{Name: string(ClockCheck), Every: seldom, Limit: soon, Ask: ask(ClockCheck, Pipeline.DatabaseOffset), Judge: judged(findings.clocks), Finds: []health.Kind{
			{Errors: all}, // without a finding
			{Name: health.ClocksDiffer, Severity: health.Today, Runbook: "clocks-differ", InDoctor: true}}},
		{Name: string(CheckoutsCheck), Every: seldom, Limit: often, Ask: ask(CheckoutsCheck, Pipeline.CheckoutClocks), Judge: judged(findings.checkouts),
			Finds: []health.Kind{
				{Errors: all}, // without a finding
				{Name: health.CheckoutClock, Severity: health.Urgent, Runbook: "a-checkout-has-a-wrong-clock", InDoctor: true}}},
		{Judge: judged(findings.stuck), Finds: []health.Kind{
			{Name: health.MemberStuck, Severity: health.Urgent, Runbook: "a-process-does-not-answer"},
			{Name: closerStuck, As: health.MemberStuck, Severity: health.Urgent, Runbook: "a-process-does-not-answer"}}},
		{Judge: judged(findings.records), Finds: []health.Kind{
			{Name: health.RecordsOverdue, Severity: health.Urgent, Runbook: backlog.Behind{}.Runbook()},
			{Name: closesOverdue, As: health.RecordsOverdue, Severity: health.Urgent, Runbook: backlog.Behind{Topic: backlog.TopicStatus{Closes: true}}.Runbook()}}},
		{Judge: judged(findings.orders), Finds: []health.Kind{{Name: health.OrdersOverdue, Severity: health.Urgent, Runbook: "orders-are-overdue-in-the-database"}}},
		{Judge: judged(findings.unread), Finds: []health.Kind{
			{Name: health.TopicUnread, Severity: health.Urgent, Runbook: "a-partition-cannot-be-read", Blind: true, Page: "/delays#drift-heading"}}},
		{Name: string(LettersCheck), Limit: limit, Ask: ask(LettersCheck, Pipeline.openLetters), Judge: judged(findings.letters), Finds: []health.Kind{
			{Name: health.LettersOpen, Severity: health.Today, Runbook: "dead-letters", InDoctor: true, Page: "/dead-letters"}}},
		{Name: string(PausesCheck), Every: soon, Limit: often, Ask: ask(PausesCheck, Pipeline.Pauses),
			Judge: judged(findings.pauses), Finds: []health.Kind{
				{Name: health.ClosingPaused, Severity: health.Today, Runbook: "closing-is-paused", Page: "/delays#pauses-heading",
					Hides: []health.ProblemKind{closerStuck}},
				{Name: health.PausesUnknown, Errors: all, Severity: health.Urgent, Runbook: "closing-is-paused", Blind: true, Page: "/delays#pauses-heading"}}},
		{Name: string(TopicsCheck), Every: seldom, Limit: limit, Ask: ask(TopicsCheck, Pipeline.TopicsPlan),
			Judge: judged(findings.topics), Finds: []health.Kind{
				{Errors: topics.AccessDenied}, // a viewer need not see their settings
				{Name: health.TopicsDiffer, Severity: health.Today, Runbook: "topics-differ", InDoctor: true, Page: "/delays#drift-heading"},
				{Name: NoTopics, As: health.TopicsDiffer, Severity: health.Today, Runbook: "topics-differ", Blind: true, InDoctor: true, Page: "/delays#drift-heading",
					Hides: []health.ProblemKind{health.TopicUnread, "dead letters"}}}},
		{Name: string(OutboxCheck), Every: often, Limit: soon, Ask: ask(OutboxCheck, Pipeline.Outboxes), Judge: judged(findings.outboxes), Finds: []health.Kind{
			{Name: health.OutboxLate, Severity: health.Today, Runbook: "an-outbox-is-late"}}},
		{Name: string(ConfigCheck), Every: often, Limit: soon, Ask: ask(ConfigCheck, only(Pipeline.broken)), Finds: []health.Kind{
			{Name: health.ConfigBroken, Errors: all, Severity: health.Today, Runbook: "topicsyaml-was-refused", InDoctor: true, Page: "/delays"}}},
		{Name: string(HoursCheck), Every: often, Limit: limit, Ask: ask(HoursCheck, Pipeline.Hours), Judge: judged(findings.hours), Finds: []health.Kind{
			{Name: health.SweepFound, Severity: health.Today, Runbook: "the-compensator-finds-orders"},
			{Name: health.SweepMissing, Severity: health.Urgent, Runbook: "the-compensator-is-late", Hides: []health.ProblemKind{health.SweepFailed}},
			{Name: health.SweepFailed, Severity: health.Urgent, Runbook: "the-compensator-is-late"}}},
		{Name: string(LateCheck), Every: often, Limit: soon, Ask: ask(LateCheck, Pipeline.CountLate), Judge: judged(findings.payments), Finds: []health.Kind{
			{Name: health.PaymentsLate, Severity: health.Today, Runbook: "money-came-after-a-close"}}},
	}
}

// findings are what the checks have found so far, with the judgements of this package.
type findings struct{ *health.Findings }

// judged returns the Check.Judge that judges so.
func judged(judge func(findings)) func(*health.Findings) {
	return func(f *health.Findings) { judge(findings{f}) }
}

// Kinds that people see as another one.
const (
	closesOverdue health.ProblemKind = "closes_overdue" // records should have left the close topic
	closerStuck   health.ProblemKind = "closer_stuck"   // a member has overdue records of these topics, and moves nothing
	monthAhead    health.ProblemKind = "month_ahead"    // no order waits in a table that does not fit
	NoTopics      health.ProblemKind = "no_topics"      // no topic of topics.yaml exists, as before topics apply
)

// failureRunbook is the section of the runbook on orders that cannot be closed.
const failureRunbook = "an-order-cannot-be-closed"

// secondLook is the time between the first two statuses, by which Follow sees whether a backlog shrinks.
const secondLook = time.Second

// followedStatus returns Pipeline.Status, with what Follow sets by the status before. The first time it may look twice.
func followedStatus() func(Pipeline, context.Context) (backlog.Status, error) {
	var before backlog.Status
	return func(p Pipeline, ctx context.Context) (backlog.Status, error) {
		s, err := p.Status(ctx)
		if _, late := s.Worst(backlog.StuckAfter); late && before.At.IsZero() && retry.Sleep(ctx, secondLook) {
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
	if o := answer.(backlog.OverdueOrders); o.Orders+o.Paused > 0 {
		return 0
	}
	return 10 * time.Second
}

// brokers reports the brokers that do not answer while others do. The state of the partitions that they lead is then unknown.
func (f findings) brokers() {
	status := health.KafkaCheck.Of(f.Facts).Value
	if len(status.Silent) == 0 {
		return
	}
	p := f.Add(health.BrokersSilent, len(status.Silent), strings.Join(status.Silent, ", "))
	if unknown, first := status.FirstProblem(); unknown > 0 {
		p.Severity, p.Is.Blind = health.Urgent, true
		p.Detail += fmt.Sprintf("; the state of %d topics and partitions is unknown, such as %s", unknown, first)
	}
}

// closesNothing adds to a fault of the database how many orders wait because of it. A schema that differs is then the cause.
func (f findings) closesNothing(kind health.ProblemKind) {
	p := f.Found(kind)
	if p == nil {
		return
	}
	_, closes := health.KafkaCheck.Of(f.Facts).Value.Split()
	for _, t := range closes {
		p.Orders += t.Waiting
	}
	p.Orders = cmp.Or(OverdueCheck.Of(f.Facts).Value.Orders, p.Orders)
	if cause := f.Found(health.SchemaDiffers); cause != nil {
		cause.Severity = health.Urgent
	}
}

func (f findings) clocks() {
	if by := ClockCheck.Of(f.Facts).Value; by.Abs() > ClockSkewWarning {
		f.Add(health.ClocksDiffer, 0, fmt.Sprintf("the database's clock differs from that of this machine by %v", by.Round(time.Millisecond)))
	}
}

// checkouts judges the clocks of those who create orders.
func (f findings) checkouts() {
	for _, s := range CheckoutsCheck.Of(f.Facts).Value {
		f.Add(health.CheckoutClock, s.Orders, s.String()).Since = s.Since
	}
}

// stuck reports the members of groups that have overdue records and settle none of them, while other members settle theirs. Programs that are not
// orderclose and have joined the closers' group are among them: they close no order.
func (f findings) stuck() {
	status := health.KafkaCheck.Of(f.Facts).Value
	for _, m := range status.Members {
		worst, where := m.Worst(status)
		kind := health.MemberStuck
		if where.Closes {
			kind = closerStuck
		}
		if !m.Stuck || kind == closerStuck && f.explained() {
			continue
		}
		p := f.Add(kind, 0, fmt.Sprintf("it moves nothing while others do; %s/%d is overdue by %.0f s; its /-/ready and its log say what it waits for",
			where.Topic, worst.Partition, worst.Overdue))
		p.Process, p.Since = m.Name, status.At.Add(-time.Duration(worst.Overdue*float64(time.Second)))
	}
}

// explained reports whether few orders are overdue, and the database says why. Then the position of their partition may stand, and the closer works.
func (f findings) explained() bool {
	o := OverdueCheck.Of(f.Facts).Value
	return len(o.Failures) > 0 && o.Orders <= fewOverdue && !o.More
}

// records judges what waits in Kafka, before the close and for it.
func (f findings) records() {
	status := health.KafkaCheck.Of(f.Facts).Value
	late := func(kind health.ProblemKind, topics []backlog.TopicStatus) {
		worst, found := backlog.Status{Topics: topics}.Worst(backlog.OverdueLimit)
		if !found || kind == closesOverdue && worst.Partition.Waiting <= fewOverdue && f.explained() {
			return
		}
		next, section := worst.Next(), f.Kind(kind).Runbook
		p := f.Add(kind, worst.Count, fmt.Sprintf("%s/%d at offset %d: %.0f s; %s", worst.Topic.Topic, worst.Partition.Partition, worst.Record().Offset,
			worst.Partition.Overdue, next))
		p.Since, p.Runbook = status.At.Add(-time.Duration(worst.Partition.Overdue*float64(time.Second))), section
	}
	delays, closes := status.Split()
	late(health.RecordsOverdue, delays)
	late(closesOverdue, closes)
}

// orders judges what waits in the database.
func (f findings) orders() {
	overdue, status := OverdueCheck.Of(f.Facts).Value, health.KafkaCheck.Of(f.Facts)
	severity := overdueSeverity(overdue, LettersCheck.Of(f.Facts).Value.Total())
	between := errors.Is(status.Err, health.ErrUnused) && overdue.At.Sub(overdue.Oldest) < time.Minute // two turns of a sweeper
	if severity == "" || severity == health.Urgent && between {
		return
	}
	detail, provider := overdue.String(), waitsForProvider(overdue)
	complete := status.Err == nil && status.Known() && status.Value.Problems() == 0
	if _, inKafka := status.Value.Worst(OverdueGrace); !inKafka && !provider && complete {
		detail += strangers(status.Value) + "; no record is overdue in Kafka" + possible(overdue)
	}
	if provider {
		detail += "; nothing in the database keeps the oldest open: the payment provider gives no answer, or answers unknown"
	}
	p := f.Add(health.OrdersOverdue, 0, detail)
	p.Severity, p.Orders, p.Since = severity, overdue.Orders, overdue.Oldest.Add(OverdueGrace)
	if provider {
		p.Runbook = "the-payment-provider-does-not-answer"
	}
	if len(overdue.Failures) > 0 && (severity == health.Today || overdue.Locked()) {
		p.Runbook, p.Commands = failureRunbook, []string{"orderclose order " + text.ShellQuote(overdue.Failures[0].OrderID)}
	}
}

func (f findings) unread() {
	if n, first := health.KafkaCheck.Of(f.Facts).Value.FirstProblem(); n > 0 {
		f.Add(health.TopicUnread, n, first)
	}
}

func (f findings) letters() {
	if open := LettersCheck.Of(f.Facts).Value; open.Total() > 0 {
		f.Add(health.LettersOpen, open.Total(), open.Text())
	}
}

func (f findings) pauses() {
	if on := PausesCheck.Of(f.Facts).Value; len(on) > 0 {
		p := f.Add(health.ClosingPaused, len(on), on[0].String())
		p.Since = on[0].CreatedAt
		for _, pause := range on {
			p.Commands = append(p.Commands, pause.Resume())
		}
	}
}

func (f findings) topics() {
	plan := TopicsCheck.Of(f.Facts).Value
	missing := slices.DeleteFunc(slices.Clone(plan.Would), func(d kafka.Finding) bool { return !d.By.Create })
	if differ := slices.Concat(plan.Left, plan.Would); len(missing) > 0 && len(missing) == plan.Topics {
		f.Add(NoTopics, 0, fmt.Sprintf("none of the %d topics of topics.yaml exists", plan.Topics))
	} else if len(differ) > 0 {
		f.Add(health.TopicsDiffer, len(differ), differ[0].Topic+": "+differ[0].What)
	}
}

// Rows of an outbox are published within a second. From outboxUrgent on the alert OrdercloseOutboxLate fires.
const outboxSlow, outboxUrgent = 10 * time.Second, time.Minute

// outboxes names the outboxes whose rows wait, with what is known to be wrong with the topic.
func (f findings) outboxes() {
	plan := TopicsCheck.Of(f.Facts).Value
	for _, waits := range OutboxCheck.Of(f.Facts).Value {
		if waits.Oldest <= outboxSlow {
			continue
		}
		detail := fmt.Sprintf("%s, the oldest for %v", waits.Outbox, waits.Oldest.Round(time.Second))
		for _, wrong := range slices.Concat(plan.Left, plan.Would) {
			if wrong.Topic == waits.Topic {
				detail += fmt.Sprintf("; topic %s: %s", wrong.Topic, wrong.What)
				break
			}
		}
		if p := f.Add(health.OutboxLate, waits.Rows, detail); waits.Oldest > outboxUrgent {
			p.Severity = health.Urgent
		}
	}
}

// hours judges the compensations. A period that runs may have no row yet, and two full ones have one each.
func (f findings) hours() {
	known := HoursCheck.Of(f.Facts).Value
	if len(known.Hours) == 0 {
		return
	}
	if newest := known.Hours[0]; newest.Missed > 0 {
		detail := newest.String()
		if o := OverdueCheck.Of(f.Facts); o.Err == nil && !o.Value.At.IsZero() && o.Value.Orders == 0 {
			detail += "; none is overdue now"
		}
		f.Add(health.SweepFound, int(newest.Missed), detail).Since = newest.Begin
	}
	if i := slices.IndexFunc(known.Hours, func(h overdue.Hour) bool { return h.State != "" }); i >= 0 && known.Hours[i].State == overdue.Unfinished {
		f.Add(health.SweepFailed, 0, "half of the period was over").Since = known.Hours[i].Begin
	}
	finished, oldest := known.LastFinished().Begin, known.Hours[len(known.Hours)-1].Begin
	if due := f.Now.Truncate(known.Period).Add(-2 * known.Period); finished.Before(due) && oldest.Before(due) { //mutant:missing-hours-unseen
		f.Add(health.SweepMissing, 0, "").Since = finished
	}
}

// payments judges the payments that came after a close.
func (f findings) payments() {
	if late := LateCheck.Of(f.Facts).Value; late.Unresolved > 0 {
		f.Add(health.PaymentsLate, int(late.Unresolved), "the oldest was found "+text.Stamp(late.Oldest)).Since = late.Oldest
	}
}
