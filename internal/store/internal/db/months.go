package db

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
	// doubtEvery is the shortest time between an error that a table may have caused, and the last check of all tables.
	doubtEvery = 10 * time.Second
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

// tableList has the existing tables by month. A single table has the month 0, and is not checked here.
type tableList struct {
	asked    time.Time // zero: the list is outdated
	checked  time.Time // when all tables were checked last
	known    map[mapping.Month]*Table
	verdicts map[mapping.Month]verdict // of the tables that were checked
	// reads and writes say that some table in range fits, and that this user may also close its orders. Without such a table no other one
	// shows which of them are at fault: a user who may only read is allowed to.
	reads, writes bool
}

// verdict says how the table of a month fits the mapping.
type verdict struct {
	misfits []mapping.Problem // they keep its orders from being read or closed
	denied  []mapping.Problem // this user may not close its orders
}

// aside returns why the table of a month is left out; nil: it is not.
func (l *tableList) aside(month mapping.Month) []mapping.Problem {
	v := l.verdicts[month]
	switch {
	case !l.reads:
		return nil
	case len(v.misfits) > 0 || !l.writes:
		return v.misfits
	}
	return v.denied
}

func newTables(q *statements) (ts *tables, err error) {
	ts = &tables{q: q, loc: time.UTC, on: func(orderclose.CloseRequest) (none time.Time) { return none }}
	ts.list.Store(&tableList{})
	if q.M.Shards == nil {
		ts.list.Store(&tableList{known: map[mapping.Month]*Table{0: q.table(0)}})
		return ts, nil
	}
	if ts.on = (func(r orderclose.CloseRequest) time.Time { return r.CreatedAt }); q.M.Shards.On == mapping.OnDue {
		ts.on = func(r orderclose.CloseRequest) time.Time { return r.Due }
	}
	if ts.loc, err = mapping.ParseZone(q.M.Shards.Zone); err == nil {
		ts.pattern, err = mapping.ParsePattern(q.M.Orders)
	}
	return ts, err
}

// month returns the month whose table should have the order of a request. It returns false if there is a single table, or if the
// request lacks the time that decides the month: the creation time or the due time (Shards.On).
func (ts *tables) month(r orderclose.CloseRequest) (mapping.Month, bool) {
	t := ts.on(r)
	return mapping.MonthOf(t, ts.loc), !t.IsZero()
}

// inRange reports whether a month is one of those that closes and sweeps read.
func (s *Handle) inRange(month mapping.Month) bool {
	this := s.thisMonth()
	return month > this-mapping.Month(s.Q.M.Shards.Months) && month <= this+monthsAhead
}

// thisMonth is by this machine's clock if the database has its own.
func (s *Handle) thisMonth() mapping.Month {
	now := time.Now()
	if clock := s.Clock(); clock != nil {
		now = clock()
	}
	return mapping.MonthOf(now, s.Q.Tables.loc)
}

// AllTables returns the existing tables of orders, those of months only if they are in range and fit the mapping, the newest first. It lists
// the tables in the database if the list is older than monthsEvery, or if a wanted month is missing from it. If none fits, it returns all of
// them: then CheckMapping refuses the mapping.
func (s *Handle) AllTables(ctx context.Context, wanted ...mapping.Month) ([]*Table, error) {
	if err := s.learnOld(ctx); err != nil {
		return nil, s.FailedTo(ctx, err, "read when the database was migrated")
	}
	ts := s.Q.Tables
	now := time.Now()
	list := ts.list.Load()
	if single := list.known[0]; single != nil {
		return []*Table{single}, nil
	}
	if now.Sub(list.asked) >= monthsEvery || slices.ContainsFunc(wanted, func(w mapping.Month) bool { return list.known[w] == nil }) {
		var err error
		if list, err = s.listMonths(ctx, list, now); err != nil {
			return nil, s.FailedTo(ctx, err, "list the tables %s", s.Q.M.Orders)
		}
		ts.list.Store(list)
	}
	return list.sorted(s.inRange), nil
}

// sorted returns the tables that are not left out of the months that are wanted, the newest first.
func (l *tableList) sorted(wanted func(mapping.Month) bool) (all []*Table) {
	for month, t := range l.known {
		if wanted(month) && len(l.aside(month)) == 0 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *Table) int { return cmp.Compare(b.month, a.month) })
	return all
}

