package compensator

import (
	"testing"
	"time"

	"orderclose"
)

func TestSpared_IsOnlyWhatWasCreatedAfterTheLoss(t *testing.T) {
	told := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for what, c := range map[string]struct {
		told    time.Time
		created time.Time
		want    bool
	}{
		"before it":                           {told, told.Add(-time.Minute), false},
		"at the same time":                    {told, told.Add(clocksApart), false},
		"after it":                            {told, told.Add(5 * time.Second), true},
		"just now":                            {told, told.Add(20*time.Second + clocksApart), true},
		"before it, by a clock far ahead":     {told, told.Add(-20*time.Minute + time.Hour), false},
		"who knows":                           {told, time.Time{}, false},
		"after it, but nobody knows its time": {time.Time{}, told.Add(5 * time.Second), false},
	} {
		if got := (losses{told: c.told}).spared(orderclose.Order{ID: "o", CreatedAt: c.created}, told.Add(20*time.Second)); got != c.want {
			t.Errorf("%s: spared %v, want %v", what, got, c.want)
		}
	}
}
