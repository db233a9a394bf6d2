package clock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// TestBelieved_IsNeverAheadOfTheBroker also requires that the offset is too small by at most
// the round trip and the millisecond to which the broker's time is truncated.
func TestBelieved_IsNeverAheadOfTheBroker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "offset"))
		sent := time.Unix(1_700_000_000, rapid.Int64Range(0, 1e9).Draw(t, "sent"))
		there := time.Duration(rapid.Int64Range(0, int64(probeSlow)).Draw(t, "there"))
		back := time.Duration(rapid.Int64Range(0, int64(probeSlow)-int64(there)).Draw(t, "back"))
		at := sent.Add(there + truth).Truncate(time.Millisecond)
		got := rangeOf(sent, sent.Add(there+back), at).believed()
		switch {
		case got == 0 && truth.Abs() <= there+back+time.Millisecond:
		case got > truth:
			t.Fatalf("offset %v, and the true offset is %v", got, truth)
		case got < truth-there-back-time.Millisecond:
			t.Fatalf("offset %v, and the true offset is %v, with a round trip of %v", got, truth, there+back)
		}
	})
}

// TestClock_IgnoresStepsOfLocalClock sets the local clock forward and back.
func TestClock_IgnoresStepsOfLocalClock(t *testing.T) {
	now := reading{time.Unix(1_700_000_000, 0), time.Hour}
	c := &Clock{local: func() reading { return now }}
	expect.That(t, c.Broker().Equal(now.wall), "before the first measurement the time is %v", c.Broker())
	broker := now.wall.Add(-time.Minute)
	c.lastSample.Store(&sample{local: now, broker: broker})
	for _, step := range []time.Duration{0, time.Hour, -time.Hour, 24 * time.Hour} {
		now.mono += time.Second
		now.wall = now.wall.Add(time.Second + step)
		broker = broker.Add(time.Second)
		expect.That(t, c.Broker().Equal(broker), "after the local clock was set by %v, Broker is %v, want %v", step, c.Broker(), broker)
	}
	expect.Equal(t, c.lastSample.Load().offset(), -time.Minute, "the offset")
}

func TestWasSet(t *testing.T) {
	from := reading{time.Unix(1_700_000_000, 0), time.Hour}
	for by, want := range map[time.Duration]bool{0: false, stepSize: false, stepSize + 1: true, -stepSize - 1: true, time.Hour: true} {
		to := reading{from.wall.Add(5*time.Second + by), from.mono + 5*time.Second}
		expect.Equal(t, wasSet(from, to), want, "set by %v", by)
	}
}

// TestClock_RestEndsWhenLocalClockIsSet within five seconds.
func TestClock_RestEndsWhenLocalClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var set atomic.Int64
		c := &Clock{mismatch: make(chan struct{}, 1), local: func() reading {
			passed := time.Since(began)
			return reading{began.Round(0).Add(passed + time.Duration(set.Load())), passed}
		}}
		for _, step := range []time.Duration{0, 5 * time.Minute} {
			from := time.Now()
			time.AfterFunc(11*time.Second, func() { set.Store(int64(step)) })
			want := probeEvery
			if step != 0 {
				want = 15 * time.Second
			}
			if ok := c.rest(t.Context(), probeEvery); !ok || time.Since(from) != want {
				t.Errorf("local clock set by %v: rest waits %v, %v; want %v", step, time.Since(from), ok, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		expect.That(t, !c.rest(ctx, probeEvery), "rest returns true after its context has ended")
	})
}

// TestClock_MeasuresSoonAfterMismatch requires a measurement at once when the clock of
// the partition's leader was set, or differs and was not known. Nothing is measured while brokers' clocks differ
// permanently.
func TestClock_MeasuresSoonAfterMismatch(t *testing.T) {
	const interval = 2 * time.Second // from the first append to the second
	for name, tc := range map[string]struct {
		first, second time.Duration // how far the leader's clock is ahead of the estimate
		took          time.Duration // the second append
		rests         time.Duration
	}{
		"matches":                        {0, stepSize, time.Second, probeEvery},
		"matches, slow answer":           {0, 0, 4 * time.Second, probeEvery},
		"is behind from the beginning":   {-15 * time.Second, -15 * time.Second, 0, 0},
		"is ahead from the beginning":    {15 * time.Second, 15 * time.Second, 0, 0},
		"is set back":                    {0, -time.Hour, time.Second, interval + time.Second},
		"is set forward":                 {0, 5 * time.Second, time.Second, interval + time.Second},
		"is set forward to the estimate": {-stepSize, 0, 0, probeEvery},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := New(nil)
			appends := func(ahead, took time.Duration) {
				sent, at := time.Now(), c.Broker().Add(ahead)
				time.Sleep(took)
				c.Appended("order-close", 0, sent, time.Now(), at)
			}
			from := time.Now()
			time.AfterFunc(0, func() { appends(tc.first, 0) })
			time.AfterFunc(interval, func() { appends(tc.second, tc.took) })
			if ok := c.rest(t.Context(), probeEvery); !ok || time.Since(from) != tc.rests {
				t.Errorf("a leader's clock that %s: rest waits %v, want %v", name, time.Since(from), tc.rests)
			}
			time.Sleep(time.Minute)
		})
	}
}

