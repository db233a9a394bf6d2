package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

const (
	// monthsEvery is how long the list of months is valid, unless a wanted month is
	// missing from it.
	monthsEvery = time.Minute
	// monthsAhead is how many months after the current one are read. With Shards.On "due" an
	// order may be due in such a month: a delay of 30 days, the longest, may touch three months.
	monthsAhead = 2
)

// tables knows the tables of orders: one, or one for each month. Safe for concurrent use.
type tables struct {
	q       *statements
	on      func(orderclose.CloseRequest) time.Time // the time that decides the month; zero: it is not known
	loc     *time.Location
	pattern mapping.Pattern // of the tables of months

	list atomic.Pointer[tableList]
}

// tableList has the existing tables by month. A single table has the month 0.
type tableList struct {
	asked time.Time // zero: the list is outdated
	known map[mapping.Month]*table
}

func newTables(q *statements) (ts *tables, err error) {
	ts = &tables{q: q, loc: time.UTC, on: func(orderclose.CloseRequest) (none time.Time) { return none }}
	ts.list.Store(&tableList{})
	if q.m.Shards == nil {
		ts.list.Store(&tableList{known: map[mapping.Month]*table{0: q.table(0)}})
		return ts, nil
	}
	if ts.on = (func(r orderclose.CloseRequest) time.Time { return r.CreatedAt }); q.m.Shards.On == mapping.OnDue {
		ts.on = func(r orderclose.CloseRequest) time.Time { return r.Due }
	}
	if ts.loc, err = mapping.ParseZone(q.m.Shards.Zone); err == nil {
		ts.pattern, err = mapping.ParsePattern(q.m.Orders)
	}
	return ts, err
}

// month returns the month whose table should have the order of a request. It returns false if there is a single table, or if the
// request lacks the time that decides the month: the creation time or the due time (Shards.On).
func (ts *tables) month(r orderclose.CloseRequest) (mapping.Month, bool) {
	t := ts.on(r)
	return mapping.MonthOf(t, ts.loc), !t.IsZero()
}

// allTables returns the existing tables of orders, those of months only if they are in range, the newest first. It lists the
// tables in the database if the list is older than monthsEvery, or if a wanted month is missing from it.
func (s *Store) allTables(ctx context.Context, wanted ...mapping.Month) ([]*table, error) {
	ts := s.q.tables
	now := time.Now()
	list := ts.list.Load()
	known := list.known
	if single := known[0]; single != nil {
		return []*table{single}, nil
	}
	if now.Sub(list.asked) >= monthsEvery || slices.ContainsFunc(wanted, func(w mapping.Month) bool { return known[w] == nil }) {
		var err error
		if known, err = s.listMonths(ctx); err != nil {
			return nil, s.failed(ctx, err, "list the tables %s", s.q.m.Orders)
		}
		ts.list.Store(&tableList{now, known})
	}
	if s.dialect.Clock != nil {
		now = s.dialect.Clock()
	}
	this := mapping.MonthOf(now, ts.loc)
	var all []*table
	for month, t := range known {
		if month > this-mapping.Month(s.q.m.Shards.Months) && month <= this+monthsAhead {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *table) int { return cmp.Compare(b.month, a.month) })
	return all, nil
}

// listMonths lists the existing tables.
func (s *Store) listMonths(ctx context.Context) (map[mapping.Month]*table, error) {
	ts := s.q.tables
	database, like := ts.pattern.Like()
	var names []string
	if err := s.gorm.WithContext(ctx).Raw(s.dialect.Tables, database, like).Scan(&names).Error; err != nil {
		return nil, err
	}
	known := make(map[mapping.Month]*table, len(names))
	for _, name := range names {
		if month, ok := ts.pattern.Month(name); ok {
			known[month] = ts.q.table(month)
		}
	}
	return known, nil
}

// forget makes the next call of allTables list the tables again.
func (ts *tables) forget() { ts.list.Store(&tableList{known: ts.list.Load().known}) }

// candidates holds the tables to search for each order, the most likely first.
type candidates struct {
	all []*table            // newest first
	of  map[string][]*table // all, by order id the most likely first, if the request tells the month
}

// requestOf returns a request for an order, with the times that tell its month.
func requestOf(o orderclose.Order) orderclose.CloseRequest {
	return orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due}
}

// candidates returns the tables that may have the orders of requests.
func (s *Store) candidates(ctx context.Context, reqs []orderclose.CloseRequest) (p candidates, err error) {
	near := map[mapping.Month][]*table{}
	for _, r := range reqs {
		if month, ok := s.q.tables.month(r); ok {
			near[month] = nil
		}
	}
	if p.all, err = s.allTables(ctx, slices.Collect(maps.Keys(near))...); err != nil {
		return p, err
	}
	for month := range near {
		near[month] = slices.SortedStableFunc(slices.Values(p.all), func(a, b *table) int {
			return cmp.Compare(distance(a.month, month), distance(b.month, month))
		})
	}
	p.of = make(map[string][]*table, len(reqs))
	for _, r := range reqs {
		if month, ok := s.q.tables.month(r); ok {
			p.of[r.OrderID] = near[month]
		}
	}
	return p, nil
}

// everywhere returns the tables that may have the order of a payment: those that closes and sweeps read, and then the tables
// of all other months. Money comes long before an order is due, and long after it was closed.
func (s *Store) everywhere(ctx context.Context) (candidates, error) {
	in, err := s.allTables(ctx)
	var others []*table
	for _, t := range s.q.tables.list.Load().known {
		if !slices.ContainsFunc(in, func(read *table) bool { return read.month == t.month }) {
			others = append(others, t)
		}
	}
	slices.SortFunc(others, func(a, b *table) int { return cmp.Compare(b.month, a.month) })
	return candidates{all: slices.Concat(in, others)}, err
}

// nth returns the n-th table to search for an order, or nil after the last one: the table of
// its month, the month before, the month after, and then the others. A record that was written
// around midnight by another clock is in a neighboring month; a due time may move by months.
func (p candidates) nth(id string, n int) *table {
	list, ok := p.of[id]
	if !ok {
		list = p.all
	}
	if n >= len(list) {
		return nil
	}
	return list[n]
}

// distance orders months by how likely they are if one month is expected.
func distance(m, expected mapping.Month) int {
	d := int(m - expected)
	if d < 0 {
		return -2*d - 1
	}
	return 2 * d
}
