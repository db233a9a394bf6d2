package compensator

import (
	"fmt"
	"time"
)

// pausedAgain is how long a sweep takes the orders of a category for paused before it asks about some of them again.
const pausedAgain = 5 * time.Second

// pauses are the pauses that a sweep has met, by category. The value is the time until which the sweep takes the
// category for paused. The empty category stands for all orders. The store alone knows which orders are paused. But a
// question about each of them would lock its row in each sweep, and other orders would wait behind them.
type pauses map[string]time.Time

// has reports whether the orders of a category are taken for paused.
func (p pauses) has(category string, now time.Time) bool { return now.Before(p[category]) }

// met notes that an order of a category was paused. Without a category an order says nothing about others.
func (p pauses) met(category string, now time.Time) {
	if category != "" && !p.has(category, now) {
		p[category] = now.Add(pausedAgain) //mutant:paused-until-end
	}
}

// notePauses logs two kinds of pauses after a sweep: those that the sweep before did not meet, and those that only the
// sweep before met. err is the error of the sweep; it is nil, or it says that all orders are paused.
func (c *Compensator) notePauses(met pauses, err error) {
	if err != nil {
		if _, known := c.paused[""]; !known {
			c.o.Logger.Info("sweeping is paused", "orders", "all", "reason", err)
		}
		c.paused = pauses{"": {}}
		return
	}
	for category := range met {
		if _, known := c.paused[category]; !known {
			c.o.Logger.Info("sweeping is paused", "orders", ofCategory(category))
		}
	}
	for category := range c.paused {
		if _, still := met[category]; !still {
			c.o.Logger.Info("sweeping is no longer paused", "orders", ofCategory(category))
		}
	}
	c.paused = met
}

func ofCategory(name string) string {
	if name == "" {
		return "all"
	}
	return fmt.Sprintf("of category %q", name)
}
