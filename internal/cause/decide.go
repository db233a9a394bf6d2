package cause

import (
	"fmt"
	"time"

	"orderclose/compensator"
	"orderclose/internal/story"
)

// fresh is how long ago a record may have been to leave a delay topic and still be
// on its way: relays commit every 200 ms, and clocks differ.
const fresh = 2 * time.Second

// evidence is what is known of an order that was missed.
type evidence struct {
	row    int64 // in the schedule outbox when the sweep began; 0: none
	sights []story.Sight
	unseen string // what was not looked at, and why; empty: nothing
}

// decide says why an order was missed, and where that is to be seen. Of several
// records the one tells that should have closed the order first. Pure.
func decide(e evidence, now time.Time) (why compensator.Cause, where string) {
	if e.row > 0 {
		return compensator.Unpublished, fmt.Sprintf("outbox_schedules row %d", e.row)
	}
	best := -1
	for i, s := range e.sights {
		if best < 0 || rank(judge(s, now)) < rank(judge(e.sights[best], now)) {
			best = i
		}
	}
	switch {
	case best >= 0:
		s := e.sights[best]
		return judge(s, now), fmt.Sprintf("%s/%d@%d", s.Topic, s.Partition, s.Offset)
	case e.unseen != "":
		return compensator.Unknown, e.unseen
	}
	return compensator.Absent, ""
}

// judge says what one record tells.
func judge(s story.Sight, now time.Time) compensator.Cause {
	switch {
	case s.Kind == story.Dead:
		return compensator.DeadLettered
	case s.Kind != story.Bucket:
		return compensator.CloserBehind
	case s.Leaves.Add(fresh).Before(now): // also of one that cannot be read: it waits to be given up
		return compensator.RelayBehind
	case s.Again:
		return compensator.Retrying
	}
	return compensator.LaterRelease
}

// order is which cause tells, of several: what is furthest on its way, what should
// have moved before what need not have.
var order = map[compensator.Cause]int{
	compensator.CloserBehind: 0, compensator.RelayBehind: 1, compensator.Retrying: 2,
	compensator.DeadLettered: 3, compensator.LaterRelease: 4,
}

func rank(c compensator.Cause) int { return order[c] }

// Mend is the command that mends what has a cause, or that shows more, of all
// orders that have it.
func Mend(c compensator.Cause) string {
	switch c {
	case compensator.Unpublished:
		return "orderclose run outbox"
	case compensator.RelayBehind:
		return "orderclose run relay"
	case compensator.CloserBehind:
		return "orderclose run closer"
	case compensator.LaterRelease:
		return "orderclose send --id ID --due TIME"
	case compensator.Retrying:
		return "orderclose order ID"
	case compensator.DeadLettered:
		return "orderclose dlq ls"
	case compensator.Absent:
		return "orderclose doctor"
	}
	return "orderclose order ID --budget 1000000"
}

// mendOne is the command for one order.
func mendOne(m compensator.Miss) string {
	id := story.Word(m.Order.ID)
	switch m.Cause {
	case compensator.LaterRelease: // what moves a due time earlier has to send one more record
		return "orderclose send --id " + id + " --due " + m.Order.Due.UTC().Format(time.RFC3339Nano)
	case compensator.Retrying:
		return "orderclose order " + id
	case compensator.DeadLettered:
		return "orderclose dlq redrive --order " + id
	case compensator.Unknown:
		return "orderclose order " + id + " --budget 1000000"
	}
	return Mend(m.Cause)
}
