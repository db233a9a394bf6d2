package ops

import (
	"context"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
)

const (
	// pageSize is how many orders one page has.
	pageSize = 500
	// percent is how many steps of progress the orders of one part have, and how many reading Kafka has.
	percent = 100
)

// DueWalk is a walk through the orders that are due in [From, To), to compare them with what Kafka has. Begin comes first, then
// Read, then WalkDue.
type DueWalk struct {
	From, To time.Time
	Show     func(done, total int64, step string) // nil: the progress is not shown
	done     int64                                // steps
	total    int64
	parts    []store.AuditPart
}

// Since returns the time before which no record of the orders was appended, whose clock may differ.
func (w *DueWalk) Since() kafka.Moment { return kafka.MomentOf(w.From.Add(-auditSlack)) }

// Read shows that so many of all records of a topic were read.
func (w *DueWalk) Read(n, all int64, topic string) {
	w.done = percent * n / all
	w.progress(topic)
}

// Begin reads the parts, and returns when the walk began, by the database's clock.
func (w *DueWalk) Begin(ctx context.Context, db AuditStore) (at time.Time, err error) {
	if at, err = db.Now(ctx); err == nil {
		w.parts, err = db.AuditParts(ctx)
	}
	w.total = int64(len(w.parts)+1) * percent
	return at, err
}

// progress shows how many steps are done.
func (w *DueWalk) progress(step string) {
	if w.Show != nil {
		w.Show(w.done, w.total, step)
	}
}

// WalkDue reads the orders of each part in pages, calls each with every order, and shows the progress
// with the text of step. read returns a page of a part, of at most limit orders behind an order.
func WalkDue[R any](w *DueWalk, read func(part store.AuditPart, after orderclose.Order, limit int) ([]R, error),
	order func(R) orderclose.Order, each func(store.AuditPart, R) error, step func() string,
) error {
	for i, part := range w.parts {
		begun := int64(i+1) * percent
		for last := (orderclose.Order{}); ; {
			page, err := read(part, last, pageSize)
			if err != nil {
				return err
			}
			for _, row := range page {
				if due := order(row).Due; due.Before(w.From) || !due.Before(w.To) {
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
			w.done = begun + int64(percent*float64(last.Due.Sub(w.From))/float64(w.To.Sub(w.From)))
			w.progress(step())
		}
	}
	w.done = w.total
	w.progress("")
	return nil
}
