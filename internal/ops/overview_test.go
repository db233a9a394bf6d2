package ops

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// knownAs is an answer that was just given.
func knownAs[T any](v T) Answer[T] { return Answer[T]{Value: v, At: noon} }

// told has answers of checks, by the Name of the check.
type told map[any]any

// judge judges the answers by the checks of the core.
func (t told) judge(now time.Time) Verdict {
	f := Facts{Now: now, Checks: Checks(), Answers: map[string]Answer[any]{}}
	for name, answer := range t {
		f.Answers[fmt.Sprint(name)] = answer.(interface{ untyped() Answer[any] }).untyped()
	}
	return Judge(f)
}

func (a Answer[T]) untyped() Answer[any] { return Answer[any]{a.Value, a.At, a.Err, a.Since} }

type (
	hour   = overdue.Hour
	counts = overdue.Counts
)

const finished, unfinished = overdue.Finished, overdue.Unfinished

// hours returns compensations of an hour, newest first. The first one began ago before noon, and each other an hour before the one before.
func hours(ago time.Duration, all ...overdue.Hour) Answer[Hours] {
	for i := range all {
		all[i].Begin = noon.Add(-ago - time.Duration(i)*time.Hour)
	}
	return knownAs(Hours{all, time.Hour, nil})
}

// uses returns a process that uses a database.
func uses(name, database string) Process {
	return Process{Process: wire.Process{Name: name, Database: database}, State: Present}
}

