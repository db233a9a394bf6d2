package wire

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestSweep_IsDecodedAsItWasEncoded(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 7, 0, time.UTC)
	for what, s := range map[string]Sweep{
		"all fields": {
			StartedAt: at, Cutoff: at.Add(-time.Minute), TookMillis: 420, Lock: "held", Holder: "shop-1/17", Why: SweepPeriod, PeriodMillis: 60_000,
			Found: 45, Closed: 1, AlreadyPaid: 2, AlreadyClosed: 3, NotDue: 4, Excluded: 5, Paused: 6, PaymentPending: 7, Failed: 8,
			Missed: 1, AfterPause: 2, AfterFailure: 3, OldestDue: at.Add(-time.Hour), Error: "the lock was lost",
			Failures: []Failure{{"o-1", "locked", "locked: a row", 3, at}},
		},
		"one that found nothing":          {StartedAt: at, Cutoff: at.Add(-time.Minute), Lock: "none", Holder: "shop-1/17", Why: SweepPeriod},
		"one that could not read a clock": {StartedAt: at, Lock: "none", Holder: "shop-1/17", Why: SweepOnce, Error: "read the database clock: refused"},
	} {
		m := must.Get(s.Encode())(t)
		got, err := DecodeSweep(m.Value)
		diff := cmp.Diff(s, got)
		expect.That(t, err == nil && diff == "" && string(m.Key) == KeySweep, "%s: key %q, %v (-want +got):\n%s", what, m.Key, err, diff)
	}
}

// A sweep that failed with a long error, or that found an order with a nonsensical due time, is recorded too.
func TestSweep_EncodeBoundsTheRecord(t *testing.T) {
	m, err := Sweep{StartedAt: time.Unix(1, 0), Holder: strings.Repeat("h", 10_000), Error: strings.Repeat("ä", 1<<20),
		OldestDue: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
		Failures:  slices.Repeat([]Failure{{Error: strings.Repeat("x", 1000)}}, 100)}.Encode()
	must.That(t, err == nil && len(m.Value) <= 2000+MaxFailures*600, "%d bytes, %v", len(m.Value), err)
	if s, err := DecodeSweep(m.Value); err != nil || !strings.HasPrefix(s.Error, "ää") || strings.Contains(s.Error, "\ufffd") || !s.OldestDue.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestDecodeSweep_RefusesOtherRecords(t *testing.T) {
	for _, value := range []string{"", "[]", "{}", `{"found":1}`, `{"started_at":"noon"}`, `{"path":"sweep","until":"2026-11-20T12:00:00Z"}`} {
		s, err := DecodeSweep([]byte(value))
		expect.That(t, err != nil, "%q is decoded as %+v", value, s)
	}
}

func TestProcess_IsARecordOfTheControlTopic(t *testing.T) {
	p := Process{Name: "compensator@host:17:9464", Version: "v1.2.0", Ended: true, EverySeconds: 60}
	m := must.Get(p.Encode())(t)
	var got Process
	err := json.Unmarshal(m.Value, &got)
	must.That(t, err == nil && string(m.Key) == KeyProcess, "%s %s, %v", m.Key, m.Value, err)
	expect.Same(t, got, p, "the process")
}
