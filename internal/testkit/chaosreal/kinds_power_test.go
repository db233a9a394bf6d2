//go:build linux

package main

import (
	"encoding/binary"
	"slices"
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

func TestPowerKinds_LoseRecordsOnlyIfTopicsAreNotSynced(t *testing.T) {
	loses := func(v variant) (names, events []string) {
		for _, k := range powerKinds(v) {
			if k.loses {
				names = append(names, k.name)
			}
			if k.loses && !k.closesOnly {
				events = append(events, k.name)
			}
		}
		return names, events
	}
	cuts, burst, flips := []string{"power-brokers", "power-all", "power-full-brokers"}, []string{powerBurst}, []string{"power-flip", "power-flip-read"}
	for _, c := range []struct {
		v             variant
		loses, events []string
	}{
		{variant{brokers: 1}, slices.Concat(cuts, burst, flips), flips},
		{variant{brokers: 1, sync: "always"}, flips, flips},
		{variant{brokers: 1, sync: "never"}, slices.Concat(cuts, burst, flips), slices.Concat(cuts, burst, flips)},
		{variant{brokers: 3, sync: "always"}, nil, nil},
		{variant{brokers: 3}, cuts, cuts},
	} {
		names, events := loses(c.v)
		expect.Same(t, names, c.loses, "records are lost with %+v", c.v)
		expect.Same(t, events, c.events, "events are lost with %+v", c.v)
	}
}

func TestLastBatch_IsTheLastWholeOne(t *testing.T) {
	batch := func(size int) []byte { // of a header and size bytes
		b := make([]byte, 12+size)
		binary.BigEndian.PutUint32(b[8:], uint32(size))
		return b
	}
	log := slices.Concat(batch(60), batch(70), batch(80)[:50])
	at, size := lastBatch(log)
	expect.Same(t, []int{at, size}, []int{72, 82}, "begin and size")
	_, size = lastBatch(log[:60])
	expect.Equal(t, size, 0, "size without a whole batch")
}
