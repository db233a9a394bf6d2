package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// MappingHints returns hints on the shop's own tables: triggers that each close fires, a column that looks like an
// optimistic lock and that no close changes, a payment's column that a close writes, orders without an id, that no
// order has the status Status.From, and that all unpaid orders are excluded. None of these stops the pipeline, so
// they are no errors of CheckMapping. It only reads.
func (s *Store) MappingHints(ctx context.Context) ([]string, error) {
	if !s.mapped || s.dialect.describe == nil {
		return nil, nil
	}
	notes, err := s.tableNotes(ctx)
	if err == nil {
		var more []string
		more, err = s.statusNotes(ctx)
		notes = append(notes, more...)
	}
	return notes, s.failed(ctx, err, readDefinitions)
}

// tableNotes returns the hints that the definitions of the tables give.
func (s *Store) tableNotes(ctx context.Context) (notes []string, err error) {
	names, err := s.orderTables(ctx)
	if err != nil {
		return nil, err
	}
	orders := len(names)
	for _, stock := range s.q.m.Stock {
		names = append(names, stock.Table)
	}
	schema, err := s.describe(ctx, names...)
	var unread, locks []string
	for i, name := range names {
		own := func(trigger string) bool { return strings.HasPrefix(trigger, "orderclose_") } // docs/intake.md
		if triggers := slices.DeleteFunc(schema[name].Triggers, own); len(triggers) > 0 {
			notes = append(notes, fmt.Sprintf("each close fires the triggers of table %s: %s; make sure that no trigger releases stock too",
				name, strings.Join(triggers, ", ")))
		}
		if schema[name].TriggersUnread {
			unread = append(unread, name)
		}
		if i < orders {
			due := schema[name].Columns[strings.ToLower(s.q.m.Due.Column)]
			if strings.Contains(due.Expression, "`"+strings.ToLower(s.q.m.Status.Column)+"`") {
				notes = append(notes, fmt.Sprintf("the due time of table %s is computed from the status: "+
					"audit finds an order that is not unpaid any more only by the receipt of its close", name))
			}
			locks = append(locks, s.q.m.UnchangedLocks(schema[name])...)
		}
	}
	if len(unread) > 0 {
		notes = append(notes, fmt.Sprintf("the triggers of %s could not be read: check them as a user with the privilege TRIGGER, "+
			"because a trigger that releases stock releases it twice", strings.Join(unread, ", ")))
	}
	if err == nil {
		var hidden []mapping.Problem
		hidden, err = s.hiddenRows(ctx)
		for _, p := range hidden {
			notes = append(notes, p.What+": check after each change of its policies that they show all rows to this user")
		}
	}
	slices.Sort(locks)
	for _, column := range slices.Compact(locks) {
		notes = append(notes, fmt.Sprintf("not every close changes the column %s: "+
			"if the shop's code compares it before it writes a row (an optimistic lock), map it as lock, or that code overwrites a close", column))
	}
	return notes, err
}

func (s *Store) statusNotes(ctx context.Context) (notes []string, err error) {
	in, err := s.allTables(ctx)
	if err != nil {
		return nil, err
	}
	open, included := false, false
	for _, t := range in {
		db, from := own(s.gorm.WithContext(ctx)), "SELECT 1 FROM "+mapping.Quote(t.name)
		withoutID, err := valueOf[bool](db, from+" WHERE "+mapping.Quote(s.q.m.ID.Column)+" IS NULL LIMIT 1")
		if err != nil {
			return nil, err
		}
		if withoutID {
			notes = append(notes, fmt.Sprintf("table %s has orders whose %s (orders.id) is NULL: they are never closed", t.name, s.q.m.ID.Column))
		}
		if !open {
			unpaid := from + s.q.d.hint(s.q.m.DueIndex) + " WHERE " + mapping.Quote(s.q.m.Status.Column) + " = ? LIMIT 1"
			if open, err = valueOf[bool](db, unpaid, s.q.m.Status.From.Arg()); err != nil {
				return nil, err
			}
		}
		if s.q.excludes && !included {
			n, err := s.countPage(ctx, t, s.q.openPage(s.q.latest(), orderclose.Order{}, 1))
			if included = n > 0; err != nil {
				return nil, err
			}
		}
	}
	if open && !included && s.q.excludes {
		notes = append(notes, "orders.where or orders.not_before excludes every unpaid order, so none is ever closed: check the values, "+
			"also their upper and lower case")
	}
	if !open {
		notes = append(notes, fmt.Sprintf("no order has the status %v (orders.status.from): check that it is spelled as the shop writes it", s.q.m.Status.From))
	}
	return notes, nil
}

// orderTables returns the names of the existing tables of orders.
func (s *Store) orderTables(ctx context.Context) (names []string, err error) {
	in, err := s.allTables(ctx)
	for _, t := range in {
		names = append(names, t.name)
	}
	return names, err
}

// unlisted returns the statuses of a table that the mapping does not name, as the database
// compares them, without NULL. It reads one entry of the index on status and due time for each
// status.
func (s *Store) unlisted(ctx context.Context, t *table) (values []mapping.Value, err error) {
	column := mapping.Quote(s.q.m.Status.Column)
	st := s.q.m.Status
	var listed []any
	for _, v := range slices.Concat([]mapping.Value{st.From, st.To}, st.Paid, st.Closed) {
		listed = append(listed, v.Arg())
	}
	var texts []string
	distinct := "SELECT " + column + " FROM " + mapping.Quote(t.name) + s.q.d.hint(s.q.m.DueIndex) + " GROUP BY " + column
	if s.q.d.distinct != nil {
		distinct = s.q.d.distinct(column, mapping.Quote(t.name))
	}
	query := "SELECT " + column + " FROM (" + distinct + ") AS oc_all WHERE " + column + " NOT IN ?"
	err = s.gorm.WithContext(ctx).Raw(query, listed).Scan(&texts).Error
	for _, text := range texts {
		values = append(values, mapping.Value{Text: text, Number: st.From.Number})
	}
	return values, err
}

// unlistedState returns the state of a status that the mapping does not name: other if the mapping
// lists only paid statuses, else paid.
func (s *Store) unlistedState() AuditState {
	if s.q.listsPaid() {
		return AuditOther
	}
	return AuditPaid
}
