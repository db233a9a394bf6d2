package ops

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	h "github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// knownAs is an answer that was just given.
func knownAs[T any](v T) answer[T] { return answer[T]{Value: v, At: noon} }

// told has answers of checks, by the Name of the check.
type told map[any]any

// judge judges the answers by the checks of the core.
func (t told) judge(now time.Time) h.Verdict {
	f := h.Facts{Now: now, Checks: Checks(), Answers: map[string]answer[any]{}}
	for name, given := range t {
		f.Answers[fmt.Sprint(name)] = untyped(given)
	}
	return h.Judge(f)
}

// untyped returns an Answer of any type as one of the facts.
func untyped(given any) answer[any] {
	v := reflect.ValueOf(given)
	err, _ := v.FieldByName("Err").Interface().(error)
	return answer[any]{Value: v.FieldByName("Value").Interface(), At: v.FieldByName("At").Interface().(time.Time), Err: err,
		Since: v.FieldByName("Since").Interface().(time.Time)}
}

type (
	answer[T any] = h.Answer[T]
	status        = backlog.Status
	topicStatus   = backlog.TopicStatus
	partition     = backlog.PartitionStatus
	overdueOrders = backlog.OverdueOrders
	hour          = overdue.Hour
	counts        = overdue.Counts
)

const finished, unfinished = overdue.Finished, overdue.Unfinished

// hours returns compensations of an hour, newest first. The first one began ago before noon, and each other an hour before the one before.
func hours(ago time.Duration, all ...overdue.Hour) answer[Hours] {
	for i := range all {
		all[i].Begin = noon.Add(-ago - time.Duration(i)*time.Hour)
	}
	return knownAs(Hours{all, time.Hour, nil})
}

