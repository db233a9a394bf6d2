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
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
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
		"orders are closed by a service: their receipts and stock are not checked\n") {
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
	for _, id := range []string{"forgotten", "receiptless", "unledgered"} {
		must.Do(t, orders.CreateOrder(ctx, orderclose.Order{ID: id, CreatedAt: long.Add(-time.Hour), Due: long}, []shopdb.Item{{SKU: "ink", Quantity: 1}}))
		if id == "forgotten" {
			continue
		}
		must.Get(s.CloseOrders(ctx, orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: id}}))(t)
	}
	exec("DELETE FROM receipts WHERE order_id = 'receiptless'")
	exec("UPDATE receipts SET returned = '{}' WHERE order_id = 'unledgered'")
	want := map[ops.FindingKind]string{ops.StillOpen: "forgotten", ops.NoReceipt: "receiptless", ops.LedgerMissing: "unledgered"}
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
		} else {
			sum = *l.Summary
		}
	}
	expect.That(t, code == 3 && fmt.Sprint(got) == fmt.Sprint(want) && sum.FindingCount == 3 && sum.Orders == 4,
		"exit %d, %v; want exit 3 and %v; %+v", code, got, want, sum)
	expect.That(t, sum.ClosedBy["sweep"] == 1 && len(sum.NotRead) == 0, "%+v", sum)

	out, code = r.runAudit(s, "table", 1, window)
	expect.That(t, code == 3 && strings.Count(out, "-> ") == 1 && strings.Contains(out, "and 2 more: --limit 0"), "exit %d\n%s", code, out)
	var whole struct {
		Findings []ops.Finding
		Summary  ops.AuditSummary
	}
	out, code = r.runAudit(s, "json", 2, window)
	err := json.Unmarshal([]byte(out), &whole)
	expect.That(t, err == nil && code == 3 && len(whole.Findings) == 2 && whole.Summary.FindingCount == 3, "exit %d, %v\n%s", code, err, out)
}

func TestAudit_Table(t *testing.T) {
	sum := ops.AuditSummary{
		From: at, To: at.Add(24 * time.Hour), Bound: "1h4m0s", Orders: 120_000, Statuses: map[string]int{"closed": 80_001, "paid": 39_997, "unpaid": 2},
		ClosedBy: map[orderclose.Path]int{"pipeline": 79_990, "sweep": 10}, OpenWithinBound: 1,
		ClosedByOthers: ops.ByOthers{Orders: 9, Early: 1, OnTime: 2, Late: 5, Untimed: 1, Latest: 7200,
			EarlyNewest: []ops.OrderDue{{Order: "e-1"}}, LateNewest: []ops.OrderDue{{Order: "l-2"}, {Order: "l-1"}}},
		Unlisted: map[string]store.AuditState{"REFUNDED": store.AuditPaid},
		Findings: map[ops.FindingKind]int{ops.StillOpen: 1, ops.NoReceipt: 1}, FindingCount: 2,
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
