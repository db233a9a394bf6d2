package orderclose

import (
	"cmp"
	"time"
)

// DefaultDelay is the delay of a category that is not listed, unless Delays or the topics file set another.
const DefaultDelay = 30 * time.Minute

// Delays holds how long an order may stay unpaid, by category, and the rules for orders that differ.
type Delays struct {
	// Default is for an order without category, and for a category that is not in ByCategory. 0 means DefaultDelay.
	Default    time.Duration
	ByCategory map[string]time.Duration
	Rules      []Rule // for For; the first that matches decides
}

// Of returns the shortest delay of these categories without any rule, and the category that
// decided it: the first with that delay. For returns the deadline of an order. A category that
// is not in ByCategory counts with the default delay; Of returns it in unknown so that the
// caller can count it. Without any category the delay is the default and the deciding category is "".
func (d Delays) Of(categories ...string) (category string, delay time.Duration, unknown []string) {
	byDefault := cmp.Or(d.Default, DefaultDelay)
	delay = byDefault
	for i, c := range categories {
		own, listed := d.ByCategory[c]
		if !listed {
			own, unknown = byDefault, append(unknown, c)
		}
		if i == 0 || own < delay {
			category, delay = c, own
		}
	}
	return category, delay, unknown
}