func TestJudge_NamesEachProblemWithASectionOfTheRunbook(t *testing.T) {
	now := noon
	overdue := Status{Topics: []TopicStatus{{Topic: "delay_5m", Partitions: []PartitionStatus{{Partition: 3, Overdue: 45, Head: &Head{}}}}}}
	behind := Status{Topics: []TopicStatus{{Topic: "order-close", close: true, Partitions: []PartitionStatus{{Overdue: 45, Head: &Head{}}}}}}
	closer, stranger := &kafka.Member{ClientID: "closer@h:1:2"}, &kafka.Member{ClientID: "console-consumer", Host: "10.0.0.7"}
	strange := Status{At: now, Topics: []TopicStatus{{Topic: "order-close", close: true,
		Partitions: []PartitionStatus{{Owner: stranger}, {Owner: closer}, {Owner: stranger}}}}}
	waiting := func(orders int64, since time.Duration) OverdueOrders {
		return OverdueOrders{At: now, Orders: orders, Oldest: now.Add(-since), Categories: map[string]int64{"default": orders - 1, "ticket": 1}}
	}
	stuck := waiting(1, 11*time.Minute)
	stuck.Failure = &wire.Failure{OrderID: "2", Error: "locked: a row"}
	locked := waiting(2, 6*time.Second)
	locked.Failure = &wire.Failure{OrderID: "2", Cause: "locked", Error: "locked: another transaction locks SKU \"17\" in table stock"}
	paying := waiting(11, 6*time.Second)
	paying.Pays = true
	frozen := func(topic string) Status {
		held := PartitionStatus{Partition: 3, Overdue: 12, Head: &Head{}, Owner: &kafka.Member{ClientID: "x@h:1"}}
		return Status{Processes: []Process{{Process: wire.Process{Name: "x@h:1"}, State: Frozen}, {State: Present}},
			Topics: []TopicStatus{{Topic: topic, close: topic != "a", Partitions: []PartitionStatus{held, {Overdue: 14}}}}}
	}
	late := frozen("a")
	late.Topics[0].Partitions[0].Overdue = 45
	old := Answer[store.Schema]{Err: &store.SchemaError{Schema: store.Schema{Has: 13, Wants: 19}}}
	done, undone := hour{State: finished}, hour{State: unfinished}
	for _, row := range []struct {
		facts   told
		state   State
		kinds   []ProblemKind
		detail  string // in the first problem
		runbook string // of the first problem
	}{
		{told{}, Well, nil, "", ""},
		{told{AskStatus: Answer[Status]{Err: errors.New("no broker")}}, Unknown, []ProblemKind{KafkaAway}, "no broker", "kafka-is-down"},
		{told{AskOverdue: Answer[OverdueOrders]{Err: errors.New("away")}, AskPauses: Answer[[]wire.Pause]{Err: errors.New("away")}}, Unknown,
			[]ProblemKind{DatabaseAway}, "away", "the-database-is-down-or-slow"},
		{told{AskStatus: knownAs(overdue)}, ActNow, []ProblemKind{RecordsOverdue}, "delay_5m/3 at offset 0: 45 s; no relay is running",
			"records-do-not-leave-a-delay-topic"},
		{told{AskStatus: knownAs(behind)}, ActNow, []ProblemKind{RecordsOverdue}, "no closer is running", "the-closer-is-behind"},
		{told{AskStatus: knownAs(behind), AskWrites: Answer[struct{}]{Err: errors.New("Error 1290: --read-only")}}, ActNow, []ProblemKind{WritesRefused},
			"Error 1290", "the-database-takes-no-writes"},
		{told{AskStatus: knownAs(overdue), AskWrites: Answer[struct{}]{Err: errors.New("Error 1290")}}, ActNow, []ProblemKind{WritesRefused, RecordsOverdue},
			"Error 1290", "the-database-takes-no-writes"},
		{told{AskOverdue: Answer[OverdueOrders]{Err: errors.New("away")}, AskWrites: Answer[struct{}]{Err: errors.New("away")}}, Unknown, []ProblemKind{DatabaseAway},
			"away", "the-database-is-down-or-slow"},
		{told{AskStatus: Answer[Status]{Err: errors.New("no broker")}, AskSweeps: Answer[Sweeps]{Err: errors.New("no broker")},
			AskOverdue: knownAs(waiting(11, 6*time.Second))}, ActNow, []ProblemKind{KafkaAway, OrdersOverdue}, "no broker", "kafka-is-down"},
		{told{AskSweeps: Answer[Sweeps]{Err: errors.New("timed out")}, AskLetters: Answer[deadletters.Counts]{Err: errors.New("no such topic")},
			AskLock: Answer[struct{}]{Err: errors.New("OOM")}}, Unknown, []ProblemKind{NotAnswered, LockRefused}, "dead letters: no such topic; sweeps: timed out",
			"a-partition-cannot-be-read"},
		{told{AskStatus: Answer[Status]{Err: errNotYet}, AskOverdue: Answer[OverdueOrders]{Err: errNotYet}}, Unknown, []ProblemKind{NotAnswered},
			"Kafka: no answer yet; database: no answer yet", "a-partition-cannot-be-read"},
		{told{AskWrites: Answer[struct{}]{Err: errNotYet}}, Unknown, []ProblemKind{NotAnswered}, "writes: no answer yet", "a-partition-cannot-be-read"},
		{told{AskTopics: Answer[TopicsPlan]{Err: &kafka.AccessError{}}}, Well, nil, "", ""},
		{told{AskOffset: Answer[time.Duration]{Err: ErrNoDatabase}, AskOverdue: Answer[OverdueOrders]{Err: ErrNoDatabase},
			AskPauses: Answer[[]wire.Pause]{Err: ErrNoDatabase}}, Well, nil, "", ""},
		{told{AskLock: Answer[struct{}]{Err: errors.New("OOM command not allowed")}}, LookToday, []ProblemKind{LockRefused}, "OOM", "redis-or-the-lock-is-down"},
		{told{AskStatus: knownAs(Status{Processes: []Process{{Process: wire.Process{Name: "relay@h:1"}, State: Gone}, {State: Present}}})}, LookToday,
			[]ProblemKind{ProcessGone}, "it is in none of its groups", "a-process-does-not-answer"},
		{told{AskStatus: knownAs(frozen("a"))}, ActNow, []ProblemKind{ProcessFrozen}, "its group still has it, and its positions stand; a/3 is overdue by 12 s",
			"a-process-does-not-answer"},
		{told{AskStatus: knownAs(frozen("closes"))}, ActNow, []ProblemKind{ProcessFrozen}, "closes/3 is overdue by 12 s", "a-process-does-not-answer"},
		{told{AskStatus: knownAs(frozen("closes")), AskPauses: knownAs([]wire.Pause{{}})}, LookToday, []ProblemKind{ClosingPaused}, "", "closing-is-paused"},
		{told{AskStatus: knownAs(frozen("closes")), AskWrites: Answer[struct{}]{Err: errors.New("Error 1290")}}, ActNow, []ProblemKind{WritesRefused}, "Error 1290",
			"the-database-takes-no-writes"},
		{told{AskStatus: knownAs(late)}, ActNow, []ProblemKind{ProcessFrozen, RecordsOverdue}, "a/3 is overdue by 45 s", "a-process-does-not-answer"},
		{told{AskLate: knownAs(store.LateSummary{})}, Well, nil, "", ""},
		{told{AskLate: knownAs(store.LateSummary{Unresolved: 3, Oldest: now.Add(-time.Hour)})}, LookToday, []ProblemKind{PaymentsLate},
			"the oldest was found 2026-11-20T11:00:00.000Z", "money-came-after-a-close"},
		{told{AskLate: Answer[store.LateSummary]{Err: errors.New("SELECT command denied")}}, Unknown, []ProblemKind{NotAnswered},
			"late payments: SELECT command denied", "a-partition-cannot-be-read"},
		{told{AskLate: Answer[store.LateSummary]{Err: ErrNoDatabase}}, Well, nil, "", ""},
		{told{AskOffset: knownAs(-ClockSkewWarning)}, Well, nil, "", ""},
		{told{AskOffset: knownAs(-2 * time.Second)}, LookToday, []ProblemKind{ClocksDiffer}, "-2s", "clocks-differ"},
		{told{AskOffset: Answer[time.Duration]{Err: errors.New("no database")}}, Well, nil, "", ""},
		{told{AskSchema: old}, LookToday, []ProblemKind{SchemaDiffers}, "has version 13 and this program needs 19", "the-schema-differs"},
		{told{AskSchema: old, AskOverdue: Answer[OverdueOrders]{Err: errors.New("no table pauses")}, AskLate: Answer[store.LateSummary]{Err: errors.New("no table")}},
			ActNow, []ProblemKind{SchemaDiffers, DatabaseAway}, "run orderclose migrate", "the-schema-differs"},
		{told{AskSchema: Answer[store.Schema]{Err: errors.New("timed out")}}, Unknown, []ProblemKind{NotAnswered}, "schema: timed out", "a-partition-cannot-be-read"},
		{told{AskStatus: knownAs(Status{Topics: []TopicStatus{{Topic: "a", Problem: "gone"}, {Topic: "b", Partitions: []PartitionStatus{{Problem: "no leader"}}}}})},
			Unknown, []ProblemKind{TopicUnread}, "a: gone", "a-partition-cannot-be-read"},
		{told{AskOverdue: knownAs(OverdueOrders{At: now, Paused: 700})}, Well, nil, "", ""},
		{told{AskOverdue: knownAs(waiting(10, 9*time.Minute))}, Well, nil, "", ""},
		{told{AskOverdue: knownAs(waiting(1, 11*time.Minute))}, LookToday, []ProblemKind{OrdersOverdue},
			"1 (the oldest was due 2026-11-20T11:49:00.000Z, 0 default, 1 ticket)", "orders-are-overdue-in-the-database"},
		{told{AskOverdue: knownAs(waiting(11, 6*time.Second)), AskStatus: knownAs(Status{At: now})}, ActNow, []ProblemKind{OrdersOverdue},
			"no record is overdue in Kafka: these orders wait for a retry, the closers", "orders-are-overdue-in-the-database"},
		{told{AskOverdue: knownAs(waiting(11, 6*time.Second)), AskStatus: knownAs(strange)}, ActNow, []ProblemKind{OrdersOverdue},
			"programs that are not orderclose have 2 of 3 partitions of order-close (console-consumer@10.0.0.7): stop them first, not the closers; no record",
			"orders-are-overdue-in-the-database"},
		{told{AskOverdue: knownAs(paying), AskStatus: knownAs(Status{At: now})}, ActNow, []ProblemKind{OrdersOverdue},
			"these orders wait for a retry or for the payment provider, the closers", "orders-are-overdue-in-the-database"},
		{told{AskOverdue: knownAs(waiting(11, 6*time.Second)),
			AskStatus: knownAs(Status{At: now, Processes: []Process{uses("a", "db:1/shop"), uses("b", "10.0.0.1:1/shop"), uses("c", "")}})}, ActNow,
			[]ProblemKind{OrdersOverdue}, "); no record is overdue", "orders-are-overdue-in-the-database"},
		{told{AskOverdue: knownAs(waiting(11, 6*time.Second)),
			AskStatus: knownAs(Status{At: now, Processes: []Process{uses("a", "db:1/shop"), uses("b", "db:1/other"), uses("c", "db:1/shop")}})}, ActNow,
			[]ProblemKind{OrdersOverdue}, "; the processes use different databases: other (b) shop (a, c); no record is", "orders-are-overdue-in-the-database"},
		{told{AskOverdue: knownAs(waiting(11, 6*time.Second)), AskLetters: knownAs(deadletters.Counts{"failed": 1})}, LookToday,
			[]ProblemKind{LettersPending}, "", "dead-letters"},
		{told{AskOverdue: knownAs(stuck)}, LookToday, []ProblemKind{OrdersOverdue}, "0 default, 1 ticket); order 2 cannot be closed: locked: a row",
			"an-order-cannot-be-closed"},
		{told{AskOverdue: knownAs(locked)}, LookToday, []ProblemKind{OrdersOverdue}, `locks SKU "17" in table stock`, "an-order-cannot-be-closed"},
		{told{AskOverdue: knownAs(locked), AskStatus: knownAs(behind)}, ActNow, []ProblemKind{RecordsOverdue, OrdersOverdue},
			`order-close/0 at offset 0: 45 s; order 2 cannot be closed: locked: another transaction locks SKU "17" in table stock`, "an-order-cannot-be-closed"},
		{told{AskOverdue: knownAs(waiting(11, 6*time.Second)), AskStatus: knownAs(overdue)}, ActNow, []ProblemKind{RecordsOverdue, OrdersOverdue}, "delay_5m/3",
			"records-do-not-leave-a-delay-topic"},
		{told{AskPauses: knownAs([]wire.Pause{{Category: "ticket", Reason: "INC-1"}})}, LookToday, []ProblemKind{ClosingPaused},
			"ticket, ", "closing-is-paused"},
		{told{AskPauses: Answer[[]wire.Pause]{Err: errors.New("no table")}}, Unknown, []ProblemKind{PausesUnknown}, "no table", "closing-is-paused"},
		{told{AskHours: hours(0, undone, done)}, ActNow, []ProblemKind{SweepFailed}, "half of the period", "the-compensator-is-late"},
		{told{AskHours: hours(0, hour{}, undone, done)}, ActNow, []ProblemKind{SweepFailed}, "half of the period", "the-compensator-is-late"},
		{told{AskHours: hours(0, done, undone)}, Well, nil, "", ""},
		{told{AskHours: hours(2*time.Hour, done, undone)}, Well, nil, "", ""}, // the hours of 10 and 11 o'clock are the full ones
		{told{AskHours: hours(3*time.Hour, done)}, ActNow, []ProblemKind{SweepMissing}, "", "the-compensator-is-late"},
		{told{AskHours: hours(0, undone, undone, undone, done)}, ActNow, []ProblemKind{SweepMissing}, "", "the-compensator-is-late"},
		{told{AskHours: hours(0, hour{}, hour{})}, Well, nil, "", ""}, // the first ones
		{told{AskHours: knownAs(Hours{nil, time.Hour, nil})}, Well, nil, "", ""},
		{told{AskHours: hours(0, hour{Counts: counts{Missed: 3, AfterPause: 2}}, done)}, LookToday, []ProblemKind{SweepFound},
			"3 missed, 2 after a pause, 0 after a failure, 0 not closed", "the-compensator-finds-orders"},
		{told{AskHours: hours(0, hour{Counts: counts{AfterPause: 2, AfterFailure: 4, NotClosed: 1}}, done)}, Well, nil, "", ""},
		{told{AskLetters: knownAs(deadletters.Counts{"failed": 7})}, LookToday, []ProblemKind{LettersPending}, "", "dead-letters"},
		{told{AskTopics: knownAs(TopicsPlan{Would: []kafka.Finding{{Topic: "x", What: "missing"}}})}, LookToday, []ProblemKind{TopicsDiffer},
			"x: missing", "topics-differ"},
		{told{AskStatus: knownAs(Status{Topics: []TopicStatus{overdue.Topics[0], behind.Topics[0]}})}, ActNow, []ProblemKind{RecordsOverdue, RecordsOverdue},
			"no relay is running", "records-do-not-leave-a-delay-topic"},
		{told{AskTopics: knownAs(TopicsPlan{Topics: 1, Would: []kafka.Finding{{Topic: "x", By: kafka.Change{Create: true}}}}),
			AskLetters: Answer[deadletters.Counts]{Err: errors.New("no topic")}, AskStatus: knownAs(Status{Topics: []TopicStatus{{Topic: "x", Problem: "gone"}}})},
			Unknown, []ProblemKind{TopicsDiffer}, "none of the 1 topics of topics.yaml exists", "topics-differ"},
		{told{AskConfig: Answer[struct{}]{Err: errors.New("line 3")}}, LookToday, []ProblemKind{ConfigBroken}, "line 3", "topicsyaml-was-refused"},
		{told{AskConfig: Answer[struct{}]{Err: errors.New("line 3")}, AskStatus: knownAs(overdue), AskLetters: knownAs(deadletters.Counts{"failed": 1})}, ActNow,
			[]ProblemKind{RecordsOverdue, LettersPending, ConfigBroken}, "delay_5m/3", "records-do-not-leave-a-delay-topic"},
	} {
		v := row.facts.judge(now)
		var kinds []ProblemKind
		for _, p := range v.Problems {
			kinds = append(kinds, p.Kind)
		}
		if v.State != row.state || !slices.Equal(kinds, row.kinds) {
			t.Errorf("%v %v, want %v %v", v.State, kinds, row.state, row.kinds)
			continue
		}
		if len(kinds) > 0 && (!strings.Contains(v.Problems[0].Detail, row.detail) || v.Problems[0].Runbook != row.runbook) {
			t.Errorf("%+v, want %q, %s", v.Problems[0], row.detail, row.runbook)
		}
	}
}

