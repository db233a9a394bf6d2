//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// lineChanges is how many orders of a moment lose a line at once.
const lineChanges = 8

// changeLines removes lines of unpaid orders around their due time, while closes read them.
func (w *world) changeLines(e event) error {
	ctx, cancel := context.WithTimeout(w.ctx, e.For)
	defer cancel()
	var changes sync.WaitGroup
	defer changes.Wait()
	for ctx.Err() == nil {
		ids, err := w.dueNow(ctx)
		if err != nil { // another fault is on
			w.wait(200 * time.Millisecond)
			continue
		}
		for _, id := range ids {
			changes.Go(func() { w.shop.Count("lines removed", w.shop.removeLine(w.ctx, id, rand.IntN(2) == 0)) })
		}
		w.wait(50 * time.Millisecond)
	}
	return nil
}

// dueNow returns unpaid orders that are due in this moment.
func (w *world) dueNow(ctx context.Context) (ids []string, err error) {
	now := w.cluster.kind.now
	rows, err := w.shop.db.QueryContext(ctx, "SELECT id FROM orders WHERE status = 0 AND expire_at BETWEEN "+now+" - INTERVAL '1' SECOND"+
		" AND "+now+" + INTERVAL '0.05' SECOND ORDER BY expire_at LIMIT "+fmt.Sprint(lineChanges))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// removeLine removes the first line of an order and returns its stock if the order is open. It
// locks the order first; or else it locks the line, and reads the order's status without a lock.
func (s *shop) removeLine(ctx context.Context, id string, orderFirst bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if orderFirst {
		if err := s.openOrder(ctx, tx, id, " FOR UPDATE"); err != nil {
			return err
		}
	}
	var line, quantity int64
	var sku string
	err = tx.QueryRowContext(ctx, s.Bind("SELECT line_no, sku_id, quantity FROM order_items WHERE order_id = ? ORDER BY line_no LIMIT 1 FOR UPDATE"),
		id).Scan(&line, &sku, &quantity)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, s.Bind("DELETE FROM order_items WHERE order_id = ? AND line_no = ?"), id, line)
	}
	if err == nil && !orderFirst {
		err = s.openOrder(ctx, tx, id, "")
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, s.Bind("UPDATE stock SET available = available + ?, reserved = reserved - ? WHERE sku_id = ?"), quantity, quantity, sku)
	}
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) // so that closes meet the open transaction
	return tx.Commit()
}

var errNotUnpaid = errors.New("not unpaid any more")

// openOrder returns an error unless the order is unpaid.
func (s *shop) openOrder(ctx context.Context, tx *sql.Tx, id, lock string) error {
	var status int
	err := tx.QueryRowContext(ctx, s.Bind("SELECT status FROM orders WHERE id = ?"+lock), id).Scan(&status)
	if err == nil && status != 0 {
		return errNotUnpaid
	}
	return err
}
