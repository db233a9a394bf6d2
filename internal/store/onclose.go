package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// onCloseSQL returns a statement of Mapping.OnClose with a list of ids, or of placeholders for ids.
func onCloseSQL(statement, ids string) string {
	return strings.Replace(statement, mapping.IDs, ids, 1)
}

// OnClose sets the further statements of a close (Mapping.OnClose), for tests and development with the
// tables that Migrate creates. Call it before the first close.
func (s *Store) OnClose(statements []string) { s.q.m.OnClose = statements }

// rowsOfAnOrder is how many rows a statement of Mapping.OnClose may change for each closed order: more than the lines of
// any order. MySQL counts a row of ON DUPLICATE KEY UPDATE twice.
const rowsOfAnOrder = 1000

// onClose runs the statements of Mapping.OnClose for the orders that this transaction closes. First it runs each for an
// id that no order has. In both runs a row of another order has no id of the list, so both change it or none does. A
// statement whose first run changes a row is refused. A row that is committed between the two runs is not seen.
func (c *closing) onClose() error {
	for i, statement := range c.s.q.m.OnClose {
		c.step = fmt.Sprintf("on_close[%d]", i)
		n, err := c.change(statement, []any{c.s.q.m.ID.NoOrder(c.all[0])})
		if err == nil && n > 0 { //mutant:close-changes-others
			return unavailable(c.tx.Statement.Context, c.s.placed([]mapping.Problem{{
				Path: c.step, What: fmt.Sprintf("the statement changes %d rows if no order is closed", n), Why: "it changes rows of other orders",
				Fix: "write the condition order_id IN (" + mapping.IDs + ") without NOT and with AND beside it; to a SELECT of sums, add HAVING COUNT(*) > 0",
			}}))
		}
		for ids := range slices.Chunk(c.all, maxIn) {
			if err == nil {
				n, err = c.change(statement, c.s.q.args(ids))
				c.onClosed = append(c.onClosed, n)
			}
			if err == nil && n > int64(rowsOfAnOrder*len(ids)) {
				err = fmt.Errorf("the statement changes %d rows, and may change up to %d for each of %d orders; "+
					"let it find its rows by a column that holds the order's id", n, rowsOfAnOrder, len(ids))
			}
		}
		if err != nil {
			return fmt.Errorf("orders.on_close[%d]: %w", i, err)
		}
	}
	return nil
}

// change runs a statement of Mapping.OnClose for ids, and returns how many rows it changed.
func (c *closing) change(statement string, ids []any) (int64, error) {
	return execLong(c.tx, onCloseSQL(statement, "?"+strings.Repeat(", ?", len(ids)-1)), ids)
}

// checkOnClose returns the problems of the statements of Mapping.OnClose that the database knows: a
// statement that it refuses, or that would read a whole table in each close. It executes no
// statement.
func (s *Store) checkOnClose(ctx context.Context) (problems []mapping.Problem, err error) {
	for i, statement := range s.q.m.OnClose {
		path := fmt.Sprintf("on_close[%d]", i)
		scanned, err := s.dialect.scannedTable(ctx, s.gorm, onCloseSQL(statement, s.q.sampleIDs()))
		refused := errorCode(err) != ""
		switch {
		case err != nil && !refused:
			return nil, err
		case refused:
			problems = append(problems, mapping.Problem{Path: path, What: fmt.Sprintf("the database refuses the statement: %v", err),
				Fix: "correct the statement, or grant the privileges that it needs"})
		case scanned != "":
			problems = append(problems, mapping.Problem{Path: path, What: "the statement has no index to find its rows of " + scanned,
				Why: "each close would read and lock the whole table", Fix: "add an index on the columns of its condition; EXPLAIN shows the plan"})
		}
		written, _, _ := mapping.OnCloseTable(statement)
		schema, err := s.describe(ctx, written)
		if err != nil {
			return nil, err
		}
		problems = append(problems, s.q.m.CheckOnClose(path, statement, schema)...)
	}
	return problems, nil
}

// sampleIDs returns what stands for ids in an EXPLAIN. The ids have the type of the id column: a
// number finds no row of a column of text through an index. With one id the databases look for its row
// already, and end the plan there if no order has it.
func (q *statements) sampleIDs() string {
	switch q.m.ID.Type {
	case mapping.Integer:
		return "1, 2"
	case mapping.UUIDBinary, mapping.UUIDSwapped:
		return "UNHEX('00000000000000000000000000000001'), UNHEX('00000000000000000000000000000002')"
	case mapping.UUID:
		return "'00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002'"
	}
	return "'1', '2'"
}

// scannedTable asks MySQL how it would execute a statement. It returns the name or alias of a
// table that has no index for the statement; empty: there is none. The error is the database's
// refusal.
func scannedTable(ctx context.Context, db *gorm.DB, query string) (scanned string, err error) {
	rows, err := db.WithContext(ctx).Statement.ConnPool.QueryContext(ctx, "EXPLAIN FORMAT=TRADITIONAL "+query)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var step struct{ SelectType, Table, Type, PossibleKeys, Extra string }
		if err := db.ScanRows(rows, &step); err != nil {
			return "", err
		}
		// A table in <> is the result of another step of the plan; neither a table function such as JSON_TABLE nor a recursive step is stored. A
		// statement without a possible index reads all rows or all entries of an index.
		stored := step.Table != "" && !strings.HasPrefix(step.Table, "<") && !strings.Contains(step.Extra, "Table function") &&
			!strings.Contains(step.Extra, "Recursive")
		if (step.Type == "ALL" || step.Type == "index") && step.PossibleKeys == "" && step.SelectType != "INSERT" && stored {
			scanned = step.Table
		}
	}
	return scanned, rows.Err()
}