// What a finding hides has that name: otherwise it would hide nothing.
func TestChecks_HideOnlyWhatExists(t *testing.T) {
	names := map[ProblemKind]bool{}
	for _, c := range Checks() {
		names[ProblemKind(c.Name)] = true
		for _, k := range c.Finds {
			expect.That(t, k.Name == "" || !names[k.Name] && k.Runbook != "", "%v has no runbook, or another has its name", k.Name)
			names[k.Name] = true
		}
	}
	for _, c := range Checks() {
		for _, k := range c.Finds {
			for _, hidden := range k.Hides {
				expect.That(t, names[hidden], "%s hides %s, which nothing is called", k.Name, hidden)
			}
		}
	}
}

// The first question to a server cannot know when its fault began. What a process, a record or a row knows counts.
func TestJudge_SaysSinceWhen(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	process := func(state ProcessState, failing string, since time.Duration) Process {
		return Process{Process: wire.Process{Failing: map[string]int64{failing: ago(since).UnixMilli()}, EverySeconds: 60}, State: state, Announced: ago(time.Hour)}
	}
	with := func(f told, processes ...Process) told {
		f = maps.Clone(f)
		f[AskStatus] = knownAs(Status{At: noon, Processes: processes})
		return f
	}
	refused := told{AskWrites: Answer[struct{}]{Err: errors.New("read-only")}}
	for _, c := range []struct {
		facts told
		kind  ProblemKind
		want  time.Time // zero: it is not known
	}{
		{with(refused, process(Present, wire.FailingLock, time.Minute), process(Gone, wire.FailingWrites, time.Minute)), WritesRefused, time.Time{}},
		{with(refused, process(Present, wire.FailingWrites, time.Minute), process(Present, wire.FailingWrites, time.Hour)), WritesRefused, ago(time.Hour)},
		{with(told{AskOverdue: Answer[OverdueOrders]{Err: errors.New("away")}}, process(Present, wire.FailingWrites, time.Minute)), DatabaseAway, ago(time.Minute)},
		{with(told{AskLock: Answer[struct{}]{Err: errors.New("OOM")}}, process(Present, wire.FailingLock, time.Minute)), LockRefused, ago(time.Minute)},
		{with(told{AskLock: Answer[struct{}]{At: noon, Since: ago(2 * time.Minute), Err: errors.New("OOM")}}, process(Present, wire.FailingLock, time.Minute)),
			LockRefused, ago(2 * time.Minute)},
		{with(told{AskOverdue: knownAs(OverdueOrders{Orders: 11, Oldest: ago(time.Minute)})}, process(Present, wire.FailingLimit, time.Minute)),
			ClosesSlow, ago(time.Minute)},
		{with(told{}, process(Gone, "", 0)), ProcessGone, ago(time.Hour)},
		{told{AskHours: hours(0, hour{}, hour{State: unfinished})}, SweepFailed, ago(time.Hour)},
		{told{AskHours: hours(time.Hour, hour{Counts: counts{Missed: 1}})}, SweepFound, ago(time.Hour)},
		{told{AskHours: hours(3*time.Hour, hour{State: finished})}, SweepMissing, ago(3 * time.Hour)},
	} {
		v := c.facts.judge(noon)
		i := slices.IndexFunc(v.Problems, func(p Problem) bool { return p.Kind == c.kind })
		expect.That(t, i >= 0 && v.Problems[i].Since.Equal(c.want), "%s since %v: %+v", c.kind, c.want, v.Problems)
	}
}

