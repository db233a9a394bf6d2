//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/producer"
)

// shop creates, pays, cancels and moves orders. It connects to the servers directly and gives
// up what fails, as a shop does whose customers go away. It notes what the database has
// acknowledged.
type shop struct {
	db       *sql.DB
	orders   *shopdb.Orders
	producer *producer.Producer
	outbox   *producer.Outbox
	prefix   string
	last     atomic.Int64 // the latest due time, in milliseconds since 1970

	mu      sync.Mutex
	created []string
	paid    []string
	// published are the created orders whose record Kafka has acked; added are those that were
	// scheduled in the transaction that created them.
	published, added []string
	acts             map[string]int // what was acknowledged: orders created, paid, cancelled, moved, published
	failed           map[string]int // what was not
}

const (
	skus       = 200
	startStock = 10_000_000
	// ordersPerSecond is how many orders the shop creates.
	ordersPerSecond = 120
	// maxInFlight bounds the orders that the shop works on at once. More wait for no reply: while
	// the database hangs, no orders are created.
	maxInFlight = 150
)

func newShop(ctx context.Context, w *world) (*shop, error) {
	s := &shop{prefix: w.prefix, acts: map[string]int{}, failed: map[string]int{}}
	var err error
	if s.db, err = sql.Open("mysql", w.cluster.dsn("root", w.cluster.databaseAddr, strings.TrimSuffix(w.prefix, "_"))); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(40)
	s.db.SetMaxIdleConns(40)
	s.orders = shopdb.New(shopdb.Options{DB: s.db, Dialect: producer.MySQL})
	if s.producer, err = producer.New(producer.Options{Brokers: w.cluster.direct, TopicsFile: w.file(), Timeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	if s.outbox, err = producer.NewOutbox(producer.OutboxOptions{Dialect: producer.MySQL, TopicsFile: w.file()}); err != nil {
		return nil, err
	}
	if err := s.orders.CreateTables(ctx); err != nil {
		return nil, err
	}
	for n := range skus {
		if err := s.orders.PutStock(ctx, scenario.SKU(n), startStock); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *shop) close() {
	s.producer.Close()
	_ = s.db.Close()
}

// stock returns the stock of each SKU at the beginning.
func (s *shop) stock() map[string]int64 {
	all := map[string]int64{}
	for n := range skus {
		all[scenario.SKU(n)] = startStock
	}
	return all
}

// run creates orders until stop is closed, and returns when it is done with the last of them.
func (s *shop) run(ctx context.Context, seed uint64, stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(seed, 0x5409))
	slots := make(chan struct{}, maxInFlight)
	tick := time.NewTicker(time.Second / ordersPerSecond)
	defer tick.Stop()
	var orders sync.WaitGroup
	for n := 0; ctx.Err() == nil; n++ {
		plan := drawOrder(r, n, s.prefix)
		select {
		case <-stop:
			orders.Wait()
			return
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		orders.Go(func() { s.play(ctx, plan, func() { <-slots }) })
		<-tick.C
	}
}

// orderPlan is what happens to an order.
type orderPlan struct {
	id, category string
	items        []shopdb.Item
	byOutbox     bool
	fate         string        // "", paid, cancelled, later or earlier
	after        float64       // share of its delay after which that happens
	by           time.Duration // how far its due time moves
}

// drawOrder draws an order: of ten, three are paid, one is cancelled, one moves to later or
// earlier, and five stay unpaid. Some payments come after the due time.
func drawOrder(r *rand.Rand, n int, prefix string) orderPlan {
	p := orderPlan{
		id:       fmt.Sprintf("%s%07d", prefix, n),
		category: []string{"flash-sale", "virtual", "physical", "other"}[r.IntN(4)],
		byOutbox: r.IntN(2) == 0,
		after:    1.05 * r.Float64(),
		by:       time.Duration(1000+r.IntN(4000)) * time.Millisecond,
	}
	for range 1 + r.IntN(2) {
		p.items = append(p.items, shopdb.Item{SKU: scenario.SKU(r.IntN(skus)), Quantity: int64(1 + r.IntN(3))})
	}
	switch k := r.IntN(100); {
	case k < 30:
		p.fate = "paid"
	case k < 40:
		p.fate = "cancelled"
	case k < 45:
		p.fate = "later"
	case k < 50:
		p.fate = "earlier"
	}
	return p
}

// play plays an order. It calls created when the order exists or has failed.
func (s *shop) play(ctx context.Context, p orderPlan, created func()) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	o := s.producer.Order(p.id, time.Now().Truncate(time.Millisecond), p.category)
	err := s.orders.Checkout(ctx, func(tx *shopdb.Tx) error {
		err := tx.CreateOrder(o, p.items)
		if err == nil && p.byOutbox {
			err = s.outbox.Add(ctx, tx.SQL(), o)
		}
		return err
	})
	s.count("created", err)
	created()
	s.due(o.Due) // it may exist, whatever the answer was
	if err != nil {
		return
	}
	s.add(&s.created, o.ID)
	if p.byOutbox {
		s.add(&s.added, o.ID)
	} else if err := s.producer.Schedule(ctx, o); s.count("published", err) {
		s.add(&s.published, o.ID)
	}
	if p.fate == "" {
		return
	}
	select {
	case <-time.After(time.Until(o.CreatedAt.Add(time.Duration(p.after * float64(o.Due.Sub(o.CreatedAt)))))):
		s.finish(ctx, o, p)
	case <-ctx.Done():
	}
}

// finish does what the plan says.
func (s *shop) finish(ctx context.Context, o orderclose.Order, p orderPlan) {
	switch p.fate {
	case "paid":
		answer, err := s.orders.Pay(ctx, o.ID, "pay-"+o.ID)
		if err == nil && answer != shopdb.AnswerPaid {
			s.count("paid too late", nil)
			return
		}
		if s.count("paid", err) {
			s.add(&s.paid, o.ID)
		}
	case "cancelled":
		_, err := s.orders.Cancel(ctx, o.ID)
		s.count("cancelled", err)
	case "later":
		s.move(ctx, o, o.Due.Add(p.by))
	case "earlier":
		due := o.Due.Add(-p.by)
		if now := time.Now().Add(100 * time.Millisecond); due.Before(now) {
			due = now
		}
		s.move(ctx, o, due.Truncate(time.Millisecond))
	}
}

// errNotMoved rolls back a transaction whose order is not unpaid any more.
var errNotMoved = errors.New("not unpaid any more")

// move moves the due time of an order. To an earlier time it publishes the order again, in the
// same transaction.
func (s *shop) move(ctx context.Context, o orderclose.Order, due time.Time) {
	err := s.orders.Checkout(ctx, func(tx *shopdb.Tx) error {
		res, err := tx.SQL().ExecContext(ctx, "UPDATE orders SET expire_at = ? WHERE id = ? AND status = 0", due.UTC(), o.ID)
		if err != nil {
			return errors.Join(orderclose.ErrUnavailable, err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errNotMoved, err)
		}
		if due.Before(o.Due) {
			o.Due = due
			return s.outbox.Add(ctx, tx.SQL(), o)
		}
		return nil
	})
	if errors.Is(err, errNotMoved) {
		return
	}
	s.due(due)
	s.count("moved", err)
}

// count counts an act and reports whether it was acknowledged.
func (s *shop) count(what string, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed[what]++
	} else {
		s.acts[what]++
	}
	return err == nil
}

func (s *shop) add(list *[]string, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, id)
}

// due remembers the latest due time.
func (s *shop) due(t time.Time) {
	for ms := t.UnixMilli(); ; {
		old := s.last.Load()
		if ms <= old || s.last.CompareAndSwap(old, ms) {
			return
		}
	}
}
