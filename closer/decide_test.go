package closer

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

var epoch = time.UnixMilli(1_700_000_000_000)

func TestDecide_SettlesFinalVerdicts(t *testing.T) {
	for _, v := range []orderclose.Verdict{orderclose.Closed, orderclose.AlreadyPaid, orderclose.AlreadyClosed} {
		d := decide(wire.Record{}, orderclose.Outcome{Verdict: v}, epoch, 0)
		expect.That(t, d.action == settle, "%s: %+v", v, d)
	}
}

// The due time of an order became "never" after its record was sent.
func TestDecide_AnOrderWithoutAVerdictWaitsInMemory(t *testing.T) {
	d := decide(wire.Record{Attempt: 3}, orderclose.Outcome{Err: errors.New("no answer")}, epoch, 0)
	expect.That(t, d.action == park && d.wait == contendedWait && d.record.Attempt == 3, "%+v, want a wait that uses up no attempt", d)
}

func TestDecide_SettlesAnOrderThatIsNeverClosed(t *testing.T) {
	r := wire.Record{Order: orderclose.Order{ID: "o", Due: epoch}, Attempt: 2, NotDue: 7}
	for _, never := range []time.Time{orderclose.NeverDue, time.Date(9999, 12, 31, 0, 0, 0, 0, time.FixedZone("", 14*3600))} {
		d := decide(r, orderclose.Outcome{OrderID: "o", Verdict: orderclose.NotDue, Due: never, At: epoch}, epoch, 0)
		expect.That(t, d.action == settle, "due at %v: its record goes on: %+v", never, d)
	}
}

func TestDecide_RetriesAfter1And2And4MinutesThenGivesUp(t *testing.T) {
	for _, verdict := range []struct {
		outcome       orderclose.Outcome
		cause, detail string
	}{
		{orderclose.Outcome{Verdict: orderclose.NotFound}, "not_found", "row_not_found: the store says not_found"},
		{orderclose.Outcome{Verdict: orderclose.Failed, Err: errors.New("no stock row")}, "failed", "no stock row"},
		{orderclose.Outcome{Verdict: "shrug"}, "failed", `the store returned the unknown verdict "shrug"`},
		{orderclose.Outcome{Verdict: orderclose.NotDue, At: epoch.UTC()}, "failed",
			"the store returned not_due, but the due time 0001-01-01 00:00:00 +0000 UTC is not after its clock, 2023-11-14 22:13:20 +0000 UTC"},
	} {
		r := wire.Record{Order: orderclose.Order{ID: "o", Due: epoch}, Lane: wire.LaneReplay, NotDue: 1}
		for n, minutes := range []time.Duration{1, 2, 4} {
			d := decide(r, verdict.outcome, epoch, 0.5)
			want := minutes * time.Minute
			expect.That(t, d.action == schedule && d.retry && d.wait == want+want/20 && d.cause == verdict.cause && d.detail == verdict.detail,
				"after %d failures: %+v, want a wait of %v", n, d, want)
			before := r
			r = d.record
			before.Attempt, before.Cause = n+1, verdict.cause
			expect.Same(t, r, before, "the record after %d failures, apart from attempt and cause", n)
		}
		if d := decide(r, verdict.outcome, epoch, 0); d.action != giveUp || d.cause != verdict.cause || d.detail != verdict.detail {
			t.Errorf("after three tries: %+v", d)
		}
	}
}

func TestDecide_AsksTheProviderForADay(t *testing.T) {
	r := wire.Record{Attempt: 2}
	at := epoch
	var waits []time.Duration
	for {
		must.That(t, len(waits) <= 200, "not given up after %d waits", len(waits))
		d := decide(r, orderclose.Outcome{Verdict: orderclose.PaymentPending}, at, 0)
		if d.action == giveUp {
			expect.That(t, d.cause == "payment_unresolved" && r.Attempt == 2 && len(waits) == 4+(24*60-15)/15,
				"given up: %+v after %d waits with attempt %d", d, len(waits), r.Attempt)
			break
		}
		waits, at, r = append(waits, d.wait/time.Minute), at.Add(d.wait), d.record
	}
	expect.Same(t, waits[:7], []time.Duration{1, 2, 4, 8, 15, 15, 15}, "minutes between questions")
	expect.That(t, at.Equal(epoch.Add(24*time.Hour)), "not given up after a day")
}

