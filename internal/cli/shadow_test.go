package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/rooms"
)

// runShadowReport runs the command on a database that no variable can name.
func (r *rig) runShadowReport(s *store.Store, output string, limit int) (stdout string, code int, err error) {
	r.t.Helper()
	var out, errs bytes.Buffer
	c := &common{env: Env{Stdout: &out, Stderr: &errs}, output: output}
	err = c.shadowReportIn(r.t.Context(), &session{Clients: clients.Clients{Kafka: r.kafka, Store: s}, cfg: r.cfg}, limit,
		ops.ShadowOptions{From: time.Now().Add(-time.Hour), To: time.Now(), Tolerance: time.Minute})
	return out.String(), codeOf(err), err
}

// The role creates its topic, beside a database without any table of ours, and the report compares
// its verdicts with the rows.
func TestBroker_AShadowRunIsComparedWithTheOldJob(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	s := r.shop()
	if _, code, err := r.runShadowReport(s, "table", 10); code != 1 || !strings.Contains(err.Error(), "orderclose run shadow creates it") {
		t.Errorf("without the topic: exit %d, %v", code, err)
	}
	due := time.Now().Add(-30 * time.Minute).Truncate(time.Millisecond)
	closedAt := map[string]time.Duration{"same": time.Second, "earlier": 29 * time.Minute, "unsent": time.Minute, "paid": time.Minute}
	for _, id := range []string{"same", "earlier", "unsent", "paid", "forgotten", "also forgotten"} {
		must.Do(t, scenario.OrdersOf(s).CreateOrder(t.Context(), orderclose.Order{ID: id, CreatedAt: due.Add(-time.Hour), Due: due}, nil))
		if id != "unsent" {
			r.send(r.cfg.Topics.Close, id, due)
		}
	}
	exec := func(query string, args ...any) {
		t.Helper()
		must.Get(s.DB().ExecContext(t.Context(), query, args...))(t)
	}
	exec("UPDATE orders SET status = 1 WHERE id = 'paid'")
	exec("DELETE FROM orders WHERE id = 'closed'")
	for _, table := range []string{"receipts", "stock_ledger", "outbox_events", "outbox_schedules", "sweeps", "pauses"} {
		exec("DROP TABLE " + table)
	}
	app := must.Get(pipeline.New(pipeline.Options{Config: r.cfg, Connections: clients.Clients{Kafka: r.kafka, Store: s}, Rooms: rooms.All()}))(t)
	defer app.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- app.Run(ctx, "shadow") }()
	defer func() {
		cancel()
		expect.NoError(t, <-ran)
	}()
	var report shadowOutput
	for deadline := time.Now().Add(30 * time.Second); report.Summary.Verdicts < 5 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if out, code, _ := r.runShadowReport(s, "json", 0); code == 3 {
			report = shadowOutput{}
			must.Do(t, json.Unmarshal([]byte(out), &report))
		}
	}
	// The shadow run saw these orders now, half an hour after they were due.
	seen := report.Summary.Last
	for id, after := range closedAt {
		at := due.Add(after)
		if id == "same" || id == "earlier" {
			at = seen.Add(after)
		}
		exec("UPDATE orders SET status = 2, closed_at = ? WHERE id = ?", at.UnixMilli(), id)
	}
	out, code, _ := r.runShadowReport(s, "json", 1)
	report = shadowOutput{}
	must.Do(t, json.Unmarshal([]byte(out), &report))
	got := map[ops.ShadowClass]string{}
	for _, d := range report.Differences {
		got[d.Class] += d.Order
	}
	sum := report.Summary
	if code != 3 || got[ops.ShadowEarlier] != "earlier" || got[ops.ShadowOnlyWe] != "also forgotten" || got[ops.ShadowOnlyThey] != "paid" || len(report.Differences) != 3 ||
		sum.Classes[ops.ShadowSame] != 1 || sum.OnlyWe["unpaid"] != 2 || sum.OnlyThey["already_paid"] != 1 || sum.OnlyThey["no_record"] != 1 || sum.Orders != 6 || sum.Verdicts != 5 {
		t.Errorf("exit %d\n%s", code, out)
	}
	specs, err := r.kafka.Topics(t.Context(), r.cfg.Topics.Shadow)
	state := specs[r.cfg.Topics.Shadow]
	expect.That(t, err == nil && state.Partitions == r.cfg.Partitions && state.Config["retention.ms"] == "1209600000", "the topic is %+v, %v", state, err)
	if findings, err := r.kafka.Check(t.Context(), ops.TopicSpecs(r.cfg)); err != nil || len(findings) > 0 {
		t.Errorf("the topics drift: %v, %v", findings, err)
	}
}

