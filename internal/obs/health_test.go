package obs

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/wire"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

func TestHandler_IsReadyWhenItWaitsForNothing(t *testing.T) {
	var ready Readiness
	h := Handler(prometheus.NewRegistry(), &ready, false)
	ready.Wait("kafka", "no route")
	ready.Wait("database", "refused")
	if code, body := get(t, h, "/-/ready"); code != 503 || body != "database: refused\nkafka: no route\n" {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := get(t, h, "/-/healthy"); code != 200 {
		t.Errorf("healthy is %d although only servers are away", code)
	}
	ready.Done("kafka")
	ready.Done("database")
	if code, _ := get(t, h, "/-/ready"); code != 200 {
		t.Errorf("ready is %d", code)
	}
	if code, _ := get(t, h, "/debug/pprof/"); code != 404 {
		t.Errorf("profiles answer %d although they are not enabled", code)
	}
}

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	r := prometheus.NewRegistry()
	m := NewMetrics(r, func() time.Time { return now })
	h := Handler(r, &Readiness{}, false)

	m.Head("delay_5m", 3, now.Add(-90*time.Second))
	m.Head("delay_5m", 4, now.Add(time.Minute))
	m.Head("delay_5m", 5, time.Time{})
	m.Head("delay_5m", 6, now.Add(-time.Hour))
	m.Revoked("delay_5m", 6)
	m.Backlog(wire.EventOutbox, wire.OutboxBacklog{Oldest: 1500 * time.Millisecond, Rows: 7})
	m.Dispatched(wire.EventOutbox, 3)
	m.StockRelease("already", time.Millisecond)
	m.StockWaiting(2)
	m.Forwarded("delay_5m", []time.Duration{2 * time.Millisecond})
	m.Verdict(orderclose.PathSweep, orderclose.Closed)
	m.Lateness(orderclose.PathPipeline, -time.Millisecond)
	m.Swept(compensator.Report{Found: 7, StartedAt: now, TookMillis: 500})
	m.Missed("unpublished", 7)
	m.LastSweep(now.Add(500 * time.Millisecond))
	m.Sweeping(now)
	m.Rescheduled(4)
	m.DeadLettered("relay", "bad_due")
	m.Breaker("close", "closed")
	m.Breaker("close", "open")
	m.Called("close", "timeout", 3*time.Second)
	m.Called("close", "refused", 0)
	m.CallLimit("close", 500*time.Millisecond)
	m.CallsFailing("close", now)
	m.PaymentAnswers("unknown", 3)

	_, body := get(t, h, "/metrics")
	for _, want := range []string{
		`orderclose_delay_head_overdue_seconds{partition="3",topic="delay_5m"} 90`,
		`orderclose_delay_head_overdue_seconds{partition="4",topic="delay_5m"} 0`,
		`orderclose_delay_head_overdue_seconds{partition="5",topic="delay_5m"} 0`,
		`orderclose_relay_early_total 0`,
		`orderclose_outbox_oldest_unpublished_seconds{outbox="events"} 1.5`,
		`orderclose_outbox_rows{outbox="events"} 7`,
		`orderclose_outbox_dispatched_total{outbox="events"} 3`,
		`orderclose_stock_release_total{result="already"} 1`,
		`orderclose_stock_release_waiting 2`,
		`orderclose_relay_lateness_seconds_count 1`,
		`orderclose_close_total{path="sweep",result="closed"} 1`,
		`orderclose_close_early_total 1`,
		`orderclose_compensator_found_total{cause="unpublished"} 7`,
		`orderclose_compensator_found_total{cause="unknown"} 0`,
		`orderclose_compensator_sweep_seconds_count 1`,
		`orderclose_compensator_sweep_running_since_timestamp_seconds 1.7e+09`,
		`orderclose_compensator_scheduled_again_total 4`,
		`orderclose_compensator_last_success_timestamp_seconds 1.7000000005e+09`,
		`orderclose_dead_letters_total{cause="bad_due",stage="relay"} 1`,
		`orderclose_breaker_state{endpoint="close"} 2`,
		`orderclose_call_seconds_count{endpoint="close",result="timeout"} 1`,
		`orderclose_calls_refused_total{endpoint="close"} 1`,
		`orderclose_call_timeout_seconds{endpoint="close"} 0.5`,
		`orderclose_calls_failing_since_timestamp_seconds{endpoint="close"} 1.7e+09`,
		`orderclose_payment_answers_total{answer="unknown"} 3`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	if strings.Contains(body, `partition="6"`) {
		t.Error("a revoked partition still has a metric")
	}
}