// The store gives any verdicts in any order. Each retry waits at least its minimum, in a bucket.
func TestDecide_RetriesEnd(t *testing.T) {
	buckets := orderclose.Buckets{{Topic: "delay_1s", Length: time.Second}, {Topic: "delay_1m", Length: time.Minute}}
	rapid.Check(t, func(t *rapid.T) {
		verdicts := rapid.SampledFrom([]orderclose.Verdict{orderclose.Failed, orderclose.NotFound, orderclose.PaymentPending})
		r := wire.Record{Order: orderclose.Order{ID: "o", CreatedAt: epoch, Due: epoch}, Release: epoch}
		at := epoch.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "late")))
		first := wire.Origin{Topic: "order-close", Partition: 1, Offset: 17}
		begin, failures := at, 0
		const most = 200 // a day of waits of 15 minutes, and the retries
		for round := 0; ; round++ {
			must.That(t, round <= most, "not given up after %d rounds", round)
			v := verdicts.Draw(t, "verdict")
			d := decide(r, orderclose.Outcome{Verdict: v, Due: epoch, At: epoch}, at, rapid.Float64Range(0, 1).Draw(t, "jitter"))
			if d.action == giveUp {
				must.That(t, v == orderclose.PaymentPending || failures == maxOrderRetries, "given up after %d retries", failures)
				break
			}
			if v != orderclose.PaymentPending {
				failures++
			}
			least, most := retryBase<<max(failures-1, 0), (retryBase<<max(failures-1, 0))*11/10
			if v == orderclose.PaymentPending {
				least, most = min(paymentRetryBase, begin.Add(paymentTimeout).Sub(at)), paymentRetryMax*11/10
				if r.PendingSince.IsZero() {
					begin = at
					least = paymentRetryBase
				}
			}
			switch {
			case d.action != schedule || !d.retry || failures > maxOrderRetries || d.record.Attempt != failures || d.record.Cause != string(v):
				t.Fatalf("round %d, %s after %d failures: %+v", round, v, failures, d)
			case d.wait < least || d.wait > most:
				t.Fatalf("round %d, %s after %d failures waits %v, want %v to %v", round, v, failures, d.wait, least, most)
			case round > 110:
				t.Fatal("the retries do not end")
			}
			here := first
			here.Offset += int64(round) // each retry has a higher offset
			m, err := d.retryRecord(at, here).Encode()
			must.Do(t, err)
			if r, err = m.Decode(); err != nil { // as the closer reads it again
				t.Fatal(err)
			}
			must.That(t, r.Origin == first && !r.Release.Before(at.Add(d.wait)) && buckets.Pick(d.wait).Topic != "", "round %d: %+v at %v", round, r, at)
			at = r.Release.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "late again")))
		}
	})
}

// The brokers' clock agrees with the database's, and the order waits in memory only for a short while.
func TestNotDue_NeverComesBackBeforeItIsDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		remaining := time.Duration(rapid.Int64Range(1, int64(30*24*time.Hour)).Draw(t, "remaining"))
		r := wire.Record{Order: orderclose.Order{Due: epoch}, NotDue: rapid.IntRange(0, 100).Draw(t, "rounds")}
		o := orderclose.Outcome{Verdict: orderclose.NotDue, Due: epoch, At: epoch.Add(-remaining)}
		d := decide(r, o, epoch.Add(-remaining), 0)
		switch {
		case d.retry:
			t.Fatalf("counts as a failure: %+v", d)
		case d.action == schedule && d.wait < remaining:
			t.Fatalf("waits %v of %v", d.wait, remaining)
		case remaining <= parkLimit && d.action != park, remaining > parkLimit && r.NotDue < notDueRounds && d.action != schedule:
			t.Fatalf("%v remain: %+v", remaining, d)
		case r.NotDue >= notDueRounds && d.action == schedule && decide(d.record, o, o.At, 0).action == schedule:
			t.Fatalf("two rounds in a bucket without one in memory: %+v", d)
		case remaining > parkLimit && d.record.NotDue != r.NotDue+1:
			t.Fatalf("round %d after %d", d.record.NotDue, r.NotDue)
		case d.wait > max(remaining, doubtWait):
			t.Fatalf("waits %v of %v", d.wait, remaining)
		}
	})
}

