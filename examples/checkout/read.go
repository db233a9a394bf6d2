package checkout

import (
	"context"
	"errors"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// Get returns an order, from its view in Redis if the view may be shown, else from the database. It
// first closes an order that is past due, unless Options.AskFirst is set. An order that stays
// unpaid, such as one that another transaction locks, is shown as closing. The error wraps
// shopdb.ErrNoOrder or orderclose.ErrUnavailable.
func (s *Shop) Get(ctx context.Context, id string) (Order, error) {
	if now, ok := s.now(); ok {
		if v, ok := s.views.get(ctx, id, now); ok {
			return show(v, now), nil
		}
	}
	v, err := s.read(ctx, id)
	if err != nil {
		return Order{}, err
	}
	if v.PastDue() && !s.o.AskFirst {
		if v, err = s.touch(ctx, v); err != nil {
			return Order{}, err
		}
	}
	return show(v, v.At), nil
}

// read reads an order from the database.
func (s *Shop) read(ctx context.Context, id string) (shopdb.View, error) {
	asked := time.Now()
	v, err := s.orders.ViewOrder(ctx, id)
	if err == nil {
		s.clock.Store(&clockReading{asked, v.At})
		s.updateView(ctx, v)
	}
	return v, err
}

// updateView updates the view of an order that was just read from or changed in the database.
func (s *Shop) updateView(ctx context.Context, v shopdb.View) { s.views.put(ctx, v) }

// clockReading is a reading of the database's clock.
type clockReading struct{ asked, shown time.Time }

// now returns the database's clock, computed from its last reading, and never behind it: the
// duration of the reading counts as elapsed. ok is false before the first reading. The local
// monotonic clock measures the elapsed time, so setting the local clock has no effect.
func (s *Shop) now() (now time.Time, ok bool) {
	r := s.clock.Load()
	if r == nil {
		return time.Time{}, false
	}
	return r.shown.Add(time.Since(r.asked)), true
}

// touch requests the close of an order that is past due, and reads the order again. Without a
// Closer it returns the order as it is. The order may stay unpaid: a payment may be pending, or
// another transaction may lock the row for long. The pipeline then closes it. The errors are those
// of Get.
func (s *Shop) touch(ctx context.Context, v shopdb.View) (shopdb.View, error) {
	if s.o.Closer == nil {
		return v, nil
	}
	outcomes, err := s.o.Closer.CloseOrders(ctx, orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: v.ID}})
	switch {
	case errors.Is(err, orderclose.ErrUnavailable):
		return v, err
	case err != nil || len(outcomes) != 1:
		s.o.Metrics.Touched(orderclose.Failed)
		s.o.Logger.Warn("closing an order past due failed", "order", v.ID, "err", err)
	default:
		s.o.Metrics.Touched(outcomes[0].Verdict)
	}
	return s.read(ctx, v.ID)
}
