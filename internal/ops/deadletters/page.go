package deadletters

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/orderclose/orderclose"
)

const (
	// defaultPage is the default of Query.Limit.
	defaultPage = 50
	// maxPage bounds Query.Limit.
	maxPage = 1000
)

// Query selects a page of a Catalog.
type Query struct {
	// Filter selects dead letters as it does for a redrive or a discard, but Cause, Stage and Source
	// are the names under which State counts them: Other selects all that are counted as Other.
	Filter
	All         bool      // not only the pending ones
	OldestFirst bool      // default: newest first
	After       *Position // the last dead letter of the previous page; nil: from the start
	Limit       int       // of the page; default 50, at most 1000
}

// Page is a page of positions.
type Page struct {
	Positions []Position `json:"positions"`
	// Next is set if there are more: it is After of the next page.
	Next *Position `json:"next,omitempty"`
}

// Page returns the positions that the query selects, in the order of their append times. It reads
// no record. Of a million dead letters it takes 10 µs for the first of all, and 5 ms if few or
// none match (BenchmarkCatalog_AMillion). With Query.Order the page may contain a dead letter of
// another order with the same hash; List leaves it out.
//
// If the dead letter After has left the catalog, the page begins where it was, or at the start if
// all dead letters of its partition have left.
func (c *Catalog) Page(q Query) Page {
	c.mu.RLock()
	defer c.mu.RUnlock()
	page, limit := Page{Positions: []Position{}}, q.limit()
	m, ok := c.matcher(q)
	if !ok {
		return page
	}
	var cursors []*cursor
	for p, all := range c.partitions {
		if u := c.cursor(q, m, p, all); u.next() {
			cursors = append(cursors, u)
		}
	}
	for len(cursors) > 0 {
		first := 0
		for i, u := range cursors {
			if u.before(cursors[first]) {
				first = i
			}
		}
		if len(page.Positions) == limit {
			last := page.Positions[limit-1]
			page.Next = &last
			return page
		}
		u := cursors[first]
		page.Positions = append(page.Positions, Position{u.partition, u.entry().offset})
		if !u.next() {
			cursors = slices.Delete(cursors, first, first+1)
		}
	}
	return page
}

func (q Query) limit() int {
	if q.Limit <= 0 {
		return defaultPage
	}
	return min(q.Limit, maxPage)
}

// matcher compares entries with a query. An id of -1 matches all names.
type matcher struct {
	all                  bool
	cause, stage, source int
	since, until         int64 // unix milliseconds: [since, until)
	key                  uint64
	byKey                bool
	positions            []Position
}

// matcher returns the matcher of a query. ok is false if no entry can match.
func (c *Catalog) matcher(q Query) (m matcher, ok bool) {
	m = matcher{all: q.All, since: math.MinInt64, until: math.MaxInt64, byKey: q.Order != "", key: c.hash(q.Order), positions: q.Positions}
	if !q.Since.IsZero() {
		m.since = ceilMilli(q.Since)
	}
	if !q.Until.IsZero() {
		m.until = ceilMilli(q.Until)
	}
	ok = true
	find := func(all *names, name string) int {
		if name == "" {
			return -1
		}
		id, known := all.ids[name]
		ok = ok && known
		return int(id)
	}
	m.cause, m.stage, m.source = find(&c.causes, q.Cause), find(&c.stages, q.Stage), find(&c.sources, q.Source)
	return m, ok
}

func ceilMilli(t time.Time) int64 { return orderclose.CeilMilli(t).UnixMilli() }

func (m *matcher) match(partition int, e *entry) bool {
	return (m.all || e.how == pending) && (!m.byKey || e.key == m.key) &&
		(m.cause < 0 || int(e.cause) == m.cause) && (m.stage < 0 || int(e.stage) == m.stage) && (m.source < 0 || int(e.source) == m.source) &&
		e.at >= m.since && e.at < m.until &&
		(len(m.positions) == 0 || slices.Contains(m.positions, Position{partition, e.offset}))
}

// cursor finds the entries of one partition that match, in one direction.
type cursor struct {
	matcher
	partition int
	*entries
	i, end, step int // the present entry, the one behind the last, and the direction
}

// cursor returns the cursor of a partition. It stands before the first entry.
func (c *Catalog) cursor(q Query, m matcher, partition int, all *entries) *cursor {
	first, end := 0, all.n // the entries to look at: [first, end)
	if q.Through != nil {
		through, ok := q.Through[partition]
		if !ok {
			end = 0
		} else if through < math.MaxInt64 {
			end = all.search(through + 1)
		}
	}
	if after, ok := c.orderOf(q.After); ok {
		if q.OldestFirst {
			first = sort.Search(all.n, func(i int) bool { return after.before(keyOf(partition, all.at(i))) })
		} else {
			end = min(end, sort.Search(all.n, func(i int) bool { return !keyOf(partition, all.at(i)).before(after) }))
		}
	}
	if q.OldestFirst {
		return &cursor{matcher: m, partition: partition, entries: all, i: first - 1, end: max(first, end), step: 1}
	}
	return &cursor{matcher: m, partition: partition, entries: all, i: end, end: -1, step: -1}
}

// next moves to the next entry that matches, and returns false if there is none.
func (u *cursor) next() bool {
	i := u.i + u.step // a local variable: a search looks at all entries
	for ; i != u.end && !u.match(u.partition, u.at(i)); i += u.step {
	}
	u.i = i
	return i != u.end
}

func (u *cursor) entry() *entry { return u.at(u.i) }

// before reports whether the entry of u comes before the entry of v on a page.
func (u *cursor) before(v *cursor) bool {
	return keyOf(u.partition, u.entry()).before(keyOf(v.partition, v.entry())) == (u.step > 0)
}

// sortKey orders entries of all partitions.
type sortKey struct {
	order     int64
	partition int
	offset    int64
}

func keyOf(partition int, e *entry) sortKey { return sortKey{e.order, partition, e.offset} }

func (k sortKey) before(other sortKey) bool {
	switch {
	case k.order != other.order:
		return k.order < other.order
	case k.partition != other.partition:
		return k.partition < other.partition
	}
	return k.offset < other.offset
}

// orderOf returns the sort key of a position, even if its entry has left. ok is false if no entry
// of its partition is left, or if there is no position.
func (c *Catalog) orderOf(at *Position) (key sortKey, ok bool) {
	if at == nil || c.partitions[at.Partition] == nil || c.partitions[at.Partition].n == 0 {
		return sortKey{}, false
	}
	all := c.partitions[at.Partition]
	i := min(all.search(at.Offset), all.n-1)
	return sortKey{all.at(i).order, at.Partition, at.Offset}, true
}