// listMonths lists the existing tables. It checks those that old does not have, and from time to time those that did not fit.
func (s *Handle) listMonths(ctx context.Context, old *tableList, now time.Time) (*tableList, error) {
	ts := s.Q.Tables
	database, like := ts.pattern.Like()
	var names []string
	if err := s.Gorm.WithContext(ctx).Raw(s.Dialect.Tables, database, like).Scan(&names).Error; err != nil {
		return nil, err
	}
	list := &tableList{asked: now, checked: old.checked, known: map[mapping.Month]*Table{}, verdicts: map[mapping.Month]verdict{}}
	again := now.Sub(old.asked) >= doubtEvery
	if old.verdicts == nil {
		list.checked = now
	}
	for _, name := range names {
		month, ok := ts.pattern.Month(name)
		if !ok {
			continue
		}
		list.known[month] = cmp.Or(old.known[month], ts.q.table(month))
		if v, checked := old.verdicts[month]; checked && !(again && len(v.misfits)+len(v.denied) > 0) {
			list.verdicts[month] = v
		}
	}
	return list, s.checkMonths(ctx, list)
}

// Forget makes the next call of AllTables list and check the tables again.
func (ts *tables) Forget() { ts.list.Store(&tableList{known: ts.list.Load().known}) }

// doubt is Forget after an error that a table may have caused: it may have been dropped or altered.
func (ts *tables) doubt() {
	if time.Since(ts.list.Load().checked) >= doubtEvery {
		ts.Forget()
	}
}

// Candidates holds the tables to search for each order, the most likely first.
type Candidates struct {
	All []*Table            // newest first
	of  map[string][]*Table // all, by order id the most likely first, if the request tells the month
}

// RequestOf returns a request for an order, with the times that tell its month.
func RequestOf(o orderclose.Order) orderclose.CloseRequest {
	return orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due}
}

// Candidates returns the tables that may have the orders of requests.
func (s *Handle) Candidates(ctx context.Context, reqs []orderclose.CloseRequest) (p Candidates, err error) {
	near := map[mapping.Month][]*Table{}
	for _, r := range reqs {
		if month, ok := s.Q.Tables.month(r); ok {
			near[month] = nil
		}
	}
	if p.All, err = s.AllTables(ctx, slices.Collect(maps.Keys(near))...); err != nil {
		return p, err
	}
	for month := range near {
		near[month] = slices.SortedStableFunc(slices.Values(p.All), func(a, b *Table) int {
			return cmp.Compare(distance(a.month, month), distance(b.month, month))
		})
	}
	p.of = make(map[string][]*Table, len(reqs))
	for _, r := range reqs {
		if month, ok := s.Q.Tables.month(r); ok {
			p.of[r.OrderID] = near[month]
		}
	}
	return p, nil
}

// Everywhere returns the tables that may have the order of a payment: those that closes and sweeps read, and then the tables
// of all other months that fit the mapping. Money comes long before an order is due, and long after it was closed.
func (s *Handle) Everywhere(ctx context.Context) (Candidates, error) {
	in, err := s.AllTables(ctx)
	for _, t := range s.Q.Tables.list.Load().sorted(func(mapping.Month) bool { return true }) {
		if !slices.Contains(in, t) {
			in = append(in, t)
		}
	}
	return Candidates{All: in}, err
}

// Nth returns the n-th table to search for an order, or nil after the last one: the table of
// its month, the month before, the month after, and then the others. A record that was written
// around midnight by another clock is in a neighboring month; a due time may move by months.
func (p Candidates) Nth(id string, n int) *Table {
	list, ok := p.of[id]
	if !ok {
		list = p.All
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

// Distinct returns the ids of reqs in the order of their index, and the first request of
// each. It leaves out ids that no order can have: the database might match
// another order.
func (s *Handle) Distinct(reqs []orderclose.CloseRequest) (ids []string, requests map[string]orderclose.CloseRequest) {
	requests = make(map[string]orderclose.CloseRequest, len(reqs))
	ids = make([]string, 0, len(reqs))
	for _, r := range reqs {
		_, known := requests[r.OrderID]
		if _, ok := s.Q.IDArg(r.OrderID); known || !ok || orderclose.ValidateID(r.OrderID) != nil {
			continue
		}
		requests[r.OrderID] = r
		ids = append(ids, r.OrderID)
	}
	slices.SortFunc(ids, s.Q.M.ID.Compare)
	return ids, requests
}