// The order waits a minute at most before the database is asked again, so that no release time is taken from the wrong clock.
func TestInMemory_AWaitThatFollowsFromTheClocksIsAMinuteAtMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		remaining := time.Duration(rapid.Int64Range(int64(parkLimit)+1, int64(48*time.Hour)).Draw(t, "remaining"))
		r := wire.Record{Order: orderclose.Order{Due: epoch}, NotDue: rapid.IntRange(0, 100).Draw(t, "rounds")}
		o := orderclose.Outcome{Verdict: orderclose.NotDue, Due: epoch, At: epoch.Add(-remaining)}
		d := decide(r, o, o.At, 0).inMemory()
		must.That(t, d.action == park && !d.retry && d.wait == min(remaining, doubtWait) && d.record.NotDue == r.NotDue+1,
			"%v remain: %+v", remaining, d)
		if d = d.inBucket(0); d.action != schedule || d.retry || d.wait < remaining {
			t.Fatalf("%v remain, and memory has no room: %+v", remaining, d)
		}
	})
}

func TestNotDue_CountsFromZeroWhenTheDueTimeMoved(t *testing.T) {
	r := wire.Record{Order: orderclose.Order{Due: epoch}, NotDue: 7, Attempt: 3, Cause: "failed", PendingSince: epoch,
		Lane: wire.LaneReplay, Origin: wire.Origin{Topic: "order-close"}}
	o := orderclose.Outcome{Verdict: orderclose.NotDue, Due: epoch.Add(time.Hour), At: epoch}
	d := decide(r, o, epoch, 0)
	want := wire.Record{Order: orderclose.Order{Due: o.Due}, NotDue: 1, Lane: wire.LaneReplay}
	expect.Same(t, d.record, want, "the record")
	expect.Equal(t, d.wait, time.Hour, "the wait")
	at := epoch.Add(2 * time.Second)
	next := d.retryRecord(at, wire.Origin{Topic: "here"})
	expect.That(t, next.Release.Equal(at.Add(time.Hour)) && next.Origin.Topic == "", "%+v, want it released an hour after %v", next, at)
}

// The counters of the old due time are gone.
func TestNotDue_ParksWithTheNewDueTime(t *testing.T) {
	r := wire.Record{Order: orderclose.Order{ID: "o", Due: epoch}, NotDue: 2, Attempt: 1, Cause: "failed", Lane: wire.LaneReplay}
	d := decide(r, orderclose.Outcome{Verdict: orderclose.NotDue, Due: epoch.Add(8 * time.Second), At: epoch}, epoch, 0)
	want := wire.Record{Order: orderclose.Order{ID: "o", Due: epoch.Add(8 * time.Second)}, Lane: wire.LaneReplay}
	if diff := cmp.Diff(want, d.record); d.action != park || d.wait != 8*time.Second || diff != "" {
		t.Errorf("%+v (-want +got):\n%s", d, diff)
	}
	micro := orderclose.Outcome{Verdict: orderclose.NotDue, Due: epoch.Add(-time.Microsecond), At: epoch.Add(-time.Second)}
	if d := decide(r, micro, epoch, 0); d.action != park || d.record.Attempt != 1 {
		t.Errorf("%+v; the record's due time is the database's, rounded up, and has not moved", d)
	}
	if d := decide(r, orderclose.Outcome{Verdict: orderclose.Contended}, epoch, 0); d.action != park || !cmp.Equal(d.record, r) {
		t.Errorf("%+v; want it parked unchanged", d)
	}
}

func TestNotDue_EveryOtherWaitAfterTwoEarlyArrivalsIsInMemory(t *testing.T) {
	for rounds, want := range map[int]action{0: schedule, 1: schedule, 2: park, 3: schedule, 4: park, 1000: park} {
		r := wire.Record{Order: orderclose.Order{Due: epoch}, NotDue: rounds}
		d := decide(r, orderclose.Outcome{Verdict: orderclose.NotDue, Due: epoch, At: epoch.Add(-time.Hour)}, epoch.Add(-time.Hour), 0)
		expect.That(t, d.action == want && (want == schedule || d.wait == doubtWait && d.bucketWait == time.Hour), "after %d rounds: %+v", rounds, d)
	}
}

func TestZoneShift_IsWholeQuarterHours(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for shift, want := range map[time.Duration]time.Duration{
		0: 0, 400 * time.Millisecond: 0, 8 * time.Hour: 8 * time.Hour, -8*time.Hour + 700*time.Millisecond: -8 * time.Hour,
		5*time.Hour + 45*time.Minute: 5*time.Hour + 45*time.Minute, 20 * time.Minute: 0, 8*time.Hour + 2*time.Second: 0, 15 * time.Hour: 0,
	} {
		expect.Equal(t, zoneShift(at, at.Add(shift)), want, "%v later: the shift", shift)
	}
	expect.Equal(t, zoneShift(at, time.Time{}), 0, "without a due time")
}
