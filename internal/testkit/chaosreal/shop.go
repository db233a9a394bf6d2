//go:build linux

package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/producer"
)

// shop creates, pays, cancels and moves orders. It connects to the servers directly and gives up what fails, as a shop does whose customers go away.
type shop struct {
	*scenario.Shop
	db       *sql.DB
	payments *sqlclose.Store
}

const (
	skus = 200
	// ordersPerSecond is how many orders the shop creates.
	ordersPerSecond = 120
	// maxInFlight bounds the orders that the shop creates at once: while the database hangs, it creates none.
	maxInFlight = 150
)

func newShop(ctx context.Context, w *world) (*shop, error) {
	d := w.cluster.kind
	s := &shop{Shop: &scenario.Shop{Careless: true, Bind: d.bind}}
	var err error
	if s.db, err = w.cluster.open(d.root, w.database()); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(40)
	s.db.SetMaxIdleConns(40)
	if s.payments, err = sqlclose.New(sqlclose.Options{DSN: d.dsn(d.root, w.cluster.database.Addr(), w.database(), false), TopicsFile: w.file()}); err != nil {
		return nil, err
	}
	s.Orders = shopdb.New(shopdb.Options{DB: s.db, Dialect: d.dialect, Record: s.payments.RecordPayment})
	if s.Producer, err = producer.New(producer.Options{Brokers: w.cluster.direct, TopicsFile: w.file(), Timeout: 3 * time.Second,
		Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	if s.Outbox, err = producer.NewOutbox(producer.OutboxOptions{Dialect: d.dialect, TopicsFile: w.file()}); err != nil {
		return nil, err
	}
	return s, s.Stock(ctx, skus)
}

func (s *shop) close() {
	s.Producer.Close()
	_ = s.payments.Close()
	_ = s.db.Close()
}

// run creates orders until stop is closed, and returns when it is done with the last of them.
func (s *shop) run(ctx context.Context, seed uint64, prefix string, stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(seed, 0x5409))
	slots := make(chan struct{}, maxInFlight)
	tick := time.NewTicker(time.Second / ordersPerSecond)
	defer tick.Stop()
	var orders sync.WaitGroup
	for n := 0; ctx.Err() == nil; n++ {
		step := drawOrder(r, fmt.Sprintf("%s%07d", prefix, n))
		select {
		case <-stop:
			orders.Wait()
			return
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		orders.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
			defer cancel()
			_ = s.Play(ctx, step, func() { <-slots }) // what failed is counted
		})
		<-tick.C
	}
}

// drawOrder draws an order: of ten, three are paid, one is cancelled, one moves to later or
// earlier, and five stay unpaid. Some payments come after the due time.
func drawOrder(r *rand.Rand, id string) scenario.Step {
	s := scenario.Step{
		ID:         id,
		Categories: []string{[]string{"flash-sale", "virtual", "physical", "other"}[r.IntN(4)]},
		ByOutbox:   r.IntN(2) == 0,
		PayAfter:   1.05 * r.Float64(),
		MoveBy:     time.Duration(1000+r.IntN(4000)) * time.Millisecond,
		Fate:       scenario.Unpaid,
	}
	for range 1 + r.IntN(2) {
		s.Items = append(s.Items, shopdb.Item{SKU: scenario.SKU(r.IntN(skus)), Quantity: int64(1 + r.IntN(3))})
	}
	switch k := r.IntN(100); {
	case k < 30:
		s.Fate = scenario.Paid
	case k < 40:
		s.Fate = scenario.Cancelled
	case k < 45:
		s.Fate = scenario.Later
	case k < 50:
		s.Fate = scenario.Earlier
	}
	return s
}
