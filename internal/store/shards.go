package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/tables"
)

const (
	// monthsEvery is how often it is asked which months have a table, unless one is
	// missed before.
	monthsEvery = time.Minute
	// monthsAhead is how far ahead a due time may lie: the maximum delay is 30 days,
	// which may touch three months.
	monthsAhead = 2
)

// months knows which months have a table of orders.
type months struct {
	q       *statements
	loc     *time.Location
	pattern tables.Pattern

	mu    sync.Mutex
	asked time.Time
	known map[tables.Month]*table // those that there were when it was asked
}

func newMonths(q *statements) (*months, error) {
	loc, err := tables.ParseZone(q.m.Shards.Zone)
	if err != nil {
		return nil, err
	}
	pattern, err := tables.ParsePattern(q.m.Orders)
	return &months{q: q, loc: loc, pattern: pattern, known: map[tables.Month]*table{}}, err
}

// of is the month in whose table an order should be; false if its times do not
// tell.
func (m *months) of(r orderclose.CloseRequest) (tables.Month, bool) {
	t := r.CreatedAt
	if m.q.m.Shards.On == tables.OnDue {
		t = r.Due
	}
	return tables.MonthOf(t, m.loc), !t.IsZero()
}

// monthTables returns the tables that there are, the newest first, of the months
// that are looked at. It asks the database if it did not of late, or if that may
// tell of a month that is wanted.
func (s *Store) monthTables(ctx context.Context, wanted ...tables.Month) ([]*table, error) {
	m := s.q.months
	now := time.Now()
	known, fresh := m.now(now)
	if !fresh || slices.ContainsFunc(wanted, func(w tables.Month) bool { return known[w] == nil }) {
		var err error
		if known, err = s.askMonths(ctx); err != nil {
			return nil, fmt.Errorf("look for tables %s: %w", s.q.m.Orders, s.explain(ctx, err))
		}
		m.keep(known, now)
	}
	if s.dialect.Clock != nil {
		now = s.dialect.Clock()
	}
	this := tables.MonthOf(now, m.loc)
	var all []*table
	for month, t := range known {
		if month > this-tables.Month(s.q.m.Shards.Back) && month <= this+monthsAhead {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *table) int { return cmp.Compare(b.month, a.month) })
	return all, nil
}

// askMonths asks the database which tables there are.
func (s *Store) askMonths(ctx context.Context) (map[tables.Month]*table, error) {
	m := s.q.months
	database, like := m.pattern.Like()
	var names []string
	if err := s.gorm.WithContext(ctx).Raw(s.dialect.tables, database, like).Scan(&names).Error; err != nil {
		return nil, err
	}
	known := make(map[tables.Month]*table, len(names))
	for _, name := range names {
		if month, ok := m.pattern.Month(name); ok {
			known[month] = m.q.table(month)
		}
	}
	return known, nil
}

// now is what is known, and whether it was asked of late.
func (m *months) now(now time.Time) (known map[tables.Month]*table, fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known, !m.asked.IsZero() && now.Sub(m.asked) < monthsEvery
}

func (m *months) keep(known map[tables.Month]*table, asked time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known, m.asked = known, asked
}

// forget has the next who wants the tables ask the database.
func (m *months) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = time.Time{}
}

// places says in which tables to look for each order, the likeliest first.
type places struct {
	all   []*table                  // newest first
	month map[string]tables.Month   // by id, as far as the requests tell
	near  map[tables.Month][]*table // all, by how likely they are for an order of that month
}

// places returns where the orders of requests may be.
func (s *Store) places(ctx context.Context, reqs []orderclose.CloseRequest) (p places, err error) {
	if s.q.months == nil {
		return places{all: []*table{s.q.whole}}, nil
	}
	p = places{month: make(map[string]tables.Month, len(reqs)), near: map[tables.Month][]*table{}}
	for _, r := range reqs {
		if month, ok := s.q.months.of(r); ok {
			p.month[r.OrderID], p.near[month] = month, nil
		}
	}
	if p.all, err = s.monthTables(ctx, slices.Collect(maps.Keys(p.near))...); err != nil {
		return p, err
	}
	for month := range p.near {
		p.near[month] = slices.SortedStableFunc(slices.Values(p.all), func(a, b *table) int {
			return cmp.Compare(distance(a.month, month), distance(b.month, month))
		})
	}
	return p, nil
}

// nth is the n-th table in which to look for an order, nil when there is none
// left: that of its month, the one before, the one after, and then the others. A
// record that was written around midnight by another clock is next door; a due
// time may have been moved by months.
func (p places) nth(id string, n int) *table {
	candidates := p.all
	if month, ok := p.month[id]; ok {
		candidates = p.near[month]
	}
	if n >= len(candidates) {
		return nil
	}
	return candidates[n]
}

// distance orders months by how likely they are, if one is expected.
func distance(m, expected tables.Month) int {
	d := int(m - expected)
	if d < 0 {
		return -2*d - 1
	}
	return 2 * d
}
