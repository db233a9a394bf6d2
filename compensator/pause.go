package compensator

import (
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/pausing"
)

// pausesOn are the pauses that are on, by category. That of the category "" is a pause of all closing.
type pausesOn map[string]pausing.Pause

// pausesAt returns the pauses that are on at a time of the database's clock.
func pausesAt(pauses []pausing.Pause, now time.Time) pausesOn {
	on := pausesOn{}
	for _, p := range pauses {
		if p.Until.After(now) {
			on[p.Category] = p
		}
	}
	return on
}

// category reports whether the category of an order is paused. An order without a category is never left out because another one is paused.
func (p pausesOn) category(o orderclose.Order) bool {
	_, on := p[o.Category]
	return on && o.Category != ""
}

// pauseEnded reports whether a pause that was on at the last turn is not on any more.
func pauseEnded(before, now pausesOn) (ended bool) {
	for category := range before {
		_, on := now[category]
		ended = ended || !on
	}
	return ended //mutant:ended-pause-unseen
}

// pauseCovered reports whether a pause that has ended covered the order when it came due, or later.
func pauseCovered(pauses []pausing.Pause, o orderclose.Order, now time.Time) bool {
	for _, p := range pauses {
		if !p.Until.After(now) && !o.Due.After(p.Until) && (p.Category == "" || p.Category == o.Category) {
			return true
		}
	}
	return false
}
