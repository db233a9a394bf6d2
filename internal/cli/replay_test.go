package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// closed appends a record of an order to a partition of the close topic.
func (r *rig) closed(partition int, id, category string) {
	r.t.Helper()
	now := time.Now()
	m := must.Get(wire.Record{Order: orderclose.Order{ID: id, Category: category, CreatedAt: now, Due: now}, Release: now}.Encode())(r.t)
	must.Get(r.kafka.Append(r.t.Context(), r.cfg.Topics.Close, partition, []wire.Message{m}))(r.t)
}

// inClose returns how many records are in the close topic.
func (r *rig) inClose() (n int64) {
	r.t.Helper()
	for p := range 2 {
		_, end, err := r.kafka.Bounds(r.t.Context(), r.cfg.Topics.Close, p)
		must.Do(r.t, err)
		n += end
	}
	return n
}

// The topic refuses the copy of one record.
func TestBroker_AReplayPassesOverRefusedRecordsAndExitsWith6(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	r.closed(0, "small", "")
	r.closed(0, "large", strings.Repeat("x", 3000))
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(strings.Split(r.brokers, ",")...)))(t)
	defer client.Close()
	limit := kmsg.NewPtrIncrementalAlterConfigsRequest()
	limit.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: r.cfg.Topics.Close,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "max.message.bytes", Value: kmsg.StringPtr("2000")}}}}
	must.Get(limit.RequestWith(t.Context(), client))(t)
	out, stderr, code := r.cli("replay", "--from", "1h", "--yes")
	told := strings.Contains(out, "0/1") && strings.Contains(stderr, "1, such as 0/1 of order")
	expect.That(t, code == int(Partly) && told && r.inClose() == 3, "exit %d, the topic has %d records\n%s%s", code, r.inClose(), out, stderr)
}

func TestBroker_AReplayShowsAPlanFirstAndSendsItAsOftenAsItIsRun(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	r.closed(0, "a", "")
	r.closed(1, "b", "")
	out, _, code := r.cli("replay", "--from", "1h")
	_, command, found := strings.Cut(out, "To do it:\n  orderclose ")
	if code != 0 || !found || !strings.Contains(out, "would send 2 records again, at most 1000 a second") || r.inClose() != 2 {
		t.Fatalf("exit %d, the topic has %d records, %s", code, r.inClose(), out)
	}
	args := strings.Fields(command)
	for run, want := range []struct {
		more      []string
		sent, all int
	}{{nil, 2, 4}, {nil, 2, 6}, {[]string{"--order", "b", "--order", "nobody"}, 1, 7}} {
		var result ops.ReplayResult
		r.json(&result, 0, append(args, want.more...)...)
		expect.That(t, result.Sent == want.sent && int(r.inClose()) == want.all, "run %d: %+v, %d are in the topic; want %+v", run+1, result, r.inClose(), want)
	}
	var result ops.ReplayResult
	r.json(&result, 0, "replay", "--from", "1h", "--yes")
	expect.That(t, result.Sent == 2 && result.Skipped == 5, "a window that has the copies: %+v", result)
	_, stderr, code := r.cli(append(args, "--order", "nobody")...)
	expect.That(t, code == int(NotFound) && strings.Contains(stderr, "is of a named order"), "an order without a record: exit %d, %s", code, stderr)
}

func TestReplay_Tables(t *testing.T) {
	f := replayFlags{againFlags: againFlags{rate: 200}}
	p := ops.ReplayPlan{
		Topic: "order-close", From: at, To: at.Add(time.Hour), Orders: []string{"order-17", "it's"},
		Spans: []reads.Span{{Partition: 0, First: 1031, End: 1032}, {Partition: 3, First: 7, End: 907}}, Records: 901,
	}
	golden(t, "replay_plan", func(w io.Writer) { printReplayPlan(w, p, f.rate, f.command(p)) })
	golden(t, "replay_nothing", func(w io.Writer) {
		printReplayPlan(w, ops.ReplayPlan{Topic: "order-close", From: at, To: at.Add(time.Hour)}, ops.ReplayRate, "")
	})
	golden(t, "replay", func(w io.Writer) {
		printReplayed(w, ops.ReplayResult{ReplayPlan: p, Sent: 300, Skipped: 601, Refused: 1,
			Refusals: []ops.Refusal{{At: deadletters.Position{Partition: 3, Offset: 8}, Key: "order-17", Why: "too large"}}})
	})
}