// TestClock_MeasuresRarelyWhileClocksDifferPermanently, and not after each append.
func TestClock_MeasuresRarelyWhileClocksDifferPermanently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		measured := 0
		go func() {
			for range 60 {
				for p := range 12 {
					c.Appended("order-close", p, time.Now(), time.Now(), c.Broker().Add(-15*time.Second))
				}
				time.Sleep(time.Second)
			}
		}()
		// The first append to each partition may cause a measurement of its own: the clock of
		// its leader is not known yet.
		time.Sleep(time.Second / 2)
		for from := time.Now(); time.Since(from) < time.Minute; measured++ {
			c.rest(t.Context(), probeEvery)
		}
		expect.That(t, measured <= 3, "the clock was measured %d times in a minute, want 3 at most", measured)
	})
}

// slowLog takes 250 ms for an append.
type slowLog struct{ oneProbe }

func (slowLog) ReportAppends(*Clock) (stop func()) { return func() {} }

func (slowLog) Append(context.Context, string, int, []wire.Message) (time.Time, error) {
	time.Sleep(125 * time.Millisecond)
	appended := time.Now()
	time.Sleep(125 * time.Millisecond)
	return appended, nil
}

// No sample is good, and one that is not good is better than none.
func TestClock_IsMeasuredWithSlowAppendsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(func() time.Time { return time.Now().Add(-5 * time.Minute) })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		measured := 0
		c.Keep(ctx, KeepOptions{Log: slowLog{}, Topic: "t", Measured: func(time.Duration) { measured++ }, Logger: slog.New(slog.DiscardHandler)})
		behind := time.Since(c.Broker())
		expect.That(t, measured != 0 && behind >= 0 && behind <= 250*time.Millisecond, "after %d measurements the estimate is %v behind", measured, behind)
	})
}

func TestClock_TakesTheNewestMeasurementOfTheDatabasesClock(t *testing.T) {
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
		c := New(nil)
		c.databaseAhead.Store(int64(7 * time.Second))
		c.setDatabaseAhead(row.measured, databaseMost)
		expect.Equal(t, c.DatabaseAhead(), row.want, "%s", row.name)
	}
}

// The control topic has other records, and probes of processes without a database.
func TestClock_ReadsTheDatabasesClockFromProbes(t *testing.T) {
	appended := time.UnixMilli(1_700_000_000_000)
	known := probeOf(reading{appended, time.Second}, appended.Add(time.Minute))
	unknown := probeOf(reading{appended, time.Second}, time.Time{})
	keyed := known
	keyed.Key = []byte("pause")
	for i, m := range []wire.Message{known, unknown, keyed, {Value: []byte("{")}} {
		m.Appended = appended
		r := m.Raw()
		ahead, ok := databaseAhead(&r)
		expect.That(t, ok == (i == 0) && (!ok || ahead == 61*time.Second), "%s %s: %v, %v", m.Key, m.Value, ahead, ok)
	}
}

// oneProbe is a log with one probe.
type oneProbe struct {
	Log
	probe wire.RawRecord
}

func (l oneProbe) Tail(_ context.Context, _ string, _ int, _ int64, each func(*wire.RawRecord)) error {
	each(&l.probe)
	return nil
}

// No process that knows the database probes any more: the brokers' clock may be right by now.
func TestClock_ForgetsOldProbes(t *testing.T) {
	m := probeOf(reading{time.Now(), 0}, time.Now())
	m.Appended = time.Now().Add(-time.Hour)
	c := New(nil)
	c.databaseAhead.Store(int64(time.Hour))
	if err := c.learnDatabase(t.Context(), oneProbe{probe: m.Raw()}, "control", nil, databaseTold); err != nil || c.DatabaseAhead() != 0 {
		t.Errorf("%v, %v, want 0", c.DatabaseAhead(), err)
	}
}

// A relay may have the address of a database that only closers reach.
func TestClock_LearnsFromOthersWhileItsOwnDatabaseDoesNotAnswer(t *testing.T) {
	appended := time.Now().Truncate(time.Millisecond)
	m := probeOf(reading{appended, 0}, appended.Add(2*time.Minute))
	m.Appended = appended
	c := New(nil)
	for _, own := range [][]time.Duration{nil, {time.Minute}} {
		want := 2 * time.Minute
		if len(own) > 0 {
			want = own[0]
		}
		if err := c.learnDatabase(t.Context(), oneProbe{probe: m.Raw()}, "control", own, databaseTold); err != nil || c.DatabaseAhead() != want {
			t.Errorf("its own measurement %v: %v, %v, want %v", own, c.DatabaseAhead(), err, want)
		}
	}
}

