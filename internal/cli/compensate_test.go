package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	hours "github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestHours_LastDay(t *testing.T) {
	h := ops.Hours{Hours: []hours.Hour{
		{Begin: at, Counts: hours.Counts{Missed: 1}},
		{Begin: at.Add(-time.Hour), Counts: hours.Counts{Missed: 20, AfterPause: 1000, AfterFailure: 180, NotClosed: 4}, State: hours.Finished},
		{Begin: at.Add(-2 * time.Hour), State: hours.Unfinished},
		{Begin: at.Add(-25 * time.Hour), Counts: hours.Counts{Missed: 9}},
	}}
	const want = "21 missed, 1000 after a pause, 180 after a failure, 4 not closed at the first try; 1 compensation did not finish"
	expect.Equal(t, h.LastDay(at.Add(time.Minute)).String(), want, "the last day")
	expect.That(t, ops.Hours{}.LastDay(at) == nil, "nothing is known")
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
