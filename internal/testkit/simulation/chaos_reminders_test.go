package simulation

import (
	"fmt"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/pipeline"
)

// mayMissReminders reports whether the world may lack a reminder: the database fails, closes are paused, a clock is wrong, the
// rules change, the only compensator does not run, or the shop has a store in Go. Processes reach the database without
// a network, so faults of the network prevent nothing.
func (p *plan) mayMissReminders() bool {
	return p.Service == inGo && p.has("service") || slices.ContainsFunc(p.Events, func(e event) bool {
		switch e.Kind {
		case "database", "database-clock", "checkout-clock", "pause-closes", "reload":
			return true
		case "stop", "kill":
			return p.Together || pipeline.Role(e.What) == pipeline.Compensator
		}
		return false
	})
}

// checkReminders checks that each order that nobody moved, and nobody paid or cancelled before its due time, has each
// reminder of its rule, once. It returns the number of these reminders.
func (w *chaosWorld) checkReminders() (reminders int) {
	if w.plan.mayMissReminders() {
		return 0
	}
	for _, e := range w.plan.Events {
		rule := chaosDelays.RuleOf(e.What, nil)
		ends := (e.Then == paid || e.Then == cancelled) && e.For >= chaosDelays.ByCategory[e.What] // after the due time
		if e.Kind != "order" || rule == orderclose.NoRule || e.Then != "" && !ends {
			continue
		}
		for _, before := range chaosDelays.Rules[rule].Remind {
			reminders++
			id := fmt.Sprintf("order-%02d", e.N)
			n := w.number(fmt.Sprintf("SELECT COUNT(*) FROM order_reminders WHERE order_id = '%s' AND before_ms = %d", id, before.Milliseconds()))
			if n != 1 {
				w.violation("broken", "%s has %d reminders of %v before its deadline", id, n, before)
			}
		}
	}
	return reminders
}