func TestJudge_NamesEachProblemWithASectionOfTheRunbook(t *testing.T) {
	now := noon
	overdue := status{Topics: []topicStatus{{Topic: "delay_5m", Partitions: []partition{{Partition: 3, Overdue: 45, Head: &backlog.Head{}}}}}}
	behind := status{Topics: []topicStatus{{Topic: "order-close", Closes: true, Partitions: []partition{{Overdue: 45, Head: &backlog.Head{}}}}}}
	crowded := status{Topics: []topicStatus{{Topic: "order-close", Closes: true, Partitions: []partition{{Overdue: 45, Waiting: 400, Head: &backlog.Head{}}}}}}
	closer, stranger := &kafka.Member{ClientID: "closer@h:1:2"}, &kafka.Member{ClientID: "console-consumer", Host: "10.0.0.7"}
	strange := status{At: now, Topics: []topicStatus{{Topic: "order-close", Closes: true, Partitions: []partition{{Owner: stranger}, {Owner: closer},
		{Owner: stranger}}}}}
	waiting := func(orders int64, since time.Duration) overdueOrders {
		return overdueOrders{At: now, Orders: orders, Oldest: now.Add(-since), OldestID: "t-1",
			Categories: map[string]int64{"default": orders - 1, "ticket": 1}}
	}
	stuck := waiting(1, 11*time.Minute)
	stuck.Failures = []compensator.Failure{{OrderID: "2", Error: "locked: a row"}}
	locked := waiting(2, 6*time.Second)
	locked.Failures = []compensator.Failure{{OrderID: "2", Cause: "locked", Error: "locked: another transaction locks SKU \"17\" in table stock"}}
	paying := waiting(11, 6*time.Second)
	paying.Pays = true
	held := func(topic string, overdue float64) backlog.Status {
		held := backlog.PartitionStatus{Partition: 3, Overdue: overdue, Head: &backlog.Head{}, Owner: &kafka.Member{ClientID: "x@h:1"}}
		return status{Members: []backlog.Member{{Name: "x@h:1", Stuck: true}, {Name: "y@h:1"}},
			Topics: []topicStatus{{Topic: topic, Closes: topic != "a", Partitions: []partition{held, {Overdue: 14}}}}}
	}
	old := answer[store.Schema]{Err: &store.SchemaError{Schema: store.Schema{Has: 13, Wants: 19}}}
	done, undone := hour{State: finished}, hour{State: unfinished}
	for _, row := range []struct {
		facts   told
		state   h.State
		kinds   []h.ProblemKind
		detail  string // in the first problem
		runbook string // of the first problem
	}{
		{told{}, h.Well, nil, "", ""},
		{told{h.KafkaCheck: answer[status]{Err: errors.New("no broker")}}, h.Unknown, []h.ProblemKind{h.KafkaAway}, "no broker", "kafka-is-down"},
		{told{OverdueCheck: answer[overdueOrders]{Err: errors.New("away")}, PausesCheck: answer[[]pausing.Pause]{Err: errors.New("away")}}, h.Unknown,
			[]h.ProblemKind{h.DatabaseAway}, "away", "the-database-is-down-or-slow"},
		{told{OverdueCheck: answer[overdueOrders]{Err: fmt.Errorf("%w: it has none", store.ErrDelays)}, WritesCheck: answer[struct{}]{Err: store.ErrDelays},
			h.KafkaCheck: knownAs(behind)}, h.ActNow, []h.ProblemKind{h.DelaysDiffer}, "it has none", "the-schema-differs"},
		{told{h.KafkaCheck: knownAs(overdue)}, h.ActNow, []h.ProblemKind{h.RecordsOverdue}, "delay_5m/3 at offset 0: 45 s; no relay is running",
			"records-do-not-leave-a-delay-topic"},
		{told{h.KafkaCheck: knownAs(behind)}, h.ActNow, []h.ProblemKind{h.RecordsOverdue}, "no closer is running", "the-closer-is-behind"},
		{told{h.KafkaCheck: knownAs(behind), WritesCheck: answer[struct{}]{Err: errors.New("Error 1290: --read-only")}}, h.ActNow, []h.ProblemKind{h.WritesRefused},
			"Error 1290", "the-database-takes-no-writes"},
		{told{h.KafkaCheck: knownAs(overdue), WritesCheck: answer[struct{}]{Err: errors.New("Error 1290")}}, h.ActNow, []h.ProblemKind{h.WritesRefused,
			h.RecordsOverdue}, "Error 1290", "the-database-takes-no-writes"},
		{told{OverdueCheck: answer[overdueOrders]{Err: errors.New("away")}, WritesCheck: answer[struct{}]{Err: errors.New("away")}}, h.Unknown,
			[]h.ProblemKind{h.DatabaseAway}, "away", "the-database-is-down-or-slow"},
		{told{h.KafkaCheck: answer[status]{Err: errors.New("no broker")}, HoursCheck: answer[Hours]{Err: errors.New("no broker")}, OverdueCheck: knownAs(waiting(11,
			6*time.Second))}, h.ActNow, []h.ProblemKind{h.KafkaAway, h.OrdersOverdue}, "no broker", "kafka-is-down"},
		{told{HoursCheck: answer[Hours]{Err: errors.New("timed out")}, LettersCheck: answer[deadletters.Counts]{Err: errors.New("no such topic")},
			LockCheck: answer[struct{}]{Err: errors.New("OOM")}}, h.Unknown, []h.ProblemKind{h.NotAnswered, h.LockRefused},
			"dead letters: no such topic; compensations: timed out", "a-partition-cannot-be-read"},
		{told{h.KafkaCheck: answer[status]{Err: h.ErrNotYet}, OverdueCheck: answer[overdueOrders]{Err: h.ErrNotYet}}, h.Unknown, []h.ProblemKind{h.NotAnswered},
			"Kafka: no answer yet; database: no answer yet", "a-partition-cannot-be-read"},
		{told{WritesCheck: answer[struct{}]{Err: h.ErrNotYet}}, h.Unknown, []h.ProblemKind{h.NotAnswered}, "writes: no answer yet", "a-partition-cannot-be-read"},
		{told{TopicsCheck: answer[TopicsPlan]{Err: &kafka.AccessError{}}}, h.Well, nil, "", ""},
		{told{ClockCheck: answer[time.Duration]{Err: h.ErrNoDatabase}, OverdueCheck: answer[overdueOrders]{Err: h.ErrNoDatabase},
			PausesCheck: answer[[]pausing.Pause]{Err: h.ErrNoDatabase}}, h.Well, nil, "", ""},
		{told{LockCheck: answer[struct{}]{Err: errors.New("OOM command not allowed")}}, h.LookToday, []h.ProblemKind{h.LockRefused}, "OOM",
			"redis-or-the-lock-is-down"},
		{told{h.KafkaCheck: knownAs(held("a", 12))}, h.ActNow, []h.ProblemKind{h.MemberStuck},
			"it moves nothing while others do; a/3 is overdue by 12 s; its /-/ready", "a-process-does-not-answer"},
		{told{h.KafkaCheck: knownAs(held("closes", 12))}, h.ActNow, []h.ProblemKind{h.MemberStuck}, "closes/3 is overdue by 12 s", "a-process-does-not-answer"},
		{told{h.KafkaCheck: knownAs(held("closes", 12)), PausesCheck: knownAs([]pausing.Pause{{}})}, h.LookToday, []h.ProblemKind{h.ClosingPaused},
			"", "closing-is-paused"},
		{told{h.KafkaCheck: knownAs(held("closes", 12)), WritesCheck: answer[struct{}]{Err: errors.New("Error 1290")}}, h.ActNow, []h.ProblemKind{h.WritesRefused},
			"Error 1290", "the-database-takes-no-writes"},
		{told{h.KafkaCheck: knownAs(held("a", 45))}, h.ActNow, []h.ProblemKind{h.MemberStuck, h.RecordsOverdue}, "a/3 is overdue by 45 s",
			"a-process-does-not-answer"},
		{told{LateCheck: knownAs(store.LateSummary{})}, h.Well, nil, "", ""},
		{told{LateCheck: knownAs(store.LateSummary{Unresolved: 3, Oldest: now.Add(-time.Hour)})}, h.LookToday, []h.ProblemKind{h.PaymentsLate},
			"the oldest was found 2026-11-20T11:00:00.000Z", "money-came-after-a-close"},
		{told{LateCheck: answer[store.LateSummary]{Err: errors.New("SELECT command denied")}}, h.Unknown, []h.ProblemKind{h.NotAnswered},
			"late payments: SELECT command denied", "a-partition-cannot-be-read"},
		{told{LateCheck: answer[store.LateSummary]{Err: h.ErrNoDatabase}}, h.Well, nil, "", ""},
		{told{ClockCheck: knownAs(-ClockSkewWarning)}, h.Well, nil, "", ""},
		{told{ClockCheck: knownAs(-2 * time.Second)}, h.LookToday, []h.ProblemKind{h.ClocksDiffer}, "-2s", "clocks-differ"},
		{told{ClockCheck: answer[time.Duration]{Err: errors.New("no database")}}, h.Well, nil, "", ""},
		{told{CheckoutsCheck: knownAs([]clock.Skew{{Place: clock.AtReceipts, Ahead: -30 * time.Minute, Orders: 212, Order: "o-9"}})}, h.ActNow,
			[]h.ProblemKind{h.CheckoutClock}, "212 orders were due 30m0s before they were closed", "a-checkout-has-a-wrong-clock"},
		{told{SchemaCheck: old}, h.LookToday, []h.ProblemKind{h.SchemaDiffers}, "has version 13 and this program needs 19", "the-schema-differs"},
		{told{SchemaCheck: old, OverdueCheck: answer[overdueOrders]{Err: errors.New("no table pauses")},
			LateCheck: answer[store.LateSummary]{Err: errors.New("no table")}}, h.ActNow, []h.ProblemKind{h.SchemaDiffers, h.DatabaseAway}, "run orderclose migrate",
			"the-schema-differs"},
		{told{SchemaCheck: answer[store.Schema]{Err: errors.New("timed out")}}, h.Unknown, []h.ProblemKind{h.NotAnswered}, "schema: timed out",
			"a-partition-cannot-be-read"},
		{told{h.KafkaCheck: knownAs(status{Topics: []topicStatus{{Topic: "a", Problem: "gone"}, {Topic: "b", Partitions: []partition{{Problem: "no leader"}}}}})},
			h.Unknown, []h.ProblemKind{h.TopicUnread}, "a: gone", "a-partition-cannot-be-read"},
		{told{OverdueCheck: knownAs(overdueOrders{At: now, Paused: 700})}, h.Well, nil, "", ""},
		{told{OverdueCheck: knownAs(waiting(10, 9*time.Minute))}, h.Well, nil, "", ""},
		{told{OverdueCheck: knownAs(waiting(1, 11*time.Minute))}, h.LookToday, []h.ProblemKind{h.OrdersOverdue},
			"1 (the oldest, t-1, was due 2026-11-20T11:49:00.000Z, 0 default, 1 ticket)", "orders-are-overdue-in-the-database"},
		{told{OverdueCheck: knownAs(waiting(11, 6*time.Second)), h.KafkaCheck: knownAs(status{At: now})}, h.ActNow, []h.ProblemKind{h.OrdersOverdue},
			"no record is overdue in Kafka: these orders wait for a retry, the closers", "orders-are-overdue-in-the-database"},
		{told{OverdueCheck: knownAs(waiting(11, 59*time.Second)), h.KafkaCheck: answer[status]{Err: h.ErrUnused}}, h.Well, nil, "", ""},
		{told{OverdueCheck: knownAs(waiting(11, time.Minute)), h.KafkaCheck: answer[status]{Err: h.ErrUnused}}, h.ActNow, []h.ProblemKind{h.OrdersOverdue},
			"11 (the oldest, t-1", "orders-are-overdue-in-the-database"},
		{told{OverdueCheck: knownAs(waiting(11, 6*time.Second)), h.KafkaCheck: knownAs(strange)}, h.ActNow, []h.ProblemKind{h.OrdersOverdue},
			"programs that are not orderclose have 2 of 3 partitions of order-close (console-consumer@10.0.0.7): stop them first, not the closers; no record",
			"orders-are-overdue-in-the-database"},
		{told{OverdueCheck: knownAs(paying), h.KafkaCheck: knownAs(status{At: now})}, h.ActNow, []h.ProblemKind{h.OrdersOverdue},
			"these orders wait for a retry or for the payment provider, the closers", "orders-are-overdue-in-the-database"},
		{told{OverdueCheck: knownAs(waiting(11, 6*time.Second)), LettersCheck: knownAs(deadletters.Counts{"failed": 1})}, h.LookToday,
			[]h.ProblemKind{h.LettersOpen}, "", "dead-letters"},
		{told{OverdueCheck: knownAs(stuck)}, h.LookToday, []h.ProblemKind{h.OrdersOverdue}, "0 default, 1 ticket); order 2 cannot be closed: locked: a row",
			"an-order-cannot-be-closed"},
		{told{OverdueCheck: knownAs(locked)}, h.LookToday, []h.ProblemKind{h.OrdersOverdue}, `locks SKU "17" in table stock`, "an-order-cannot-be-closed"},
		{told{OverdueCheck: knownAs(locked), h.KafkaCheck: knownAs(behind)}, h.LookToday, []h.ProblemKind{h.OrdersOverdue},
			`locks SKU "17" in table stock`, "an-order-cannot-be-closed"},
		{told{OverdueCheck: knownAs(locked), h.KafkaCheck: knownAs(crowded)}, h.ActNow, []h.ProblemKind{h.RecordsOverdue, h.OrdersOverdue},
			"order-close/0 at offset 0: 45 s; no closer is running", "the-closer-is-behind"},
		{told{OverdueCheck: knownAs(locked), h.KafkaCheck: knownAs(held("closes", 12))}, h.LookToday, []h.ProblemKind{h.OrdersOverdue},
			`locks SKU "17" in table stock`, "an-order-cannot-be-closed"},
		{told{OverdueCheck: knownAs(waiting(11, 6*time.Second)), h.KafkaCheck: knownAs(overdue)}, h.ActNow, []h.ProblemKind{h.RecordsOverdue, h.OrdersOverdue},
			"delay_5m/3", "records-do-not-leave-a-delay-topic"},
		{told{PausesCheck: knownAs([]pausing.Pause{{Category: "ticket", Reason: "INC-1"}})}, h.LookToday, []h.ProblemKind{h.ClosingPaused}, "orders of ticket until ",
			"closing-is-paused"},
		{told{PausesCheck: answer[[]pausing.Pause]{Err: errors.New("no table")}}, h.Unknown, []h.ProblemKind{h.PausesUnknown}, "no table", "closing-is-paused"},
		{told{HoursCheck: hours(0, undone, done)}, h.ActNow, []h.ProblemKind{h.SweepFailed}, "half of the period", "the-compensator-is-late"},
		{told{HoursCheck: hours(0, hour{}, undone, done)}, h.ActNow, []h.ProblemKind{h.SweepFailed}, "half of the period", "the-compensator-is-late"},
		{told{HoursCheck: hours(0, done, undone)}, h.Well, nil, "", ""},
		{told{HoursCheck: hours(2*time.Hour, done, undone)}, h.Well, nil, "", ""}, // the hours of 10 and 11 o'clock are the full ones
		{told{HoursCheck: hours(3*time.Hour, done)}, h.ActNow, []h.ProblemKind{h.SweepMissing}, "", "the-compensator-is-late"},
		{told{HoursCheck: hours(0, undone, undone, undone, done)}, h.ActNow, []h.ProblemKind{h.SweepMissing}, "", "the-compensator-is-late"},
		{told{HoursCheck: hours(0, hour{}, hour{})}, h.Well, nil, "", ""}, // the first ones
		{told{HoursCheck: knownAs(Hours{nil, time.Hour, nil})}, h.Well, nil, "", ""},
		{told{HoursCheck: hours(0, hour{Counts: counts{Missed: 3, AfterPause: 2}}, done)}, h.LookToday, []h.ProblemKind{h.SweepFound},
			"3 missed, 2 after a pause, 0 after a failure, 0 not closed at the first try", "the-compensator-finds-orders"},
		{told{HoursCheck: hours(0, hour{Counts: counts{Missed: 3, NotClosed: 202}}, done), OverdueCheck: knownAs(overdueOrders{At: now})}, h.LookToday,
			[]h.ProblemKind{h.SweepFound}, "202 not closed at the first try; none is overdue now", "the-compensator-finds-orders"},
		{told{HoursCheck: hours(0, hour{Counts: counts{AfterPause: 2, AfterFailure: 4, NotClosed: 1}}, done)}, h.Well, nil, "", ""},
		{told{LettersCheck: knownAs(deadletters.Counts{"failed": 7})}, h.LookToday, []h.ProblemKind{h.LettersOpen}, "", "dead-letters"},
		{told{TopicsCheck: knownAs(TopicsPlan{Would: []kafka.Finding{{Topic: "x", What: "missing"}}})}, h.LookToday, []h.ProblemKind{h.TopicsDiffer}, "x: missing",
			"topics-differ"},
		{told{h.KafkaCheck: knownAs(status{Topics: []topicStatus{overdue.Topics[0], behind.Topics[0]}})}, h.ActNow, []h.ProblemKind{h.RecordsOverdue,
			h.RecordsOverdue}, "no relay is running", "records-do-not-leave-a-delay-topic"},
		{told{TopicsCheck: knownAs(TopicsPlan{Topics: 1, Would: []kafka.Finding{{Topic: "x", By: kafka.Change{Create: true}}}}),
			LettersCheck: answer[deadletters.Counts]{Err: errors.New("no topic")}, h.KafkaCheck: knownAs(status{Topics: []topicStatus{{Topic: "x", Problem: "gone"}}})},
			h.Unknown, []h.ProblemKind{h.TopicsDiffer}, "none of the 1 topics of topics.yaml exists", "topics-differ"},
		{told{OutboxCheck: knownAs([]OutboxWaits{{OutboxBacklog: wire.OutboxBacklog{Oldest: outboxSlow, Rows: 40}}})}, h.Well, nil, "", ""},
		{told{OutboxCheck: knownAs([]OutboxWaits{{OutboxBacklog: wire.OutboxBacklog{Oldest: 11 * time.Second, Rows: 40}, Outbox: wire.ScheduleOutbox}})},
			h.LookToday, []h.ProblemKind{h.OutboxLate}, "schedules, the oldest for 11s", "an-outbox-is-late"},
		{told{OutboxCheck: knownAs([]OutboxWaits{{OutboxBacklog: wire.OutboxBacklog{Oldest: 87 * time.Second, Rows: 2031}, Outbox: wire.EventOutbox, Topic: "e"}}),
			TopicsCheck: knownAs(TopicsPlan{Left: []kafka.Finding{{Topic: "d", What: "odd"}, {Topic: "e", What: "no leader"}}})}, h.ActNow,
			[]h.ProblemKind{h.OutboxLate, h.TopicsDiffer}, "events, the oldest for 1m27s; topic e: no leader", "an-outbox-is-late"},
		{told{h.KafkaCheck: knownAs(status{Silent: []string{"a:9092", "b:9092"}})}, h.LookToday, []h.ProblemKind{h.BrokersSilent}, "a:9092, b:9092", "kafka-is-down"},
		{told{h.KafkaCheck: knownAs(status{Silent: []string{"a:9092"}, Topics: []topicStatus{{Topic: "x", Problem: "no answer"}}}),
			TopicsCheck: answer[TopicsPlan]{Err: h.ErrNotYet}}, h.Unknown, []h.ProblemKind{h.BrokersSilent},
			"a:9092; the state of 1 topics and partitions is unknown, such as x: no answer", "kafka-is-down"},
		{told{h.KafkaCheck: knownAs(status{At: now, Topics: []topicStatus{{Topic: "x", Problem: "no leader"}}}), OverdueCheck: knownAs(waiting(11, 6*time.Second))},
			h.ActNow, []h.ProblemKind{h.OrdersOverdue, h.TopicUnread}, "ticket)", "orders-are-overdue-in-the-database"},
		{told{ConfigCheck: answer[struct{}]{Err: errors.New("line 3")}}, h.LookToday, []h.ProblemKind{h.ConfigBroken}, "line 3", "topicsyaml-was-refused"},
		{told{ConfigCheck: answer[struct{}]{Err: errors.New("line 3")}, h.KafkaCheck: knownAs(overdue), LettersCheck: knownAs(deadletters.Counts{"failed": 1})},
			h.ActNow, []h.ProblemKind{h.RecordsOverdue, h.LettersOpen, h.ConfigBroken}, "delay_5m/3", "records-do-not-leave-a-delay-topic"},
	} {
		v := row.facts.judge(now)
		var kinds []h.ProblemKind
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
	names := map[h.ProblemKind]bool{}
	for _, c := range Checks() {
		names[h.ProblemKind(c.Name)] = true
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

// The first question to a server cannot know when its fault began. What a row knows counts.
func TestJudge_SaysSinceWhen(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	for _, c := range []struct {
		facts told
		kind  h.ProblemKind
		want  time.Time // zero: it is not known
	}{
		{told{LockCheck: answer[struct{}]{Err: errors.New("OOM")}}, h.LockRefused, time.Time{}},
		{told{LockCheck: answer[struct{}]{At: noon, Since: ago(2 * time.Minute), Err: errors.New("OOM")}}, h.LockRefused, ago(2 * time.Minute)},
		{told{HoursCheck: hours(0, hour{}, hour{State: unfinished})}, h.SweepFailed, ago(time.Hour)},
		{told{HoursCheck: hours(time.Hour, hour{Counts: counts{Missed: 1}})}, h.SweepFound, ago(time.Hour)},
		{told{HoursCheck: hours(3*time.Hour, hour{State: finished})}, h.SweepMissing, ago(3 * time.Hour)},
	} {
		v := c.facts.judge(noon)
		i := slices.IndexFunc(v.Problems, func(p h.Problem) bool { return p.Kind == c.kind })
		expect.That(t, i >= 0 && v.Problems[i].Since.Equal(c.want), "%s since %v: %+v", c.kind, c.want, v.Problems)
	}
}

// Nothing in the database keeps an order open: then it waits for a provider that says unknown.
func TestJudge_OverdueOrdersWaitForTheProvider(t *testing.T) {
	for _, c := range []struct {
		pays, closable bool
		want           string
	}{
		{true, true, "the-payment-provider-does-not-answer"},
		{true, false, "orders-are-overdue-in-the-database"},
		{false, true, "orders-are-overdue-in-the-database"},
	} {
		v := told{OverdueCheck: knownAs(overdueOrders{Orders: 11, Oldest: noon.Add(-time.Minute), Pays: c.pays, Closable: c.closable}),
			h.KafkaCheck: knownAs(status{At: noon})}.judge(noon)
		p := v.Problems[0]
		told := strings.Contains(p.Detail, "or answers unknown")
		expect.That(t, p.Kind == h.OrdersOverdue && p.Runbook == c.want && told == (c.pays && c.closable), "%+v: %+v", c, p)
	}
}

// A sweeper uses no Kafka, and its console may be another process.
func TestJudge_WithoutKafkaAllCanBeWell(t *testing.T) {
	_, err := Pipeline{}.Status(t.Context())
	v := told{h.KafkaCheck: answer[status]{Err: err}}.judge(noon)
	expect.That(t, v.State == h.Well, "%+v", v)
}

// At most 1,000 orders are counted, so old dead letters must not explain all of them.
func TestOverdueOrders_ManyDeadLettersDoNotHideThem(t *testing.T) {
	for _, letters := range []int{0, 950, 5000} {
		expect.Equal(t, overdueSeverity(overdueOrders{At: noon, Orders: 1000, Oldest: noon.Add(-time.Minute)}, letters), h.Urgent,
			"beside %d dead letters", letters)
	}
}

// A backlog of the close topic is what waits; in a delay topic most records are not due, and the delay by which its head is overdue says how it goes on.
func TestFollow_SaysWhetherABacklogShrinks(t *testing.T) {
	owner := &kafka.Member{ClientID: "closer@shop-1:17:9464"}
	topic := func(name string, p partition) topicStatus {
		p.Owner, p.Head = owner, &backlog.Head{}
		return topicStatus{Topic: name, Members: 1, Closes: name != "delay_5m", Partitions: []partition{p}}
	}
	const catches, stands, grows = "it is catching up, 100 records a second, and needs about", "does not move the record",
		"moves 100 records a second, and the backlog does not shrink"
	for what, c := range map[string]struct {
		before, after backlog.TopicStatus
		took          time.Duration
		want          string
		state         h.State
	}{
		"a closer drains": {topic("close", partition{End: 5000, Waiting: 3000, Overdue: 60}), topic("close", partition{End: 5500, Waiting: 2500, Overdue: 65}),
			10 * time.Second, catches + " 50 s", h.ActNow},
		"a relay drains": {topic("delay_5m", partition{End: 5000, Waiting: 3000, Overdue: 60}), topic("delay_5m", partition{End: 6200, Waiting: 3200, Overdue: 40}),
			10 * time.Second, catches + " 20 s", h.ActNow},
		"a relay is too slow": {topic("delay_5m", partition{End: 5000, Waiting: 3000, Overdue: 60}), topic("delay_5m", partition{End: 6000, Waiting: 3000,
			Overdue: 61}), 10 * time.Second, grows, h.ActNow},
		"a closer is too slow": {topic("close", partition{End: 5000, Waiting: 3000, Overdue: 60}), topic("close", partition{End: 6500, Waiting: 3500, Overdue: 50}),
			10 * time.Second, grows, h.ActNow},
		"nothing moves": {topic("close", partition{End: 5000, Waiting: 3000, Overdue: 60}), topic("close", partition{End: 5000, Waiting: 3000, Overdue: 65}),
			10 * time.Second, stands, h.ActNow},
		"the topic was recreated": {topic("close", partition{End: 5000, Waiting: 3000, Overdue: 60}), topic("close", partition{End: 90, Waiting: 80, Overdue: 40}),
			10 * time.Second, stands, h.ActNow},
		"the last look is long ago": {topic("close", partition{End: 5000, Waiting: 3000, Overdue: 60}), topic("close", partition{End: 5000, Waiting: 2000,
			Overdue: 65}), time.Hour, stands, h.ActNow},
		"another topic has that place": {topic("delay_5m", partition{End: 5000, Waiting: 3000, Overdue: 60}), topic("close", partition{End: 5000, Waiting: 2000,
			Overdue: 65}), 10 * time.Second, stands, h.ActNow},
	} {
		r := status{At: noon.Add(c.took), Topics: []topicStatus{c.after}}
		r.Follow(status{At: noon, Topics: []topicStatus{c.before}})
		worst, _ := r.Worst(backlog.OverdueLimit)
		if v := (told{h.KafkaCheck: knownAs(r)}).judge(r.At); !strings.Contains(worst.Next(), c.want) ||
			!strings.Contains(v.Problems[0].Detail, c.want) || v.State != c.state {
			t.Errorf("%s: %q, %+v, want %q, %s", what, worst.Next(), v, c.want, c.state)
		}
	}
}

// Closers of a service, and of a Store of the program, obey the pauses of the database too.
func TestPipeline_PausesAreInTheDatabaseIfThereIsOne(t *testing.T) {
	service := config.Default()
	service.Closer.Kind = config.KindHTTP
	db := must.Get(sqlite.Open(sqlite.Memory, nil))(t)
	t.Cleanup(func() { db.Close() })
	must.Do(t, db.Migrate(t.Context()))
	must.Get(db.Pause(t.Context(), "", time.Hour, "INC-1", false))(t)
	for what, c := range map[string]struct {
		p  Pipeline
		on int
		is error // of the pauses that are on
	}{
		"in the database":                       {Pipeline{Config: config.Default(), Store: db}, 1, nil},
		"in a database that is not named":       {Pipeline{Config: config.Default()}, 0, h.ErrNoDatabase},
		"by a service":                          {Pipeline{Config: service, Store: db}, 1, nil},
		"by a service, without a database":      {Pipeline{Config: service}, 0, nil},
		"by an own Store":                       {Pipeline{Config: config.Default(), Store: db, OwnStore: true}, 1, nil},
		"by an own Store, without any database": {Pipeline{Config: config.Default(), OwnStore: true}, 0, nil},
	} {
		on, err := c.p.Pauses(t.Context())
		expect.That(t, len(on) == c.on && errors.Is(err, c.is), "closed %s: %d pauses are on, %v; want %d, %v", what, len(on), err, c.on, c.is)
		_, err = c.p.PausesDatabase()
		expect.That(t, (err != nil) == (c.p.Store == nil) && (err == nil || errors.Is(err, h.ErrNoDatabase) && strings.Contains(err.Error(), "paused or 503")),
			"closed %s: %v", what, err)
	}
}

// waitFirst is how long the tests wait for the first answer.
const waitFirst = 3 * time.Second

func TestQuestion_IsAskedOnceForAllAndKeepsWhatWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched := 0
		var answer error
		takes := time.Millisecond
		s := NewQuestion(t.Context(), 5*time.Second, time.Minute, waitFirst, func(ctx context.Context) (int, error) {
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			fetched++
			return fetched, answer
		})
		get := func() h.Answer[int] { return s.Get(t.Context()) }
		for range 3 {
			k := get()
			expect.That(t, k.Value == 1 && k.Known() && !k.Away(), "%+v", k)
		}
		time.Sleep(5 * time.Second)
		takes = time.Second
		began := time.Now()
		expect.That(t, get().Value == 1 && time.Since(began) == waitKnown, "want the old value soon")
		time.Sleep(time.Second)
		expect.Equal(t, get().Value, 2, "the value that came later")
		answer = errors.New("away")
		time.Sleep(5 * time.Second)
		get()
		time.Sleep(time.Second)
		k := get()
		since := k.Since
		expect.That(t, k.Value == 2 && k.Err != nil && !since.IsZero(), "%+v, want the old value with the error", k)
		time.Sleep(10 * time.Second)
		get()
		time.Sleep(time.Second)
		expect.Equal(t, get().Since, since, "the first failure")
		answer = nil
		time.Sleep(time.Minute)
		expect.That(t, !s.Get(t.Context()).Away(), "want a new answer after a minute in which nobody asked")
		answer = errors.New("away")
		s.Forget()
		s.Get(t.Context())
		answer = nil
		s.Forget()
		get()
		time.Sleep(time.Second)
		if k := get(); k.Away() || k.Value < 3 {
			t.Errorf("%+v", k)
		}
	})
}

