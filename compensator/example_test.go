package compensator_test

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
)

// bookings is a Store that is searched for overdue bookings.
type bookings struct{ overdue []orderclose.Order }

func (b *bookings) Now(context.Context) (time.Time, error) { return time.Now(), nil }

// Overdue returns a page of the bookings that are still open.
func (b *bookings) Overdue(_ context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	var page []orderclose.Order
	for _, o := range b.overdue {
		if !o.Due.After(cutoff) && o.Due.After(after.Due) && len(page) < limit {
			page = append(page, o)
		}
	}
	return page, nil
}

func (b *bookings) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed, Due: r.Due, At: time.Now()}
	}
	b.overdue = nil
	return outcomes, nil
}

// A single sweep. Run sweeps once an hour.
func ExampleCompensator_Sweep() {
	hourAgo := time.Now().Add(-time.Hour)
	store := &bookings{overdue: []orderclose.Order{{ID: "table 4", Due: hourAgo}, {ID: "table 7", Due: hourAgo.Add(time.Minute)}}}
	c, err := compensator.New(compensator.Options{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := c.Sweep(context.Background(), false)
	fmt.Println("found", report.Found, "closed", report.Closed, err)
	// Output: found 2 closed 2 <nil>
}
