//go:build linux

package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// event is a fault of the schedule.
type event struct {
	At   time.Duration // since the beginning of the round
	Kind string
	For  time.Duration // how long the fault lasts
	N    uint64        // chooses what it hits: a process, a broker, a topic
}

const (
	// warmUp is the time before the first fault, in which processes join their groups.
	warmUp = 20 * time.Second
	// coolDown is the time after the last fault in which orders are still created.
	coolDown = 12 * time.Second
)

// drawSchedule draws the faults of a round, perMinute on average, evenly spread with some jitter. The kinds come out of a bag that is shuffled, emptied
// and filled again: a kind comes again when all others have come. The same arguments give the same schedule.
func drawSchedule(seed uint64, kinds []kind, over time.Duration, perMinute float64) []event {
	r := rand.New(rand.NewPCG(seed, 0xc4a05))
	slot := time.Duration(float64(time.Minute) / perMinute)
	var all []event
	var bag []kind
	for at := warmUp; at+slot <= over-coolDown; at += slot {
		if len(bag) == 0 {
			bag = slices.Clone(kinds)
			r.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
		}
		k := bag[0]
		bag = bag[1:]
		all = append(all, event{
			At:   (at + time.Duration(r.Int64N(int64(slot)/2))).Truncate(time.Millisecond),
			Kind: k.name,
			For:  k.least + time.Duration(r.Int64N(int64(k.most-k.least)+1)).Truncate(time.Millisecond),
			N:    r.Uint64(),
		})
	}
	return all
}
