package store

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"orderclose"
)

// Probe writes and commits something that is of no order and changes nothing, as a
// close does: a receipt without an order, which the same transaction takes away. If
// closing one order alone fails and Probe does not, it is the order's fault. Its
// error wraps orderclose.ErrUnavailable.
func (s *Store) Probe(ctx context.Context) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		now, err := s.now(tx)
		if err != nil {
			return err
		}
		in := insert{into: "receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms)"}
		in.row("", orderclose.NotFound, s.dialect.time(now), s.dialect.time(now), "probe", 0, 0) // no order has that id
		if err := in.exec(tx); err != nil {
			return err
		}
		return wantRows(tx.Exec("DELETE FROM receipts WHERE order_id = ''"), 1)
	})
	if err != nil {
		return fmt.Errorf("write something that is of no order: %w", unavailable(ctx, err))
	}
	return nil
}
