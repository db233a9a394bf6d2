package main

import (
	"slices"
	"sync/atomic"
	"time"
)

// tracker knows when each message of a run was due, whether it was accepted, and when it was
// first received. Its methods may be called by several goroutines.
type tracker struct {
	due        []atomic.Int64 // unix nanoseconds; 0: not published yet
	accepted   []atomic.Bool
	received   []atomic.Int64 // unix nanoseconds; 0: not received
	arrived    atomic.Int64   // number of messages that were received
	refused    atomic.Int64   // number of messages that were not accepted
	duplicates atomic.Int64
}

func newTracker(messages int) *tracker {
	return &tracker{
		due: make([]atomic.Int64, messages), accepted: make([]atomic.Bool, messages), received: make([]atomic.Int64, messages),
	}
}

func (t *tracker) publish(number int, due time.Time) { t.due[number].Store(due.UnixNano()) }

func (t *tracker) accept(number int) { t.accepted[number].Store(true) }

func (t *tracker) refuse() { t.refused.Add(1) }

func (t *tracker) receive(number int, at int64) {
	switch {
	case number < 0 || number >= len(t.received): // of another run
	case t.received[number].CompareAndSwap(0, at):
		t.arrived.Add(1)
	default:
		t.duplicates.Add(1)
	}
}

// complete says whether every accepted message has arrived, once all are published.
func (t *tracker) complete() bool { return t.arrived.Load()+t.refused.Load() >= int64(len(t.due)) }

// lastDue returns the latest due time so far.
func (t *tracker) lastDue() time.Time {
	var last int64
	for i := range t.due {
		last = max(last, t.due[i].Load())
	}
	return time.Unix(0, last)
}

// acknowledged returns how many messages were accepted so far.
func (t *tracker) acknowledged() (n int) {
	for i := range t.accepted {
		if t.accepted[i].Load() {
			n++
		}
	}
	return n
}

// around returns how long after the power was back the last message came that was due before, and the lateness of the messages that
// were due at a time or later, sorted.
func (t *tracker) around(back, from time.Time) (overdue time.Duration, late []time.Duration) {
	for i := range t.received {
		at, due := t.received[i].Load(), t.due[i].Load()
		switch {
		case at == 0:
		case due < back.UnixNano():
			overdue = max(overdue, time.Duration(at-back.UnixNano()))
		case due >= from.UnixNano():
			late = append(late, time.Duration(at-due))
		}
	}
	slices.Sort(late)
	return overdue, late
}

// outcome is what became of the messages of a run.
type outcome struct {
	late       []time.Duration // received − due, sorted
	times      []int64         // of the receipts, unix nanoseconds, sorted
	early      int
	lost       int // accepted and not received
	duplicates int
}

func (t *tracker) outcome() outcome {
	o := outcome{duplicates: int(t.duplicates.Load())}
	for i := range t.received {
		at := t.received[i].Load()
		if at == 0 {
			if t.accepted[i].Load() {
				o.lost++
			}
			continue
		}
		late := time.Duration(at - t.due[i].Load())
		if late < 0 {
			o.early++
		}
		o.late, o.times = append(o.late, late), append(o.times, at)
	}
	slices.Sort(o.late)
	slices.Sort(o.times)
	return o
}

// longestGap returns the longest time without a receipt that ends after from.
func (o outcome) longestGap(from time.Time) time.Duration {
	var gap int64
	last := from.UnixNano()
	for _, at := range o.times {
		if at > last {
			gap, last = max(gap, at-last), at
		}
	}
	return time.Duration(gap)
}
