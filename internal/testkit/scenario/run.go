package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/producer"
)

// startStock is the stock of each SKU at the beginning: enough for any plan.
const startStock = 1_000_000

// OrdersOf returns the shop's side of a store with the reference schema.
func OrdersOf(s *store.Store) *shopdb.Orders {
	return shopdb.New(shopdb.Options{DB: s.DB(), Dialect: producer.Dialect(s.Dialect()), Record: RecordOf(s), Now: s.Clock()})
}

// RecordOf returns RecordPayment of a store, also on SQLite, as sqlclose.Store has it.
func RecordOf(s *store.Store) func(context.Context, orderclose.Tx, sqlclose.Payment) (sqlclose.Recorded, error) {
	return func(ctx context.Context, tx orderclose.Tx, p sqlclose.Payment) (sqlclose.Recorded, error) {
		r, err := callback.RecordPayment(ctx, s.Payments, tx, store.LatePayment{OrderID: p.OrderID, PaymentID: p.ID, Amount: p.Amount, Currency: p.Currency})
		return sqlclose.Recorded(r), err
	}
}

// Orders are the orders of a shop. *shopdb.Orders and Persistent implement it.
type Orders interface {
	CreateOrder(ctx context.Context, o orderclose.Order, items []shopdb.Item) error
	Checkout(ctx context.Context, fn func(*shopdb.Tx) error) error
	Pay(ctx context.Context, id, payment string) (shopdb.Answer, error)
	Cancel(ctx context.Context, id string) (shopdb.Answer, error)
	PutStock(ctx context.Context, sku string, available int64) error
}

// Shop is a checkout: it creates orders, publishes them, and takes payments. Its methods are
// safe for concurrent use, except Stock, which must be called first.
type Shop struct {
	Orders   Orders
	Producer *producer.Producer
	Outbox   *producer.Outbox // nil: all orders are published directly
	// OnOrder, if set, is called after each creation of an order, by several goroutines.
	OnOrder func(o orderclose.Order, f Fate)
	// Bind writes the arguments of a query, ?, as the driver of Orders takes them; nil: it takes ?.
	Bind func(query string) string
	// Careless: an order that could not be published is paid, cancelled or moved all the same.
	Careless bool

	mu        sync.Mutex
	acts      map[string]int // that were acknowledged, by what was done
	failed    map[string]int
	created   []string
	paid      []string
	published []string
	added     []string
	undone    []string
	stock     map[string]int64
	last      time.Time // the latest due time
}

// Stock puts the given number of SKUs into the store.
func (s *Shop) Stock(ctx context.Context, skus int) error {
	s.stock = map[string]int64{}
	for n := range skus {
		if err := s.Orders.PutStock(ctx, SKU(n), startStock); err != nil {
			return err
		}
		s.stock[SKU(n)] = startStock
	}
	return nil
}

// Run plays the steps, each at its time after begin. It returns when the last order was created and the last payment made. Its errors are those of the
// shop: Kafka rejects a record, or the database is unavailable.
func (s *Shop) Run(ctx context.Context, begin time.Time, steps []Step) error {
	var plays sync.WaitGroup
	errs := make([]error, len(steps))
	for i, step := range steps {
		if !At(ctx, begin.Add(step.At)) {
			break
		}
		plays.Go(func() { errs[i] = s.Play(ctx, step, func() {}) })
	}
	plays.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// Play plays one step now. It calls tried when the order exists or could not be created. Its errors are those of Run.
func (s *Shop) Play(ctx context.Context, step Step, tried func()) error {
	created := time.Now().Truncate(time.Millisecond)
	order := s.Producer.Order(step.ID, created, step.Categories...)
	publications := map[Fate]int{Unpublished: 0, Twice: 2}
	n, ok := publications[step.Fate]
	if !ok {
		n = 1
	}
	create := s.create
	if s.Outbox != nil && step.ByOutbox && n > 0 {
		create, n = s.createAndAdd, n-1
	}
	s.due(order.Due) // the order may exist, whatever the answer is
	err := s.act("created", create(ctx, order, step))
	tried()
	if err != nil {
		return err
	}
	s.add(&s.created, order.ID)
	if s.OnOrder != nil {
		s.OnOrder(order, step.Fate)
	}
	var errs []error
	for range n {
		if err := s.Publish(ctx, order); err != nil {
			if errs = append(errs, err); !s.Careless {
				return err
			}
		}
	}
	if slices.Contains([]Fate{Paid, Cancelled, Later, Earlier}, step.Fate) {
		delay := order.Due.Sub(order.CreatedAt)
		if !At(ctx, created.Add(time.Duration(step.PayAfter*float64(delay)))) {
			return ctx.Err()
		}
		errs = append(errs, s.finish(ctx, order, step))
	}
	return errors.Join(errs...)
}

// act counts what was done, or failed, and returns err.
func (s *Shop) act(what string, err error) error {
	s.Count(what, err)
	return err
}

// Count counts an act among those of the shop: as acknowledged if err is nil.
func (s *Shop) Count(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acts == nil {
		s.acts, s.failed = map[string]int{}, map[string]int{}
	}
	if err == nil {
		s.acts[what]++
	} else {
		s.failed[what]++
	}
}

// Acts returns how many acts were acknowledged and how many failed, by what was done: created,
// published, paid, paid too late, cancelled, moved, and those of Count.
func (s *Shop) Acts() (done, failed map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.acts), maps.Clone(s.failed)
}

