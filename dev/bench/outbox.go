package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/process"
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

// outboxReport is the result of make bench-outbox.
type outboxReport struct {
	CostPercent measure.Number `json:"outbox_cost_percent"` // the largest
	DispatchRPS measure.Number `json:"dispatch_rps"`
	Costs       []checkoutCost `json:"outbox_costs"`
	rates       []float64      // of each round of dispatching
}

// checkoutCost is the cost of an outbox row for a checkout, with the given number of
// workers.
type checkoutCost struct {
	Workers int            `json:"workers"`
	Without measure.Number `json:"checkouts_per_s_without_row"`
	With    measure.Number `json:"checkouts_per_s_with_row"`
	Trigger measure.Number `json:"checkouts_per_s_with_trigger"` // which writes the row
	Percent measure.Number `json:"more_time_percent"`            // of a checkout with a row
	// TriggerPercent is the same for a checkout without a row of its own, on tables with the trigger.
	TriggerPercent measure.Number `json:"trigger_more_time_percent"`
}

// benchOutbox runs all measurements of make bench-outbox.
func benchOutbox(ctx context.Context, p *workspace, pl plan) error {
	return compare(ctx, (*outboxReport).medians, outboxSteps(ctx, p, pl)...)
}

// outboxSteps measure what a row costs a checkout, and how fast rows are
// dispatched. Afterwards the shop's tables are full of other orders.
func outboxSteps(ctx context.Context, p *workspace, pl plan) (steps []step[outboxReport]) {
	for _, workers := range []int{1, 8} {
		steps = append(steps, func(r *outboxReport, s *shop) error {
			c, err := measureCheckoutCost(ctx, s, workers, pl.outboxCheckouts)
			if err != nil {
				return fmt.Errorf("checkouts with an outbox row: %w", err)
			}
			r.Costs = append(r.Costs, c)
			r.CostPercent = max(r.CostPercent, c.Percent)
			return nil
		})
	}
	for round := range pl.rounds + 1 { // the first does not count
		rows := pl.outboxRows
		if round == 0 {
			rows /= 5
		}
		steps = append(steps, func(r *outboxReport, s *shop) error {
			rate, err := measureDispatch(ctx, p, s, rows)
			if err != nil {
				return fmt.Errorf("dispatching: %w", err)
			}
			fmt.Fprintf(os.Stderr, "%-10s round %d  %d rows dispatched: %.0f a second\n", s.on.name, round, rows, rate)
			if round > 0 {
				r.rates = append(r.rates, rate)
			}
			return nil
		})
	}
	return steps
}

// medians sets the rate of the rounds, and returns it with those of checkouts.
func (r *outboxReport) medians() map[string]measure.Number {
	r.DispatchRPS = measure.Number(measure.Median(r.rates))
	all := map[string]measure.Number{"rows dispatched": r.DispatchRPS}
	for _, c := range r.Costs {
		all[fmt.Sprintf("checkouts with a row, %d workers", c.Workers)] = c.With
		all[fmt.Sprintf("checkouts with a trigger, %d workers", c.Workers)] = c.Trigger
	}
	return all
}

// The sides of measureCheckoutCost.
const (
	withoutRow = iota
	withRow
	withTrigger // of the table of orders, which writes the row
	checkoutSides
)

// measureCheckoutCost measures checkouts without an outbox row, with one, and with the trigger that writes it, in
// alternating turns.
func measureCheckoutCost(ctx context.Context, s *shop, workers, checkouts int) (checkoutCost, error) {
	c := checkoutCost{Workers: workers}
	if err := s.fill(ctx, overdue(workers, manySKUs, 0)); err != nil { // creates the stock
		return c, err
	}
	if err := s.exec(ctx, "TRUNCATE TABLE outbox_schedules"); err != nil {
		return c, err
	}
	pool, err := store.Open(store.Options{DSN: s.dsn, MaxOpenConns: workers})
	if err != nil {
		return c, err
	}
	defer pool.Close()
	box, err := producer.NewOutbox(producer.OutboxOptions{Dialect: s.on.outbox})
	if err != nil {
		return c, err
	}
	trigger := newTrigger(s)
	b := &buyers{pool: pool, box: box, workers: workers}
	turns := max(checkouts/(workers*outboxSpell), 1)
	fmt.Fprintf(os.Stderr, "warming up: %d checkouts on each side\n", workers*outboxSpell)
	var took [checkoutSides][]float64      // seconds of each turn
	for turn := -1; turn < turns; turn++ { // the first turn does not count
		for i := range checkoutSides {
			side := (i + turn + 1) % checkoutSides // the sides take turns in starting
			d, err := trigger.during(ctx, side == withTrigger, func() (time.Duration, error) { return b.buy(ctx, side == withRow) })
			if err != nil {
				return c, err
			}
			if turn >= 0 {
				took[side] = append(took[side], d.Seconds())
			}
		}
	}
	var rows int
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_schedules").Scan(&rows); err != nil || rows != 2*(turns+1)*workers*outboxSpell {
		return c, errors.Join(err, fmt.Errorf("%d outbox rows, want %d", rows, 2*(turns+1)*workers*outboxSpell))
	}
	each := measure.Number(workers * outboxSpell)
	rate := func(side int) measure.Number { return each / measure.Number(measure.Median(took[side])) }
	c.Without, c.With, c.Trigger = rate(withoutRow), rate(withRow), rate(withTrigger)
	c.Percent, c.TriggerPercent = 100*(c.Without/c.With-1), 100*(c.Without/c.Trigger-1)
	fmt.Fprintf(os.Stderr, "%-10s %d workers, %d checkouts each: %.0f/s without an outbox row, %.0f/s with: %.1f %% more time; %.0f/s with a trigger: %.1f %%\n",
		s.on.name, workers, turns*int(each), c.Without, c.With, c.Percent, c.Trigger, c.TriggerPercent)
	return c, nil
}