// Orders that wait on purpose are counted apart, by their own category, before categories are summed up.
func TestOverdueOrders_PausedOnesAreApart(t *testing.T) {
	var orders []orderclose.Order
	for _, c := range []struct {
		category string
		n        int
		due      time.Duration
	}{{"", 1, -time.Minute}, {"ticket", 7, -10 * time.Second}, {"gift", 3, -time.Hour}, {"new", 4, -2 * time.Minute}} {
		for i := range c.n {
			orders = append(orders, orderclose.Order{ID: fmt.Sprint(c.category, i), Category: c.category, Due: noon.Add(c.due)})
		}
	}
	listed := map[string]time.Duration{"ticket": time.Minute}
	for _, c := range []struct {
		pauses []wire.Pause
		want   OverdueOrders
		text   string
	}{
		{nil, OverdueOrders{Orders: 15, Oldest: noon.Add(-time.Hour), Categories: map[string]int64{"default": 8, "ticket": 7}, OldestID: "gift0", Example: "ticket0"},
			"15 (the oldest was due 2026-11-20T11:00:00.000Z, 8 default, 7 ticket)"},
		{[]wire.Pause{{Category: "gift"}},
			OverdueOrders{Orders: 12, Paused: 3, Oldest: noon.Add(-2 * time.Minute), Categories: map[string]int64{"default": 5, "ticket": 7}, OldestID: "new0",
				Example: "ticket0"}, "7 ticket), and 3 wait because closing is paused"},
		{[]wire.Pause{{}}, OverdueOrders{Paused: 15, Categories: map[string]int64{"default": 0}},
			"0, and 15 wait because closing is paused"},
	} {
		got := sumOverdue(splitPaused(orders, c.pauses), listed)
		diff := cmp.Diff(c.want, got)
		expect.That(t, diff == "" && strings.Contains(got.String(), c.text), "%v (-want +got):\n%s%v, want %s", c.pauses, diff, got, c.text)
	}
	if text := (OverdueOrders{More: true, Paused: 7}).String(); !strings.HasPrefix(text, "at least 0, and 7") {
		t.Error(text)
	}
}

