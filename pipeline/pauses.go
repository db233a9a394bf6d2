package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// pauseTimeout bounds a read of the pauses.
	pauseTimeout = 2 * time.Second
	// pauseMetricInterval is the interval between two updates of the metric of the pauses, each of which is a statement.
	pauseMetricInterval = 30 * time.Second
)

// pausedStore is a closer.Store that closes orders elsewhere, and obeys the pauses in the database. The store of the database reads
// them itself, in each transaction.
type pausedStore struct {
	bisect.Wrapped
	pauses func(context.Context) ([]pausing.Pause, error)
	now    func() time.Time
}

// CloseOrders implements closer.Store. It reads the pauses before each call, which is one statement. If they cannot be read, it
// closes nothing, as a store that is down. The category of an order is that of its request.
func (s *pausedStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	limited, cancel := context.WithTimeout(ctx, pauseTimeout)
	on, err := s.pauses(limited)
	cancel()
	if err != nil { //mutant:unread-pauses-ignored
		return nil, blamesNone(fmt.Errorf("closing nothing, since an operator may have paused it: %w", err))
	}
	for _, p := range on {
		if p.Category == "" { //mutant:service-pause-ignored
			return nil, blamesNone(p.Err())
		}
	}
	outcomes := make([]orderclose.Outcome, len(requests))
	var open []orderclose.CloseRequest
	var at []int // the places of open in requests
	for i, r := range requests {
		if slices.ContainsFunc(on, func(p pausing.Pause) bool { return p.Category == r.Category }) { //mutant:service-category-ignored
			outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Paused, Due: r.Due, At: s.now(), Err: pausing.ErrPausedCategory}
			continue
		}
		open, at = append(open, r), append(at, i)
	}
	if len(open) == 0 {
		return outcomes, nil
	}
	closed, err := s.Store.CloseOrders(ctx, path, open)
	if err != nil || len(open) == len(requests) {
		return closed, err
	}
	if err := bisect.CheckOutcomes(open, closed); err != nil {
		return nil, err
	}
	for i, o := range closed {
		outcomes[at[i]] = o
	}
	return outcomes, nil
}

// blamesNone returns the error of a store that is unavailable, by the fault of no order.
func blamesNone(err error) error {
	return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, err)
}

// withPauses returns the method with the pauses of the database, unless the store has its own, or there is no database.
func (a *App) withPauses(method closeMethod) closeMethod {
	if a.closesInDatabase() || a.conns.Store == nil {
		return method
	}
	method.store = &pausedStore{Wrapped: bisect.Wrapped{Store: method.store}, pauses: a.conns.Store.Pauses, now: a.clock.Now}
	method.needs = append(method.needs, a.needDatabase())
	return method
}

// watchPauses updates the metric of the pauses until ctx ends. After two failed reads in a row the metric shows no pause, so that it silences no alert.
func (a *App) watchPauses(ctx context.Context) {
	known := false
	for a.conns.Store != nil && retry.Sleep(ctx, pauseMetricInterval) {
		on, err := a.conns.Store.Pauses(ctx)
		if err == nil || !known {
			a.metrics.Paused(on)
		}
		known = err == nil
	}
}