func (s *Shop) create(ctx context.Context, order orderclose.Order, step Step) error {
	return s.Orders.CreateOrder(ctx, order, step.Items)
}

// errRolledBack rolls a transaction back on purpose.
var errRolledBack = errors.New("rolled back on purpose")

// createAndAdd creates an order and schedules it in the same transaction.
func (s *Shop) createAndAdd(ctx context.Context, order orderclose.Order, step Step) error {
	write := func(t *shopdb.Tx, o orderclose.Order) error {
		if err := t.CreateOrder(o, step.Items); err != nil {
			return err
		}
		return s.Outbox.Add(ctx, orderclose.SQL(t.SQL()), o)
	}
	if step.RollBackFirst {
		other := order
		other.ID += "-undone"
		err := s.Orders.Checkout(ctx, func(t *shopdb.Tx) error { return errors.Join(write(t, other), errRolledBack) })
		if err == nil {
			return fmt.Errorf("order %s exists, but its transaction was rolled back", other.ID)
		}
		s.add(&s.undone, other.ID)
	}
	err := s.Orders.Checkout(ctx, func(t *shopdb.Tx) error { return write(t, order) })
	if err == nil {
		s.add(&s.added, order.ID)
	}
	return err
}

func (s *Shop) add(list *[]string, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, id)
}

// finish pays, cancels or moves an order. Being too late is no error: on a slow machine the close may have won.
func (s *Shop) finish(ctx context.Context, order orderclose.Order, step Step) error {
	switch step.Fate {
	case Cancelled:
		_, err := s.Orders.Cancel(ctx, order.ID)
		return s.act("cancelled", err)
	case Later:
		return s.move(ctx, order, order.Due.Add(step.MoveBy))
	case Earlier:
		due := order.Due.Add(-step.MoveBy)
		if soon := time.Now().Add(100 * time.Millisecond); due.Before(soon) {
			due = soon
		}
		return s.move(ctx, order, due.Truncate(time.Millisecond))
	}
	answer, err := s.Orders.Pay(ctx, order.ID, "pay-"+order.ID)
	if err != nil {
		return s.act("paid", fmt.Errorf("pay %s: %w", order.ID, err))
	}
	if answer != shopdb.AnswerPaid {
		return s.act("paid too late", nil)
	}
	s.add(&s.paid, order.ID)
	return s.act("paid", nil)
}

// errNotUnpaid rolls back a transaction whose order is not unpaid any more.
var errNotUnpaid = errors.New("not unpaid any more")

// move moves the due time of an order. To an earlier time it schedules the order again, in the same transaction.
func (s *Shop) move(ctx context.Context, order orderclose.Order, due time.Time) error {
	query := "UPDATE orders SET expire_at = ? WHERE id = ? AND status = 0"
	if s.Bind != nil {
		query = s.Bind(query)
	}
	err := s.Orders.Checkout(ctx, func(tx *shopdb.Tx) error {
		res, err := tx.SQL().ExecContext(ctx, query, due.UTC(), order.ID)
		if err != nil {
			return errors.Join(orderclose.ErrUnavailable, err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errNotUnpaid, err)
		}
		if due.Before(order.Due) {
			order.Due = due
			return s.Outbox.Add(ctx, orderclose.SQL(tx.SQL()), order)
		}
		return nil
	})
	if errors.Is(err, errNotUnpaid) {
		return nil
	}
	s.due(due)
	return s.act("moved", err)
}

// due remembers the latest due time.
func (s *Shop) due(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.After(s.last) {
		s.last = t
	}
}

// Publish schedules an order and adds it to Published.
func (s *Shop) Publish(ctx context.Context, order orderclose.Order) error {
	err := s.act("published", s.Producer.Schedule(ctx, order))
	if err == nil {
		s.add(&s.published, order.ID)
	}
	return err
}

func (s *Shop) copyOf(list *[]string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(*list)
}

// Created returns the orders whose creation the database has acknowledged.
func (s *Shop) Created() []string { return s.copyOf(&s.created) }

// Added returns the orders that a committed transaction has put into the outbox.
func (s *Shop) Added() []string { return s.copyOf(&s.added) }

// RolledBack returns the orders that only a rolled-back transaction has put into the outbox.
func (s *Shop) RolledBack() []string { return s.copyOf(&s.undone) }

// Published returns the orders whose record Kafka has acked.
func (s *Shop) Published() []string { return s.copyOf(&s.published) }

// Paid returns the orders whose payment was confirmed.
func (s *Shop) Paid() []string { return s.copyOf(&s.paid) }

// StartStock returns the stock of each SKU at the beginning.
func (s *Shop) StartStock() map[string]int64 { return s.stock }

// LastDue returns the due time of the order that is due last.
func (s *Shop) LastDue() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
