package store

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"
)

// eachRow calls each for each row of a query.
func eachRow(tx *gorm.DB, query string, args []any, each func(*sql.Rows) error) error {
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

// rowsOf returns the rows of a query. into returns where the columns of a row go.
func rowsOf[T any](t lent, query string, args []any, into func(row *T) []any) (all []T, err error) {
	query, args = t.write(query, args)
	err = t.of.Query(t.ctx, query, args, func(scan func(...any) error) error {
		var row T
		err := scan(into(&row)...)
		all = append(all, row)
		return err
	})
	return all, err
}

// valueOf returns the only value of a query.
func valueOf[T any](t lent, query string, args ...any) (T, error) {
	all, err := rowsOf(t, query, args, func(v *T) []any { return []any{v} })
	return first(all), err
}

// first returns the first value of a list, or the zero value.
func first[T any](all []T) (value T) {
	if len(all) > 0 {
		value = all[0]
	}
	return value
}

// maxRows is the maximum number of rows of one INSERT: the lines of 500 orders with two lines each
// take one statement. It is well below the limits of all databases on arguments and bytes.
const maxRows = 1000

// insert is an INSERT of many rows.
type insert struct {
	into  string // table and columns
	width int    // how many columns
	args  []any  // row by row
}

func (in *insert) row(args ...any) { in.width, in.args = len(args), append(in.args, args...) }

// exec inserts the rows in as few statements as possible.
func (in *insert) exec(tx *gorm.DB, d Dialect) error {
	if len(in.args) == 0 {
		return nil
	}
	for args := range slices.Chunk(in.args, maxRows*in.width) {
		rows := values
		if d.rows != nil {
			rows = d.rows
		}
		list, of := rows(in.width, args)
		if err := execRows(tx, len(args)/in.width, "INSERT INTO "+in.into+" "+list, of); err != nil {
			return err
		}
	}
	return nil
}

// values writes rows of a width as a list of values.
func values(width int, args []any) (list string, of []any) {
	one := "(" + strings.Repeat("?, ", width-1) + "?)"
	return "VALUES " + strings.Repeat(one+", ", len(args)/width-1) + one, args
}

// execRows runs a long statement that must change exactly n rows.
func execRows(tx *gorm.DB, n int, query string, args []any) error {
	changed, err := execLong(tx, query, args)
	return exactly(n, changed, err)
}

// execLong runs a statement with up to thousands of placeholders. It bypasses gorm, which
// searches for placeholders character by character and rebuilds the statement: that took a
// fifth of this program's CPU time of a batch.
func execLong(tx *gorm.DB, query string, args []any) (changed int64, err error) {
	return own(tx).of.Exec(tx.Statement.Context, query, args...)
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
