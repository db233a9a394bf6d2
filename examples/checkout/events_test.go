package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/examples/checkout/notices"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// closedEvent returns the event of an order's close.
func closedEvent(r *rig, id string) string {
	r.t.Helper()
	value, err := orderclose.OrderClosed{OrderID: id, Category: "virtual", Due: time.Now(), ClosedAt: time.Now(),
		Path: orderclose.PathPipeline, Version: 2}.Encode()
	r.must(err)
	return string(value)
}

func (r *rig) customer() checkout.Customer {
	r.t.Helper()
	var c checkout.Customer
	r.want(200, "GET", "/customers/ann", "").into(r.t, &c)
	return c
}

func TestEvents_EachIsHandledOnceAndABadEventBlocksNoOther(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.want(201, "POST", "/orders", basket("a", 10))
		r.want(201, "POST", "/orders", basket("b", 20))
		stop := r.read(r.shop)
		a := closedEvent(r, "a")
		other := `{"specversion":"1.0","id":"x","type":"order.made","data":{}}`
		r.publish(3, "a", a, "not JSON", other, a, closedEvent(r, "another shop's"))
		time.Sleep(5 * time.Second)
		c := r.customer()
		expect.That(t, c.Points == 80 && len(c.Notifications) == 1, "%+v, want 80 points and one message", c)
		// Another process that reads the topic from its start repeats nothing, and continues.
		stop()
		again := r.newShop(nil)
		r.publish(1, "b", closedEvent(r, "b"))
		r.read(again)
		time.Sleep(20 * time.Second)
		c = r.customer()
		expect.That(t, c.Points == 100 && len(c.Notifications) == 2, "%+v, want 100 points and two messages", c)
		r.same("what is kept of events", r.rows("SELECT reader, COUNT(*) FROM checkout_notices GROUP BY reader ORDER BY reader"),
			[]string{"logistics 3", "points 3", "sms 3"})
	})
}

func TestEvents_AReaderContinuesAfterAStop(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		const orders = 150 // more than one transaction handles
		stop := r.read(r.shop)
		for i := range orders {
			id := fmt.Sprintf("o%03d", i)
			r.want(201, "POST", "/orders", fmt.Sprintf(`{"id":%q,"customer":%q,"points":1,"items":[{"sku":"ink","quantity":1}]}`, id, id))
			if i == orders/5 {
				time.Sleep(5 * time.Second)
				stop()
			}
			r.publish(1, id, closedEvent(r, id))
		}
		time.Sleep(time.Hour)
		before := len(r.rows("SELECT * FROM checkout_notifications"))
		expect.That(t, before != 0 && before <= orders/5+1, "%d customers were notified before the stop", before)
		r.registry = nil
		r.read(r.newShop(nil))
		time.Sleep(20 * time.Second)
		r.same("notifications", len(r.rows("SELECT * FROM checkout_notifications")), orders)
		r.same("points that are not back", r.rows("SELECT customer FROM checkout_customers WHERE points <> 100"), []string(nil))
		n := r.metric("checkout_events_total", checkout.ReaderSMS, "done")
		expect.That(t, n == float64(orders-before), "%v SMS were sent after the stop, want the remaining %d", n, orders-before)
	})
}

func TestEvents_APaidOrderIsDeliveredOnceIfTheCallbackCameOrNot(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		for _, id := range []string{"called", "lost", "unpaid"} {
			r.create(id)
		}
		r.pay("called")
		r.same("after the callback", r.rows("SELECT order_id FROM checkout_deliveries"), []string{"called"})
		r.read(r.shop)
		for _, id := range []string{"called", "lost", "another shop's"} {
			event, err := orderclose.OrderPaid{OrderID: id, Due: time.Now(), PaidAt: time.Now()}.Encode()
			r.must(err)
			r.publish(2, id, string(event), closedEvent(r, "unpaid"))
		}
		time.Sleep(5 * time.Second)
		r.same("after the events", r.rows("SELECT order_id FROM checkout_deliveries ORDER BY order_id"), []string{"called", "lost"})
		r.same("events of paid orders", r.metric("checkout_events_total", checkout.ReaderDelivery, "done"), 3.0)
	})
}

// provider is a provider that can be down, and counts calls.
type provider struct {
	notices.StandIn
	mu     sync.Mutex
	answer func(text string) error // before the notice is accepted; nil: accept
	after  error                   // after the notice was accepted: the answer is lost
	calls  int
}

func (p *provider) Send(ctx context.Context, key, text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.answer != nil {
		if err := p.answer(text); err != nil {
			return err
		}
	}
	return errors.Join(p.StandIn.Send(ctx, key, text), p.after)
}

// set changes the answers.
func (p *provider) set(answer func(string) error, after error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer, p.after = answer, after
}

func TestNotices_EachServiceIsToldOnceAndNoneWaitsForAnother(t *testing.T) {
	sms, logistics := &provider{}, &provider{}
	providers := func(o *checkout.Options) { o.SMS, o.Logistics = sms, logistics }
	inBubble(t, providers, func(r *rig) {
		const orders = 20
		down := errors.New("down")
		logistics.set(func(string) error { return down }, nil)
		stop := r.read(r.shop)
		for i := range orders {
			id := fmt.Sprintf("o%02d", i)
			r.want(201, "POST", "/orders", basket(id, 1))
			r.publish(3, id, closedEvent(r, id))
		}
		time.Sleep(5 * time.Second)
		r.same("SMS while logistics is down", len(sms.Sent()), orders)
		r.same("points", r.customer().Points, int64(100))
		r.same("logistics", len(logistics.Sent()), 0)

		// The provider accepts, and its answer is lost: it is called again with the same key.
		logistics.set(nil, down)
		time.Sleep(time.Minute)
		r.same("logistics without answers", len(logistics.Sent()), orders)
		stop()
		logistics.set(nil, nil)
		r.read(r.newShop(providers))
		time.Sleep(time.Minute)
		r.same("logistics", len(logistics.Sent()), orders)
		expect.That(t, logistics.calls > orders, "%d calls, want repeats", logistics.calls)
		r.same("SMS", len(sms.Sent()), orders)
		r.same("calls for SMS", sms.calls, orders)
		r.same("points", r.customer().Points, int64(100))
		r.same("records", r.rows("SELECT reader, COUNT(*) FROM checkout_notices GROUP BY reader ORDER BY reader"),
			[]string{fmt.Sprint("logistics ", orders), fmt.Sprint("points ", orders), fmt.Sprint("sms ", orders)})
	})
}

func TestNotices_ARejectedOneBlocksNoOther(t *testing.T) {
	sms := &provider{}
	sms.set(func(text string) error {
		if strings.Contains(text, "order bad") {
			return fmt.Errorf("no such number: %w", notices.ErrRejected)
		}
		return nil
	}, nil)
	inBubble(t, func(o *checkout.Options) { o.SMS = sms }, func(r *rig) {
		r.read(r.shop)
		for _, id := range []string{"bad", "good"} {
			r.want(201, "POST", "/orders", basket(id, 0))
			r.publish(1, "one partition", closedEvent(r, id))
		}
		time.Sleep(10 * time.Second)
		r.same("records", r.rows("SELECT order_id, result FROM checkout_notices WHERE reader = 'sms' ORDER BY order_id"), []string{"bad rejected", "good done"})
		r.same("told", len(r.customer().Notifications), 1)
		r.same("rejected", r.metric("checkout_events_total", checkout.ReaderSMS, notices.Rejected), 1.0)
	})
}
