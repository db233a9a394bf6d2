package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/outbox"
	"github.com/orderclose/orderclose/producer"
)

const (
	// dispatchers is the number of processes that share the table.
	dispatchers = 2
	// outboxSpell is how many checkouts each worker makes before it is the other
	// side's turn. It is small, so that other load on the machine affects both sides
	// alike.
	outboxSpell = 50
)

// checkoutCost is the cost of an outbox row for a checkout, with the given number of
// workers.
type checkoutCost struct {
	workers       int
	without, with float64 // checkouts a second
	percent       float64 // additional time of a checkout with a row
}

// dispatched is the speed at which rows were published.
type dispatched struct {
	rows int
	rps  float64
}

// outboxReport is the output of make bench-outbox.
type outboxReport struct {
	costs    []checkoutCost
	dispatch dispatched
}

// worst returns the largest cost of an outbox row.
func (r outboxReport) worst() float64 {
	most := r.costs[0].percent
	for _, c := range r.costs {
		most = max(most, c.percent)
	}
	return most
}

// benchOutbox runs all measurements of make bench-outbox.
func benchOutbox(ctx context.Context, p *workspace, pl plan) error {
	s, err := localShop(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	r, err := measureOutbox(ctx, p, s, pl)
	if err != nil {
		return err
	}
	return r.print(os.Stdout, os.Stderr)
}

// measureOutbox measures what a row costs a checkout, and how fast rows are
// dispatched. Afterwards the shop's tables are full of other orders.
func measureOutbox(ctx context.Context, p *workspace, s *shop, pl plan) (r outboxReport, err error) {
	for _, workers := range []int{1, 8} {
		c, err := measureCheckoutCost(ctx, s, workers, pl.outboxCheckouts)
		if err != nil {
			return r, fmt.Errorf("checkouts with an outbox row: %w", err)
		}
		r.costs = append(r.costs, c)
	}
	fmt.Fprintf(os.Stderr, "warming up: %d rows are dispatched\n", pl.outboxRows/5)
	if _, err := measureDispatch(ctx, p, s, pl.outboxRows/5); err != nil {
		return r, fmt.Errorf("warming up: %w", err)
	}
	var rates []float64
	for round := range pl.rounds {
		if r.dispatch, err = measureDispatch(ctx, p, s, pl.outboxRows); err != nil {
			return r, fmt.Errorf("dispatching: %w", err)
		}
		fmt.Fprintf(os.Stderr, "round %d  %d rows dispatched: %.0f a second\n", round+1, r.dispatch.rows, r.dispatch.rps)
		rates = append(rates, r.dispatch.rps)
	}
	r.dispatch.rps = median(rates)
	return r, nil
}

// measureCheckoutCost measures checkouts with and without an outbox row, in
// alternating turns.
func measureCheckoutCost(ctx context.Context, s *shop, workers, checkouts int) (checkoutCost, error) {
	c := checkoutCost{workers: workers}
	if err := s.fill(ctx, overdue(workers, manySKUs, 0)); err != nil { // creates the stock
		return c, err
	}
	if _, err := s.db.ExecContext(ctx, "TRUNCATE TABLE outbox_schedules"); err != nil {
		return c, err
	}
	pool, err := store.Open(store.Options{DSN: s.dsn, MaxOpenConns: workers})
	if err != nil {
		return c, err
	}
	defer pool.Close()
	box, err := producer.NewOutbox(producer.OutboxOptions{Dialect: producer.MySQL})
	if err != nil {
		return c, err
	}
	b := &buyers{pool: pool, box: box, workers: workers}
	turns := max(checkouts/(workers*outboxSpell), 1)
	fmt.Fprintf(os.Stderr, "warming up: %d checkouts on each side\n", workers*outboxSpell)
	var took [2][]float64                  // seconds of each turn
	for turn := -1; turn < turns; turn++ { // the first turn does not count
		for i := range 2 {
			side := (i + turn&1) % 2 // the sides alternate in starting
			d, err := b.buy(ctx, side == 1)
			if err != nil {
				return c, err
			}
			if turn >= 0 {
				took[side] = append(took[side], d.Seconds())
			}
		}
	}
	var rows int
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_schedules").Scan(&rows); err != nil || rows != (turns+1)*workers*outboxSpell {
		return c, errors.Join(err, fmt.Errorf("%d outbox rows, want %d", rows, (turns+1)*workers*outboxSpell))
	}
	each := float64(workers * outboxSpell)
	c.without, c.with = each/median(took[0]), each/median(took[1])
	c.percent = 100 * (c.without/c.with - 1)
	fmt.Fprintf(os.Stderr, "%d workers, %d checkouts each: %.0f/s without an outbox row, %.0f/s with: %.1f %% more time\n", workers, turns*int(each), c.without, c.with, c.percent)
	return c, nil
}

// buyers make checkouts.
type buyers struct {
	pool    *store.Store
	box     *producer.Outbox
	workers int
	made    atomic.Int64
}

// buy lets each worker make a spell of checkouts, and returns how long all of them
// took.
func (b *buyers) buy(ctx context.Context, withRow bool) (time.Duration, error) {
	var mu sync.Mutex
	var failed error
	var working sync.WaitGroup
	begin := time.Now()
	for range b.workers {
		working.Go(func() {
			for range outboxSpell {
				if err := b.checkout(ctx, int(b.made.Add(1)), withRow); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = errors.Join(failed, err)
					return
				}
			}
		})
	}
	working.Wait()
	return time.Since(begin), failed
}