func TestQuestion_WaitsLongerForTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends, stop := context.WithCancel(t.Context())
		s := NewQuestion(ends, time.Second, time.Minute, waitFirst, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		began := time.Now()
		k := s.Get(t.Context())
		expect.That(t, !k.Known() && errors.Is(k.Err, h.ErrNotYet) && time.Since(began) == waitFirst, "%+v after %v", k, time.Since(began))
		stop()
		synctest.Wait()
		expect.Is(t, s.Get(t.Context()).Err, context.Canceled, "after the end")
	})
}

// Nothing is overdue: the next count may come later. While something is, or the server does not answer, it comes soon.
func TestQuestion_AnAnswerThatIsWellLastsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, overdue, failure := 0, backlog.OverdueOrders{}, error(nil)
		q := NewQuestions(t.Context(), waitFirst, nil).byName[string(OverdueCheck)]
		q.ask = func(context.Context) (any, error) { asked++; return overdue, failure }
		for _, step := range []struct {
			after   time.Duration
			overdue backlog.OverdueOrders
			failure error
			asked   int
		}{
			{0, backlog.OverdueOrders{}, nil, 1},
			{14 * time.Second, backlog.OverdueOrders{Orders: 1}, nil, 1},
			{time.Second, backlog.OverdueOrders{Orders: 1}, nil, 2},
			{5 * time.Second, backlog.OverdueOrders{Paused: 1}, nil, 3},
			{5 * time.Second, backlog.OverdueOrders{}, nil, 4},
			{14 * time.Second, backlog.OverdueOrders{}, nil, 4},
			{time.Second, backlog.OverdueOrders{}, errors.New("away"), 5},
			{5 * time.Second, backlog.OverdueOrders{}, nil, 6},
		} {
			time.Sleep(step.after)
			overdue, failure = step.overdue, step.failure
			q.Get(t.Context())
			expect.That(t, asked == step.asked, "%+v: asked %d times", step, asked)
		}
	})
}