// Overdue orders of a provider that says unknown are explained by it.
func TestJudge_OverdueOrdersWaitForTheProvider(t *testing.T) {
	for failing, want := range map[string]string{wire.FailingPayment: "the-payment-provider-does-not-answer", "": "orders-are-overdue-in-the-database"} {
		v := told{AskOverdue: knownAs(OverdueOrders{Orders: 11, Oldest: noon.Add(-time.Minute)}), AskStatus: knownAs(Status{At: noon, Processes: []Process{
			{Process: wire.Process{Failing: map[string]int64{failing: 1}}, State: Present}}})}.judge(noon)
		p := v.Problems[0]
		expect.That(t, p.Kind == OrdersOverdue && p.Runbook == want && strings.Contains(p.Detail, "or answers unknown") == (failing != ""), "%q: %+v", failing, p)
	}
}

// Without Kafka all can be well beside a sweeper only.
func TestJudge_OnlyASweeperNeedsNoKafka(t *testing.T) {
	for without, want := range map[bool]State{true: Well, false: Unknown} {
		_, err := Pipeline{WithoutKafka: without}.Status(t.Context())
		v := told{AskStatus: Answer[Status]{Err: err}}.judge(noon)
		expect.That(t, v.State == want, "without Kafka by intent: %v: %+v, want %s", without, v, want)
	}
}

