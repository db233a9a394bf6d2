package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// How an order of a world is published (How), and what happens to it later (Then).
const (
	direct      = "direct"      // by the producer, after the transaction that creates it
	byOutbox    = "outbox"      // by the outbox, in that transaction
	twice       = "twice"       // both
	unpublished = "unpublished" // neither: only a sweep finds it

	paid      = "pay"
	cancelled = "cancel"
	later     = "later"   // its deadline moves later
	earlier   = "earlier" // its deadline moves earlier
)

// chaosDelays are the delays of the categories.
var chaosDelays = orderclose.Delays{Default: 14 * time.Second, ByCategory: map[string]time.Duration{
	"flash": 1500 * time.Millisecond, "quick": 5 * time.Second, "virtual": 11 * time.Second, "physical": 23 * time.Second,
}, Rules: []orderclose.Rule{
	{Match: orderclose.Match{Categories: []string{"virtual", "physical"}}, Grace: time.Second, Remind: []time.Duration{8 * time.Second, 2 * time.Second}},
}}

// drawOrder draws an order, its publication and its fate.
func drawOrder(d *drawing, n int) event {
	e := event{At: time.Duration(d.Int64N(int64(window - 15*time.Second))).Truncate(time.Millisecond), Kind: "order", N: n}
	e.What = d.among("flash", "quick", "virtual", "physical", "unheard-of")
	e.How = d.among(direct, direct, direct, direct, direct, byOutbox, byOutbox, byOutbox, twice, direct)
	if d.plan.Sweeps && d.IntN(15) == 0 {
		e.How = unpublished
	}
	e.Then = d.among("", "", "", "", "", "", "", paid, paid, cancelled, later, earlier)
	delay, ok := chaosDelays.ByCategory[e.What]
	if !ok {
		delay = chaosDelays.Default
	}
	if e.Then != "" {
		e.For = time.Duration((0.1 + d.Float64()) * float64(delay)).Truncate(time.Millisecond) // may be after the due time
	}
	switch e.Then {
	case later:
		e.By = d.span(time.Second, 20*time.Second)
	case earlier:
		e.By = -time.Duration(d.Float64() * float64(delay)).Truncate(time.Millisecond)
	}
	return e
}

// order plays an order. The shop retries until the database, and Kafka, have accepted it.
func (w *chaosWorld) order(e event) {
	o := w.producer.Order(fmt.Sprintf("order-%02d", e.N), time.Now().Truncate(time.Millisecond), e.What)
	items := []shopdb.Item{{SKU: scenario.SKU(e.N % chaosSKUs), Quantity: 2}, {SKU: scenario.SKU(e.N * 7 % chaosSKUs), Quantity: 1}}
	outbox := e.How == byOutbox || e.How == twice
	err := w.shop.Checkout(w.ctx, func(tx *shopdb.Tx) error {
		err := tx.CreateOrder(o, items)
		if outbox && err == nil {
			err = w.outbox.Add(w.ctx, orderclose.SQL(tx.SQL()), o)
		}
		return err
	})
	if err != nil {
		w.violation("harness", "%s was not created: %v", o.ID, err)
		return
	}
	if outbox {
		w.add(&w.added, o.ID)
	}
	if e.How == direct || e.How == twice {
		w.errands.Go(func() { w.publish(o) })
	}
	if e.Then != "" && wait(w.ctx, time.Until(o.CreatedAt.Add(e.For))) {
		w.finish(o, e)
	}
}

// publish schedules an order, and retries until the record is acked.
func (w *chaosWorld) publish(o orderclose.Order) {
	for {
		err := w.producer.Schedule(w.ctx, o)
		if err == nil {
			w.add(&w.published, o.ID)
			return
		}
		if !wait(w.ctx, time.Second) {
			w.violation("harness", "%s was never published: %v", o.ID, err)
			return
		}
	}
}

// finish does what e.Then says.
func (w *chaosWorld) finish(o orderclose.Order, e event) {
	var err error
	switch e.Then {
	case paid:
		if w.ends() && !w.service.pay(o.ID) {
			return // the provider refuses the payment
		}
		var answer shopdb.Answer
		if answer, err = w.shop.Pay(w.ctx, o.ID, "pay-"+o.ID); err == nil && answer == shopdb.AnswerPaid {
			w.add(&w.paid, o.ID)
		}
		if w.ends() && answer == shopdb.PaidLate {
			w.violation("broken", "the payment of %s succeeded, and the order was closed", o.ID)
		}
	case cancelled:
		_, err = w.shop.Cancel(w.ctx, o.ID)
	case later, earlier:
		err = w.move(o, o.Due.Add(e.By))
	}
	if err != nil {
		w.violation("harness", "%s: %v", o.ID, err)
	}
}

// move moves the deadline of an order, and publishes the order again if the deadline is earlier.
func (w *chaosWorld) move(o orderclose.Order, due time.Time) error {
	moved := false
	err := w.shop.Checkout(w.ctx, func(tx *shopdb.Tx) error {
		res, err := tx.SQL().ExecContext(w.ctx, "UPDATE orders SET expire_at = ? WHERE id = ? AND status = 0", due.UnixMilli(), o.ID)
		if err != nil {
			return errors.Join(orderclose.ErrUnavailable, err)
		}
		n, err := res.RowsAffected()
		moved = n > 0
		return err
	})
	if err == nil && moved && due.Before(o.Due) {
		o.Due = due
		w.errands.Go(func() { w.publish(o) })
	}
	return err
}

func (w *chaosWorld) add(list *[]string, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*list = append(*list, id)
}

// wait sleeps for d and returns true. It returns false as soon as ctx ends.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
