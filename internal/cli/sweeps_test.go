package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/control"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// sampleSweeps has all kinds of records.
func sampleSweeps() control.State {
	sweep := func(hours int, why control.SweepReason) control.Sweep {
		started := at.Add(time.Duration(-hours) * time.Hour)
		return control.Sweep{StartedAt: started, Cutoff: started.Add(-5 * time.Second), TookMillis: 12, Lock: "held", Holder: "shop-1/17", Why: why}
	}
	late, unfinished, byHand := sweep(1, control.SweepPeriod), sweep(2, control.SweepPeriod), sweep(4, control.SweepOnce)
	late.Found, late.Closed, late.Missed, late.AfterPause, late.AfterFailure, late.Failed, late.TookMillis = 1204, 1200, 20, 1000, 180, 4, 61_420
	unfinished.Lock, unfinished.Error = "unavailable", "no pass over all overdue orders has ended in half of the period"
	byHand.Found, byHand.AlreadyPaid, byHand.AlreadyClosed, byHand.Paused = 33, 20, 3, 10
	byHand.Lock, byHand.Holder, byHand.Error = "none", "laptop/4711", "the store gives no verdict:\ndial tcp 10.0.0.3:3306: connect: connection refused"
	return control.State{
		Sweeps: []control.Sweep{sweep(0, control.SweepPeriod), late, unfinished, sweep(3, control.SweepPeriod), byHand},
	}
}

func TestSweeps_Tables(t *testing.T) {
	golden(t, "sweeps", func(w io.Writer) { printSweeps(w, sampleSweeps().Sweeps) })
	golden(t, "sweeps_nothing", func(w io.Writer) { printSweeps(w, nil) })
}

func TestBroker_SweepsShowsTheControlTopic(t *testing.T) {
	r := newRig(t)
	_, stderr, code := r.cli("sweeps")
	expect.That(t, code == 1 && strings.Contains(stderr, "order-close-control"), "without the topic: exit %d, %q", code, stderr)
	r.cli("topics", "apply")
	var out ops.Sweeps
	r.json(&out, 0, "sweeps")
	expect.That(t, out.Sweeps != nil && len(out.Sweeps) <= 0, "an empty topic: %+v", out)
	want := sampleSweeps()
	for i := range want.Sweeps {
		m := must.Get(want.Sweeps[len(want.Sweeps)-1-i].Encode())(t)
		r.append(r.cfg.Topics.Control, m, wire.Message{Value: []byte(`{"probe":1}`)})
	}
	r.append(r.cfg.Topics.Control, wire.Message{Key: []byte("lost"), Value: []byte(`{"topic":"delay_30m","partition":3}`)}) // of an older relay
	r.json(&out, 0, "sweeps")
	expect.Same(t, out.Sweeps, want.Sweeps, "sweeps")
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
	r := compensator.Report{
		StartedAt: at.Add(time.Hour), Found: 1237, Closed: 1231, AlreadyPaid: 2, PaymentPending: 3, Failed: 1, OldestDue: at, TookMillis: 420,
		Failures: []compensator.Failure{{OrderID: "order-9", Error: "failed: no stock row"}},
	}
	golden(t, "compensate", func(w io.Writer) { printReport(w, r, &config.Config{}, 0) })
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	err := sweptError(cut, r, cut.Err())
	expect.That(t, codeOf(err) == int(Partly) && strings.Contains(err.Error(), "interrupted; "), "a pass that was cut off: exit %d, %v", codeOf(err), err)
}

func TestCompensate_ADryRunAsksNoPaymentProvider(t *testing.T) {
	for url, want := range map[string]bool{"": false, "https://pay.example.com": true} {
		var cfg config.Config
		var out strings.Builder
		cfg.Closer.Payment.URL = url
		printReport(&out, compensator.Report{DryRun: true, Found: 1}, &cfg, 5*time.Second)
		expect.That(t, strings.Contains(out.String(), "due less than 5s ago") && strings.Contains(out.String(), "the payment provider was not asked") == want,
			"with the provider %q: %s", url, out.String())
	}
}
