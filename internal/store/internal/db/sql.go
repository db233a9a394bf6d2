package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
)

// MaxIn is the maximum length of an IN list. MariaDB turns a list of 1,000 or more into a
// join with a temporary table, and then does not lock rows in id order.
const MaxIn = 999

// EachRow calls each for each row of a query.
func EachRow(tx *gorm.DB, query string, args []any, each func(*sql.Rows) error) error {
	rows, err := tx.Raw(query, args...).Rows()
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// RowsOf returns the rows of a query. into returns where the columns of a row go.
func RowsOf[T any](t Lent, query string, args []any, into func(row *T) []any) (all []T, err error) {
	query, args = t.write(query, args)
	err = t.of.Query(t.Ctx, query, args, func(scan func(...any) error) error {
		var row T
		err := scan(into(&row)...)
		all = append(all, row)
		return err
	})
	return all, err
}

// ValueOf returns the only value of a query.
func ValueOf[T any](t Lent, query string, args ...any) (T, error) {
	all, err := RowsOf(t, query, args, func(v *T) []any { return []any{v} })
	return First(all), err
}

// First returns the first value of a list, or the zero value.
func First[T any](all []T) (value T) {
	if len(all) > 0 {
		value = all[0]
	}
	return value
}

// maxRows is the maximum number of rows of one INSERT: the lines of 500 orders with two lines each
// take one statement. It is well below the limits of all databases on arguments and bytes.
const maxRows = 1000

// Insert is an INSERT of many rows.
type Insert struct {
	Into  string // table and columns
	width int    // how many columns
	args  []any  // row by row
}

func (in *Insert) Row(args ...any) { in.width, in.args = len(args), append(in.args, args...) }

// Exec inserts the rows in as few statements as possible.
func (in *Insert) Exec(tx *gorm.DB, d Dialect) error {
	if len(in.args) == 0 {
		return nil
	}
	for args := range slices.Chunk(in.args, maxRows*in.width) {
		list, of := d.Rows(in.width, args)
		if err := ExecRows(tx, len(args)/in.width, "INSERT INTO "+in.Into+" "+list, of); err != nil {
			return err
		}
	}
	return nil
}

// Values is Dialect.Rows as a list of values.
func Values(width int, args []any) (list string, of []any) {
	one := "(" + strings.Repeat("?, ", width-1) + "?)"
	return "VALUES " + strings.Repeat(one+", ", len(args)/width-1) + one, args
}

// ExecRows runs a long statement that must change exactly n rows.
func ExecRows(tx *gorm.DB, n int, query string, args []any) error {
	changed, err := ExecLong(tx, query, args)
	return exactly(n, changed, err)
}

// ExecLong runs a statement with up to thousands of placeholders. It bypasses gorm, which
// searches for placeholders character by character and rebuilds the statement: that took a
// fifth of this program's CPU time of a batch.
func ExecLong(tx *gorm.DB, query string, args []any) (changed int64, err error) {
	return Own(tx).of.Exec(tx.Statement.Context, query, args...)
}

// exactly returns the error of a statement; if it has none, a rowsError unless it changed n rows.
func exactly(n int, changed int64, err error) error {
	if err == nil && changed != int64(n) {
		err = &rowsError{Want: n, Got: changed}
	}
	return err
}

// rowsError says that a statement changed a wrong number of rows.
type rowsError struct {
	Want int
	Got  int64
}

func (e *rowsError) Error() string {
	return fmt.Sprintf("%d rows changed, want %d", e.Got, e.Want)
}

// Skipped returns n destinations for columns that are not read.
func Skipped(n int) []any {
	into := make([]any, n)
	for i := range into {
		into[i] = new(any)
	}
	return into
}

// Lent is a transaction that executes statements of the store: one of a program, or one of the store.
type Lent struct {
	Ctx context.Context
	of  orderclose.Tx
	db  *gorm.DB // writes the statements
	// translate is Dialect.OnTx for a transaction of a program.
	translate func(query string, args []any) (string, []any)
}

// AllRows ends a SELECT of several rows in a session of the shop, which may have a sql_select_limit.
const AllRows = " LIMIT 1000000"

// LentBy returns a transaction of a program.
func (s *Handle) LentBy(ctx context.Context, tx orderclose.Tx) Lent {
	if p, ok := wrappedBy(tx).(*gorm.PreparedStmtTX); ok {
		tx = orderclose.SQL(p.Tx) // pgx takes no pgx.QueryExecMode among the arguments of a prepared statement
	}
	return Lent{ctx, tx, s.Gorm, s.Dialect.OnTx}
}

// wrappedBy returns what orderclose.SQL has made tx from, or else tx.
func wrappedBy(tx orderclose.Tx) any {
	if x, ok := tx.(interface{ Unwrap() orderclose.SQLTx }); ok {
		return x.Unwrap()
	}
	return tx
}

// AsTransaction returns an error if tx is nil, a pool or a connection: each statement of a pool or of a connection is a transaction of
// its own. A connection on which the shop has run BEGIN looks the same, and is refused too.
func AsTransaction(tx orderclose.Tx) error {
	switch of := wrappedBy(tx); of.(type) {
	case nil:
		return errors.New("the transaction is nil: begin one")
	case *gorm.PreparedStmtDB, interface{ Stats() sql.DBStats }: // the second is *sql.DB, and what embeds it
		return fmt.Errorf("%T is a pool, which commits each statement by itself: begin a transaction and pass that", of)
	case interface{ Raw(f func(any) error) error }: // *sql.Conn, and what embeds it
		return fmt.Errorf("%T is a connection, which commits each statement by itself: begin a transaction with its BeginTx and pass that", of)
	}
	return nil
}

// Own returns a transaction, or a pool, of the store.
func Own(tx *gorm.DB) Lent {
	return Lent{tx.Statement.Context, orderclose.SQL(tx.Statement.ConnPool), tx, nil}
}

// write writes a statement for the transaction. gorm writes lists and expressions among the arguments into it.
func (t Lent) write(query string, args []any) (string, []any) {
	of := t.db.Session(&gorm.Session{NewDB: true}).Raw(query, args...).Statement
	query, args = of.SQL.String(), of.Vars
	if t.translate != nil {
		return t.translate(query, args)
	}
	return query, args
}

// Exec executes a statement and returns how many rows it changed.
func (t Lent) Exec(query string, args ...any) (int64, error) {
	query, args = t.write(query, args)
	return t.of.Exec(t.Ctx, query, args...)
}

// Change executes a statement. The error is a rowsError if it did not change exactly n rows.
func (t Lent) Change(n int, query string, args ...any) error {
	changed, err := t.Exec(query, args...)
	return exactly(n, changed, err)
}
