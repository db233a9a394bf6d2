package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/examples/checkout/notices"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

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
