package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/store"
	"orderclose/producer"
)

// startStock is what each SKU has at the beginning: enough for any plan.
const startStock = 1_000_000

// Store is the database of a shop; store.Store is one, and Persistent.
type Store interface {
	CreateOrder(ctx context.Context, o orderclose.Order, items []store.Item) error
	Pay(ctx context.Context, id string) (store.Answer, error)
	Cancel(ctx context.Context, id string) (store.Answer, error)
	PutStock(ctx context.Context, sku string, available int64) error
}

// Shop is a checkout: it creates orders, publishes them, takes payments.
type Shop struct {
	Store    Store
	Producer *producer.Producer
	// OnOrder, if set, is called when an order was created.
	OnOrder func(o orderclose.Order, f Fate)

	mu        sync.Mutex
	paid      []string
	published []string
	stock     map[string]int64
	last      time.Time // the latest due time
}

// Stock puts SKUs on the shelf.
func (s *Shop) Stock(ctx context.Context, skus int) error {
	s.stock = map[string]int64{}
	for n := range skus {
		if err := s.Store.PutStock(ctx, SKU(n), startStock); err != nil {
			return err
		}
		s.stock[SKU(n)] = startStock
	}
	return nil
}

// Run plays the steps, each at its time after begin, and returns when the last
// order was created and the last payment made. The errors are the shop's own:
// publishing an order that Kafka refuses, a database that is away.
func (s *Shop) Run(ctx context.Context, begin time.Time, steps []Step) error {
	var plays sync.WaitGroup
	errs := make([]error, len(steps))
	for i, step := range steps {
		if !sleepUntil(ctx, begin.Add(step.At)) {
			break
		}
		plays.Go(func() { errs[i] = s.play(ctx, step) })
	}
	plays.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// play is the life of one order in the shop.
func (s *Shop) play(ctx context.Context, step Step) error {
	created := time.Now().Truncate(time.Millisecond)
	order := s.Producer.Order(step.ID, created, step.Categories...)
	if err := s.Store.CreateOrder(ctx, order, step.Items); err != nil {
		return err
	}
	s.created(order, step.Fate)
	publications := map[Fate]int{Unpublished: 0, Twice: 2}
	n, ok := publications[step.Fate]
	if !ok {
		n = 1
	}
	for range n {
		if err := s.Publish(ctx, order); err != nil {
			return err
		}
	}
	if step.Fate != Paid && step.Fate != Cancelled {
		return nil
	}
	delay := order.Due.Sub(order.CreatedAt)
	if !sleepUntil(ctx, created.Add(time.Duration(step.PayAfter*float64(delay)))) {
		return ctx.Err()
	}
	return s.leave(ctx, order, step.Fate)
}

// leave pays or cancels an order. Being too late is no error: on a slow machine
// the close may have won.
func (s *Shop) leave(ctx context.Context, order orderclose.Order, fate Fate) error {
	if fate == Cancelled {
		_, err := s.Store.Cancel(ctx, order.ID)
		return err
	}
	answer, err := s.Store.Pay(ctx, order.ID)
	if err != nil {
		return fmt.Errorf("pay %s: %w", order.ID, err)
	}
	if answer == store.NowPaid {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.paid = append(s.paid, order.ID)
	}
	return nil
}

func (s *Shop) created(order orderclose.Order, fate Fate) {
	s.mu.Lock()
	if order.Due.After(s.last) {
		s.last = order.Due
	}
	s.mu.Unlock()
	if s.OnOrder != nil {
		s.OnOrder(order, fate)
	}
}

// Publish schedules an order and remembers that it did.
func (s *Shop) Publish(ctx context.Context, order orderclose.Order) error {
	if err := s.Producer.Schedule(ctx, order); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = append(s.published, order.ID)
	return nil
}

// Published are the orders whose record Kafka has acked.
func (s *Shop) Published() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.published...)
}

// Paid are the orders whose payment was confirmed.
func (s *Shop) Paid() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.paid...)
}

// StartStock is what each SKU had at the beginning.
func (s *Shop) StartStock() map[string]int64 { return s.stock }

// LastDue is when the last order is due.
func (s *Shop) LastDue() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
