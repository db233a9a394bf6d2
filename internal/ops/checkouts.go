package ops

import (
	"context"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/overdue"
)

const (
	// closesBack is how far back the closes lie that CheckoutClocks reads, newestOrders how many unpaid orders it reads, and newestAhead how
	// far ahead they are due at most.
	closesBack   = 10 * time.Minute
	newestOrders = 1000
	newestAhead  = 366 * 24 * time.Hour
)

// CheckoutClocks returns which clocks of checkouts are wrong, as far as the database shows it alone: unpaid orders that are created in the
// future, and orders that were due when they were created, because they were closed late by the same time. A clock that is
// behind by less than a delay is seen by the running parts only, in their metric.
func (p Pipeline) CheckoutClocks(ctx context.Context) ([]clock.Skew, error) {
	if !p.ClosesInDatabase() {
		return nil, nil
	}
	now, err := p.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	skews := clock.NewSkews(p.Config.Delays)
	found, err := p.Store.ReadOverdue(ctx, overdue.Window{
		After: orderclose.Order{Due: now}, To: now.Add(newestAhead), Newest: true, Rows: newestOrders,
	})
	if err != nil {
		return nil, err
	}
	for _, o := range found.Orders {
		if o.CreatedAt.After(now) {
			skews.Compare(clock.AtLoop, o, now)
		}
	}
	if err := p.Store.RecentCloses(ctx, now.Add(-closesBack), skews.CompareClose); err != nil {
		return nil, err
	}
	return skews.Found(), nil
}
