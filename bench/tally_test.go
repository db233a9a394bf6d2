package main

import (
	"testing"
	"time"
)

func TestTally_ReportsMissingAndDuplicateOrders(t *testing.T) {
	for name, c := range map[string]struct {
		numbers []int
		once    bool
		ok      bool
	}{
		"each once":               {[]int{2, 0, 1}, true, true},
		"one is missing":          {[]int{0, 1}, false, false},
		"one came for another":    {[]int{0, 1, 1}, false, false},
		"one twice":               {[]int{0, 1, 2, 2}, true, false},
		"one twice, as it may be": {[]int{0, 1, 2, 2}, false, true},
	} {
		tally := newTally(3)
		for _, n := range c.numbers {
			if err := tally.add(n, due); err != nil {
				t.Fatal(err)
			}
		}
		if err := tally.check(c.once); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if newTally(3).add(3, due) == nil {
		t.Error("took an order that was never sent")
	}
}

func TestTally_RateExcludesTheFirstMillisecond(t *testing.T) {
	tally := newTally(100)
	for i := range 100 {
		at := due // the first 40
		if i >= 40 {
			at = due.Add(time.Duration(i-39) * time.Millisecond)
		}
		if err := tally.add(99-i, at); err != nil {
			t.Fatal(err)
		}
	}
	if have := tally.rate(); have != 1000 {
		t.Errorf("%v records/s, want 60 in 60 ms", have)
	}
}
