package kafka

import (
	"context"
	"errors"
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
		{"nobody knows the database", nil, 0},
		{"garbage", []time.Duration{-150 * 365 * 24 * time.Hour}, 0},
		{"a small difference", []time.Duration{400 * time.Millisecond}, 0},
		{"a large difference", []time.Duration{time.Minute}, time.Minute},
		{"the append that took least counts", []time.Duration{time.Minute, time.Minute - 2*time.Millisecond, time.Minute - 9*time.Millisecond}, time.Minute},
		{"a broker's clock was set since", []time.Duration{time.Hour, -time.Minute, -time.Minute}, -time.Minute},
		{"two measurements differ", []time.Duration{time.Hour, -time.Minute}, -time.Minute},
		{"all measurements differ", []time.Duration{time.Hour, time.Minute, -time.Minute}, -time.Minute},
		{"an append took long", []time.Duration{time.Minute, time.Minute, 50 * time.Second}, time.Minute},
		{"the append before the last took long", []time.Duration{0, -10 * time.Second, 0}, 0},
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

// oneProbe is a log with one probe.
type oneProbe struct{ probe wire.RawRecord }

func (oneProbe) Bounds(context.Context, string, int) (first, end int64, err error) { return 0, 1, nil }

func (l oneProbe) Read(context.Context, wire.Position) (wire.Fetched, error) {
	return wire.Fetched{Records: []wire.RawRecord{l.probe}, Next: 1}, nil
}

// No process that knows the database probes any more: the brokers' clock may be right by now.
func TestBrokerClock_ForgetsOldProbes(t *testing.T) {
	m := probeOf(reading{time.Now(), time.Second}, &databaseTime{time.Now(), time.Second})
	m.Appended = time.Now().Add(-time.Hour)
	c := NewBrokerClock(nil)
	c.databaseAhead.Store(int64(time.Hour))
	if err := c.learnDatabase(t.Context(), oneProbe{m.Raw()}, "control", nil); err != nil || c.DatabaseAhead() != 0 {
		t.Errorf("%v, %v, want 0", c.DatabaseAhead(), err)
	}
}

// A relay may have the address of a database that only closers reach.
func TestBrokerClock_LearnsFromOthersWhileItsOwnDatabaseDoesNotAnswer(t *testing.T) {
	appended := time.Now().Truncate(time.Millisecond)
	m := probeOf(reading{appended, time.Second}, &databaseTime{appended.Add(time.Hour), time.Second})
	m.Appended = appended
	c := NewBrokerClock(nil)
	c.Database = func(context.Context) (time.Time, error) { return time.Time{}, errors.New("no route to host") }
	for _, own := range [][]time.Duration{nil, {time.Minute}} {
		want := time.Hour
		if len(own) > 0 {
			want = own[0]
		}
		if err := c.learnDatabase(t.Context(), oneProbe{m.Raw()}, "control", own); err != nil || c.DatabaseAhead() != want {
			t.Errorf("its own measurement %v: %v, %v, want %v", own, c.DatabaseAhead(), err, want)
		}
	}
}
