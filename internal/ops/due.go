package ops

import (
	"context"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

const (
	// pageSize is how many orders one page has.
	pageSize = 500
	// percent is how many steps of progress the orders of one part have, and how many reading Kafka has.
	percent = 100
)

// dueWalk is the walk of an audit, or of a report of a shadow run, through the orders that are due in
// [from, to).
type dueWalk struct {
	from, to time.Time
	show     func(done, total int64, step string) // nil: the progress is not shown
	done     int64                                // steps
	total    int64
	parts    []store.AuditPart
}

// begin reads the parts, and returns when the walk began, by the database's clock.
func (w *dueWalk) begin(ctx context.Context, db AuditStore) (at time.Time, err error) {
	if at, err = db.Now(ctx); err == nil {
		w.parts, err = db.AuditParts(ctx)
	}
	w.total = int64(len(w.parts)+1) * percent
	return at, err
}

// progress shows how many steps are done.
func (w *dueWalk) progress(step string) {
	if w.show != nil {
		w.show(w.done, w.total, step)
	}
}

// walkDue reads the orders of each part in pages, calls each with every order, and shows the progress
// with the text of step. read returns the page of a part behind an order.
func walkDue[R any](w *dueWalk, read func(part store.AuditPart, after orderclose.Order) ([]R, error), order func(R) orderclose.Order, each func(store.AuditPart, R) error, step func() string) error {
	for i, part := range w.parts {
		begun := int64(i+1) * percent
		for last := (orderclose.Order{}); ; {
			page, err := read(part, last)
			if err != nil {
				return err
			}
			for _, row := range page {
				if due := order(row).Due; due.Before(w.from) || !due.Before(w.to) {
					continue // the page includes to, and rounds from down to the column's precision
				}
				if err := each(part, row); err != nil {
					return err
				}
			}
			if len(page) < pageSize {
				break
			}
			last = order(page[len(page)-1])
			w.done = begun + int64(percent*float64(last.Due.Sub(w.from))/float64(w.to.Sub(w.from)))
			w.progress(step())
		}
	}
	w.done = w.total
	w.progress("")
	return nil
}