// Each part of the pipeline can append a probe. A forged one must not hold back the records of a relay for hours.
func TestClock_BelievesOthersThatTheDatabaseIsFiveMinutesBehind(t *testing.T) {
	appended := time.Now().Truncate(time.Millisecond)
	for ahead, want := range map[time.Duration]time.Duration{-3 * time.Hour: 0, -4 * time.Minute: -4 * time.Minute, 3 * time.Hour: 3 * time.Hour} {
		m := probeOf(reading{appended, 0}, appended.Add(ahead))
		m.Appended = appended
		c := New(nil)
		expect.NoError(t, c.learnDatabase(t.Context(), oneProbe{probe: m.Raw()}, "control", nil, databaseTold))
		expect.Between(t, c.DatabaseAhead(), want, want+2*time.Second, "told %v", ahead)
	}
}

func TestSmallest_IsNearestToZero(t *testing.T) {
	ms := func(n int) time.Time { return time.UnixMilli(int64(n)) }
	for _, c := range []struct {
		sent, answered, at int
		want               time.Duration
	}{
		{100, 110, 105, 0}, {100, 110, 110, 0}, {100, 110, 99, 0},
		{100, 110, 400, 290 * time.Millisecond}, {100, 110, 50, -49 * time.Millisecond},
	} {
		expect.Equal(t, rangeOf(ms(c.sent), ms(c.answered), ms(c.at)).smallest(), c.want, "%+v", c)
	}
}

// The database is a minute ahead of the brokers, and a leader a quarter of a minute.
func TestClock_ConvertsAppendTimesByTheClockOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.databaseAhead.Store(int64(time.Minute))
		expect.Equal(t, c.DatabaseAheadOf("t", 0), time.Minute, "of a leader that nobody knows")
		c.Appended("t", 0, time.Now(), time.Now(), time.Now().Add(15*time.Second))
		expect.Equal(t, c.DatabaseAheadOf("t", 0), 45*time.Second, "of a leader that is ahead")
		expect.Equal(t, c.DatabaseAheadOf("t", 1), time.Minute, "of another partition")
		c.databaseAhead.Store(0)
		expect.Equal(t, c.DatabaseAheadOf("t", 0), -15*time.Second, "after the database's clock was set")
		now, _ := c.Since(Moment{})
		c.lastSample.Store(&sample{local: c.local(), broker: time.Now().Add(-time.Minute)})
		c.Since(now)
		expect.Equal(t, c.DatabaseAheadOf("t", 0), 0, "after the brokers' clock went back")
	})
}

func TestClock_NotBeforeBelievesAnAppendTimeThatIsThirtySecondsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, read := New(nil), time.Now()
		c.databaseAhead.Store(int64(time.Minute))
		time.Sleep(2 * time.Second)
		for ahead, want := range map[time.Duration]time.Duration{-time.Hour: 0, 10 * time.Second: 10 * time.Second, maxSkew: maxSkew, maxSkew + 1: 0} {
			expect.Equal(t, c.NotBefore(read.Add(ahead), read).Sub(c.Database()), want, "a record that was appended %v after now", ahead)
		}
	})
}

func TestClock_IsDoubtfulIfTwoClocksDifferByMoreThanThirtySeconds(t *testing.T) {
	const more = maxSkew + 1
	for _, row := range []struct {
		broker, database, shown time.Duration // broker and shown are ahead of this machine, database of the brokers
		want                    bool
	}{
		{0, 0, 0, false}, {maxSkew, 0, maxSkew, false}, {more, 0, more, true}, {-more, 0, -more, true},
		{0, more, more, true}, {more, -more, 0, false}, {0, 0, more, true}, {0, 0, -more, true}, {maxSkew, 0, -1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := New(nil)
			c.lastSample.Store(&sample{local: c.local(), broker: time.Now().Add(row.broker)})
			c.databaseAhead.Store(int64(row.database))
			expect.Equal(t, c.Doubtful(time.Now().Add(row.shown)), row.want, "%+v", row)
			if row.shown == row.broker+row.database {
				expect.Equal(t, c.Doubtful(time.Time{}), row.want, "%+v, and no answer", row)
			}
		})
	}
}

// A step forward needs no correction.
func TestClock_SinceIsByHowMuchTheDatabasesClockWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		last, back := c.Since(Moment{})
		expect.Equal(t, back, 0, "since no moment")
		for _, step := range []struct{ by, want time.Duration }{{-time.Minute, time.Minute}, {time.Hour, 0}, {-stepSize + 1, 0}, {0, 0}} {
			time.Sleep(3 * time.Second)
			c.databaseAhead.Add(int64(step.by))
			last, back = c.Since(last)
			expect.Equal(t, back, step.want, "set by %v", step.by)
		}
	})
}
