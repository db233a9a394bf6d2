package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// runAudit runs the command on a database that no variable can name.
func (r *rig) runAudit(s *store.Store, output string, limit int, o ops.AuditOptions) (stdout string, code int) {
	r.t.Helper()
	var out, errs bytes.Buffer
	c := &common{env: Env{Stdout: &out, Stderr: &errs}, output: output, config: "our.yaml"}
	session := &session{Clients: clients.Clients{Kafka: r.kafka, Store: s}, cfg: r.cfg}
	err := c.auditIn(r.t.Context(), session, limit, o)
	if text := out.String(); strings.Contains(text, " shows why") && !strings.Contains(text, "orderclose order ") {
		r.t.Errorf("%s: a command uses another topics.yaml:\n%s", output, text)
	}
	return errs.String() + out.String(), codeOf(err)
}

// TestBroker_AnAuditFindsPlantedFaults: and finds nothing if there are none.
func TestBroker_AnAuditFindsPlantedFaults(t *testing.T) {
	r := newRig(t)
	r.cli("topics", "apply")
	s := r.shop()
	window := ops.AuditOptions{From: time.Now().Add(-24 * time.Hour), To: time.Now()}
	r.cfg.Closer.Kind = config.KindHTTP
	if out, code := r.runAudit(s, "table", 10, window); code != 0 || !strings.HasPrefix(out,
		"orders are closed by a service: their receipts, stock and events are not checked\n") {
		t.Errorf("a service closes: exit %d\n%s", code, out)
	}
	r.cfg.Closer.Kind = config.KindSQL
	out, code := r.runAudit(s, "table", 10, window)
	if strings.Contains(out, "closed by a service") || code != 0 || !strings.Contains(out, "differences") || !strings.Contains(out, "closed by pipeline") ||
		!strings.Contains(out, "none") {
		t.Fatalf("exit %d\n%s", code, out)
	}

	ctx, now := t.Context(), time.Now()
	exec := func(query string, args ...any) {
		t.Helper()
		must.Get(s.DB().ExecContext(ctx, query, args...))(t)
	}
	orders := scenario.OrdersOf(s)
	must.Do(t, orders.CreateOrder(ctx, orderclose.Order{ID: "never", CreatedAt: now.Add(-time.Hour), Due: orderclose.NeverDue}, nil))
	if out, code := r.runAudit(s, "table", 10, window); code != 0 {
		t.Errorf("an order that is never due: exit %d\n%s", code, out)
	}
	long := now.Add(-3 * time.Hour)
	for _, id := range []string{"forgotten", "receiptless", "unledgered", "quiet", "told"} {
		must.Do(t, orders.CreateOrder(ctx, orderclose.Order{ID: id, CreatedAt: long.Add(-time.Hour), Due: long}, []shopdb.Item{{SKU: "ink", Quantity: 1}}))
		if id == "forgotten" {
			continue
		}
		must.Get(s.CloseOrders(ctx, orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: id}}))(t)
	}
	exec("DELETE FROM receipts WHERE order_id = 'receiptless'")
	exec("UPDATE receipts SET returned = '{}' WHERE order_id = 'unledgered'")
	exec("UPDATE receipts SET closed_at = due + 1000 WHERE order_id IN ('quiet', 'told')") // long enough ago for a check of their events
	var payload string
	must.Do(t, s.DB().QueryRowContext(ctx, "SELECT payload FROM outbox_events WHERE order_id = 'told'").Scan(&payload))
	exec("DELETE FROM outbox_events WHERE order_id IN ('quiet', 'told')")
	must.Get(r.kafka.Append(ctx, r.cfg.Topics.Events, 1, []wire.Message{{Key: []byte("told"), Value: store.ExpandEvent("told", []byte(payload))}}))(t)
	r.send(r.cfg.Topics.Close, "told", long)
	r.addDeadLetter("forgotten", "failed", long)

	want := map[ops.FindingKind]string{ops.StillOpen: "forgotten", ops.NoReceipt: "receiptless", ops.LedgerMissing: "unledgered", ops.NoEvent: "quiet"}
	out, code = r.runAudit(s, "jsonl", 0, window)
	got := map[ops.FindingKind]string{}
	var sum ops.AuditSummary
	for line := range strings.Lines(out) {
		var l struct {
			Finding *ops.Finding
			Summary *ops.AuditSummary
		}
		must.Do(t, json.Unmarshal([]byte(line), &l))
		if l.Finding != nil {
			got[l.Finding.Kind] = l.Finding.Order
			expect.That(t, l.Finding.Kind != ops.StillOpen || strings.Contains(l.Finding.What, "dead letter 0/0"), "%+v", l.Finding)
		} else {
			sum = *l.Summary
		}
	}
	expect.That(t, code == 3 && fmt.Sprint(got) == fmt.Sprint(want) && sum.FindingCount == 4 && sum.Orders == 6,
		"exit %d, %v; want exit 3 and %v; %+v", code, got, want, sum)
	// closed and unledgered were closed just now, and the closing time of receiptless is unknown.
	expect.That(t, sum.ClosedBy["sweep"] == 3 && sum.EventsUnjudged == 2 && sum.DeadLetters == 1 && sum.EventsRead == 1 && len(sum.NotRead) == 0, "%+v", sum)

	out, code = r.runAudit(s, "table", 1, window)
	expect.That(t, code == 3 && strings.Count(out, "-> ") == 1 && strings.Contains(out, "and 3 more: --limit 0"), "exit %d\n%s", code, out)
	var whole struct {
		Findings []ops.Finding
		Summary  ops.AuditSummary
	}
	out, code = r.runAudit(s, "json", 2, window)
	err := json.Unmarshal([]byte(out), &whole)
	expect.That(t, err == nil && code == 3 && len(whole.Findings) == 2 && whole.Summary.FindingCount == 4, "exit %d, %v\n%s", code, err, out)

	r.cfg.Webhook.URL = "https://shop.example/events"
	out, code = r.runAudit(s, "table", 10, window)
	expect.That(t, code == 3 && !strings.Contains(out, "no_event") && strings.Contains(out, "closes whose event could not be checked"),
		"events that the webhook takes: exit %d\n%s", code, out)
}

