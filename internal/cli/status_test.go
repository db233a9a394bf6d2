package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

var at = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// sample is a report with all kinds of states.
func sample() backlog.Status {
	relay := &kafka.Member{ID: "orderclose-1", ClientID: "orderclose", Host: "10.0.0.7"}
	head := func(leaves time.Time) *backlog.Head {
		return &backlog.Head{Offset: 900, Key: "order-17", Appended: leaves.Add(-time.Minute), Leaves: leaves}
	}
	committed := int64(900)
	return backlog.Status{At: at, Topics: []backlog.TopicStatus{
		{Topic: "delay_1m", Group: "orderclose-relay-delay_1m", State: "Stable", Members: 1, Waiting: 131, Partitions: []backlog.PartitionStatus{
			{Partition: 0, Committed: &committed, End: 1031, Waiting: 131, Head: head(at.Add(-95 * time.Second)), Overdue: 95, Owner: relay},
			{Partition: 1, Committed: &committed, End: 900, Owner: relay},
			{Partition: 2, Committed: &committed, End: 911, Waiting: 11, Head: head(at.Add(time.Hour)), Late: head(at.Add(-5 * time.Second)), Overdue: 5, Owner: relay},
			{Partition: 3, Committed: &committed, End: 900},
		}},
		{Topic: "delay_30m", Group: "orderclose-relay-delay_30m", State: "Empty", Waiting: 41, Partitions: []backlog.PartitionStatus{
			{Partition: 0, End: 41, Waiting: 41, Head: head(at.Add(25 * time.Minute))},
			{Partition: 1, Committed: &committed, LogStart: 950, End: 950, Problem: "the log begins at 950, after the commit: 50 offsets are gone"},
		}},
		{Topic: "order-close", Group: "orderclose-closer-order-close", Problem: "topic order-close does not exist"},
	}}
}

func TestStatus_Table(t *testing.T) {
	golden(t, "status", func(w io.Writer) { printStatus(w, sample(), false) })
	golden(t, "status_members", func(w io.Writer) {
		printMembers(w, []backlog.Member{
			{Name: "closer@h:1:9464", Host: "/10.0.0.8", Partitions: map[string][]int{"order-close": {0, 1, 2}}, PerSecond: 41.2},
			{Name: "relay@h:2:9465", Host: "/10.0.0.9", Partitions: map[string][]int{"delay_5m": {0, 1}, "delay_30m": nil}, Stuck: true},
		})
	})
	golden(t, "status_partitions", func(w io.Writer) { printStatus(w, sample(), true) })
}

func TestStatus_PrintsTheFirstCommandsOfEachProblem(t *testing.T) {
	v := health.Verdict{State: health.ActNow, Problems: []health.Problem{
		{Kind: health.KafkaAway, Severity: health.Urgent, Detail: "no answer", Runbook: "kafka-is-down"},
		{Kind: health.MemberStuck, Severity: health.Healed, Count: 2, Runbook: "a-process-does-not-answer"},
	}}
	golden(t, "status_verdict", func(w io.Writer) { printVerdict(w, v) })
	var out strings.Builder
	c := &common{output: "table", config: "our topics.yaml", env: Env{Stdout: &out}}
	err := c.print(nil, func(w io.Writer) { printVerdict(w, v) })
	expect.That(t, err == nil && strings.Contains(out.String(), "\n           orderclose "), "%v\n%s", err, out.String())
}

// exit returns the error of a verdict about a status.
func exit(r backlog.Status) error {
	return verdictError(judge(health.KafkaCheck, health.Answer[any]{Value: r, At: at}))
}

// judge judges the answer to one question.
func judge[T any](name health.Name[T], a health.Answer[any]) health.Verdict {
	return health.Judge(health.Facts{Checks: ops.Checks(), Answers: map[string]health.Answer[any]{string(name): a}})
}

func TestStatus_ExitsWith3AndAHintIfAHeadIsOverdue(t *testing.T) {
	err := exit(sample())
	if codeOf(err) != int(Findings) {
		t.Fatalf("%v exits with %d, want 3", err, codeOf(err))
	}
	for _, want := range []string{"records overdue: delay_1m/0 at offset 900: 95 s", "orderclose@10.0.0.7",
		"orderclose runbook records-do-not-leave-a-delay-topic"} {
		expect.That(t, strings.Contains(err.Error(), want), "%q does not contain %q", err, want)
	}
}

func TestStatus_ExitsWith6IfAPartCouldNotBeChecked(t *testing.T) {
	r := sample()
	r.Topics[0].Partitions[0].Overdue = backlog.OverdueLimit.Seconds() // not more than the limit
	expect.Equal(t, codeOf(exit(r)), int(Partly), "the exit code")
	r.Topics = r.Topics[:1]
	err := exit(r)
	expect.That(t, err == nil, "%v, want no error", err)
	away := health.Answer[any]{Err: errors.New("no answer")}
	if err := verdictError(judge(ops.HoursCheck, away)); codeOf(err) != int(Partly) || !strings.Contains(err.Error(), "not answered: compensations: no answer") {
		t.Errorf("%v exits with %d, want 6", err, codeOf(err))
	}
}

// A pause of a category is ended by a command with the category, and nothing else is printed to paste.
func TestPrintVerdict_HasTheCommandsThatEndAPause(t *testing.T) {
	p := health.Problem{Kind: health.ClosingPaused, Severity: health.Today, Detail: "orders of a b until noon: INC-1", Runbook: "closing-is-paused"}
	for _, pause := range []pausing.Pause{{}, {Category: "virtual"}, {Category: "a b"}} {
		p.Commands = append(p.Commands, pause.Resume())
	}
	var out bytes.Buffer
	printVerdict(&out, health.Verdict{Problems: []health.Problem{p}})
	expect.Equal(t, out.String(), "TODAY\t"+p.Title()+": "+p.Text()+"\n\t-> orderclose runbook closing-is-paused\n\t   orderclose resume\n"+
		"\t   orderclose resume --category virtual\n\t   orderclose resume --category 'a b'\n\n", "printed")
}
