package store

import (
	"fmt"
	"strings"

	"gorm.io/gorm"
)

// maxRows is the most rows that one INSERT carries: well below what any of the
// databases takes in arguments and in bytes.
const maxRows = 500

// insert is an INSERT of many rows.
type insert struct {
	into string // table and columns
	args [][]any
}

func (in *insert) row(args ...any) { in.args = append(in.args, args) }

// exec inserts the rows, as few statements as it takes.
func (in *insert) exec(tx *gorm.DB) error {
	for rows := in.args; len(rows) > 0; {
		n := min(len(rows), maxRows)
		one := "(" + strings.Repeat("?, ", len(rows[0])-1) + "?)"
		args := make([]any, 0, n*len(rows[0]))
		for _, r := range rows[:n] {
			args = append(args, r...)
		}
		res := tx.Exec("INSERT INTO "+in.into+" VALUES "+strings.Repeat(one+", ", n-1)+one, args...)
		if err := wantRows(res, n); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// wantRows returns the error of a statement, or one of its own if the statement
// did not change exactly n rows.
func wantRows(res *gorm.DB, n int) error {
	if res.Error != nil {
		return res.Error
	}
	if res.RowsAffected != int64(n) {
		return &rowsError{Want: n, Got: res.RowsAffected}
	}
	return nil
}

// rowsError says that a statement changed another number of rows than it must.
type rowsError struct {
	Want int
	Got  int64
}

func (e *rowsError) Error() string {
	return fmt.Sprintf("%d rows changed where %d had to", e.Got, e.Want)
}
