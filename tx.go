package orderclose

import (
	"context"
	"database/sql"
)

// Tx is a transaction of the shop, in which producer.Outbox adds an order and sqlclose.Store records a payment. They
// neither commit nor roll back. SQL makes a Tx of *sql.Tx and of every type with its methods, such as *sqlx.Tx and the ConnPool of
// gorm. The module pgxtx makes one of pgx.Tx.
//
// The methods pass statements, arguments and errors on as they are. A statement has the placeholders of its database:
// ?, and on PostgreSQL $1. On PostgreSQL the first argument may be a pgx.QueryExecMode, which is not one of a placeholder.
type Tx interface {
	// Exec executes a statement and returns how many rows it changed.
	Exec(ctx context.Context, query string, args ...any) (rows int64, err error)
	// Query executes a statement and calls each for each row of the result, until each returns an error, which Query then
	// returns. scan copies the columns of the row into pointers, and into each sql.Scanner, as (*sql.Rows).Scan does.
	Query(ctx context.Context, query string, args []any, each func(scan func(columns ...any) error) error) error
}

// SQLTx has the methods of *sql.Tx that SQL needs.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// SQL returns the Tx of a *sql.Tx, or of another type with these methods: *sqlx.Tx, the ConnPool of gorm
// (tx.Statement.ConnPool in a transaction, also with PrepareStmt), and the Tx of ent with the feature sql/execquery. With a *sql.DB or a
// *sql.Conn each statement is committed on its own, so RecordPayment refuses both, also a connection on which BEGIN was run: use its BeginTx.
func SQL(tx SQLTx) Tx { return sqlTx{tx} }

type sqlTx struct{ SQLTx }

// Exec implements Tx.
func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Query implements Tx.
func (t sqlTx) Query(ctx context.Context, query string, args []any, each func(scan func(columns ...any) error) error) error {
	rows, err := t.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Unwrap returns what SQL was called with.
func (t sqlTx) Unwrap() SQLTx { return t.SQLTx }
