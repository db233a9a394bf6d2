package schema

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// MappingHints returns hints on the shop's own tables: tables of months that are left out, triggers that each close fires, a column that looks like an
// optimistic lock and that no close changes, a payment's column that a close writes, orders without an id, that no
// order has the status Status.From, and that all unpaid orders are excluded. None of these stops the pipeline, so
// they are no errors of CheckMapping. It only reads.
func (s *Checker) MappingHints(ctx context.Context) ([]string, error) {
	if !s.Mapped || !s.Dialect.TellsTables {
		return nil, nil
	}
	notes, err := s.tableNotes(ctx)
	if err == nil {
		var more []string
		if more, err = s.statusNotes(s.LimitReads(ctx)); db.IsSlow(err) {
			more, err = []string{"the database took too long to search the orders: what their ids and statuses say is not known"}, nil
		}
		notes = append(notes, more...)
	}
	if err == nil {
		var old []orderclose.Order
		if old, err = s.OldOrders(ctx); len(old) > 0 {
			ids := make([]string, min(len(old), 5))
			for i := range ids {
				ids[i] = old[i].ID
			}
			notes = append(notes, fmt.Sprintf("at least %d unpaid orders, such as %s, were due more than a day before the first orderclose migrate, and stay open: "+
				"leave out by orders.where those that must, and add %s to accept to close the others", len(old), strings.Join(ids, ", "), mapping.OldOrders))
		}
	}
	return notes, s.FailedTo(ctx, err, db.ReadDefinitions)
}

