package kafka

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// TestOffsetOf_IsNeverAheadOfTheBroker also requires that the offset is too small by at most
// the round trip and the millisecond to which the broker's time is truncated.
func TestOffsetOf_IsNeverAheadOfTheBroker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "offset"))
		sent := time.Unix(1_700_000_000, rapid.Int64Range(0, 1e9).Draw(t, "sent"))
		there := time.Duration(rapid.Int64Range(0, int64(probeSlow)).Draw(t, "there"))
		back := time.Duration(rapid.Int64Range(0, int64(probeSlow)-int64(there)).Draw(t, "back"))
		at := sent.Add(there + truth).Truncate(time.Millisecond)
		got := offsetOf(sent, sent.Add(there+back), at)
		switch {
		case got == 0 && truth.Abs() <= there+back+time.Millisecond:
		case got > truth:
			t.Fatalf("offset %v, and the true offset is %v", got, truth)
		case got < truth-there-back-time.Millisecond:
			t.Fatalf("offset %v, and the true offset is %v, with a round trip of %v", got, truth, there+back)
		}
	})
}

// TestBrokerClock_IgnoresStepsOfLocalClock sets the local clock forward and back.
func TestBrokerClock_IgnoresStepsOfLocalClock(t *testing.T) {
	now := reading{time.Unix(1_700_000_000, 0), time.Hour}
	c := &BrokerClock{local: func() reading { return now }}
	expect.That(t, c.Now().Equal(now.wall), "before the first measurement the time is %v", c.Now())
	broker := now.wall.Add(-time.Minute)
	c.lastSample.Store(&sample{local: now, broker: broker})
	for _, step := range []time.Duration{0, time.Hour, -time.Hour, 24 * time.Hour} {
		now.mono += time.Second
		now.wall = now.wall.Add(time.Second + step)
		broker = broker.Add(time.Second)
		expect.That(t, c.Now().Equal(broker), "after the local clock was set by %v, Now is %v, want %v", step, c.Now(), broker)
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

// TestBrokerClock_RestEndsWhenLocalClockIsSet within five seconds.
func TestBrokerClock_RestEndsWhenLocalClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var set atomic.Int64
		c := &BrokerClock{mismatch: make(chan struct{}, 1), local: func() reading {
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

// TestBrokerClock_MeasuresSoonAfterMismatch requires a measurement at once when the clock of
// the partition's leader was set, and one every five seconds while brokers' clocks differ
// permanently.
func TestBrokerClock_MeasuresSoonAfterMismatch(t *testing.T) {
	const interval = 2 * time.Second // from the first append to the second
	for name, tc := range map[string]struct {
		first, second time.Duration // how far the leader's clock is ahead of the estimate
		took          time.Duration // the second append
		rests         time.Duration
	}{
		"matches":                        {0, stepSize, time.Second, probeEvery},
		"matches, slow answer":           {0, 0, 4 * time.Second, probeEvery},
		"is behind from the beginning":   {-15 * time.Second, -15 * time.Second, 0, 0},
		"is ahead from the beginning":    {15 * time.Second, 15 * time.Second, 0, stepEvery},
		"is set back":                    {0, -time.Hour, time.Second, interval + time.Second},
		"is set forward":                 {0, 5 * time.Second, time.Second, interval + time.Second},
		"is set back to the estimate":    {5 * time.Second, 0, 0, stepEvery},
		"is set forward to the estimate": {-stepSize, 0, 0, probeEvery},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := NewBrokerClock(nil)
			appends := func(ahead, took time.Duration) {
				sent := c.local()
				at := c.Now().Add(ahead)
				time.Sleep(took)
				c.compare(topicPartition{"order-close", 0}, sent, at)
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

// TestBrokerClock_MeasuresRarelyWhileClocksDifferPermanently, and not after each append.
func TestBrokerClock_MeasuresRarelyWhileClocksDifferPermanently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewBrokerClock(nil)
		measured := 0
		go func() {
			for range 60 {
				for p := range 12 {
					c.compare(topicPartition{"order-close", p}, c.local(), c.Now().Add(-15*time.Second))
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
		expect.That(t, measured <= 15, "the clock was measured %d times in a minute, want about 12", measured)
	})
}

// Each append takes 250 ms, so no sample is good, and one that is not good is better than none.
func TestBrokerClock_IsMeasuredWithSlowAppendsToo(t *testing.T) {
	const took = 250 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
		b.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
			b.KeepControl()
			req := r.(*kmsg.ProduceRequest)
			res := req.ResponseKind().(*kmsg.ProduceResponse)
			appended := time.Now().Add(took / 2)
			b.SleepControl(func() { time.Sleep(took) })
			for _, topic := range req.Topics {
				out, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
				partition.LogAppendTime = appended.UnixMilli()
				out.Topic, out.Partitions = topic.Topic, append(out.Partitions, partition)
				res.Topics = append(res.Topics, out)
			}
			return res, nil, true
		})
		c := b.cluster(Options{})
		defer c.Close()
		clock := NewBrokerClock(func() time.Time { return time.Now().Add(-5 * time.Minute) })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		measured := 0
		clock.Keep(ctx, c, "t", func(time.Duration) { measured++ })
		behind := time.Since(clock.Now())
		expect.That(t, measured != 0 && behind >= 0 && behind <= took, "after %d measurements the estimate is %v behind", measured, behind)
		time.Sleep(10 * time.Second)
		b.Close()
	})
}

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
		c.setDatabaseAhead(row.measured, databaseMost)
		expect.Equal(t, c.DatabaseAhead(), row.want, "%s", row.name)
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
		expect.That(t, ok == (i == 0) && (!ok || ahead == 61*time.Second), "%s %s: %v, %v", m.Key, m.Value, ahead, ok)
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
	if err := c.learnDatabase(t.Context(), oneProbe{m.Raw()}, "control", nil, databaseTold); err != nil || c.DatabaseAhead() != 0 {
		t.Errorf("%v, %v, want 0", c.DatabaseAhead(), err)
	}
}

// A relay may have the address of a database that only closers reach.
func TestBrokerClock_LearnsFromOthersWhileItsOwnDatabaseDoesNotAnswer(t *testing.T) {
	appended := time.Now().Truncate(time.Millisecond)
	m := probeOf(reading{appended, time.Second}, &databaseTime{appended.Add(2 * time.Minute), time.Second})
	m.Appended = appended
	c := NewBrokerClock(nil)
	c.Database = func(context.Context) (time.Time, error) { return time.Time{}, errors.New("no route to host") }
	for _, own := range [][]time.Duration{nil, {time.Minute}} {
		want := 2 * time.Minute
		if len(own) > 0 {
			want = own[0]
		}
		if err := c.learnDatabase(t.Context(), oneProbe{m.Raw()}, "control", own, databaseTold); err != nil || c.DatabaseAhead() != want {
			t.Errorf("its own measurement %v: %v, %v, want %v", own, c.DatabaseAhead(), err, want)
		}
	}
}

// Each part of the pipeline can append a probe. A forged one must not hold back the records of a relay for hours.
func TestBrokerClock_BelievesOthersThatTheDatabaseIsFiveMinutesBehind(t *testing.T) {
	appended := time.Now().Truncate(time.Millisecond)
	for ahead, want := range map[time.Duration]time.Duration{-3 * time.Hour: 0, -4 * time.Minute: -4 * time.Minute, 3 * time.Hour: 3 * time.Hour} {
		m := probeOf(reading{appended, time.Second}, &databaseTime{appended.Add(ahead), time.Second})
		m.Appended = appended
		c := NewBrokerClock(nil)
		expect.NoError(t, c.learnDatabase(t.Context(), oneProbe{m.Raw()}, "control", nil, databaseTold))
		expect.Between(t, c.DatabaseAhead(), want, want+2*time.Second, "told %v", ahead)
	}
}
