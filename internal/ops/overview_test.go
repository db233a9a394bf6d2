package ops

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestJudge_NamesEachProblemWithASectionOfTheRunbook(t *testing.T) {
	now := noon
	overdue := Status{Topics: []TopicStatus{{Topic: "delay_5m", Partitions: []PartitionStatus{{Partition: 3, Overdue: 45, Head: &Head{}}}}}}
	behind := Status{Topics: []TopicStatus{{Topic: "order-close", close: true, Partitions: []PartitionStatus{{Overdue: 45, Head: &Head{}}}}}}
	waiting := func(orders int64, since time.Duration) OverdueOrders {
		return OverdueOrders{At: now, Orders: orders, Oldest: now.Add(-since), Categories: map[string]int64{"default": orders - 1, "ticket": 1}}
	}
	swept := func(s wire.Sweep) Sweeps { return Sweeps{Sweeps: []wire.Sweep{s}} }
	for _, row := range []struct {
		facts   Facts
		state   State
		kinds   []ProblemKind
		detail  string // in the first problem
		runbook string // of the first problem
	}{
		{Facts{}, Well, nil, "", ""},
		{Facts{Kafka: Fault{Err: errors.New("no broker")}}, Unknown, []ProblemKind{KafkaAway}, "no broker", "kafka-is-down"},
		{Facts{Database: Fault{Err: errors.New("away")}, PausesErr: errors.New("away")}, Unknown, []ProblemKind{DatabaseAway}, "away", "the-database-is-down-or-slow"},
		{Facts{Status: overdue}, ActNow, []ProblemKind{RecordsOverdue}, "delay_5m/3: 45 s; no relay is running", "records-do-not-leave-a-delay-topic"},
		{Facts{Status: behind}, ActNow, []ProblemKind{RecordsOverdue}, "no closer is running", "the-closer-is-behind"},
		{Facts{Status: behind, Writes: Fault{Err: errors.New("Error 1290: --read-only")}}, ActNow, []ProblemKind{WritesRefused}, "Error 1290", "the-database-takes-no-writes"},
		{Facts{Status: overdue, Writes: Fault{Err: errors.New("Error 1290")}}, ActNow, []ProblemKind{WritesRefused, RecordsOverdue}, "Error 1290", "the-database-takes-no-writes"},
		{Facts{Database: Fault{Err: errors.New("away")}, Writes: Fault{Err: errors.New("away")}}, Unknown, []ProblemKind{DatabaseAway}, "away", "the-database-is-down-or-slow"},
		{Facts{Lock: Fault{Err: errors.New("OOM command not allowed")}}, LookToday, []ProblemKind{LockRefused}, "OOM", "redis-is-down"},
		{Facts{Status: Status{Processes: []Process{{Process: wire.Process{Name: "relay@h:1"}, State: Gone}, {State: Present}}}}, LookToday, []ProblemKind{ProcessGone}, "it is in no group", "a-process-does-not-answer"},
		{Facts{DatabaseOffset: -ClockSkewWarning}, Well, nil, "", ""},
		{Facts{DatabaseOffset: -2 * time.Second}, LookToday, []ProblemKind{ClocksDiffer}, "-2s", "clocks-differ"},
		{Facts{Status: Status{Topics: []TopicStatus{{Topic: "a", Problem: "gone"}, {Topic: "b", Partitions: []PartitionStatus{{Problem: "no leader"}}}}}}, ActNow, []ProblemKind{TopicUnread}, "a: gone", "a-partition-cannot-be-read"},
		{Facts{Overdue: OverdueOrders{At: now, Paused: 700}}, Well, nil, "", ""},
		{Facts{Overdue: waiting(10, 9*time.Minute)}, Well, nil, "", ""},
		{Facts{Overdue: waiting(1, 11*time.Minute)}, LookToday, []ProblemKind{OrdersOverdue}, "1 (the oldest was due 2026-11-20T11:49:00.000Z, 0 default, 1 ticket)", "orders-are-overdue-in-the-database"},
		{Facts{Overdue: waiting(11, 6*time.Second), Status: Status{At: now}}, ActNow, []ProblemKind{OrdersOverdue}, "no record is overdue in Kafka: the closers", "orders-are-overdue-in-the-database"},
		{Facts{Overdue: waiting(11, 6*time.Second), DeadLetters: 1}, LookToday, []ProblemKind{LettersPending}, "", "dead-letters"},
		{Facts{Sweeps: swept(wire.Sweep{Failed: 1})}, LookToday, []ProblemKind{SweepFailed}, "", "no-sweep-has-finished"},
		{Facts{Overdue: waiting(11, 6*time.Second), Status: overdue}, ActNow, []ProblemKind{RecordsOverdue, OrdersOverdue}, "delay_5m/3", "records-do-not-leave-a-delay-topic"},
		{Facts{Pauses: []wire.Pause{{Path: orderclose.PathPipeline, Category: "ticket", Reason: "INC-1"}}}, LookToday, []ProblemKind{ClosingPaused}, "pipeline, ticket, ", "closing-is-paused"},
		{Facts{PausesErr: errors.New("no table")}, ActNow, []ProblemKind{PausesUnknown}, "no table", "closing-is-paused"},
		{Facts{Lateness: Lateness{Stages: []StageLateness{{Topic: "order-events", Early: 2}}}}, ActNow, []ProblemKind{RecordsEarly}, "order-events", "something-was-early"},
		{Facts{Sweeps: swept(wire.Sweep{Error: "lock lost"})}, ActNow, []ProblemKind{SweepFailed}, "lock lost", "no-sweep-has-finished"},
		{Facts{Sweeps: swept(wire.Sweep{StartedAt: now.Add(-3 * time.Hour)}), SweepPeriod: time.Hour}, ActNow, []ProblemKind{SweepMissing}, "2026-11-20T09:00", "no-sweep-has-finished"},
		{Facts{Sweeps: swept(wire.Sweep{StartedAt: now.Add(-119 * time.Minute)}), SweepPeriod: time.Hour}, Well, nil, "", ""},
		{Facts{Sweeps: swept(wire.Sweep{Closed: 3, Causes: map[string]int{"relay_behind": 1, "absent": 2}})}, LookToday, []ProblemKind{SweepFound}, "2 absent, 1 relay_behind", "the-sweep-finds-orders"},
		{Facts{Sweeps: Sweeps{Losses: []Loss{
			{Lost: wire.Lost{Topic: "delay_5m", Partition: 1, Reason: "truncated"}, Offsets: 5, At: now.Add(-time.Minute)},
			{Lost: wire.Lost{Topic: "old"}, Offsets: 5, At: now.Add(-2 * time.Hour)}, {Lost: wire.Lost{Topic: "first start"}, At: now},
		}}}, LookToday, []ProblemKind{RecordsLost}, "delay_5m/1: truncated", "the-log-has-lost-records"},
		{Facts{Sweeps: Sweeps{Losses: []Loss{{Lost: wire.Lost{Topic: "a"}, Offsets: 5, At: now.Add(-time.Minute)}}, Sweeps: []wire.Sweep{{StartedAt: now, Why: wire.SweepPeriod}, {StartedAt: now, Why: wire.SweepLosses, Failed: 1}, {StartedAt: now.Add(-2 * time.Minute), Why: wire.SweepLosses}}}},
			LookToday, []ProblemKind{RecordsLost}, "a/0", "the-log-has-lost-records"},
		{Facts{Sweeps: Sweeps{Losses: []Loss{{Lost: wire.Lost{Topic: "a"}, Offsets: 5, At: now.Add(-time.Minute)}}, Sweeps: []wire.Sweep{{StartedAt: now, Why: wire.SweepLosses}}}}, Well, []ProblemKind{RecordsLost}, "a/0", "the-log-has-lost-records"},
		{Facts{Sweeps: swept(wire.Sweep{StartedAt: now.Add(-3 * time.Hour), PeriodMillis: 7_200_000}), SweepPeriod: time.Hour}, Well, nil, "", ""},
		{Facts{Sweeps: swept(wire.Sweep{StartedAt: now.Add(-time.Hour), PeriodMillis: 600_000}), SweepPeriod: time.Hour}, ActNow, []ProblemKind{SweepMissing}, "", "no-sweep-has-finished"},
		{Facts{DeadLetters: 7}, LookToday, []ProblemKind{LettersPending}, "", "dead-letters"},
		{Facts{Topics: TopicsPlan{Would: []kafka.Finding{{Topic: "x", What: "missing"}}}}, LookToday, []ProblemKind{TopicsDiffer}, "x: missing", "topics-differ"},
		{Facts{ConfigBroken: errors.New("line 3")}, LookToday, []ProblemKind{ConfigBroken}, "line 3", "topicsyaml-was-refused"},
		{Facts{ConfigBroken: errors.New("line 3"), Status: overdue, DeadLetters: 1}, ActNow, []ProblemKind{RecordsOverdue, LettersPending, ConfigBroken}, "delay_5m/3", "records-do-not-leave-a-delay-topic"},
	} {
		row.facts.Now = now
		v := Judge(row.facts)
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

// Orders that wait on purpose are counted apart, by their own category, before categories are summed up.
func TestOverdueOrders_PausedOnesAreApart(t *testing.T) {
	var orders []orderclose.Order
	for _, c := range []struct {
		category string
		n        int
		due      time.Duration
	}{{"", 1, -time.Minute}, {"gift", 3, -time.Hour}, {"new", 4, -2 * time.Minute}, {"ticket", 7, -10 * time.Second}} {
		for range c.n {
			orders = append(orders, orderclose.Order{Category: c.category, Due: noon.Add(c.due)})
		}
	}
	listed := map[string]time.Duration{"ticket": time.Minute}
	for _, c := range []struct {
		pauses []wire.Pause
		want   OverdueOrders
		text   string
	}{
		{nil, OverdueOrders{Orders: 15, Oldest: noon.Add(-time.Hour), Categories: map[string]int64{"default": 8, "ticket": 7}}, "15 (the oldest was due 2026-11-20T11:00:00.000Z, 8 default, 7 ticket)"},
		{[]wire.Pause{{Path: orderclose.PathPipeline, Category: "gift"}, {Path: orderclose.PathSweep}},
			OverdueOrders{Orders: 12, Paused: 3, Oldest: noon.Add(-2 * time.Minute), Categories: map[string]int64{"default": 5, "ticket": 7}}, "7 ticket), and 3 wait because closing is paused"},
		{[]wire.Pause{{Path: orderclose.PathPipeline}}, OverdueOrders{Paused: 15, Categories: map[string]int64{"default": 0}}, "0, and 15 wait because closing is paused"},
	} {
		got := sumOverdue(orders, c.pauses, listed)
		if diff := cmp.Diff(c.want, got); diff != "" || !strings.Contains(got.String(), c.text) {
			t.Errorf("%v (-want +got):\n%s%v, want %s", c.pauses, diff, got, c.text)
		}
	}
	if text := (OverdueOrders{More: true, Paused: 7}).String(); !strings.HasPrefix(text, "at least 0, and 7") {
		t.Error(text)
	}
}
