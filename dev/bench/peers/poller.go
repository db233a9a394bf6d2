package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

// pollWorkers is how many of the transactions of W5's poller run at once.
const pollWorkers = 2

// runPoller closes orders as a shop without a pipeline does: it looks regularly for unpaid orders
// that are due, and closes them in the transaction of the closer.
func runPoller(ctx context.Context, dsn, interval string) error {
	every, err := time.ParseDuration(interval)
	if err != nil {
		return err
	}
	st, err := store.Open(store.Options{DSN: dsn, MaxOpenConns: pollWorkers + 1})
	if err != nil {
		return err
	}
	defer st.Close()
	return regularly(ctx, every, func() error { return closeDue(ctx, st) })
}

// closeDue finds all orders that are due, page by page, and closes a page in a transaction.
func closeDue(ctx context.Context, st *store.Store) error {
	now, err := st.Now(ctx)
	if err != nil {
		return err
	}
	workers, running := errgroup.WithContext(ctx)
	workers.SetLimit(pollWorkers)
	last := orderclose.Order{}
	for {
		orders, err := st.Overdue(running, now, last, pollPage)
		if err != nil || len(orders) == 0 {
			return errors.Join(err, workers.Wait())
		}
		last = orders[len(orders)-1]
		workers.Go(func() error {
			requests := make([]orderclose.CloseRequest, len(orders))
			for i, o := range orders {
				requests[i] = orderclose.CloseRequest{OrderID: o.ID, CreatedAt: o.CreatedAt, Due: o.Due}
			}
			_, err := st.CloseOrders(running, orderclose.PathSweep, requests)
			return err
		})
	}
}
