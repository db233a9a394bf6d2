package ordercache

import (
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// pageSize is the maximum number of orders in a query of Refresh.
const pageSize = 500

// RefreshOptions configure Refresh. Every, Read and Failed are required.
type RefreshOptions struct {
	// Every is the time between two rounds. A view that was missed by all messages is shown for
	// at most that long, and the duration of a query.
	Every time.Duration
	// Read reads orders from the database. Orders that do not exist are left out.
	Read func(ctx context.Context, ids []string) ([]shopdb.View, error)
	// Keep returns false for views that need no refresh: their orders cannot change any more.
	Keep func(shopdb.View) bool
	// Failed is called with the error of a Read. The views then get too old to be shown.
	Failed func(error)
}

// Refresh reads the orders that customers have read from the cache since the last round, and
// replaces their views, until ctx ends. It costs a query for each 500 of them.
func (c *Cache) Refresh(ctx context.Context, o RefreshOptions) {
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for ids := range slices.Chunk(c.inUse(o.Keep), pageSize) {
			views, err := o.Read(ctx, ids)
			if err != nil {
				if ctx.Err() == nil {
					o.Failed(err)
				}
				break
			}
			c.replace(ids, views)
		}
	}
}
