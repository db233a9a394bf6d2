package store

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
)

// Probe makes and commits a write that belongs to no order and changes nothing: it inserts a
// receipt without an order, as a close does, and deletes it in the same transaction. If closing
// one order alone fails and Probe succeeds, the order caused the failure. The error wraps
// orderclose.ErrUnavailable.
func (s *Store) Probe(ctx context.Context) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		now, err := s.now(tx)
		if err != nil {
			return err
		}
		in := insert{into: "receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms)"}
		in.row("", orderclose.NotFound, s.dialect.time(now), s.dialect.time(now), "probe", 0, 0) // no order has the empty id
		if err := in.exec(tx, s.dialect); err != nil {
			return err
		}
		return expectRows(tx.Exec("DELETE FROM receipts WHERE order_id = ''"), 1)
	})
	if err != nil {
		return fmt.Errorf("write a probe receipt: %w", unavailable(ctx, err))
	}
	return nil
}
