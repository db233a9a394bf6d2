package closer

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"orderclose"
)

var epoch = time.UnixMilli(1_700_000_000_000)

func TestDecide_SettledVerdictsNeedNothingMore(t *testing.T) {
	for _, v := range []orderclose.Verdict{orderclose.Closed, orderclose.AlreadyPaid, orderclose.AlreadyClosed} {
		if d := decide(orderclose.Record{}, orderclose.Outcome{Verdict: v}); d.action != settle {
			t.Errorf("%s: %+v", v, d)
		}
	}
}

func TestDecide_WhatCannotBeClosedIsGivenUpWithItsCause(t *testing.T) {
	d := decide(orderclose.Record{}, orderclose.Outcome{Verdict: orderclose.NotFound})
	if d.action != give || d.cause != "not_found" {
		t.Errorf("not found: %+v", d)
	}
	d = decide(orderclose.Record{}, orderclose.Outcome{Verdict: orderclose.Failed, Err: errors.New("no stock row")})
	if d.action != give || d.cause != "failed" || d.detail != "no stock row" {
		t.Errorf("failed: %+v", d)
	}
}

// TestNotDue_NeverComesBackBeforeItIsDue, by the database's clock, and waits in
// memory only for a short while.
func TestNotDue_NeverComesBackBeforeItIsDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		remaining := time.Duration(rapid.Int64Range(1, int64(30*24*time.Hour)).Draw(t, "remaining"))
		r := orderclose.Record{Order: orderclose.Order{Due: epoch}, NotDue: rapid.IntRange(0, 100).Draw(t, "rounds")}
		o := orderclose.Outcome{Verdict: orderclose.NotDue, Due: epoch, At: epoch.Add(-remaining)}
		d := decide(r, o)
		switch {
		case d.wait < remaining:
			t.Fatalf("waits %v of %v", d.wait, remaining)
		case (d.action == park) != (remaining <= parkLimit):
			t.Fatalf("%v remain: %+v", remaining, d)
		case d.action == schedule && d.notDue != r.NotDue+1:
			t.Fatalf("round %d after %d", d.notDue, r.NotDue)
		case d.wait > max(remaining, politeMax):
			t.Fatalf("waits %v of %v", d.wait, remaining)
		}
	})
}

func TestNotDue_CountsAnewWhenTheDueTimeMoved(t *testing.T) {
	r := orderclose.Record{Order: orderclose.Order{Due: epoch}, NotDue: 7}
	o := orderclose.Outcome{Verdict: orderclose.NotDue, Due: epoch.Add(time.Hour), At: epoch}
	d := decide(r, o)
	if d.notDue != 1 || d.wait != time.Hour {
		t.Errorf("%+v, want round 1 after an hour", d)
	}
	m := orderclose.Message{Appended: epoch.Add(-time.Second)}
	next := again(r, m, 3*time.Second, o, d)
	if want := epoch.Add(2*time.Second + time.Hour); !next.Release.Equal(want) || !next.Order.Due.Equal(o.Due) {
		t.Errorf("released %v for an order due %v, want %v and %v", next.Release, next.Order.Due, want, o.Due)
	}
}

func TestPoliteness_GrowsFromTheThirdRoundToAMinute(t *testing.T) {
	for round, want := range map[int]time.Duration{1: 0, 2: 0, 3: 10 * time.Second, 4: 20 * time.Second, 5: 40 * time.Second, 6: time.Minute, 1000: time.Minute} {
		if got := politeness(round); got != want {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
	}
}
