package clock

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/text"
)

const (
	// tolerance is a difference that says nothing about a clock: creation times may be rounded to seconds, and a checkout takes time.
	tolerance = 2 * time.Second
	// Orders belong to one clock if their differences are within spread of each other. Differences up to nearby below that spread
	// belong to a backlog or to slow checkouts, whose orders wait for any time.
	spread, nearby = 6 * time.Second, 16 * time.Second
	// leastOrders is how many orders show that a clock is behind. They are not further apart than longestGap.
	leastOrders = 3
	longestGap  = 5 * time.Minute
	// keepSkew is how long a Skew is known after its last order.
	keepSkew = 5 * time.Minute
	// mostClocks bounds how many clocks of a place are followed at once.
	mostClocks = 16
)

// behindLimits says for how long a clock must have been behind by how much. A backlog looks the same for a while.
var behindLimits = []struct{ by, lasts time.Duration }{{time.Minute, 30 * time.Second}, {5 * time.Second, 5 * time.Minute}}

// The places in which the creation times of orders are compared with another clock.
const (
	AtOutbox = "outbox" // with the database's clock, when the row of the outbox was inserted
	AtRelay  = "relay"  // with the brokers' clock, when the record was appended
	AtCloser = "closer" // with the brokers' clock, when the record was appended to the close topic
	AtLoop   = "loop"   // with the database's clock, when the compensator first saw the order
	// AtReceipts is not among Places: orders were closed long after they were due, see CompareClose.
	AtReceipts = "receipts"
)

// Places returns all places.
func Places() []string { return []string{AtOutbox, AtRelay, AtCloser, AtLoop} }

// Skew says that somebody creates orders by a wrong clock.
type Skew struct {
	Place  string        // where it was found
	Ahead  time.Duration // of the clock that wrote the creation times; negative: it is behind
	Orders int           // that were created by it, as far as this process has seen them
	Order  string        // one of them, the newest
	Since  time.Time     // when the first of them was created, by the right clock
	Last   time.Time     // the same of the newest
}

// Skews finds wrong clocks of those who create orders, by the creation times of new orders. Make it with NewSkews. It is safe for
// concurrent use. A nil *Skews compares nothing.
//
// A creation time after the time at which another clock has seen the order is a clock that is ahead, at once. One that is long before it
// may also be a backlog, or an order that was slow to write. The orders of a backlog have waited for any time, and those of a clock
// all for the same. So a clock is behind if orders keep coming whose differences are nearly equal, and none comes whose difference
// is a little less. Orders by right clocks, which differ by nearly nothing, do not hide it.
type Skews struct {
	mu     sync.Mutex
	delays map[time.Duration]bool
	clocks map[string][]*follows // by place
	found  map[key]*noted
}

// noted is a Skew, and when it was noted last by the clock of this process: a relay reads a record up to half an hour after its append.
type noted struct {
	Skew
	noted time.Time
}

// key is a place and a direction.
type key struct {
	place string
	ahead bool
}

// follows are orders of a place that are behind by nearly the same time.
type follows struct {
	anchor, least time.Duration // the difference of the first order, and the least of all
	orders, noted int
	first, last   time.Time // by the right clock
}

// NewSkews returns a Skews for orders with these delays.
func NewSkews(d orderclose.Delays) *Skews {
	s := &Skews{delays: map[time.Duration]bool{}, clocks: map[string][]*follows{}, found: map[key]*noted{}}
	s.Know(d)
	return s
}

// Know adds delays. An order that is due after any other time than a known delay has had its due time moved, so its record is not
// its first: it was written long after the order was created.
func (s *Skews) Know(d orderclose.Delays) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, byDefault, _ := d.Of()
	s.delays[byDefault] = true
	for _, own := range d.ByCategory {
		s.delays[own] = true
	}
	for _, rule := range d.Rules {
		if rule.After > 0 {
			s.delays[rule.After] = true
		}
	}
}

// Agree reports whether a creation time and the time at which another clock saw the order say nothing about a clock.
func Agree(created, seen time.Time) bool { return seen.Sub(created).Abs() <= tolerance }

