package main

import (
	"testing"
	"time"
)

func TestWorkload_WarmUpIsOfTheSameKindAndShort(t *testing.T) {
	for _, name := range allWorkloads {
		for _, quick := range []bool{false, true} {
			w := workloadOf(name, quick)
			all := 0
			for _, stage := range w.warmUps() {
				all += stage.messages
				if stage.atOnce || stage.longest > 10*time.Second || stage.shortest > stage.longest || stage.messages < 1 || stage.perSecond != w.perSecond {
					t.Errorf("%s, quick %v: %+v", name, quick, stage)
				}
			}
			if all != w.warmUp {
				t.Errorf("%s: %d messages, want %d", name, all, w.warmUp)
			}
		}
	}
}

func TestWorkload_DelaysAreTheSameInEachRun(t *testing.T) {
	w := workloadOf("w3", false)
	first, second := w.delays(), w.delays()
	seen := map[time.Duration]bool{}
	for i := range first {
		if first[i] != second[i] || first[i] < w.shortest || first[i] > w.longest {
			t.Fatalf("message %d waits %v and %v", i, first[i], second[i])
		}
		seen[first[i]] = true
	}
	if len(seen) != 10 {
		t.Errorf("%d different delays, want 10", len(seen))
	}
	if d := workloadOf("w1", true).sameDelay(); d != 5*time.Second {
		t.Errorf("w1 has the delay %v", d)
	}
}
