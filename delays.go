package orderclose

import "time"

// Mixed says which delay an order of several categories gets.
type Mixed string

const (
	// Shortest closes a mixed order as early as its most urgent category.
	Shortest Mixed = "shortest"
	// Longest gives a mixed order the patience of its most patient category.
	Longest Mixed = "longest"
)

// Delays says how long orders may stay unpaid, by category.
type Delays struct {
	Default    time.Duration            // for a category that is not listed, and for none
	ByCategory map[string]time.Duration // the listed ones
	Mixed      Mixed                    // for an order of several; "" is Shortest
}

// Of returns the delay of an order with these categories and the category that
// decided it. A category that is not listed takes part with the default delay
// and is returned in unknown, so that the caller can count it. With no category
// at all the delay is the default and the deciding category "".
func (d Delays) Of(categories ...string) (category string, delay time.Duration, unknown []string) {
	delay = d.Default
	for i, c := range categories {
		own, listed := d.ByCategory[c]
		if !listed {
			own, unknown = d.Default, append(unknown, c)
		}
		if i == 0 || (d.Mixed == Longest) == (own > delay) && own != delay {
			category, delay = c, own
		}
	}
	return category, delay, unknown
}
