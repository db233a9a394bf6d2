package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
)

func TestCompensate_Table(t *testing.T) {
	due := at
	miss := func(id string, why compensator.Cause, where, fix string) compensator.Miss {
		return compensator.Miss{Order: orderclose.Order{ID: id, Due: due}, Cause: why, Where: where, Fix: fix}
	}
	r := compensator.Report{
		StartedAt: at.Add(time.Hour), Found: 1237, Closed: 1231, AlreadyPaid: 2, PaymentPending: 3, Failed: 1, OldestDue: due, Lock: "held", TookMillis: 420,
		Failures: []compensator.Failure{{OrderID: "order-9", Error: "failed: no stock row"}},
		Causes:   map[string]int{"relay_behind": 1200, "dead_lettered": 1, "absent": 28, "unknown": 2},
		Misses: []compensator.Miss{
			miss("order-17", compensator.RelayBehind, "delay_5m/3@17", "orderclose run relay"), miss("order-18", compensator.RelayBehind, "delay_5m/3@18", "orderclose run relay"),
			miss("order-2", compensator.DeadLettered, "order-close-dead-letter/0@4", "orderclose dlq redrive --order order-2"),
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
