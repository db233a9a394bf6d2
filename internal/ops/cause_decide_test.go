package ops

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func in(kind TopicKind, leaves time.Duration, again bool) match {
	return match{Topic: &HistoryTopic{Topic: string(kind), Kind: kind}, Partition: 3, Offset: 17, Leaves: now.Add(leaves).UnixMilli(), Again: again}
}

func TestDecide(t *testing.T) {
	overdue, later, retry := in(KindBucket, -time.Minute, false), in(KindBucket, time.Minute, false), in(KindBucket, time.Minute, true)
	unreadable := match{Topic: &HistoryTopic{Topic: "bucket", Kind: KindBucket}, Partition: 3, Offset: 17}
	dead, due, replayed := in(KindDeadLetters, 0, true), in(KindClose, 0, false), in(KindReplay, 0, false)
	for what, c := range map[string]struct {
		e     evidence
		want  compensator.Cause
		where string
	}{
		"nothing":                      {evidence{}, compensator.Absent, ""},
		"nothing, and not all seen":    {evidence{notRead: "spent"}, compensator.Unknown, "spent"},
		"a row":                        {evidence{row: 9}, compensator.Unpublished, "outbox_schedules row 9"},
		"a row, and its record":        {evidence{row: 9, matches: []match{due}}, compensator.Unpublished, "outbox_schedules row 9"},
		"overdue in a bucket":          {evidence{matches: []match{overdue}}, compensator.RelayBehind, "bucket/3@17"},
		"about to leave":               {evidence{matches: []match{in(KindBucket, -time.Second, false)}}, compensator.LaterRelease, "bucket/3@17"},
		"an overdue retry":             {evidence{matches: []match{in(KindBucket, -time.Minute, true)}}, compensator.RelayBehind, "bucket/3@17"},
		"unreadable":                   {evidence{matches: []match{unreadable}}, compensator.RelayBehind, "bucket/3@17"},
		"later":                        {evidence{matches: []match{later}}, compensator.LaterRelease, "bucket/3@17"},
		"a retry":                      {evidence{matches: []match{retry}}, compensator.Retrying, "bucket/3@17"},
		"in the close topic":           {evidence{matches: []match{due}}, compensator.CloserBehind, "close/3@17"},
		"in the replay topic":          {evidence{matches: []match{replayed}}, compensator.CloserBehind, "replay/3@17"},
		"dead":                         {evidence{matches: []match{dead}}, compensator.DeadLettered, "dead_letter/3@17"},
		"dead, and a record for later": {evidence{matches: []match{later, dead}}, compensator.DeadLettered, "dead_letter/3@17"},
		"dead, and tried again":        {evidence{matches: []match{dead, retry}}, compensator.Retrying, "bucket/3@17"},
		"found, and not all seen":      {evidence{matches: []match{overdue}, notRead: "spent"}, compensator.RelayBehind, "bucket/3@17"},
	} {
		if why, where := decide(c.e, now); why != c.want || where != c.where {
			t.Errorf("%s: %s, %q; want %s, %q", what, why, where, c.want, c.where)
		}
	}
}

// TestDecide_HoldsForAnyEvidence: the order of the records does not matter, one more record
// never makes an order absent, and unknown means that nothing was found.
func TestDecide_HoldsForAnyEvidence(t *testing.T) {
	matches := rapid.Custom(func(t *rapid.T) match {
		kind := rapid.SampledFrom([]TopicKind{KindBucket, KindClose, KindReplay, KindDeadLetters}).Draw(t, "kind")
		return in(kind, time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "leaves")), rapid.Bool().Draw(t, "again"))
	})
	rapid.Check(t, func(t *rapid.T) {
		e := evidence{
			row: rapid.Int64Range(0, 2).Draw(t, "row"), matches: rapid.SliceOfN(matches, 0, 6).Draw(t, "matches"),
			notRead: rapid.SampledFrom([]string{"", "spent"}).Draw(t, "unseen"),
		}
		why, _ := decide(e, now)
		if !slices.Contains(compensator.Causes(), why) {
			t.Fatalf("%q is no cause", why)
		}
		if found := e.row > 0 || len(e.matches) > 0; found == (why == compensator.Absent || why == compensator.Unknown) {
			t.Fatalf("%+v: %s", e, why)
		}
		other := e
		other.matches = slices.Clone(e.matches)
		slices.Reverse(other.matches)
		if again, _ := decide(other, now); again != why {
			t.Fatalf("%+v: %s, and in another order %s", e, why, again)
		}
		if fix := fixOne(compensator.Miss{Cause: why}); fix == "" || FixCommand(why) == "" {
			t.Fatalf("nothing fixes %s", why)
		}
	})
}

func TestFixOne_CanBePastedIntoAShell(t *testing.T) {
	for id, want := range map[string]string{
		"order-17": "orderclose order order-17", "a b": "orderclose order 'a b'",
		"it's; rm": `orderclose order 'it'\''s; rm'`, "-x": "orderclose order '-x'",
	} {
		if got := fixOne(compensator.Miss{Order: orderclose.Order{ID: id}, Cause: compensator.Retrying}); got != want {
			t.Errorf("%q: %s, want %s", id, got, want)
		}
	}
}
