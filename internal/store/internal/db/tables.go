package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/migrations"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// ReadDefinitions is what fails if the definitions of tables cannot be read.
const ReadDefinitions = "read the definitions of the orders' tables"

// Placed returns the error of problems, with the position of each in topics.yaml.
func (s *Handle) Placed(problems []mapping.Problem) error {
	for i := range problems {
		if s.OrdersAt != nil {
			problems[i].At = s.OrdersAt(problems[i].Path)
		}
	}
	return &MappingError{Problems: problems}
}

// MappingError holds the problems that CheckMapping found.
type MappingError struct{ Problems []mapping.Problem }

func (e *MappingError) Error() string {
	return "the database's tables do not match the mapping of orders: " + strings.ReplaceAll(mapping.Err(e.Problems).Error(), "\n", "; and ")
}

// ShowRows is what to do about row-level security.
const ShowRows = "ALTER ROLE with BYPASSRLS for this user, or a policy for this user that shows all rows"

// HiddenRows reports the tables with row-level security that applies to this user. A policy may hide rows. An order in a hidden
// row is not closed. No count and no audit shows it.
func (s *Handle) HiddenRows(ctx context.Context) (problems []mapping.Problem, err error) {
	if s.Dialect.Name != Postgres {
		return nil, nil
	}
	in, err := s.AllTables(ctx)
	names := s.ownTables()
	for _, t := range in {
		names = append(names, t.Name, t.Items)
	}
	for _, stock := range s.Q.M.Stock {
		names = append(names, stock.Table)
	}
	names = append(names, s.Q.onCloseTables()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		schema, table := mapping.Split(name)
		active := false
		if err == nil && name != "" {
			active, err = postgres.RowSecurity(s.Gorm.WithContext(ctx), schema, table)
		}
		if active {
			problems = append(problems, mapping.Problem{
				Path: "table", What: "row-level security of table " + name + " applies to this database user",
				Why: "rows that its policies hide are never closed, and nothing shows them",
				Fix: ShowRows, Accept: mapping.RowSecurity,
			})
		}
	}
	return problems, err
}

// SeesAllRows returns an error if HiddenRows reports a table that the mapping does not accept.
func (s *Handle) SeesAllRows(ctx context.Context) error {
	hidden, err := s.HiddenRows(ctx)
	if hidden = s.Q.M.Unaccepted(hidden); err == nil && len(hidden) > 0 {
		return &MappingError{Problems: hidden}
	}
	return s.FailedTo(ctx, err, ReadDefinitions)
}

// Describe returns the definitions of tables. It leaves out tables that do not exist or that the user may not see.
// On SQLite it returns none.
func (s *Handle) Describe(ctx context.Context, names ...string) (mapping.Schema, error) {
	schema := mapping.Schema{}
	for _, name := range names {
		database, table := mapping.Split(name)
		t, ok, err := s.Dialect.Describe(s.Gorm.WithContext(ctx), database, table)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		if ok {
			schema[name] = t
		}
	}
	return schema, nil
}

// UseTables adds the tables of rooms, as room.Tables returns them. Migrate creates them, and Schema and Migrated look for them.
func (s *Handle) UseTables(rooms ...migrations.Tables) {
	for _, tables := range rooms {
		s.rooms.Store(tables.Room, tables)
	}
}

// HasTables reports whether UseTables has added the tables of a room.
func (s *Handle) HasTables(room string) bool {
	_, has := s.rooms.Load(room)
	return has
}

// Steps returns the steps of the core, and then those of rooms.
func (s *Handle) Steps() ([]migrations.Step, error) {
	var rooms []migrations.Tables
	for _, tables := range s.rooms.Range {
		rooms = append(rooms, tables.(migrations.Tables))
	}
	slices.SortFunc(rooms, func(a, b migrations.Tables) int { return cmp.Compare(a.Room, b.Room) })
	return Steps(s.Dialect.Name, s.Mapped || s.OwnStore(), rooms)
}

func Steps(d DialectName, mapped bool, rooms []migrations.Tables) (all []migrations.Step, err error) {
	for _, tables := range append([]migrations.Tables{migrations.Core}, rooms...) {
		steps, wrong := tables.Steps(string(d), mapped)
		all, err = append(all, steps...), errors.Join(err, wrong)
	}
	return all, err
}

// ownTables returns the names of the tables that orderclose creates beside the shop's tables, with those of rooms.
func (s *Handle) ownTables() []string {
	names := mapping.OwnTables()
	steps, _ := s.Steps() // Schema reports the error
	for _, step := range steps {
		if step.Room != "" {
			names = append(names, step.Creates()...)
		}
	}
	return names
}

// VersionTable is the table of applied steps.
const VersionTable = migrations.VersionTable

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
	known map[mapping.Month]*Table
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

// AllTables returns the existing tables of orders, those of months only if they are in range, the newest first. It lists the
// tables in the database if the list is older than monthsEvery, or if a wanted month is missing from it.
func (s *Handle) AllTables(ctx context.Context, wanted ...mapping.Month) ([]*Table, error) {
	if err := s.learnOld(ctx); err != nil {
		return nil, s.FailedTo(ctx, err, "read when the database was migrated")
	}
	ts := s.Q.Tables
	now := time.Now()
	list := ts.list.Load()
	known := list.known
	if single := known[0]; single != nil {
		return []*Table{single}, nil
	}
	if now.Sub(list.asked) >= monthsEvery || slices.ContainsFunc(wanted, func(w mapping.Month) bool { return known[w] == nil }) {
		var err error
		if known, err = s.listMonths(ctx); err != nil {
			return nil, s.FailedTo(ctx, err, "list the tables %s", s.Q.M.Orders)
		}
		ts.list.Store(&tableList{now, known})
	}
	this := mapping.MonthOf(s.Dialect.Clock(), ts.loc)
	var all []*Table
	for month, t := range known {
		if month > this-mapping.Month(s.Q.M.Shards.Months) && month <= this+monthsAhead {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *Table) int { return cmp.Compare(b.month, a.month) })
	return all, nil
}

// listMonths lists the existing tables.
func (s *Handle) listMonths(ctx context.Context) (map[mapping.Month]*Table, error) {
	ts := s.Q.Tables
	database, like := ts.pattern.Like()
	var names []string
	if err := s.Gorm.WithContext(ctx).Raw(s.Dialect.Tables, database, like).Scan(&names).Error; err != nil {
		return nil, err
	}
	known := make(map[mapping.Month]*Table, len(names))
	for _, name := range names {
		if month, ok := ts.pattern.Month(name); ok {
			known[month] = ts.q.table(month)
		}
	}
	return known, nil
}

// Forget makes the next call of AllTables list the tables again.
func (ts *tables) Forget() { ts.list.Store(&tableList{known: ts.list.Load().known}) }

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
// of all other months. Money comes long before an order is due, and long after it was closed.
func (s *Handle) Everywhere(ctx context.Context) (Candidates, error) {
	in, err := s.AllTables(ctx)
	var others []*Table
	for _, t := range s.Q.Tables.list.Load().known {
		if !slices.ContainsFunc(in, func(read *Table) bool { return read.month == t.month }) {
			others = append(others, t)
		}
	}
	slices.SortFunc(others, func(a, b *Table) int { return cmp.Compare(b.month, a.month) })
	return Candidates{All: slices.Concat(in, others)}, err
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
