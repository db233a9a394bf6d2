package pipelinetest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
)

// bookings is a Store of another kind: it closes table bookings that were not confirmed,
// and keeps them in a map instead of a database.
type bookings struct {
	mu       sync.Mutex
	status   map[string]string    // by id: open, confirmed, cancelled
	due      map[string]time.Time // the true due times, whatever a record says
	outcomes chan orderclose.Outcome
}

var _ closer.Store = (*bookings)(nil)

// CloseOrders answers every request, in the same order, and may be called any number of
// times for the same booking. With a database it is one transaction that locks the rows,
// and "now" is the database's time. After an error that is orderclose.ErrUnavailable the
// closer retries the batch. After any other error it searches for the booking that causes
// it.
func (b *bookings) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		o := orderclose.Outcome{OrderID: r.OrderID, Due: b.due[r.OrderID], At: now}
		switch status := b.status[r.OrderID]; {
		case status == "":
			o.Verdict = orderclose.NotFound
		case status == "confirmed":
			o.Verdict = orderclose.AlreadyPaid
		case status == "cancelled":
			o.Verdict = orderclose.AlreadyClosed
		case o.Due.After(now):
			o.Verdict = orderclose.NotDue
		default:
			b.status[r.OrderID] = "cancelled" // the table is free again
			o.Verdict = orderclose.Closed
		}
		outcomes[i] = o
		b.outcomes <- o
	}
	return outcomes, nil
}

// A closer.Store of your own closes something other than orders. Package pipeline runs the closer, here
// on embedded servers.
func Example_store() {
	servers, err := pipelinetest.Start(pipelinetest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer servers.Close()
	cfg, err := pipeline.Parse("restaurant.yaml", []byte("buckets: [1m]\npartitions: 1\nsync: always\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	past := time.Now().Add(-time.Second)
	store := &bookings{
		status:   map[string]string{"table 4, friday": "open", "table 7, friday": "confirmed"},
		due:      map[string]time.Time{"table 4, friday": past, "table 7, friday": past},
		outcomes: make(chan orderclose.Outcome, 10),
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	app, err := servers.App(ctx, pipeline.Options{Config: cfg, Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := servers.Producer(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"table 4, friday", "table 7, friday", "table 4, friday"} {
		if err := p.Schedule(ctx, orderclose.Order{ID: id, CreatedAt: past, Due: past}); err != nil {
			fmt.Println(err)
		}
	}
	stopped := make(chan error)
	go func() { stopped <- app.Run(ctx, pipeline.Closer) }()
	var lines []string
	for range 3 {
		o := <-store.outcomes
		lines = append(lines, fmt.Sprintf("%s: %s", o.OrderID, o.Verdict))
	}
	cancel()
	if err := <-stopped; err != nil {
		fmt.Println(err)
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
	// Output:
	// table 4, friday: already_closed
	// table 4, friday: closed
	// table 7, friday: already_paid
}