func TestExplainOrder_ComparesTheRowWithTheRules(t *testing.T) {
	d := orderclose.Delays{Default: time.Hour, ByCategory: map[string]time.Duration{"virtual": 10 * time.Minute}, Rules: []orderclose.Rule{
		{Match: orderclose.Match{Attributes: map[string][]string{"pay": {"bank"}}}, Never: true},
		{Match: orderclose.Match{Categories: []string{"virtual"}, Attributes: map[string][]string{"vip": {"1"}}}, Grace: time.Minute},
	}}
	row := func(category string, due time.Time, attributes map[string]any) store.OrderRow {
		return store.OrderRow{Category: category, CreatedAt: made, Due: due, Attributes: attributes}
	}
	bank, vip := map[string]any{"pay": "bank", "vip": 0}, map[string]any{"pay": "card", "vip": 1}
	for what, c := range map[string]struct {
		row     store.OrderRow
		rule    string
		differs bool
	}{
		"as its category":           {row("virtual", made.Add(10*time.Minute), nil), "", false},
		"rounded to a second":       {row("virtual", made.Add(10*time.Minute+time.Second), vip), "delays.rules[1]", false},
		"another due time":          {row("virtual", made.Add(11*time.Minute), vip), "delays.rules[1]", true},
		"no category":               {row("", made.Add(time.Hour), vip), "", false},
		"never, and so is its rule": {row("", orderclose.NeverDue, bank), "delays.rules[0]", false},
		"never, and its rule not":   {row("", orderclose.NeverDue, vip), "", true},
		"its rule is never":         {row("", made.Add(time.Hour), bank), "delays.rules[0]", true},
	} {
		got := ExplainOrder(d, c.row)
		expect.That(t, got.Rule == c.rule && got.Differs == c.differs, "%s: %+v, want %+v", what, got, c)
	}
	if got := ExplainOrder(d, store.OrderRow{Due: made}); got != nil {
		t.Errorf("it is not known when the order was created: %+v", got)
	}
}
