package kafka

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

func TestBrokerClock_TakesTheNewestMeasurementOfTheDatabasesClock(t *testing.T) {
	for _, row := range []struct {
		name     string
		measured []time.Duration // oldest first
		want     time.Duration
	}{
		{"nobody knows the database", nil, 7 * time.Second},
		{"a small difference", []time.Duration{400 * time.Millisecond}, 0},
		{"a large difference", []time.Duration{time.Minute}, time.Minute},
		{"the append that took least counts", []time.Duration{time.Minute, time.Minute - 2*time.Millisecond, time.Minute - 9*time.Millisecond}, time.Minute},
		{"a broker's clock was set since", []time.Duration{time.Hour, time.Hour, -time.Minute}, -time.Minute},
		{"older ones do not count", []time.Duration{5 * time.Second, 1 * time.Second, 1 * time.Second, 1 * time.Second}, time.Second},
	} {
		c := NewBrokerClock(nil)
		c.databaseAhead.Store(int64(7 * time.Second))
		c.setDatabaseAhead(row.measured)
		if got := c.DatabaseAhead(); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// The control topic has other records, and probes of processes without a database.
func TestBrokerClock_ReadsTheDatabasesClockFromProbes(t *testing.T) {
	appended := time.UnixMilli(1_700_000_000_000)
	known := probeOf(reading{appended, time.Second}, &databaseTime{appended.Add(time.Minute), 0})
	unknown := probeOf(reading{appended, time.Second}, nil)
	keyed := known
	keyed.Key = []byte("pause")
	for i, m := range []wire.Message{known, unknown, keyed, {Value: []byte("{")}} {
		m.Appended = appended
		r := m.Raw()
		ahead, ok := databaseAhead(&r)
		if ok != (i == 0) || ok && ahead != 61*time.Second {
			t.Errorf("%s %s: %v, %v", m.Key, m.Value, ahead, ok)
		}
	}
}
