package ops

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/orderclose/orderclose/internal/store"
)

const (
	// EventsRate is the default rate of events that are written again, a second: a dispatcher publishes several times as many beside them.
	EventsRate = 1000
	// eventsPage is how many events one transaction writes at most.
	eventsPage = 500
)

// EventsDatabase is what writing events again needs of the database. Store of internal/store implements it.
type EventsDatabase interface {
	CountEvents(ctx context.Context, from, to time.Time) (closed, paid, late int64, err error)
	ClosedAgain(ctx context.Context, from, to time.Time, after store.ReceiptKey, limit int) (n int, last store.ReceiptKey, err error)
	PaidAgain(ctx context.Context, from, to time.Time, after store.ReceiptKey, limit int) (n int, last store.ReceiptKey, err error)
	PaidLateAgain(ctx context.Context, from, to time.Time) (n int, err error)
}

// EventsAgain is how many events of each type were first written in [From, To), and are written again.
type EventsAgain struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Closed   int64     `json:"closed"`
	Paid     int64     `json:"paid"`
	PaidLate int64     `json:"paid_late"` // that nobody has resolved
}

// All returns how many events there are.
func (e EventsAgain) All() int64 { return e.Closed + e.Paid + e.PaidLate }

// PlanEventsAgain counts what WriteEventsAgain would write.
func PlanEventsAgain(ctx context.Context, db EventsDatabase, from, to time.Time) (e EventsAgain, err error) {
	e = EventsAgain{From: from.UTC(), To: to.UTC()}
	if e.Closed, e.Paid, e.PaidLate, err = db.CountEvents(ctx, from, to); err != nil {
		return e, err
	}
	return e, nil
}

// WriteEventsAgain writes the events that were first written in [from, to) into the outbox again, at most perSecond a second, with the ids
// that they had. The events of one order are written in the order in which they were: a late payment comes last. progress is called with
// the number of events so far. After an error e has what was written; writing it again only costs the readers a duplicate.
func WriteEventsAgain(ctx context.Context, db EventsDatabase, from, to time.Time, perSecond int,
	progress func(done int64)) (e EventsAgain, err error) {
	e = EventsAgain{From: from.UTC(), To: to.UTC()}
	page := min(perSecond, eventsPage)
	limiter := rate.NewLimiter(rate.Limit(perSecond), page)
	written := func(n int) error {
		progress(e.All())
		for ; n > page; n -= page {
			if err := limiter.WaitN(ctx, page); err != nil {
				return err
			}
		}
		return limiter.WaitN(ctx, n)
	}
	for _, kind := range []struct {
		write func(context.Context, time.Time, time.Time, store.ReceiptKey, int) (int, store.ReceiptKey, error)
		count *int64
	}{{db.ClosedAgain, &e.Closed}, {db.PaidAgain, &e.Paid}} {
		for after, more := (store.ReceiptKey{}), true; more; more = after != (store.ReceiptKey{}) {
			var n int
			if n, after, err = kind.write(ctx, from, to, after, page); err != nil {
				return e, err
			}
			*kind.count += int64(n)
			if err := written(n); err != nil {
				return e, err
			}
		}
	}
	late, err := db.PaidLateAgain(ctx, from, to)
	e.PaidLate = int64(late)
	progress(e.All())
	return e, err
}
