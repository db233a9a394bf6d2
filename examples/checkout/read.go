package checkout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/ordercache"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// Sources of the answer to a read, for Metrics.
const (
	FromLocal    = "local"    // the cache in this process
	FromRedis    = "redis"    // the view in Redis
	FromFilter   = "filter"   // the filter of order ids: the order does not exist
	FromDatabase = "database" // a query
)

// Get returns an order: from the cache in this process or its view in Redis if that may be shown,
// else from the database. A read from the database first closes an order that is past due, unless
// Options.AskFirst is set. An order that stays unpaid, such as one that another transaction locks, is
// shown as closing. The error wraps shopdb.ErrNoOrder or orderclose.ErrUnavailable.
func (s *Shop) Get(ctx context.Context, id string) (Order, error) {
	if s.local == nil {
		return s.look(ctx, id, func(shopdb.View) {})
	}
	if now, ok := s.now(); ok {
		if v, ok := s.local.Get(id); ok && usable(v, now, s.o.MaxStale) {
			s.o.Metrics.Read(FromLocal)
			return show(v, now), nil
		}
	}
	// Of many requests for one order, one looks and the others wait for it.
	o, err, _ := s.looking.Do(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		o, err := s.look(ctx, id, s.local.Begin(id).End)
		if err != nil {
			s.local.Remove(id)
		}
		return o, err
	})
	return o.(Order), err
}

// look looks an order up in Redis, and then in the database. It calls found with the view that it
// returns.
func (s *Shop) look(ctx context.Context, id string, found func(shopdb.View)) (Order, error) {
	if now, ok := s.now(); ok {
		if v, ok := s.views.get(ctx, id, now); ok {
			s.o.Metrics.Read(FromRedis)
			found(v)
			return show(v, now), nil
		}
	}
	if s.o.Filter != nil && !s.views.pause.on() && s.o.Filter.Unknown(ctx, id) {
		s.o.Metrics.Read(FromFilter)
		return Order{}, fmt.Errorf("read order %.80q: %w", id, shopdb.ErrNoOrder)
	}
	s.o.Metrics.Read(FromDatabase)
	v, err := s.read(ctx, id)
	if err != nil {
		return Order{}, err
	}
	if v.PastDue() && !s.o.AskFirst {
		if v, err = s.touch(ctx, v); err != nil {
			return Order{}, err
		}
	}
	found(v)
	return show(v, v.At), nil
}

// read reads an order from the database.
func (s *Shop) read(ctx context.Context, id string) (shopdb.View, error) {
	asked := time.Now()
	v, err := s.orders.ViewOrder(ctx, id)
	if err == nil {
		s.clock.Store(&clockReading{asked, v.At})
		s.views.put(ctx, v, false)
	}
	return v, err
}

// changed updates the caches after this process has changed an order. The view comes first: a read between the two
// that finds the old one stores nothing.
func (s *Shop) changed(ctx context.Context, v shopdb.View) {
	s.views.put(ctx, v, true)
	s.forget(v.ID)
}

// forget removes an order from the cache in this process. Reads that began before do not answer requests
// that come from now on.
func (s *Shop) forget(id string) {
	if s.local != nil {
		s.looking.Forget(id)
		s.local.Remove(id)
	}
}

// FollowChanges removes the orders that other processes change from the cache in this process, until ctx ends.
// Without it, or if a message is lost, a view is shown for MaxStale after it was read.
func (s *Shop) FollowChanges(ctx context.Context) {
	if s.local != nil && s.o.Redis != nil {
		ordercache.Follow(ctx, s.o.Redis, s.views.channel(), s.forget)
	}
}

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
