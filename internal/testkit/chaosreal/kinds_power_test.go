//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// A close counts by when it happened: long after the power was back, and before the next cut.
func TestLateAfterPower_FindsOrdersThatAreLateLongAfterTheReturn(t *testing.T) {
	began := time.Now()
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	late := func(dues map[int]int) int { // by second of the due time, seconds late
		r := &round{began: began, over: 5 * time.Minute, verdict: &checker.Verdict{}, played: []played{
			{Kind: "power-all", From: at(30), To: at(40)}, {Kind: "power-redis", From: at(200), To: at(205)},
		}}
		for due, seconds := range dues {
			r.verdict.Samples = append(r.verdict.Samples, checker.Sample{Due: at(due), Late: time.Duration(seconds) * time.Second})
		}
		return len(r.lateAfterPower())
	}
	expect.Equal(t, late(map[int]int{20: 70, 35: 60, 120: 29, 160: 45}), 0, "closed soon after a return, or not late")
	expect.Equal(t, late(map[int]int{100: 31}), 1, "late, over a minute after the first return")
	expect.Equal(t, late(map[int]int{100: 31, 250: 40}), 2, "late after both")
}