func (b *buyers) checkout(ctx context.Context, number int, withRow bool) error {
	now := time.Now()
	skus := lot{skus: manySKUs}.skusOf(number)
	order := orderclose.Order{ID: fmt.Sprintf("NEW-%08d", number), Category: "virtual", CreatedAt: now, Due: now.Add(30 * time.Minute)}
	return scenario.OrdersOf(b.pool).Checkout(ctx, func(tx *shopdb.Tx) error {
		err := tx.CreateOrder(order, []shopdb.Item{{SKU: skuName(skus[0]), Quantity: 1}, {SKU: skuName(skus[1]), Quantity: 1}})
		if err == nil && withRow {
			err = b.box.Add(ctx, tx.SQL(), order)
		}
		return err
	})
}

// measureDispatch lets processes dispatch a table that is filled before they see it.
// It measures the time from when they can see it until all records are in their
// topic.
func measureDispatch(ctx context.Context, p *workspace, s *shop, count int) (dispatched, error) {
	if err := s.fillOutbox(ctx, count); err != nil {
		return dispatched{}, err
	}
	target, err := p.topic(ctx, "delay", partitions)
	if err != nil {
		return dispatched{}, err
	}
	dead, err := p.topic(ctx, "dead", 1)
	if err != nil {
		return dispatched{}, err
	}
	var processes []*side
	defer func() {
		for _, side := range processes {
			side.stop()
		}
	}()
	for range dispatchers {
		side, err := p.start(job{Side: sideDispatch, Target: target, DeadLetter: dead, DSN: s.dsn})
		if err != nil {
			return dispatched{}, err
		}
		processes = append(processes, side)
	}
	if !sleep(ctx, 2*time.Second) { // by then they poll for rows
		return dispatched{}, ctx.Err()
	}
	if _, err := s.db.ExecContext(ctx, "RENAME TABLE outbox_schedules TO outbox_empty, outbox_full TO outbox_schedules"); err != nil {
		return dispatched{}, err
	}
	begin := time.Now()
	if err := p.await(ctx, target, count, processes...); err != nil {
		return dispatched{}, err
	}
	took := time.Since(begin)
	for _, side := range processes {
		if _, err := side.stop(); err != nil {
			return dispatched{}, err
		}
	}
	processes = nil
	length, err := p.length(ctx, target)
	left := -1
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_schedules").Scan(&left)
	}
	if err != nil || left != 0 || length != count {
		return dispatched{}, errors.Join(err, fmt.Errorf("%d rows are left and there are %d records of %d", left, length, count))
	}
	return dispatched{rows: count, rps: float64(count) / took.Seconds()}, p.drop(ctx, target, dead)
}

// fillOutbox creates and fills a table beside an empty outbox.
func (s *shop) fillOutbox(ctx context.Context, count int) error {
	for _, statement := range []string{
		"DROP TABLE IF EXISTS outbox_empty, outbox_full", "TRUNCATE TABLE outbox_schedules", "CREATE TABLE outbox_full LIKE outbox_schedules",
	} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	full := rows{tx: tx, into: "outbox_full (order_id, payload, created_at)"}
	now := time.Now()
	for n := range count {
		payload, err := wire.Record{Order: orderclose.Order{ID: idOf(n), Category: "virtual", CreatedAt: now, Due: now.Add(bucketLength + time.Hour)}}.SchedulePayload()
		if err == nil {
			err = full.add(ctx, idOf(n), string(payload), now.UTC())
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(full.flush(ctx), tx.Commit())
}

// runDispatch runs a dispatcher with the default settings of the production program.
func runDispatch(ctx context.Context, j job) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cluster, err := kafka.New(kafka.Options{Brokers: j.Brokers, Logger: logger})
	if err != nil {
		return err
	}
	defer cluster.Close()
	st, err := store.Open(store.Options{DSN: j.DSN})
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := outbox.New(outbox.Options{
		Store: st, Kafka: cluster, DeadLetterTopic: j.DeadLetter, Logger: logger,
		Kinds: []outbox.Kind{outbox.Schedules(func() outbox.Scheduling {
			return outbox.Scheduling{Buckets: orderclose.Buckets{{Topic: j.Target, Length: bucketLength}}, CloseTopic: j.DeadLetter}
		})},
	})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// outboxJSON is the JSON output of make bench-outbox, for programs.
type outboxJSON struct {
	CostPercent float64 `json:"outbox_cost_percent"` // the largest
	DispatchRPS float64 `json:"dispatch_rps"`
}

func (r outboxReport) json() outboxJSON {
	return outboxJSON{round(r.worst(), 1), round(r.dispatch.rps, 0)}
}

// table writes the table for people.
func (r outboxReport) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\ncheckouts by\twithout an outbox row /s\twith one /s\tmore time\t\n")
	for _, c := range r.costs {
		fmt.Fprintf(w, "%d\t%.0f\t%.0f\t%.1f %%\t\n", c.workers, c.without, c.with, c.percent)
	}
	fmt.Fprintf(w, "\ndispatchers\trows\trows/s\t\n%d\t%d\t%.0f\t\n", dispatchers, r.dispatch.rows, r.dispatch.rps)
	return w.Flush()
}

// print writes the object to out and the tables to tables.
func (r outboxReport) print(out, tables io.Writer) error {
	if err := r.table(tables); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r.json())
}
