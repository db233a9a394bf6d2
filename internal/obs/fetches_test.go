package obs

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMetrics_HaveTheTimeForWhichFetchesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		m := NewMetrics(r, nil)
		h := Handler(r, &Readiness{}, false)
		wantLines := func(want ...string) {
			t.Helper()
			_, body := get(t, h, "/metrics")
			var lines []string
			for line := range strings.Lines(body) {
				if strings.HasPrefix(line, "orderclose_fetch_failing_seconds") {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			if !slices.Equal(lines, want) {
				t.Errorf("%q, want %q", lines, want)
			}
		}
		const relay, closer = `orderclose_fetch_failing_seconds{partition="3",stage="relay",topic="delay_5m"} `,
			`orderclose_fetch_failing_seconds{partition="3",stage="closer",topic="order-close"} `

		m.FetchFailing("relay", "delay_5m", 3, time.Time{})
		m.FetchFailing("closer", "order-close", 3, time.Now())
		time.Sleep(90 * time.Second)
		wantLines(closer+"90", relay+"0")
		m.FetchFailing("closer", "order-close", 3, time.Time{})
		wantLines(closer+"0", relay+"0")
		m.FetchEnded("closer", "order-close", 3)
		wantLines(relay + "0")
	})
}
