package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
)

// lent is a transaction that executes statements of the store: one of a program, or one of the store.
type lent struct {
	ctx context.Context
	of  orderclose.Tx
	db  *gorm.DB // writes the statements
	// translate is Dialect.onTx for a transaction of a program. Nil: the connections of the store do that.
	translate func(query string, args []any) (string, []any)
}

// allRows ends a SELECT of several rows in a session of the shop, which may have a sql_select_limit.
const allRows = " LIMIT 1000000"

// lentBy returns a transaction of a program.
func (s *Store) lentBy(ctx context.Context, tx orderclose.Tx) lent {
	if p, ok := wrappedBy(tx).(*gorm.PreparedStmtTX); ok {
		tx = orderclose.SQL(p.Tx) // pgx takes no pgx.QueryExecMode among the arguments of a prepared statement
	}
	return lent{ctx, tx, s.gorm, s.dialect.onTx}
}

// wrappedBy returns what orderclose.SQL has made tx from, or else tx.
func wrappedBy(tx orderclose.Tx) any {
	if x, ok := tx.(interface{ Unwrap() orderclose.SQLTx }); ok {
		return x.Unwrap()
	}
	return tx
}

// asTransaction returns an error if tx is nil, or a pool: each statement of a pool is a transaction of its own.
func asTransaction(tx orderclose.Tx) error {
	switch of := wrappedBy(tx); of.(type) {
	case nil:
		return errors.New("the transaction is nil: begin one")
	case *gorm.PreparedStmtDB, interface{ Stats() sql.DBStats }: // the second is *sql.DB, and what embeds it
		return fmt.Errorf("%T is a pool, which commits each statement by itself: begin a transaction and pass that", of)
	}
	return nil
}

// own returns a transaction, or a pool, of the store.
func own(tx *gorm.DB) lent {
	return lent{tx.Statement.Context, orderclose.SQL(tx.Statement.ConnPool), tx, nil}
}

// write writes a statement for the transaction. gorm writes lists and expressions among the arguments into it.
func (t lent) write(query string, args []any) (string, []any) {
	of := t.db.Session(&gorm.Session{NewDB: true}).Raw(query, args...).Statement
	query, args = of.SQL.String(), of.Vars
	if t.translate != nil {
		return t.translate(query, args)
	}
	return query, args
}

// exec executes a statement and returns how many rows it changed.
func (t lent) exec(query string, args ...any) (int64, error) {
	query, args = t.write(query, args)
	return t.of.Exec(t.ctx, query, args...)
}

// change executes a statement. The error is a rowsError if it did not change exactly n rows.
func (t lent) change(n int, query string, args ...any) error {
	changed, err := t.exec(query, args...)
	return exactly(n, changed, err)
}
