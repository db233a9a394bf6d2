package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/compensator"
)

// releaseGrace is how long after its release time a record may still be in its bucket
// without being late: relays commit every 200 ms, and clocks differ.
const releaseGrace = 2 * time.Second

// evidence is what is known of a missed order.
type evidence struct {
	row     int64 // its row id in the schedule outbox when the sweep began; 0: it had no row
	matches []match
	acked   *match // the record that a closer has acknowledged; nil: none is known
	notRead string // which topics were not searched, and why; empty: all were searched
}

// decide returns why an order was missed, and where to see it: a row of the outbox, the position
// of a record, or why nothing was found. If several records were found, the record decides whose
// cause comes first in precedence. Pure.
func decide(e evidence, now time.Time) (why compensator.Cause, where string) {
	if e.row > 0 {
		return compensator.Unpublished, fmt.Sprintf("outbox_schedules row %d", e.row)
	}
	switch {
	case len(e.matches) > 0:
		s := slices.MinFunc(e.matches, func(a, b match) int { return precedence[causeOf(a, now)] - precedence[causeOf(b, now)] })
		return causeOf(s, now), s.where()
	case e.acked != nil:
		return compensator.Acknowledged, e.acked.where()
	case e.notRead != "":
		return compensator.Unknown, e.notRead
	}
	return compensator.Absent, ""
}

// causeOf returns the cause that one record proves.
func causeOf(s match, now time.Time) compensator.Cause {
	switch {
	case s.Topic.Kind == KindDeadLetters:
		return compensator.DeadLettered
	case s.Topic.Kind != KindBucket: //mutant:always-closer-behind
		return compensator.CloserBehind
	case s.Leaves < now.Add(-releaseGrace).UnixMilli(): // a record that cannot be read has no release time: it waits to become a dead letter
		return compensator.RelayBehind
	case s.Again:
		return compensator.Retrying
	}
	return compensator.LaterRelease
}

// precedence ranks the causes of an order with several records; the smallest rank decides. A
// record that should have left its topic ranks before a record that still waits rightly. Among
// the former, a record that is closer to the close ranks first.
var precedence = map[compensator.Cause]int{
	compensator.CloserBehind: 0, compensator.RelayBehind: 1, compensator.Retrying: 2,
	compensator.DeadLettered: 3, compensator.LaterRelease: 4,
}

// fixes are the commands that fix a cause for all its orders, or that show more. ID and TIME stand for
// those of an order.
var fixes = map[compensator.Cause]string{
	compensator.Unpublished:  "orderclose run outbox",
	compensator.RelayBehind:  "orderclose run relay",
	compensator.CloserBehind: "orderclose run closer",
	compensator.LaterRelease: "orderclose send --id ID --due TIME", // an application that moves a due time earlier must send one more record
	compensator.Retrying:     "orderclose order ID",
	compensator.DeadLettered: "orderclose dlq ls",
	compensator.Acknowledged: "orderclose order ID",
	compensator.Absent:       "orderclose order ID",
	compensator.Unknown:      "orderclose order ID --budget 1000000",
}

// FixCommand returns the command that fixes a cause for all its orders, or that shows more.
func FixCommand(c compensator.Cause) string { return cmp.Or(fixes[c], fixes[compensator.Unknown]) }

// fixOne returns the command for one order.
func fixOne(m compensator.Miss) string {
	id := ShellQuote(m.Order.ID)
	if m.Cause == compensator.DeadLettered {
		return "orderclose dlq redrive --order " + id
	}
	return strings.NewReplacer("ID", id, "TIME", m.Order.Due.UTC().Format(time.RFC3339Nano)).Replace(FixCommand(m.Cause))
}