// trigger is the trigger that schedules the shop's orders.
type trigger struct {
	shop         *shop
	create, drop string
}

// newTrigger returns the trigger of docs/intake.md for the reference schema.
func newTrigger(s *shop) trigger {
	const condition = "NEW.status = 0 AND NEW.expire_at BETWEEN '2000-01-01' AND "
	if s.on.outbox == producer.Postgres {
		const text = "to_char(NEW.%s AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
		return trigger{s, fmt.Sprintf("CREATE FUNCTION orderclose_schedule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO outbox_schedules "+
			"(order_id, payload, created_at) VALUES (NEW.id, json_build_object('order_id', NEW.id, 'category', NEW.category, 'created_at', "+text+", "+
			"'due_at', "+text+"), date_trunc('milliseconds', statement_timestamp())); RETURN NULL; END $$; CREATE TRIGGER orderclose_orders AFTER INSERT "+
			"ON orders FOR EACH ROW WHEN ("+condition+"now() + INTERVAL '3650 days') EXECUTE FUNCTION orderclose_schedule()", "created_at", "expire_at"),
			"DROP TRIGGER orderclose_orders ON orders; DROP FUNCTION orderclose_schedule()"}
	}
	const text = "DATE_FORMAT(NEW.%s, '%%Y-%%m-%%dT%%H:%%i:%%s.%%fZ')"
	return trigger{s, fmt.Sprintf("CREATE TRIGGER orderclose_orders AFTER INSERT ON orders FOR EACH ROW INSERT INTO outbox_schedules (order_id, payload, "+
		"created_at) SELECT NEW.id, JSON_OBJECT('order_id', NEW.id, 'category', NEW.category, 'created_at', "+text+", 'due_at', "+text+"), "+
		"UTC_TIMESTAMP(3) FROM DUAL WHERE "+condition+"UTC_TIMESTAMP() + INTERVAL 3650 DAY", "created_at", "expire_at"),
		"DROP TRIGGER orderclose_orders"}
}

// during runs work while the trigger exists, if it is wanted.
func (t trigger) during(ctx context.Context, wanted bool, work func() (time.Duration, error)) (d time.Duration, err error) {
	if !wanted {
		return work()
	}
	if err = t.shop.exec(ctx, t.create); err == nil {
		d, err = work()
		err = errors.Join(err, t.shop.exec(ctx, t.drop))
	}
	return d, err
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
			err = b.box.Add(ctx, orderclose.SQL(tx.SQL()), order)
		}
		return err
	})
}

// measureDispatch lets processes dispatch a table that is filled before they see it.
// It measures the time from when they can see it until all records are in their
// topic.
func measureDispatch(ctx context.Context, p *workspace, s *shop, count int) (rps float64, err error) {
	if err := s.fillOutbox(ctx, count); err != nil {
		return 0, err
	}
	target, err := p.topic(ctx, "delay", partitions)
	if err != nil {
		return 0, err
	}
	dead, err := p.topic(ctx, "dead", 1)
	if err != nil {
		return 0, err
	}
	var sides []*side
	var processes []*process.Process
	defer func() {
		for _, side := range sides {
			side.stop()
		}
	}()
	for range dispatchers {
		side, err := p.start(job{Side: sideDispatch, Target: target, DeadLetter: dead, DSN: s.dsn})
		if err != nil {
			return 0, err
		}
		sides, processes = append(sides, side), append(processes, side.Process)
	}
	if !sleep(ctx, 2*time.Second) { // by then they poll for rows
		return 0, ctx.Err()
	}
	if err := s.exec(ctx, s.on.swap); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := p.await(ctx, target, count, processes...); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	for _, side := range sides {
		if _, err := side.stop(); err != nil {
			return 0, err
		}
	}
	sides = nil
	length, err := p.length(ctx, target)
	left := -1
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_schedules").Scan(&left)
	}
	if err != nil || left != 0 || length != count {
		return 0, errors.Join(err, fmt.Errorf("%d rows are left and there are %d records of %d", left, length, count))
	}
	return float64(count) / took.Seconds(), p.drop(ctx, target, dead)
}

// fillOutbox creates and fills a table beside an empty outbox.
func (s *shop) fillOutbox(ctx context.Context, count int) error {
	if err := s.exec(ctx, "DROP TABLE IF EXISTS outbox_empty, outbox_full", "TRUNCATE TABLE outbox_schedules", s.on.copyOf); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	full := rows{tx: tx, into: "outbox_full (order_id, payload, created_at)"}
	now := time.Now()
	for n := range count {
		payload, err := wire.Record{Order: orderclose.Order{ID: idOf(n), Category: "virtual", CreatedAt: now,
			Due: now.Add(bucketLength + time.Hour)}}.SchedulePayload()
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
