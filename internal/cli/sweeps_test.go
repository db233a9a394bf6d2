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
	hours "github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestSweeps_Tables(t *testing.T) {
	golden(t, "sweeps", func(w io.Writer) {
		printHours(w, ops.Hours{Hours: []hours.Hour{
			{Begin: at, Counts: hours.Counts{Missed: 1}},
			{Begin: at.Add(-time.Hour), Counts: hours.Counts{Missed: 20, AfterPause: 1000, AfterFailure: 180, NotClosed: 4}, State: hours.Finished,
				TookMillis: 61_420},
			{Begin: at.Add(-2 * time.Hour), State: hours.Unfinished, TookMillis: 1_800_000},
		}})
	})
	golden(t, "sweeps_nothing", func(w io.Writer) { printHours(w, ops.Hours{}) })
}

// Without a database the records of the control topic are shown, but no passes by hand.
func TestBroker_SweepsShowsTheControlTopic(t *testing.T) {
	r := newRig(t)
	_, stderr, code := r.cli("sweeps")
	expect.That(t, code == 1 && strings.Contains(stderr, "order-close-control"), "without the topic: exit %d, %q", code, stderr)
	r.cli("topics", "apply")
	for why, missed := range map[control.SweepReason]int{control.SweepPeriod: 3, control.SweepOnce: 4} {
		s := control.Sweep{StartedAt: time.Now(), Why: why, Missed: missed, TookMillis: 12}
		r.append(r.cfg.Topics.Control, must.Get(s.Encode())(t), wire.Message{Value: []byte(`{"probe":1}`)})
	}
	r.append(r.cfg.Topics.Control, wire.Message{Key: []byte("lost"), Value: []byte(`{"topic":"delay_30m","partition":3}`)}) // of an older relay
	var out ops.Hours
	r.json(&out, 0, "sweeps")
	expect.That(t, len(out.Hours) == 1 && out.Hours[0].Missed == 3 && out.Hours[0].State == hours.Finished, "%+v", out)
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
