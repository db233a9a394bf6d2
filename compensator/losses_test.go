package compensator

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestUnaffected_OnlyOrdersCreatedAfterTheLoss(t *testing.T) {
	told := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for what, c := range map[string]struct {
		told    time.Time
		created time.Time
		want    bool
	}{
		"before it":                         {told, told.Add(-time.Minute), false},
		"at the same time":                  {told, told.Add(clockSkewTolerance), false},
		"after it":                          {told, told.Add(5 * time.Second), true},
		"just now":                          {told, told.Add(20*time.Second + clockSkewTolerance), true},
		"before it, by a clock far ahead":   {told, told.Add(-20*time.Minute + time.Hour), false},
		"creation time unknown":             {told, time.Time{}, false},
		"after it, but its time is unknown": {time.Time{}, told.Add(5 * time.Second), false},
	} {
		got := (losses{reportedAt: c.told}).unaffected(orderclose.Order{ID: "o", CreatedAt: c.created}, told.Add(20*time.Second))
		expect.That(t, got == c.want, "%s: unaffected %v, want %v", what, got, c.want)
	}
}

// An unknown time of one report makes the time of the last report unknown, whatever the
// order of the reports.
func TestLosses_AreSummedUp(t *testing.T) {
	told := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	read := told.Add(time.Hour)
	for what, c := range map[string]struct {
		reports []time.Time
		want    time.Time
	}{
		"one":                {[]time.Time{told}, told},
		"the last counts":    {[]time.Time{told, told.Add(2), told.Add(1)}, told.Add(2)},
		"the first unknown":  {[]time.Time{{}, told}, time.Time{}},
		"the second unknown": {[]time.Time{told, {}, told.Add(1)}, time.Time{}},
	} {
		var l losses
		for i, at := range c.reports {
			n := notice{wire.Lost{First: 0, Last: int64(i) - 1}, at} // the first is of an empty log
			l = l.with(n, time.Hour-time.Duration(i), read.Add(time.Duration(i)))
		}
		want := losses{count: len(c.reports), empty: 1, since: read, dueWithin: time.Hour, reportedAt: c.want}
		expect.Equal(t, l, want, "%s", what)
	}
}

func TestControl_ReachOfALoss(t *testing.T) {
	k := &Control{
		CloseTopic: "close", ReplayTopic: "replay", MaxDelay: func() time.Duration { return 30 * 24 * time.Hour },
		Buckets: func() orderclose.Buckets {
			return orderclose.Buckets{{Topic: "delay_5m", Length: 5 * time.Minute}, {Topic: "delay_1h", Length: time.Hour}}
		},
	}
	for topic, want := range map[string]struct{ records, empty time.Duration }{
		"close":    {0, 0},
		"replay":   {0, 0},
		"delay_5m": {time.Hour, time.Hour},
		"delay_1h": {k.MaxDelay(), k.MaxDelay()},
		"removed":  {k.MaxDelay(), 0},
	} {
		records := k.dueWithin(notice{Lost: wire.Lost{Topic: topic}}, k.Buckets())
		empty := k.dueWithin(notice{Lost: wire.Lost{Topic: topic, Last: -1}}, k.Buckets())
		expect.That(t, records == want.records && empty == want.empty, "%s: %v, and %v for an empty log; want %v", topic, records, empty, want)
	}
}
