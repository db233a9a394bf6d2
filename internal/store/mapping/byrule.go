package mapping

import (
	"fmt"
	"time"
)

// byRule checks a mapping whose due times are computed from the time of creation.
func (c *checker) byRule(m *Mapping) {
	if m.Created == nil || *m.Created != m.Due {
		c.reportHarm("created", "is not the column of due.from", "an order has one time of creation", "remove created: due.from says when an order was created")
	}
	if m.Shards != nil && m.Shards.On == OnDue {
		c.report("shards.on", "no column says when an order is due, and due.from names the time of creation", "write created")
	}
	if m.ID.Type == UUIDSwapped {
		c.report("id.type", "pages of several delays are merged in the order of the ids' text, which is another one for swapped parts", "map a due column")
	}
	if loc, err := ParseZone(m.Due.Zone); m.Due.Type == DateTime && err == nil && changesClocks(loc, time.Now()) {
		c.reportHarm("due.zone", fmt.Sprintf("clocks in %s are set forward and back", loc), "the database would compute due times that are an hour early",
			`map a column in UTC or of a type without zone, or a due column; if the column has one offset all year, write it: zone: "-06:00"`)
	}
}

// oldestCreated is how long ago the orders were created whose due times matter: an older one is overdue, with an hour more or less.
const oldestCreated = 400 * 24 * time.Hour

// changesClocks reports whether clocks are set from oldestCreated before now on, for twenty years. A zone whose daylight saving time ended
// before has one offset.
func changesClocks(loc *time.Location, now time.Time) bool {
	first := now.Add(-oldestCreated)
	_, offset := first.In(loc).Zone()
	for day := range 20 * 366 {
		if _, then := first.AddDate(0, 0, day).In(loc).Zone(); then != offset {
			return true
		}
	}
	return false
}