// At most 1,000 orders are counted, so old dead letters must not explain all of them.
func TestOverdueOrders_ManyDeadLettersDoNotHideThem(t *testing.T) {
	for _, letters := range []int{0, 950, 5000} {
		expect.Equal(t, (OverdueOrders{At: noon, Orders: 1000, Oldest: noon.Add(-time.Minute)}).Severity(letters), Urgent, "beside %d dead letters", letters)
	}
}

func TestCompareProcesses_SaysWhichShouldRunAndDoNot(t *testing.T) {
	ago := func(name string, d time.Duration) Process {
		return Process{Process: wire.Process{Name: name}, Started: noon.Add(-d), Announced: noon.Add(-d)}
	}
	each := func(p Process, started time.Duration) Process { // a minute
		p.EverySeconds, p.Started = 60, noon.Add(-started)
		return p
	}
	ended := ago("relay@h:3:9464", time.Minute)
	ended.Ended = true
	for what, c := range map[string]struct {
		announced     []Process
		members, want []string
	}{
		"nobody": {nil, nil, nil},
		"a member": {[]Process{ago("closer@h:1:9464", time.Minute)}, []string{"closer@h:1:9464", "closer@h:1:9464"},
			[]string{"closer@h:1:9464 present"}},
		"a member that cannot say": {nil, []string{"closer@h:1", "some-other-client"}, []string{"closer@h:1 present"}},
		"killed": {[]Process{ago("relay@h:1:9464", time.Hour), ago("relay@h:2:9465", time.Hour)}, []string{"relay@h:2:9465"},
			[]string{"relay@h:1:9464 gone", "relay@h:2:9465 present"}},
		"stopped":      {[]Process{ended}, nil, nil},
		"just started": {[]Process{ago("relay@h:1:9464", time.Second)}, nil, []string{"relay@h:1:9464 present"}},
		"killed and started again": {[]Process{ago("relay@h:1:9464", time.Hour), ago("relay@h:7:9464", time.Minute)}, []string{"relay@h:7:9464"},
			[]string{"relay@h:7:9464 present"}},
		"killed beside another": {[]Process{ago("relay@h:1", time.Hour), each(ago("relay@h:2", time.Minute), 3*time.Hour)}, []string{"relay@h:2"},
			[]string{"relay@h:1 gone", "relay@h:2 present"}},
		"in no group":              {[]Process{each(ago("outbox@h:1:9464", 90*time.Second), time.Hour)}, nil, []string{"outbox@h:1:9464 present"}},
		"in no group, and silent":  {[]Process{each(ago("outbox@h:1:9464", 2*time.Minute), time.Hour)}, nil, []string{"outbox@h:1:9464 gone"}},
		"in no group, and stopped": {[]Process{each(ended, time.Hour)}, nil, nil},
		"killed long ago":          {[]Process{ago("relay@h:1:9464", expectedFor+time.Second)}, nil, nil},
	} {
		var got []string
		for _, p := range compareProcesses(c.announced, c.members, noon) {
			got = append(got, fmt.Sprintf("%s %s", p.Name, p.State))
			want := p.Announced
			switch {
			case slices.Contains(c.members, p.Name):
				want = noon
			case p.State == Gone && p.EverySeconds == 0:
				want = time.Time{} // it has announced itself once, when it started
			}
			expect.That(t, p.Seen.Equal(want), "%s: %s was seen at %v, want %v", what, p.Name, p.Seen, want)
		}
		diff := cmp.Diff(c.want, got)
		expect.That(t, diff == "", "%s (-want +got):\n%s", what, diff)
	}
}

// The console polls: it knows until when a process was a member.
func TestFollow_KeepsWhenAProcessWasLastSeen(t *testing.T) {
	seen := func(state ProcessState, at time.Time) Status {
		return Status{At: at, Processes: []Process{{Process: wire.Process{Name: "relay@h:1"}, State: state, Announced: noon, Seen: at}}}
	}
	r := seen(Gone, noon)
	r.Follow(seen(Present, noon.Add(time.Minute)))
	if p := r.Processes[0]; !p.Seen.Equal(noon.Add(time.Minute)) || r.Present() != 0 {
		t.Errorf("%+v", p)
	}
	r = seen(Present, noon.Add(time.Hour))
	r.Follow(seen(Present, noon))
	if p := r.Processes[0]; !p.Seen.Equal(noon.Add(time.Hour)) || r.Present() != 1 {
		t.Errorf("%+v", p)
	}
}
