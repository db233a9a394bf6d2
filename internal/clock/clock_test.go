package clock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// The offset is too small by at most the round trip and the millisecond to which the other clock's time is truncated.
func TestBelieved_IsNeverAheadOfTheOtherClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "offset"))
		sent := time.Unix(1_700_000_000, rapid.Int64Range(0, 1e9).Draw(t, "sent"))
		there := time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "there"))
		back := time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "back"))
		at := sent.Add(there + truth).Truncate(time.Millisecond)
		got := boundsOf(sent, sent.Add(there+back), at).believed()
		switch {
		case got == 0 && truth.Abs() <= there+back+time.Millisecond:
		case got > truth:
			t.Fatalf("offset %v, and the true offset is %v", got, truth)
		case got < truth-there-back-time.Millisecond:
			t.Fatalf("offset %v, and the true offset is %v, with a round trip of %v", got, truth, there+back)
		}
	})
}

// Two brokers' clocks differ, and their answers take up to a second. The least of both counts, as exactly as the fastest of its answers shows it.
func TestLearnFromAck_TheLeastClockCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		ack := func(address string, ahead, there, back time.Duration) {
			time.Sleep(there)
			at := time.Now().Add(ahead)
			time.Sleep(back)
			c.LearnFromAck(address, at, there+back)
		}
		offset := func(want time.Duration, what string) {
			t.Helper()
			expect.Equal(t, c.Ahead(), want, "the offset %s", what)
		}
		offset(0, "before the first answer")
		ack("a:9092", time.Hour, 0, time.Second)
		offset(time.Hour-time.Second, "after a slow answer")
		ack("a:9092", time.Hour, 0, time.Millisecond)
		offset(time.Hour-time.Millisecond, "after a fast one")
		ack("a:9092", time.Hour, time.Second, time.Second)
		offset(time.Hour-time.Millisecond, "after a slow one again")
		ack("b:9092", time.Minute, time.Millisecond, 0)
		offset(time.Minute, "of another broker")
		ack("a:9092", -time.Hour, 0, 0)
		offset(-time.Hour, "after somebody has set a broker's clock")
		ack("a:9092", 20*time.Millisecond, 30*time.Millisecond, 30*time.Millisecond)
		offset(0, "within the error of its measurement")
		time.Sleep(keepBroker)
		offset(0, "after ten minutes of silence")
		ack("b:9092", 2*time.Minute, 0, 0)
		offset(2*time.Minute, "of the only broker that was heard in the last ten minutes")
	})
}

// The other clock is an hour ahead, answers slowly but for one answer of each three, and is set a minute back after 45 s.
func TestKeep_FollowsAnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, began, asked := New(nil), time.Now(), 0
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		ahead := func() time.Duration {
			if time.Since(began) > 45*time.Second {
				return 59 * time.Minute
			}
			return time.Hour
		}
		var offsets []time.Duration
		go c.Keep(ctx, func(context.Context) (time.Time, error) {
			if asked++; asked%3 != 2 {
				defer time.Sleep(time.Second)
			}
			return time.Now().Add(ahead()), nil
		}, func(offset time.Duration) { offsets = append(offsets, offset) }, slog.New(slog.DiscardHandler))
		for _, at := range []time.Duration{5 * time.Second, 40 * time.Second, 90 * time.Second} {
			time.Sleep(time.Until(began.Add(at)))
			synctest.Wait()
			expect.Equal(t, time.Until(c.Time()), ahead(), "the offset after %v", at)
		}
		<-ctx.Done()
		synctest.Wait()
		expect.Same(t, offsets, []time.Duration{time.Hour, time.Hour, 59 * time.Minute, 59 * time.Minute}, "measured")
	})
}

// Servers that start are asked each second, and one that is away for longer is named.
func TestKeep_WhileNothingAnswersTheLastOffsetStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c, began, measured := New(nil), time.Now(), 0
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		go c.Keep(ctx, func(context.Context) (time.Time, error) {
			if since := time.Since(began); since < 10*time.Second || since > time.Minute {
				return time.Time{}, errors.New("no broker")
			}
			return time.Now().Add(-time.Hour), nil
		}, func(time.Duration) { measured++ }, slog.New(slog.NewTextHandler(&log, nil)))
		time.Sleep(30 * time.Second)
		expect.That(t, measured == 1 && log.Len() == 0, "measured %d times, logged %q", measured, log.String())
		<-ctx.Done()
		synctest.Wait()
		expect.Equal(t, time.Until(c.Time()), -time.Hour, "the offset in the end")
		expect.That(t, strings.Contains(log.String(), "no broker"), "logged %q", log.String())
	})
}
