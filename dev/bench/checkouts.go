package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// Checkouts while a closer works at full speed.
const (
	checkoutRate    = 200 // a second
	checkoutWorkers = 8   // enough that a slow checkout does not delay the next
)

// besides measures checkouts that buy the same SKUs as the orders of a lot, while a
// crew closes those orders. It returns the durations of the checkouts.
func (s *shop) besides(ctx context.Context, c crew, l lot) ([]time.Duration, closed, error) {
	if err := s.fill(ctx, l); err != nil {
		return nil, closed{}, err
	}
	buying, stop := context.WithCancel(ctx)
	defer stop()
	var took []time.Duration
	var failed error
	var buyers sync.WaitGroup
	buyers.Go(func() { took, failed = s.checkouts(buying, l.skus) })
	t, err := s.closeLot(ctx, c, l.orders)
	stop()
	buyers.Wait()
	if err = errors.Join(err, failed); err != nil {
		return nil, t, err
	}
	if len(took) == 0 {
		return nil, t, fmt.Errorf("closing %d orders was over before a checkout was", l.orders)
	}
	return took, t, nil
}

// checkouts creates orders at an even rate until ctx ends, and returns how long each took since its
// planned start.
func (s *shop) checkouts(ctx context.Context, skus int) ([]time.Duration, error) {
	pool, err := store.Open(store.Options{DSN: s.dsn, MaxOpenConns: checkoutWorkers})
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	orders := scenario.OrdersOf(pool)
	return evenly(ctx, checkoutRate, checkoutWorkers, func(number int, planned time.Time) error {
		return orders.CreateOrder(context.WithoutCancel(ctx), orderclose.Order{
			ID: fmt.Sprintf("NEW-%d", number), Category: "virtual", CreatedAt: planned, Due: planned.Add(time.Hour),
		}, []shopdb.Item{{SKU: skuName(rand.IntN(skus)), Quantity: 1}, {SKU: skuName(rand.IntN(skus)), Quantity: 1}})
	})
}

// evenly makes calls at an even rate until one fails or ctx ends. It returns how long each took since its planned start: the wait for a
// worker counts too.
func evenly(ctx context.Context, rate, workers int, call func(number int, planned time.Time) error) (took []time.Duration, err error) {
	var mu sync.Mutex
	calls, running := errgroup.WithContext(ctx)
	calls.SetLimit(workers)
	begin := time.Now()
	for n := 0; running.Err() == nil; n++ {
		planned := begin.Add(time.Duration(n) * time.Second / time.Duration(rate))
		if !sleep(running, time.Until(planned)) {
			break
		}
		calls.Go(func() error {
			if err := call(n, planned); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(planned))
			return nil
		})
	}
	err = calls.Wait()
	return took, err
}
