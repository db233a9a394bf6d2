package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
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

// replayed returns how many records are in the replay topic.
func (r *rig) replayed() (n int64) {
	r.t.Helper()
	for p := range 2 {
		_, end, err := r.kafka.Bounds(r.t.Context(), r.cfg.Topics.Replay, p)
		must.Do(r.t, err)
		n += end
	}
	return n
}

// The replay topic refuses one record of each of two partitions.
func TestBroker_AReplayPassesOverRefusedRecordsAndExitsWith6(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(strings.Split(r.brokers, ",")...)))(t)
	defer client.Close()
	limit := kmsg.NewPtrIncrementalAlterConfigsRequest()
	limit.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: r.cfg.Topics.Replay,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "max.message.bytes", Value: kmsg.StringPtr("2000")}}}}
	must.Get(limit.RequestWith(t.Context(), client))(t)
	for p := range 2 {
		for i := range 20 {
			category := ""
			if i == 7 {
				category = strings.Repeat("x", 3000)
			}
			r.closed(p, fmt.Sprint("order-", p, "-", i), category)
		}
	}
	var result ops.ReplayResult
	out, _, _ := r.cli("replay", "--from", "1h")
	_, command, _ := strings.Cut(out, "To do it:\n  orderclose ")
	window := strings.Fields(command)
	stderr := r.json(&result, int(Partly), window...)
	expect.That(t, result.Sent == 38 && result.Refused == 2 && r.replayed() == 38, "%+v, %d sent", result, r.replayed())
	var refused []string
	for _, at := range result.Refusals {
		refused = append(refused, at.At.String()+" "+at.Key)
	}
	expect.Same(t, refused, []string{"0/7 order-0-7", "1/7 order-1-7"}, "refused records")
	for _, want := range []string{"2, such as 0/7 of order", "orderclose", "compensate", "max.message.bytes of order-close-replay"} {
		expect.That(t, strings.Contains(stderr, want), "%q is not in %s", want, stderr)
	}
	out, _, code := r.cli(append(window, "--restart")...)
	expect.That(t, code == int(Partly) && strings.Contains(out, "order-1-7"), "exit %d\n%s", code, out)
	result = ops.ReplayResult{}
	r.json(&result, 0, window...)
	expect.That(t, result.Sent == 0 && result.Refused == 0 && result.Handled == 40, "the same again: %+v", result)
}

func TestBroker_AReplayShowsAPlanFirstAndSendsOnceUnlessItIsRestarted(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	r.closed(0, "a", "")
	r.closed(1, "b", "")
	out, _, code := r.cli("replay", "--from", "1h")
	_, command, found := strings.Cut(out, "To do it:\n  orderclose ")
	if code != 0 || !found || !strings.Contains(out, "would send 2 records of 2 orders again, to order-close-replay, at most 5000 a second") ||
		!strings.Contains(out, "ORDERCLOSE_DB_DSN is not set") || r.replayed() != 0 {
		t.Fatalf("exit %d, %d sent, %s", code, r.replayed(), out)
	}
	args := strings.Fields(command)
	for run, want := range []struct {
		args         []string
		sent         int
		handled, all int64
	}{{nil, 2, 0, 2}, {nil, 0, 2, 2}, {[]string{"--restart"}, 2, 0, 4}, {[]string{"--partition", "1", "--restart"}, 1, 0, 5}} {
		var result ops.ReplayResult
		stderr := r.json(&result, 0, append(args, want.args...)...)
		if result.Sent != want.sent || result.Handled != want.handled || r.replayed() != want.all {
			t.Errorf("run %d: %+v, %d are in the replay topic; want %+v", run+1, result, r.replayed(), want)
		}
		expect.That(t, strings.Contains(stderr, "orderclose "+strings.Join(args[:len(args)-1], " ")), "run %d does not say how to continue: %s", run+1, stderr)
	}
	if out, _, code := r.cli(args[:len(args)-1]...); code != 0 || !strings.Contains(out, "nothing to send again") || !strings.Contains(out, "--restart") {
		t.Errorf("a plan after the end: exit %d, %s", code, out)
	}
}