// tableNotes returns the hints that the definitions of the tables give.
func (s *Checker) tableNotes(ctx context.Context) (notes []string, err error) {
	names, err := s.orderTables(ctx)
	if err != nil {
		return nil, err
	}
	if aside := s.SetAside(true); aside != nil {
		notes = append(notes, aside.Error()+"; orders of these months stay open")
	}
	orders := len(names)
	for _, stock := range s.Q.M.Stock {
		names = append(names, stock.Table)
	}
	schema, err := s.Describe(ctx, names...)
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
			due := schema[name].Columns[strings.ToLower(s.Q.M.Due.Column)]
			if strings.Contains(due.Expression, "`"+strings.ToLower(s.Q.M.Status.Column)+"`") {
				notes = append(notes, fmt.Sprintf("the due time of table %s is computed from the status: "+
					"audit finds an order that is not unpaid any more only by the receipt of its close", name))
			}
			locks = append(locks, s.Q.M.UnchangedLocks(schema[name])...)
		}
	}
	if len(unread) > 0 {
		notes = append(notes, fmt.Sprintf("the triggers of %s could not be read: check them as a user with the privilege TRIGGER, "+
			"because a trigger that releases stock releases it twice", strings.Join(unread, ", ")))
	}
	if err == nil {
		var hidden []mapping.Problem
		hidden, err = s.HiddenRows(ctx)
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

func (s *Checker) statusNotes(ctx context.Context) (notes []string, err error) {
	in, err := s.AllTables(ctx)
	if err != nil {
		return nil, err
	}
	open, included := false, false
	for _, t := range in {
		tx, from := db.Own(s.Gorm.WithContext(ctx)), "SELECT 1 FROM "+mapping.Quote(t.Name)
		withoutID, err := db.ValueOf[bool](tx, from+" WHERE "+mapping.Quote(s.Q.M.ID.Column)+" IS NULL LIMIT 1")
		if err != nil {
			return nil, err
		}
		if withoutID {
			notes = append(notes, fmt.Sprintf("table %s has orders whose %s (orders.id) is NULL: they are never closed", t.Name, s.Q.M.ID.Column))
		}
		if !open {
			unpaid := from + s.Q.D.Hint(s.Q.M.DueIndex) + " WHERE " + mapping.Quote(s.Q.M.Status.Column) + " IN ? LIMIT 1"
			if open, err = db.ValueOf[bool](tx, unpaid, s.Q.M.Status.From.Args()); err != nil {
				return nil, err
			}
		}
		if s.Q.Excludes() && !included {
			n, err := s.CountPage(ctx, t, s.Q.OpenPage(s.Q.Latest(), orderclose.Order{}, 1))
			if included = n > 0; err != nil {
				return nil, err
			}
		}
	}
	if open && !included && s.Q.Excludes() {
		notes = append(notes, "orders.where or orders.not_before excludes every unpaid order, so none is ever closed: check the values, "+
			"also their upper and lower case")
	}
	if !open {
		notes = append(notes, fmt.Sprintf("no order has the status %v (orders.status.from): check that it is spelled as the shop writes it", s.Q.M.Status.From))
	}
	return notes, nil
}

// orderTables returns the names of the existing tables of orders.
func (s *Checker) orderTables(ctx context.Context) (names []string, err error) {
	in, err := s.AllTables(ctx)
	for _, t := range in {
		names = append(names, t.Name)
	}
	return names, err
}

// Evidence has up to sampled orders of a status that orders.where does not exclude, of the lookedAt that it looks at.
const sampled, lookedAt = 100, 10_000

// Evidence is what the shop's orders say about the statuses of the mapping.
type Evidence struct {
	// Unnamed has the statuses that orders have and the mapping does not name. They count as UnnamedAs.
	Unnamed   []string   `json:"unnamed,omitempty"`
	UnnamedAs AuditState `json:"unnamed_as,omitempty"`
	// PaidColumn is the column that by its name holds when an order was paid; empty: there is none. FromSample and ToSample
	// are orders with the status Status.From and with Status.To, and how many of them hold such a time.
	PaidColumn string     `json:"paid_column,omitempty"`
	FromSample PaidSample `json:"from_sample"`
	ToSample   PaidSample `json:"to_sample"`
	// Filled has the columns that only orderclose writes and that unpaid orders hold a value in, and BelowZero those of the stock with rows
	// below zero.
	Filled    []Filled `json:"filled,omitempty"`
	BelowZero []Below  `json:"below_zero,omitempty"`
}

// PaidSample is a sample of orders of one status.
type PaidSample struct {
	Orders int64 `json:"orders"`
	Paid   int64 `json:"paid"` // orders with a time of payment
}

// Mostly reports whether most orders of the sample are paid.
func (p PaidSample) Mostly() bool { return 2*p.Paid > p.Orders }

// Evidence reads what orders say about the statuses of the mapping: one entry of the index for each status of each
// table, and up to 100 orders with each of the two statuses of a close in the newest table, without those that Mapping.Where excludes. If the
// server ends a statement, Evidence returns what it has read until then, with the error.
func (s *Checker) Evidence(ctx context.Context) (e Evidence, err error) {
	ctx = s.LimitReads(ctx)
	in, err := s.AllTables(ctx)
	for _, t := range in {
		values, readErr := s.Unlisted(ctx, t)
		for _, v := range values {
			if !slices.Contains(e.Unnamed, v.String()) {
				e.Unnamed = append(e.Unnamed, v.String())
			}
		}
		err = cmp.Or(err, readErr)
	}
	if e.UnnamedAs = s.UnlistedState(); err == nil && len(in) > 0 {
		if err = s.sample(ctx, in[0], &e); err == nil {
			e.Filled, err = s.filled(ctx, in[0])
		}
	}
	if err == nil {
		e.BelowZero, err = s.belowZero(ctx)
	}
	return e, s.FailedTo(ctx, err, "read a sample of the orders")
}

func (s *Checker) sample(ctx context.Context, t *db.Table, e *Evidence) error {
	schema, err := s.Describe(ctx, t.Name)
	holds := ""
	if e.PaidColumn, holds = schema[t.Name].PaidTime(); err != nil || e.PaidColumn == "" {
		return err
	}
	where := cmp.Or(s.Q.Where.SQL, "TRUE")
	query := "SELECT COUNT(*), COUNT(CASE WHEN oc_holds = 1 THEN 1 END) FROM (SELECT oc_holds FROM (SELECT" +
		" CASE WHEN " + holds + " THEN 1 ELSE 0 END AS oc_holds, CASE WHEN " + where + " THEN 1 ELSE 0 END AS oc_in" +
		" FROM " + mapping.Quote(t.Name) + s.Q.D.Hint(s.Q.M.DueIndex) + " WHERE " + mapping.Quote(s.Q.M.Status.Column) + " IN ? LIMIT ?) AS oc_read" +
		" WHERE oc_in = 1 LIMIT ?) AS oc_all"
	for to, of := range map[*PaidSample]mapping.OneOf{&e.FromSample: s.Q.M.Status.From, &e.ToSample: {s.Q.M.Status.To}} {
		args := append(slices.Clone(s.Q.Where.Args), of.Args(), lookedAt, sampled)
		if err := s.Gorm.WithContext(ctx).Raw(query, args...).Row().Scan(&to.Orders, &to.Paid); err != nil {
			return err
		}
	}
	return nil
}

// AuditState is what an order's status means for its close.
type AuditState string

// The states of an order's status.
const (
	AuditOpen     AuditState = "open"     // closed once it is due
	AuditExcluded AuditState = "excluded" // as open, but the mapping excludes the order: a close leaves it as it is
	AuditPaid     AuditState = "paid"     // paid, and never to be closed
	AuditClosed   AuditState = "closed"   // closed; by orderclose only, if AuditRules.Exclusive
	AuditOther    AuditState = "other"    // ended in another way, such as cancelled
)

// Unlisted returns the statuses of a table that the mapping does not name, as the database
// compares them, without NULL. It reads one entry of the index on status and due time for each
// status.
func (s *Checker) Unlisted(ctx context.Context, t *db.Table) (values []mapping.Value, err error) {
	column := mapping.Quote(s.Q.M.Status.Column)
	st := s.Q.M.Status
	var listed []any
	for _, v := range slices.Concat(st.From, []mapping.Value{st.To}, st.Paid, st.Closed) {
		listed = append(listed, v.Arg())
	}
	var texts []string
	distinct := s.Q.D.Distinct(column, mapping.Quote(t.Name)+s.Q.D.Hint(s.Q.M.DueIndex))
	query := "SELECT " + column + " FROM (" + distinct + ") AS oc_all WHERE " + column + " NOT IN ?"
	err = s.Gorm.WithContext(ctx).Raw(query, listed).Scan(&texts).Error
	for _, text := range texts {
		values = append(values, mapping.Value{Text: text, Number: st.To.Number})
	}
	return values, err
}

// UnlistedState returns the state of a status that the mapping does not name: other if the mapping
// lists only paid statuses, else paid.
func (s *Checker) UnlistedState() AuditState {
	if s.Q.ListsPaid() {
		return AuditOther
	}
	return AuditPaid
}
