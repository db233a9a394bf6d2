package intake

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/wire"
)

// outcome is what became of a row.
type outcome string

const (
	scheduled  outcome = "scheduled"
	notUnpaid  outcome = "not_unpaid" // its status is another than the mapping's from
	excluded   outcome = "excluded"   // by where or not_before
	noDue      outcome = "no_due"     // it has no due time, or is due never or more than ten years ahead
	overdue    outcome = "overdue"    // longer than Options.LeaveOverdue
	unchanged  outcome = "unchanged"  // an update of other columns
	deleted    outcome = "no_row"     // a delete, a change of the schema and the like
	otherTable outcome = "other_table"
)

var outcomes = []outcome{scheduled, notUnpaid, excluded, noDue, overdue, unchanged, deleted, otherTable}

// rowReader decides which rows are scheduled. It is read-only.
type rowReader struct {
	format       Format
	m            *mapping.Mapping
	due, created timeColumn
	relevant     []string // the columns that decide, first the id
	leave        time.Duration
	delays       func() orderclose.Delays
}

func newRowReader(o Options) (r rowReader, err error) {
	r = rowReader{format: o.Format, m: o.Orders.WithDefaults(), leave: o.LeaveOverdue, delays: o.Delays}
	if r.due, err = newTimeColumn(&r.m.Due, o.Zone); err != nil {
		return r, err
	}
	if r.created, err = newTimeColumn(r.m.Created, o.Zone); err != nil {
		return r, err
	}
	r.relevant = []string{r.m.ID.Column, r.m.Status.Column, r.m.Due.Column}
	for _, w := range r.m.Where {
		r.relevant = append(r.relevant, w.Column)
	}
	if r.m.ByRule && r.m.Category != "" { // it decides the delay
		r.relevant = append(r.relevant, r.m.Category)
	}
	return r, nil
}

// decide returns the order of a row that is to be scheduled, or why it is not. The error is a *wire.RecordError.
func (r rowReader) decide(c change, now, appended time.Time) (o orderclose.Order, is outcome, err error) {
	bad := func(format string, args ...any) (orderclose.Order, outcome, error) {
		return o, "", &wire.RecordError{Reason: wire.ErrBadValue, Detail: fmt.Sprintf("the row cannot be scheduled: "+format, args...)}
	}
	shows := func(column string) bool { _, has := c.row[column]; return has }
	switch id, status := r.m.ID.Column, r.m.Status.Column; {
	case c.withoutColumns != "" && !slices.ContainsFunc(r.relevant[1:], shows):
		return o, c.withoutColumns, nil
	case !shows(id):
		return bad("it has no column %s", id)
	case !shows(status) && c.withoutColumns != unchanged: // of such an update the close reads the status
		return bad("it has no column %s", status)
	}
	if !slices.ContainsFunc(r.m.Status.From, func(v mapping.Value) bool { return c.row.is(r.m.Status.Column, v) }) {
		return o, notUnpaid, nil
	}
	for _, w := range r.m.Where {
		if !c.row.meets(w) {
			return o, excluded, nil
		}
	}
	if r.unchanged(c) {
		return o, unchanged, nil
	}
	if r.m.Category != "" {
		o.Category, _ = c.row.text(r.m.Category)
	}
	due, has, err := r.due.read(c.row)
	if r.m.ByRule && has && err == nil {
		due = r.delays().For(orderclose.Facts{CreatedAt: due, Categories: []string{o.Category}}).Due
	}
	switch {
	case err != nil:
		return bad("%v", err)
	case !has || orderclose.IsNever(due) || wire.BeyondLimit(due.Sub(now)): // such as 2038 or 2099; the trigger writes no row either
		return o, noDue, nil
	case due.Before(r.m.NotBefore):
		return o, excluded, nil
	case due.Before(now.Add(-r.leave)):
		return o, overdue, nil
	}
	o.Due, o.CreatedAt = due, appended
	o.ID = c.row.id(r.m.ID)
	if _, ok := r.m.ID.Arg(o.ID); !ok || orderclose.ValidateID(o.ID) != nil {
		return bad("column %s has %.80q, which is no id of type %s", r.m.ID.Column, o.ID, r.m.ID.Type)
	}
	if r.m.Created != nil {
		if at, has, err := r.created.read(c.row); err == nil && has {
			o.CreatedAt = at
		}
	}
	return o, scheduled, nil
}

// unchanged reports whether the values before the change show that no column changed that decides.
func (r rowReader) unchanged(c change) bool {
	if c.before == nil {
		return false
	}
	for _, column := range r.relevant {
		before, had := c.before[column]
		if !had && c.whole || had && !bytes.Equal(before, c.row[column]) {
			return false
		}
	}
	return true
}
