package closer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/partition/partitiontest"
)

// bookings is a Store of somebody's own: what it closes is a table booking that
// nobody confirmed, and it lives in a map instead of a database.
type bookings struct {
	mu     sync.Mutex
	status map[string]string    // by id: open, confirmed, cancelled
	due    map[string]time.Time // what is true, whatever a record says
	said   chan orderclose.Outcome
}

// CloseOrders answers every request, in their order, and can be asked for the same
// one any number of times. With a database it is one transaction that locks the
// rows, and "now" is the database's. An error that is orderclose.ErrUnavailable
// would have the batch wait; any other, the one booking looked for that causes it.
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
			b.status[r.OrderID] = "cancelled" // and the table is free again
			o.Verdict = orderclose.Closed
		}
		outcomes[i] = o
		b.said <- o
	}
	return outcomes, nil
}

// Closing something of one's own: a Store is all it takes.
func ExampleStore() {
	past := time.Now().Add(-time.Second)
	store := &bookings{
		status: map[string]string{"table 4, friday": "open", "table 7, friday": "confirmed"},
		due:    map[string]time.Time{"table 4, friday": past, "table 7, friday": past},
		said:   make(chan orderclose.Outcome, 10),
	}
	c, err := New(Options{
		Log:     dueNow("table 4, friday", "table 7, friday", "table 4, friday"), // of a cluster: kafka.New
		Store:   store,
		Buckets: orderclose.Buckets{{Topic: "delay_1m", Length: time.Minute}},
		Group:   "closers", CloseTopic: "order-close", DeadLetterTopic: "dead", ControlTopic: "control",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- c.Run(ctx) }()
	var lines []string
	for range 3 {
		o := <-store.said
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

// dueNow is a log with records of orders that are due.
func dueNow(ids ...string) *partitiontest.Log {
	log := &partitiontest.Log{}
	for _, id := range ids {
		o := orderclose.Order{ID: id, CreatedAt: time.Now(), Due: time.Now()}
		m, err := orderclose.Record{Order: o, Release: o.Due}.Encode()
		if err != nil {
			panic(err)
		}
		log.Put(toClose, m)
	}
	return log
}
