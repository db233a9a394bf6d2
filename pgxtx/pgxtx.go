// Package pgxtx lends a transaction of pgx to producer.Outbox and to sqlclose.Store:
//
//	tx, err := pool.Begin(ctx) // a *pgxpool.Pool
//	…
//	err = outbox.Add(ctx, pgxtx.New(tx), order)
//	result, err := orders.RecordPayment(ctx, pgxtx.New(tx), payment)
//
// It is a module of its own, so that your program chooses the version of pgx.
package pgxtx

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/orderclose/orderclose"
)

// New returns the transaction as an orderclose.Tx. It neither commits nor rolls back.
func New(tx pgx.Tx) orderclose.Tx { return transaction{tx} }

type transaction struct{ tx pgx.Tx }

// Exec implements orderclose.Tx.
func (t transaction) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

// Query implements orderclose.Tx.
func (t transaction) Query(ctx context.Context, query string, args []any, each func(scan func(columns ...any) error) error) error {
	rows, err := t.tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
