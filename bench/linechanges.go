package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/measure"
)

const changeWorkers = 4

// lineChanges is what a shop did that removed lines of orders while they were closed.
type lineChanges struct {
	LinesRPS       measure.Number `json:"changing_lines_rps"` // closes
	LinesRemoved   int64          `json:"lines_removed"`
	LinesConflicts int64          `json:"lines_conflicts"` // transactions of the shop that lost a deadlock or a lock wait
}

// changingLines closes a lot while a shop removes lines of its orders and returns their stock. Every
// second transaction locks the line before its order. All stock must come back once.
func (s *shop) changingLines(ctx context.Context, c crew, l lot) (lineChanges, error) {
	if err := s.fill(ctx, l); err != nil {
		return lineChanges{}, err
	}
	var removed, conflicts atomic.Int64
	changing, stop := context.WithCancelCause(ctx)
	var workers sync.WaitGroup
	for range changeWorkers {
		workers.Go(func() {
			for n := 0; changing.Err() == nil; n++ {
				done, err := s.removeLine(context.WithoutCancel(ctx), idOf(rand.IntN(l.orders)), n%2 == 0)
				switch {
				case errors.Is(store.Classify(err), orderclose.ErrContended):
					conflicts.Add(1)
				case err != nil:
					stop(err)
				case done:
					removed.Add(1)
				}
			}
		})
	}
	t, err := s.closeLot(ctx, c, l.orders)
	stop(nil)
	workers.Wait()
	if cause := context.Cause(changing); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	if err == nil {
		err = s.allReturned(ctx, l, t.gaveUp)
	}
	return lineChanges{measure.Number(t.rps), removed.Load(), conflicts.Load()}, err
}

// removeLine removes the first line of an order and returns its stock, if the order is unpaid.
func (s *shop) removeLine(ctx context.Context, id string, orderFirst bool) (bool, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	n := [2]int64{}
	steps := [2]string{"UPDATE orders SET version = version + 1 WHERE id = ? AND status = 0", "DELETE FROM order_items WHERE order_id = ? AND line_no = 1"}
	var sku string
	if err := tx.QueryRowContext(ctx, "SELECT sku_id FROM order_items WHERE order_id = ? AND line_no = 1", id).Scan(&sku); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return false, err
	}
	for i := range steps {
		if !orderFirst {
			i = 1 - i
		}
		res, err := tx.ExecContext(ctx, steps[i], id)
		if err != nil {
			return false, err
		}
		if n[i], err = res.RowsAffected(); err != nil || n[i] == 0 {
			return false, err
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET available = available + 1, reserved = reserved - 1 WHERE sku_id = ?", sku); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

// allReturned checks that each order was closed and that each piece came back once.
func (s *shop) allReturned(ctx context.Context, l lot, gaveUp int) error {
	wants := map[string]int{
		"SELECT COUNT(*) FROM receipts":                                                        l.orders - gaveUp,
		"SELECT COUNT(*) FROM stock WHERE available < 0 OR reserved < 0":                       0,
		fmt.Sprintf("SELECT COUNT(*) FROM stock WHERE available + reserved <> %d", stockOfSKU): 0,
		// A receipt of other lines than the order has.
		"SELECT COUNT(*) FROM receipts r WHERE LENGTH(returned) - LENGTH(REPLACE(returned, ':', '')) <>" +
			" (SELECT COUNT(*) FROM order_items i WHERE i.order_id = r.order_id)": 0,
	}
	if gaveUp == 0 { // otherwise some orders keep their stock
		wants["SELECT SUM(reserved) FROM stock"] = 0
	}
	for query, want := range wants {
		var got int
		if err := s.db.QueryRowContext(ctx, query).Scan(&got); err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s: %d, want %d", query, got, want)
		}
	}
	return nil
}

// measureLineChanges fills the line about a shop that changes lines.
func (r *closeReport) measureLineChanges(ctx context.Context, s *shop, pl plan) (err error) {
	if r.lineChanges, err = s.changingLines(ctx, inBatch, overdue(pl.closeOrders, manySKUs, 0)); err != nil {
		return fmt.Errorf("a shop that changes lines: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%s: %.0f closes/s while a shop removed %d lines; it lost %d deadlocks or lock waits\n",
		s.on.name, r.LinesRPS, r.LinesRemoved, r.LinesConflicts)
	return nil
}
