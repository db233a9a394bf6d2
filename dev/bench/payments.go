package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/shoplocks"
	product "github.com/orderclose/orderclose/pipeline"
)

const (
	payers   = 24
	paidSKUs = 40 // of which each order has two
)

// paymentsRow is how long payments took whose transactions lock rows of stock, lines and orders in any order, and how late
// orders were closed meanwhile.
type paymentsRow struct {
	Database string `json:"database"`
	Closing  string `json:"closing"` // nothing, orderclose or poller
	Payments int    `json:"payments"`
	measure.Spread
	Times     measure.Number `json:"p99_times_nothing"`
	Deadlocks int            `json:"deadlocks"`
	Conflicts int            `json:"other_conflicts"`
	Closed    int            `json:"closed"`
	LateMean  measure.Number `json:"late_mean_s"`
	LateMax   measure.Number `json:"late_max_s"`
}

// closings close the overdue orders of a shop until ctx ends.
var closings = []struct {
	name  string
	close func(context.Context, *shop) error
}{
	{"nothing", func(ctx context.Context, _ *shop) error { <-ctx.Done(); return nil }},
	{"orderclose", sweepers},
	{"poller", poller},
}

// benchPayments is the part of bench close about payments.
func benchPayments(ctx context.Context, _ *workspace, pl plan) error {
	return compare(ctx, func(r *closeReport) map[string]measure.Number { return nil },
		func(r *closeReport, s *shop) error { return r.measurePayments(ctx, s, pl) })
}

// measurePayments measures payments beside two sweepers, a poller with a transaction for each order, and nothing, in turns.
func (r *closeReport) measurePayments(ctx context.Context, s *shop, pl plan) error {
	shops := []*shop{s}
	for _, on := range s.on.also {
		if os.Getenv(on.variable) == "" {
			continue
		}
		other, err := openShop(ctx, on)
		if err != nil {
			return fmt.Errorf("%s: %w", on.name, err)
		}
		defer other.close()
		shops = append(shops, other)
	}
	for _, s := range shops {
		var nothing measure.Millis
		for _, c := range closings {
			row, err := s.payments(ctx, pl, c.close)
			if err != nil {
				return fmt.Errorf("payments beside %s: %w", c.name, err)
			}
			nothing = cmp.Or(nothing, row.P99)
			row.Database, row.Closing, row.Times = s.on.name, c.name, measure.Number(row.P99)/measure.Number(nothing)
			fmt.Fprintf(os.Stderr, "%-10s %5d payments beside %-10s p50 %4.0f p99 %4.0f max %5.0f ms: × %.2f; %d deadlocks, %d other conflicts; "+
				"%5d closed, late %.2f s, at most %.2f s\n",
				row.Database, row.Payments, c.name, ms(row.P50), ms(row.P99), ms(row.Max), row.Times, row.Deadlocks, row.Conflicts, row.Closed, row.LateMean, row.LateMax)
			r.Payments = append(r.Payments, row)
		}
	}
	return nil
}

func ms(d measure.Millis) float64 { return float64(d) / float64(time.Millisecond) }

// payments lets payers pay orders for a while in which all of them become due.
func (s *shop) payments(ctx context.Context, pl plan, closing func(context.Context, *shop) error) (row paymentsRow, err error) {
	l := lot{orders: pl.paidOrders, skus: paidSKUs}
	begin := time.Now().Add(3 * time.Second)
	l.due = func(n int) time.Time {
		return begin.Add(pl.paidSpell * time.Duration(n*7919%l.orders) / time.Duration(l.orders)).Truncate(time.Millisecond)
	}
	if err := s.fill(ctx, l); err != nil {
		return row, err
	}
	db, err := shoplocks.Open(s.dsn)
	if err != nil {
		return row, err
	}
	defer db.Close()
	db.SetMaxIdleConns(payers)
	ctx, stop := context.WithTimeout(ctx, time.Until(begin)+pl.paidSpell*3/2)
	defer stop()
	var working sync.WaitGroup
	var closed error
	working.Go(func() { closed = closing(ctx, s) })
	var tally shoplocks.Tally
	failed := make(chan error, payers)
	for n := range payers {
		working.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 7))
			for ctx.Err() == nil {
				// An order has one payer, so that payments do not deadlock with each other.
				order := idOf(n + payers*random.IntN(l.orders/payers))
				if err := payOne(random, db, order, &tally); err != nil {
					failed <- err
					stop()
					return
				}
			}
		})
	}
	working.Wait()
	close(failed)
	if err := errors.Join(closed, <-failed); err != nil {
		return row, err
	}
	row.Spread, row.Payments = measure.SpreadOf(tally.Took()), len(tally.Took())
	row.Deadlocks, row.Conflicts = tally.Lost()
	return row, s.readLateness(context.Background(), &row)
}

// payOne pays an order.
func payOne(random *rand.Rand, db *sql.DB, order string, t *shoplocks.Tally) error {
	ctx, plan := context.Background(), shoplocks.Draw(random)
	plan.Sorted = true
	err := plan.Run(ctx, db, order, t, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE orders SET status = 1, version = version + 1 WHERE id = ? AND status = 0", order)
		return err
	})
	if errors.Is(err, shoplocks.ErrRolledBack) || shoplocks.IsConflict(err) {
		return nil
	}
	return err
}

