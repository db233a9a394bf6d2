package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// bookings closes table bookings that were not confirmed in time. It keeps them in a map, where
// a restaurant has its database.
type bookings struct {
	mu     sync.Mutex
	due    map[string]time.Time // of the open bookings
	closed chan string
}

// CloseOrders implements closer.Store. It may be called any number of times for a booking.
func (b *bookings) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		due, open := b.due[r.OrderID]
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.AlreadyClosed, Due: due, At: time.Now()}
		switch {
		case open && due.After(time.Now()):
			outcomes[i].Verdict = orderclose.NotDue
		case open:
			outcomes[i].Verdict = orderclose.Closed
			delete(b.due, r.OrderID)
			b.closed <- r.OrderID
		}
	}
	return outcomes, nil
}

// closeBookings runs relay and closer on embedded servers, as a test of a program does, until a
// booking is closed.
func closeBookings(ctx context.Context, logger *slog.Logger) error {
	cfg, err := pipeline.Parse("bookings.yaml", []byte("delays: {default: 2s}\nbuckets: [1s, 1m]\npartitions: 1\nsync: always\n"))
	if err != nil {
		return err
	}
	servers, err := pipelinetest.Start(pipelinetest.Options{})
	if err != nil {
		return err
	}
	defer servers.Close()

	b := &bookings{due: map[string]time.Time{}, closed: make(chan string, 1)}
	app, err := servers.App(ctx, pipeline.Options{Config: cfg, Store: b, Logger: logger})
	if err != nil {
		return err
	}
	p, err := servers.Producer(cfg)
	if err != nil {
		return err
	}
	booking := p.Order("table 4, friday", time.Now())
	b.due[booking.ID] = booking.Due
	if err := p.Schedule(ctx, booking); err != nil {
		return err
	}
	return runUntil(ctx, app, []pipeline.Role{pipeline.Relay, pipeline.Closer}, func(ctx context.Context) error {
		select {
		case id := <-b.closed:
			fmt.Printf("booking %q is closed, %v after its due time\n", id, time.Since(booking.Due).Round(time.Millisecond))
			return nil
		case <-ctx.Done():
			return fmt.Errorf("no booking was closed: %w", ctx.Err())
		}
	})
}
