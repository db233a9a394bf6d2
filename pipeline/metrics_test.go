package pipeline

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
)

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	r := testkit.NewMetrics()
	m, err := newMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Series("dead_letters_pending") + r.Series("dead_letters_read_timestamp_seconds"); n != 0 {
		t.Errorf("%d series of dead letters before the topic was read", n)
	}
	m.Breaker("close", "closed")
	m.Breaker("close", "open")
	m.Called("close", "timeout", 3*time.Second)
	m.Called("close", "refused", 0)
	m.CallLimit("close", 500*time.Millisecond)
	m.CallsFailing("close", now)
	m.PaymentAnswers("unknown", 3)
	m.DeadLettersPending(map[string]int{"bad_due": 2}, now, now)
	for _, c := range []struct {
		name, label, value string
		want               float64
	}{
		{"breaker_state", "endpoint", "close", 2},
		{"call_seconds", "result", "timeout", 1},
		{"calls_refused_total", "endpoint", "close", 1},
		{"call_timeout_seconds", "endpoint", "close", 0.5},
		{"calls_failing_since_timestamp_seconds", "endpoint", "close", 1.7e9},
		{"payment_answers_total", "answer", "unknown", 3},
		{"dead_letters_pending", "cause", "bad_due", 2},
	} {
		if got := r.Value(c.name, c.label, c.value); got != c.want {
			t.Errorf("%s{%s=%q} is %v, want %v", c.name, c.label, c.value, got, c.want)
		}
	}
	for _, name := range []string{"dead_letters_oldest_pending_timestamp_seconds", "dead_letters_read_timestamp_seconds"} {
		if got := r.Value(name); got != 1.7e9 {
			t.Errorf("%s is %v", name, got)
		}
	}
}