// readLateness reads how late orders were closed, and checks that each has a receipt, an event and its stock.
func (s *shop) readLateness(ctx context.Context, row *paymentsRow) error {
	late := "EXTRACT(EPOCH FROM closed_at - due)"
	if s.on.name != "postgresql" {
		late = "TIMESTAMPDIFF(MICROSECOND, due, closed_at) / 1e6"
	}
	var mean, most sql.NullFloat64
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*), AVG("+late+"), MAX("+late+") FROM receipts").Scan(&row.Closed, &mean, &most); err != nil {
		return err
	}
	row.LateMean, row.LateMax = measure.Number(mean.Float64), measure.Number(most.Float64)
	for what, query := range map[string]string{
		"closed orders without a receipt, or receipts of others": "SELECT COUNT(*) FROM orders o LEFT JOIN receipts r ON r.order_id = o.id" +
			" WHERE (o.status = 2) <> (r.order_id IS NOT NULL)",
		"closed orders without one event": "SELECT COUNT(*) FROM (SELECT o.id FROM orders o LEFT JOIN outbox_events e" +
			" ON e.order_id = o.id WHERE o.status = 2 GROUP BY o.id HAVING COUNT(e.order_id) <> 1) w",
		"early closes": "SELECT COUNT(*) FROM receipts WHERE closed_at < due",
		"SKUs whose stock is wrong": fmt.Sprintf(`SELECT COUNT(*) FROM stock s JOIN (SELECT i.sku_id, SUM(CASE WHEN o.status = 2 THEN 0 ELSE i.quantity END) AS held
			FROM order_items i JOIN orders o ON o.id = i.order_id GROUP BY i.sku_id) h ON h.sku_id = s.sku_id
			WHERE s.reserved <> h.held OR s.available + s.reserved <> %d`, stockOfSKU),
	} {
		var n int
		if err := s.db.QueryRowContext(ctx, query).Scan(&n); err != nil || n > 0 {
			return cmp.Or(err, fmt.Errorf("%d %s", n, what))
		}
	}
	return nil
}

// sweepers run two sweepers that sweep each second, without a lock between them.
func sweepers(ctx context.Context, s *shop) error {
	var running sync.WaitGroup
	var errs [2]error
	for i := range errs {
		cfg, err := config.Parse("topics.yaml", []byte(fmt.Sprintf("delays: {default: 30m}\nbuckets: [10s, 1m, 30m]\ntopics: {prefix: sweeper-%d-}\n", i)))
		if err != nil {
			return err
		}
		app, err := product.New(product.Options{Config: cfg, Servers: product.Servers{DSN: s.dsn}, SweepEvery: time.Second,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			return err
		}
		defer app.Close()
		running.Go(func() { errs[i] = app.Run(ctx, product.Sweeper) })
	}
	running.Wait()
	return errors.Join(errs[:]...)
}

// poller closes each overdue order in a transaction of its own, as shops do, and repeats a transaction that lost a conflict.
func poller(ctx context.Context, s *shop) error {
	db, err := shoplocks.Open(s.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for sleep(ctx, time.Second/2) {
		now, err := s.store.Now(context.Background())
		if err != nil {
			return err
		}
		rows, err := db.QueryContext(context.Background(), "SELECT id FROM orders WHERE status = 0 AND expire_at <= ? ORDER BY expire_at LIMIT 500", now)
		if err != nil {
			return err
		}
		var due []string
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			due = append(due, id)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for _, id := range due {
			for err = s.closeAlone(db, id); shoplocks.IsConflict(err) && ctx.Err() == nil; {
				err = s.closeAlone(db, id)
			}
			if err != nil && !shoplocks.IsConflict(err) {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
		}
	}
	return nil
}

// closeAlone closes an order as a simple poller does.
func (s *shop) closeAlone(db *sql.DB, id string) error {
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var status store.Status
	var due time.Time
	if err := tx.QueryRowContext(ctx, "SELECT status, expire_at FROM orders WHERE id = ? FOR UPDATE",
		id).Scan(&status, &due); err != nil || status != store.Unpaid {
		return err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	lines, err := tx.QueryContext(ctx, "SELECT sku_id, quantity FROM order_items WHERE order_id = ? ORDER BY sku_id", id)
	if err != nil {
		return err
	}
	skus, quantities := []string{}, []int{}
	for lines.Next() {
		var sku string
		var quantity int
		if err := lines.Scan(&sku, &quantity); err != nil {
			return err
		}
		skus, quantities = append(skus, sku), append(quantities, quantity)
	}
	if err := errors.Join(lines.Err(), lines.Close()); err != nil {
		return err
	}
	exec := func(query string, args ...any) {
		if err == nil {
			_, err = tx.ExecContext(ctx, query, args...)
		}
	}
	exec("UPDATE orders SET status = 2, closed_at = ?, version = version + 1 WHERE id = ?", now, id)
	for i, sku := range skus {
		exec("UPDATE stock SET available = available + ?, reserved = reserved - ? WHERE sku_id = ?", quantities[i], quantities[i], sku)
	}
	exec("INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES (?, 'closed', ?, ?, 'poller', 0, 0)", id, due, now)
	exec("INSERT INTO outbox_events (order_id, payload, created_at) VALUES (?, '{}', ?)", id, now)
	if err != nil {
		return err
	}
	return tx.Commit()
}