// The database has the category of a record without one. It knows "closed" and "waits" only.
func TestBroker_AReplaySelectsItsRecordsAndAsksTheDatabase(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	db := r.shop()
	must.Get(db.DB().ExecContext(t.Context(), "UPDATE orders SET category = 'virtual' WHERE id = 'closed'"))(t)
	r.closed(0, "closed", "")
	r.closed(0, "waits", "physical")
	r.closed(0, "waits", "physical")
	r.closed(1, "gone", "virtual")
	replay := func(db *store.Store, yes bool, set func(*replayFlags)) (plan ops.ReplayResult, err error) {
		t.Helper()
		f := replayFlags{from: "1h", to: "now", rate: ops.ReplayRate, yes: yes}
		set(&f)
		w := must.Get(f.window(time.Now()))(t)
		var out bytes.Buffer
		c := &common{output: "json", quiet: true, env: Env{Stdout: &out, Stderr: io.Discard}}
		s := &session{Clients: clients.Clients{Kafka: r.kafka, Store: db}, cfg: r.cfg, logger: slog.New(slog.DiscardHandler)}
		err = c.replay(t.Context(), s, w, f)
		if out.Len() > 0 {
			must.Do(t, json.Unmarshal(out.Bytes(), &plan))
		}
		return plan, err
	}
	all, err := replay(db, false, func(*replayFlags) {})
	want := &ops.ReplayPreview{Records: 4, Orders: 3, Verdicts: map[orderclose.Verdict]int64{orderclose.AlreadyClosed: 1, orderclose.NotDue: 1,
		orderclose.NotFound: 1}}
	diff := cmp.Diff(want, all.Preview)
	expect.That(t, err == nil && diff == "", "%v (-want +got):\n%s", err, diff)
	virtual := func(f *replayFlags) { f.categories = []string{"virtual"} }
	if plan, err := replay(db, false, virtual); err != nil || plan.Preview.Records != 2 || plan.Preview.Unselected != 2 {
		t.Errorf("a category: %+v, %v", plan.Preview, err)
	}
	if result, err := replay(db, true, virtual); err != nil || result.Sent != 2 || result.Unselected != 2 || r.replayed() != 2 {
		t.Errorf("a category: %+v, %v", result, err)
	}
	for _, yes := range []bool{false, true} {
		// A window of the same milliseconds as the one above would be handled already.
		_, err := replay(nil, yes, func(f *replayFlags) { virtual(f); f.restart = true })
		if codeOf(err) != int(Refused) || !strings.Contains(err.Error(), "at offset 0, of order \"closed\"") ||
			!strings.Contains(err.Error(), "set ORDERCLOSE_DB_DSN") {
			t.Errorf("without a database: exit %d, %v", codeOf(err), err)
		}
		if _, err := replay(db, yes, func(f *replayFlags) {
			f.orders = []string{"waits", "nobody"}
		}); codeOf(err) != int(NotFound) || !strings.Contains(err.Error(), "is of nobody") {
			t.Errorf("an order without a record: exit %d, %v", codeOf(err), err)
		}
	}
	if _, err := replay(db, false, func(f *replayFlags) {
		f.partitions = []int{2}
	}); codeOf(err) != int(Usage) || !strings.Contains(err.Error(), "partitions 0 to 1") {
		t.Errorf("a partition that does not exist: exit %d, %v", codeOf(err), err)
	}
}

func TestReplay_Tables(t *testing.T) {
	f := replayFlags{rate: 200}
	w := ops.ReplayWindow{
		Topic: "order-close", Into: "order-close-replay", From: at, To: at.Add(time.Hour),
		Orders: []string{"order-17", "it's"}, Categories: []string{"gift card"}, OnlyPartitions: []int{0, 3},
	}
	p := ops.ReplayPlan{
		ReplayWindow: w, Spans: []kafka.Span{{Partition: 0, First: 1031, End: 1032}, {Partition: 3, First: 7, End: 907}}, Records: 901, Handled: 99,
		NotKept: "user ann lacks the ACL Read on Group orderclose-replay-17",
		Preview: &ops.ReplayPreview{
			Records: 300, Orders: 290, Skipped: 1, Unselected: 600, NotRead: "no connection",
			Verdicts: map[orderclose.Verdict]int64{
				orderclose.Closed: 200, orderclose.AlreadyPaid: 30, orderclose.AlreadyClosed: 20, orderclose.NotDue: 5, orderclose.NotFound: 3,
				orderclose.Failed: 1, "excluded": 4,
			},
		},
	}
	golden(t, "replay_plan", func(w io.Writer) { printReplayPlan(w, p, f.rate, f.command(p.ReplayWindow)+" --yes") })
	empty := ops.ReplayPlan{ReplayWindow: ops.ReplayWindow{Topic: "order-close", From: at, To: at.Add(time.Hour)}, Preview: &ops.ReplayPreview{}}
	golden(t, "replay_nothing", func(w io.Writer) { printReplayPlan(w, empty, ops.ReplayRate, "") })
	golden(t, "replay", func(w io.Writer) {
		printReplayed(w, ops.ReplayResult{ReplayPlan: p, Sent: 300, Skipped: 1, Unselected: 600})
	})
}
