package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/migrations"
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
func (s *Handle) HiddenRows(ctx context.Context) ([]mapping.Problem, error) {
	in, err := s.AllTables(ctx)
	if err != nil {
		return nil, err
	}
	orders, items := Names(in)
	names := slices.Concat(mapping.OwnTables(), orders, items, s.Q.onCloseTables())
	for _, stock := range s.Q.M.Stock {
		names = append(names, stock.Table)
	}
	slices.Sort(names)
	return s.hidden(ctx, slices.Compact(names)...)
}

// hidden is HiddenRows of some tables. Empty names are skipped.
func (s *Handle) hidden(ctx context.Context, names ...string) (problems []mapping.Problem, err error) {
	for _, name := range names {
		schema, table := mapping.Split(name)
		active := false
		if err == nil && name != "" && s.Dialect.RowSecurity != nil {
			active, err = s.Dialect.RowSecurity(s.Gorm.WithContext(ctx), schema, table)
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
// It returns none if the database does not tell them.
func (s *Handle) Describe(ctx context.Context, names ...string) (mapping.Schema, error) {
	schema := mapping.Schema{}
	if !s.Dialect.TellsTables {
		return schema, nil
	}
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

// Steps returns the steps of the schema.
func (s *Handle) Steps() ([]migrations.Step, error) {
	return migrations.Steps(s.Migrations, string(s.Dialect.Name), s.Mapped || s.OwnStore())
}

// VersionTable is the table of applied steps.
const VersionTable = migrations.VersionTable

// SetAside returns a *MappingError that says why AllTables leaves out tables of months; nil: it leaves out none. With ahead also those of
// months to come count, in which no order waits. It knows what the last call of AllTables has seen.
func (s *Handle) SetAside(ahead bool) error {
	var problems []mapping.Problem
	list := s.Q.Tables.list.Load()
	for _, month := range slices.Sorted(maps.Keys(list.verdicts)) {
		if s.inRange(month) && (ahead || month <= s.thisMonth()) {
			problems = append(problems, list.aside(month)...)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return s.Placed(problems)
}

// Astray returns, by order id, why orders that no other table has cannot be closed or paid: a table that AllTables leaves out has them. Of a
// table that cannot be asked these may be all orders, except those of another month.
func (s *Handle) Astray(ctx context.Context, reqs []orderclose.CloseRequest) map[string]error {
	list, astray := s.Q.Tables.list.Load(), map[string]error{}
	ids, requests := s.Distinct(reqs)
	for month := range list.verdicts {
		problems := list.aside(month)
		if len(problems) == 0 {
			continue
		}
		var found []string
		err := s.Select(ctx, list.known[month].Exists, []any{s.Q.Args(ids)}, func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(&id)
			found = append(found, id)
			return err
		})
		for _, id := range ids {
			if at, known := s.Q.Tables.month(requests[id]); err != nil && (!known || at == month) {
				found = append(found, id)
			}
		}
		for _, id := range found {
			astray[id] = &bisect.Fault{Cause: orderclose.TableUnfit, Err: fmt.Errorf("table %s may have order %q: %w", list.known[month].Name, id,
				s.Placed(slices.Clone(problems)))}
		}
	}
	return astray
}

// checkMonths checks the tables of a list that were not checked yet. The first table that fits is what the next ones have to agree with, such as
// in the collation of the ids. It is that of an earlier month if there is one: the newest tables are those that nobody has used yet.
func (s *Handle) checkMonths(ctx context.Context, list *tableList) error {
	var fits *Table
	described, months := mapping.Schema{}, slices.Sorted(maps.Keys(list.known))
	earlier, _ := slices.BinarySearch(months, s.thisMonth())
	slices.Reverse(months[:earlier])
	for _, month := range months {
		t := list.known[month]
		v, checked := list.verdicts[month]
		if !checked {
			var err error
			if v, err = s.check(ctx, described, t, fits); err != nil {
				return err
			}
			list.verdicts[month] = v
		}
		if s.inRange(month) && len(v.misfits) == 0 {
			fits, list.reads, list.writes = cmp.Or(fits, t), true, list.writes || len(v.denied) == 0
		}
	}
	return nil
}

// check compares the table of a month with the mapping, and with another one that fits; nil: none is known yet. Problems of tables that all
// months share are left out: CheckMapping has them. described takes the definitions of tables. Of old months, in which no order is closed any
// more, it only tries whether orders can be read. A table that is locked or slow fits.
func (s *Handle) check(ctx context.Context, described mapping.Schema, t, other *Table) (v verdict, err error) {
	closes, writes := s.inRange(t.month) || t.month > s.thisMonth(), false
	if closes && s.Dialect.TellsTables {
		if v.misfits, err = s.misfits(ctx, described, t, other); err != nil || len(v.misfits) > 0 {
			return v, err
		}
	}
	if err = s.readNothing(ctx, t, closes); err == nil && closes {
		writes = true
		for _, write := range s.Writes(t) {
			err = cmp.Or(err, EachRow(s.Gorm.WithContext(ctx), "EXPLAIN "+write, nil, ignore))
		}
	}
	problems := []mapping.Problem{{Path: "table", What: fmt.Sprintf("table %s cannot be used: %v", t.Name, err),
		Fix: "make it as those of the other months, and grant the same privileges on it"}}
	switch {
	case err == nil, errors.Is(err, overdue.ErrSlow), HasCode(err, readOnlyCodes+" "+SlowCodes+" "+LockedCodes):
		return v, nil
	case writes && Denied(err):
		v.denied = problems
	case ctx.Err() == nil && !HasCode(err, startCodes) && (ErrorCode(err) != "" || s.Dialect.Fault(err) == FaultOrder):
		v.misfits = problems
	default: // of the server
		return v, err
	}
	return v, nil
}

func ignore(*sql.Rows) error { return nil }

// misfits returns the problems of the definition of a table and of its table of lines.
func (s *Handle) misfits(ctx context.Context, described mapping.Schema, t, other *Table) ([]mapping.Problem, error) {
	in := []*Table{t}
	if other != nil {
		in = append(in, other)
	}
	orders, items := Names(in)
	all := slices.Concat(orders, items)
	for _, stock := range s.Q.M.Stock {
		all = append(all, stock.Table)
	}
	more, err := s.Describe(ctx, slices.DeleteFunc(all, func(name string) bool { _, known := described[name]; return known })...)
	if err != nil {
		return nil, err
	}
	maps.Copy(described, more)
	hidden, err := s.hidden(ctx, t.Name, t.Items)
	var shared []string
	if s.Q.M.Items != nil && !mapping.IsPattern(s.Q.M.Items.Table) {
		shared = items
	}
	others := s.Q.M.CheckDatabase(described, nil, shared)
	problems := append(s.Q.M.CheckDatabase(described, orders, items), s.Q.M.Unaccepted(hidden)...)
	return slices.DeleteFunc(problems, func(p mapping.Problem) bool { return slices.Contains(others, p) }), err
}

// Names returns the names of tables of orders, and of their tables of lines.
func Names(in []*Table) (orders, items []string) {
	for _, t := range in {
		orders = append(orders, t.Name)
		if t.Items != "" && !slices.Contains(items, t.Items) {
			items = append(items, t.Items)
		}
	}
	return orders, items
}

// readNothing reads no row of a table in the ways in which its orders are read.
func (s *Handle) readNothing(ctx context.Context, t *Table, pages bool) error {
	err := s.Select(ctx, t.Read, append(s.Q.StateArgs(), s.Dialect.Now(), []any{}), ignore)
	if err == nil && pages {
		err = s.ReadPage(s.Gorm.WithContext(ctx), []*Table{t}, s.Q.OpenPage(s.Q.Latest(), orderclose.Order{}, 0), func(orderclose.Order, any) {})
	}
	if err == nil && t.Lines != "" {
		err = s.Select(ctx, t.Lines, s.Q.LineArgs(nil), ignore)
	}
	return err
}

// Writes returns an UPDATE of all columns of a table of orders that closes and payments change, and a locking SELECT of its lines. They match no row.
func (s *Handle) Writes(t *Table) []string {
	columns := s.WrittenOfOrders()
	for _, a := range s.Q.M.SetPaid {
		columns = append(columns, a.Column)
	}
	statements := []string{UpdateNone(t.Name, columns...)}
	if t.Items != "" {
		statements = append(statements, "SELECT 1 FROM "+mapping.Quote(t.Items)+" WHERE 1 = 0"+s.Dialect.Share(""))
	}
	return statements
}

// WrittenOfOrders returns the columns of orders that a close writes. Some names are empty.
func (s *Handle) WrittenOfOrders() []string {
	m := s.Q.M
	columns := []string{m.Status.Column, m.Version, m.Lock.Name()}
	for _, at := range m.ClosedAt {
		columns = append(columns, at.Column)
	}
	for _, a := range m.Set {
		columns = append(columns, a.Column)
	}
	return columns
}

// UpdateNone returns an UPDATE of the columns that matches no row. It skips empty names.
func UpdateNone(table string, columns ...string) string {
	var set []string
	for _, c := range columns {
		if c != "" {
			set = append(set, mapping.Quote(c)+" = "+mapping.Quote(c))
		}
	}
	return "UPDATE " + mapping.Quote(table) + " SET " + strings.Join(set, ", ") + " WHERE 1 = 0"
}