func TestShadow_RefusesWrongArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"shadow", "report"}, "--from is missing"},
		{[]string{"shadow", "report", "--from", "1h", "--to", "2h"}, "is not before"},
		{[]string{"shadow", "report", "--from", "1h", "--tolerance", "none"}, "--tolerance"},
		{[]string{"shadow", "report", "--from", "1h", "--limit", "-1"}, "--limit"},
		{[]string{"shadow", "report", "--from", "1h"}, config.EnvDSN},
		{[]string{"shadow", "run"}, "unknown command"},
		{[]string{"run", "shadow"}, config.EnvDSN},
		{[]string{"run", "shadow", "relay", "closer"}, "without closer and compensator"},
		{[]string{"run", "all", "shadow"}, "without closer and compensator"},
	} {
		_, stderr, code := run(t, map[string]string{config.EnvBrokers: "127.0.0.1:1"}, append(c.args, "--config", topicsYAML(t, "buckets: [10s]\n"))...)
		expect.That(t, code == 2 && strings.Contains(stderr, c.want), "%v: exit %d, %q; want exit 2 and %q", c.args, code, stderr, c.want)
	}
}

func TestShadow_Table(t *testing.T) {
	difference := func(class ops.ShadowClass, id, what string) ops.ShadowDifference {
		return ops.ShadowDifference{Class: class, Order: id, Due: at, What: what}
	}
	out := shadowOutput{
		Differences: []ops.ShadowDifference{
			difference(ops.ShadowOnlyThey, "o-4", "they closed it at 2026-11-20T13:00:00.000Z; no record of it was read"),
			difference(ops.ShadowEarlier, "o-1", "we would have closed it at 2026-11-20T12:00:00.004Z, 3m11s before they did"),
			difference(ops.ShadowEarlier, "o-2", "we would have closed it at 2026-11-20T12:00:00.006Z, 3m10.998s before they did"),
			difference(ops.ShadowOnlyWe, "o-3", "we would have closed it at 2026-11-20T12:00:00.003Z; it is WAIT_PAY"),
		},
		Summary: ops.ShadowSummary{
			From: at, To: at.Add(24 * time.Hour), Tolerance: "1m0s", Orders: 1_200, Different: 204, TimesCompared: true, Untimed: 2,
			Classes: map[ops.ShadowClass]int{ops.ShadowSame: 696, ops.ShadowEarlier: 202, ops.ShadowOnlyWe: 1, ops.ShadowOnlyThey: 1, ops.ShadowNeither: 299, ops.ShadowRecent: 1},
			OnlyWe:  map[string]int{"WAIT_PAY": 1}, OnlyThey: map[string]int{"no_record": 1},
			Verdicts: 1_198, First: at.Add(4 * time.Millisecond), Last: at.Add(24 * time.Hour), Unreadable: 1,
		},
	}
	golden(t, "shadow", out.table)
	golden(t, "shadow_nothing", func(w io.Writer) {
		shadowOutput{Summary: ops.ShadowSummary{From: at, To: at.Add(time.Hour), Tolerance: "1m0s"}}.table(w)
	})
}