func TestBroker_AnAuditReportsWhatItCouldNotCheck(t *testing.T) {
	r := newRig(t) // no topics
	window := ops.AuditOptions{From: time.Now().Add(-time.Hour), To: time.Now()}
	out, code := r.runAudit(r.shop(), "table", 10, window)
	expect.That(t, code == 6 && strings.Contains(out, "not checked") && strings.Contains(out, r.cfg.Topics.Events), "exit %d\n%s", code, out)
	r.kafka = nil
	out, code = r.runAudit(r.shop(), "table", 10, window)
	expect.That(t, code == 6 && strings.Contains(out, environ.EnvBrokers), "without Kafka: exit %d\n%s", code, out)
}

func TestAudit_Table(t *testing.T) {
	sum := ops.AuditSummary{
		From: at, To: at.Add(24 * time.Hour), Bound: "1h4m0s", Orders: 120_000, Statuses: map[string]int{"closed": 80_001, "paid": 39_997, "unpaid": 2},
		ClosedBy: map[orderclose.Path]int{"pipeline": 79_990, "sweep": 10}, OpenWithinBound: 1,
		ClosedByOthers: ops.ByOthers{Orders: 9, Early: 1, OnTime: 2, Late: 5, Untimed: 1, Latest: 7200,
			EarlyNewest: []ops.OrderDue{{Order: "e-1"}}, LateNewest: []ops.OrderDue{{Order: "l-2"}, {Order: "l-1"}}}, EventsUnjudged: 2,
		Unlisted:   map[string]store.AuditState{"REFUNDED": store.AuditPaid},
		EventsRead: 79_998, DeadLettersAll: 1, Findings: map[ops.FindingKind]int{ops.StillOpen: 1, ops.NoReceipt: 1}, FindingCount: 2,
		NotRead: []string{"order-close: not authorized"},
	}
	golden(t, "audit", func(w io.Writer) { printAudit(w, sum, 1, nil) })
	var out bytes.Buffer
	own := &mapping.Mapping{Status: mapping.Status{From: mapping.OneOf{mapping.IntValue(101)}, To: mapping.IntValue(104)}}
	printAudit(&out, ops.AuditSummary{Statuses: map[string]int{"101": 2, "104": 3, "200": 1}}, 0, own)
	for _, want := range []string{"101 (unpaid)\t2", "104 (closed)\t3", "200 (counts as paid)\t1"} {
		expect.That(t, strings.Contains(out.String(), want), "without %q: %s", want, out.String())
	}
}