// Compare compares the creation time of a new order with the time at which the right clock of a place saw it. The caller leaves out
// orders that it has seen before. Of an order with an unknown delay only a creation time that is ahead counts.
func (s *Skews) Compare(place string, o orderclose.Order, seen time.Time) {
	if s == nil || o.CreatedAt.IsZero() || seen.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	behind := seen.Sub(o.CreatedAt)
	switch {
	case behind < -tolerance:
		s.note(Skew{Place: place, Ahead: -behind, Orders: 1, Order: o.ID, Since: seen, Last: seen})
	case behind > tolerance && s.usual(o.Due.Sub(o.CreatedAt)):
		s.follow(place, behind, o.ID, seen)
	}
}

// CompareClose looks for orders that were due long before they were created, by a close that no failure has delayed. Then all orders of a
// clock are closed late by the same time. It is for those who have only the receipts of closes.
func (s *Skews) CompareClose(order string, due, closed time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if late := closed.Sub(due); late > behindLimits[0].by {
		s.follow(AtReceipts, late, order, closed)
	}
}

// usual reports whether an order has a known delay, but for the precision of columns and records.
func (s *Skews) usual(delay time.Duration) bool {
	for d := range s.delays {
		if (delay - d).Abs() <= time.Second {
			return true
		}
	}
	return false
}

// follow adds an order that is behind to those of its clock.
func (s *Skews) follow(place string, behind time.Duration, order string, seen time.Time) {
	all := slices.DeleteFunc(s.clocks[place], func(f *follows) bool {
		lower := f.anchor - behind
		return lower > spread && lower <= nearby || seen.Sub(f.last) > longestGap
	})
	i := slices.IndexFunc(all, func(f *follows) bool { return (f.anchor - behind).Abs() <= spread })
	if i < 0 {
		if len(all) == mostClocks {
			all = all[1:]
		}
		i, all = len(all), append(all, &follows{anchor: behind, least: behind, first: seen, last: seen})
	}
	f := all[i]
	f.orders++
	f.least = min(f.least, behind)
	if seen.Before(f.first) { // the partitions of a topic are read one after the other
		f.first = seen
	}
	if seen.After(f.last) {
		f.last = seen
	}
	s.clocks[place] = all
	for _, limit := range behindLimits {
		if f.orders >= leastOrders && f.least >= limit.by && f.last.Sub(f.first) >= limit.lasts {
			s.note(Skew{Place: place, Ahead: -f.least, Orders: f.orders - f.noted, Order: order, Since: f.first, Last: f.last})
			f.noted = f.orders
			return
		}
	}
}

// note adds orders to what is known of their place. The largest difference counts.
func (s *Skews) note(found Skew) {
	at := key{found.Place, found.Ahead > 0}
	known := s.found[at]
	if known == nil || time.Since(known.noted) > keepSkew {
		known = &noted{Skew: found}
		known.Orders, s.found[at] = 0, known
	}
	known.noted, known.Orders = time.Now(), known.Orders+found.Orders
	if found.Ahead.Abs() > known.Ahead.Abs() {
		known.Ahead = found.Ahead
	}
	if found.Since.Before(known.Since) {
		known.Since = found.Since
	}
	if !found.Last.Before(known.Last) {
		known.Order, known.Last = found.Order, found.Last
	}
}

// Found returns the skews of which an order was seen in the last five minutes, by place.
func (s *Skews) Found() (all []Skew) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, known := range s.found {
		if time.Since(known.noted) > keepSkew {
			delete(s.found, at)
			continue
		}
		all = append(all, known.Skew)
	}
	slices.SortFunc(all, func(a, b Skew) int { return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.Ahead, b.Ahead)) })
	return all
}

// String says by how much the clock is wrong, of how many orders.
func (k Skew) String() string {
	by, direction := k.Ahead, "ahead"
	if by < 0 {
		by, direction = -by, "behind"
	}
	if k.Place == AtReceipts {
		return fmt.Sprintf("%s were due %v before they were closed, each by the same time, so they were due when they were created; the newest "+
			"of them is %q", text.Plural(k.Orders, "order"), by.Round(time.Second), k.Order)
	}
	return fmt.Sprintf("the clock that wrote the creation times of %s was %v %s, as the part %s sees it; the newest of them is %q",
		text.Plural(k.Orders, "order"), by.Round(time.Second), direction, k.Place, k.Order)
}
