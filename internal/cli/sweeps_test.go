package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// sampleSweeps has all kinds of sweeps.
func sampleSweeps() ops.ControlState {
	sweep := func(hours int, why wire.SweepReason) wire.Sweep {
		started := at.Add(time.Duration(-hours) * time.Hour)
		return wire.Sweep{StartedAt: started, Cutoff: started.Add(-time.Minute), TookMillis: 12, Lock: "held", Holder: "shop-1/17", Why: why}
	}
	late, overdue, failed := sweep(1, wire.SweepPeriod), sweep(2, wire.SweepOverdue), sweep(4, wire.SweepOnce)
	late.Found, late.Closed, late.AlreadyPaid, late.AlreadyClosed, late.Paused, late.Failed, late.TookMillis = 1234, 1200, 20, 3, 10, 1, 61_420
	late.Causes, late.OldestDue = map[string]int{"on_its_way": 1180, "absent": 20}, at.Add(-90*time.Minute)
	overdue.Found, overdue.Closed, overdue.Causes, overdue.OldestDue = 3, 3, map[string]int{"absent": 3}, at.Add(-150*time.Minute)
	failed.Found, failed.Lock, failed.Holder, failed.Error = 2, "unavailable", "laptop/4711",
		"500 orders up to \"o-17\" have no verdict,\nthe sweep is given up: dial tcp 10.0.0.3:3306: connect: connection refused"
	return ops.ControlState{
		Sweeps: []wire.Sweep{sweep(0, wire.SweepPeriod), late, overdue, sweep(3, wire.SweepPeriod), failed},
	}
}

func TestSweeps_Tables(t *testing.T) {
	golden(t, "sweeps", sweepsOutput{ops.NewSweeps(sampleSweeps(), 0)}.table)
	golden(t, "sweeps_nothing", sweepsOutput{ops.NewSweeps(ops.ControlState{}, 24)}.table)
}

// The causes are those of the sweeps that are shown.
func TestSweeps_Limit(t *testing.T) {
	out := sweepsOutput{ops.NewSweeps(sampleSweeps(), 2)}
	if len(out.Sweeps.Sweeps) != 2 || cmp.Diff(map[string]int{"on_its_way": 1180, "absent": 20}, out.Causes) != "" {
		t.Errorf("%+v", out)
	}
	golden(t, "sweeps_limit", out.table)
}

func TestBroker_SweepsShowsTheControlTopic(t *testing.T) {
	r := newRig(t)
	if _, stderr, code := r.cli("sweeps"); code != 1 || !strings.Contains(stderr, "order-close-control") {
		t.Errorf("without the topic: exit %d, %q", code, stderr)
	}
	r.cli("topics", "apply")
	var out ops.Sweeps
	r.json(&out, 0, "sweeps")
	expect.That(t, out.Sweeps != nil && len(out.Sweeps) <= 0 && out.Causes != nil, "an empty topic: %+v", out)
	want := sampleSweeps()
	for i := range want.Sweeps {
		m := must.Get(want.Sweeps[len(want.Sweeps)-1-i].Encode())(t)
		r.append(r.cfg.Topics.Control, m, wire.Message{Value: []byte(`{"probe":1}`)})
	}
	r.append(r.cfg.Topics.Control, wire.Message{Key: []byte("lost"), Value: []byte(`{"topic":"delay_30m","partition":3}`)}) // of an older relay
	r.json(&out, 0, "sweeps")
	if diff := cmp.Diff(want.Sweeps, out.Sweeps); diff != "" {
		t.Errorf("sweeps (-want +got):\n%s", diff)
	}
	if table, _, code := r.cli("sweeps", "--limit", "1"); code != 0 || strings.Count(table, "shop-1/17") != 1 {
		t.Errorf("exit %d, %s", code, table)
	}
}

// append appends messages to the first partition of a topic.
func (r *rig) append(topic string, messages ...wire.Message) {
	r.t.Helper()
	must.Get(r.kafka.Append(r.t.Context(), topic, 0, messages))(r.t)
}

func TestCompensate_Table(t *testing.T) {
	due := at
	miss := func(id string, why compensator.Cause, where, fix string) compensator.Miss {
		return compensator.Miss{Order: orderclose.Order{ID: id, Due: due}, Cause: why, Where: where, Fix: fix}
	}
	r := compensator.Report{
		StartedAt: at.Add(time.Hour), Found: 1237, Closed: 1231, AlreadyPaid: 2, PaymentPending: 3, Failed: 1, OldestDue: due, Lock: "held", TookMillis: 420,
		Failures: []compensator.Failure{{OrderID: "order-9", Error: "failed: no stock row"}},
		Causes:   map[string]int{"on_its_way": 1200, "dead_lettered": 1, "unpublished": 28, "unknown": 2},
		Misses: []compensator.Miss{
			miss("order-17", compensator.OnItsWay, "delay_5m/3", "orderclose status"), miss("order-18", compensator.OnItsWay, "delay_5m/3", "orderclose status"),
			miss("order-2", compensator.DeadLettered, "dead letter 0/4", "orderclose dlq redrive --order order-2"),
		},
	}
	golden(t, "compensate", func(w io.Writer) { printReport(w, r, &config.Config{}) })
}

func TestCompensate_ADryRunAsksNoPaymentProvider(t *testing.T) {
	for url, want := range map[string]bool{"": false, "https://pay.example.com": true} {
		var cfg config.Config
		var out strings.Builder
		cfg.Closer.Payment.URL, cfg.Compensator.Grace = url, time.Minute
		printReport(&out, compensator.Report{DryRun: true, Found: 1}, &cfg)
		if !strings.Contains(out.String(), "due less than 1m0s ago") || strings.Contains(out.String(), "the payment provider was not asked") != want {
			t.Errorf("with the provider %q: %s", url, out.String())
		}
	}
}
