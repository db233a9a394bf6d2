package schema

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Checker migrates the schema, and checks the shop's tables.
type Checker struct {
	*db.Handle
	Unfit atomic.Pointer[error] // of the last CheckMapping or CheckTables; nil: the tables fit the mapping, as far as is known
}

// CheckMapping reports what keeps the store from using the orders' tables as they are mapped:
// what is missing or has another type, where, and how to fix it. It only reads. The error is
// a *MappingError, or wraps orderclose.ErrUnavailable if the database failed. It does not
// check tables of SQLite. While the last answer was a MappingError, CloseOrders closes nothing.
func (s *Checker) CheckMapping(ctx context.Context) error { return s.checkMapping(ctx, true) }

// CheckTables is CheckMapping without the statements of the user (Mapping.OnClose): a user without
// the privileges of a close may not even have them explained.
func (s *Checker) CheckTables(ctx context.Context) error { return s.checkMapping(ctx, false) }

// checkMapping checks the tables and then, if they have no problem, the statements of the user: a
// problem of the tables may be why a statement fails.
func (s *Checker) checkMapping(ctx context.Context, statements bool) error {
	if !s.Dialect.TellsTables {
		return nil
	}
	problems, err := s.checkTables(ctx)
	if err == nil && len(problems) == 0 && statements {
		problems, err = s.CheckOnClose(ctx)
	}
	if err != nil {
		return s.FailedTo(ctx, err, db.ReadDefinitions)
	}
	if len(problems) > 0 {
		err = s.Placed(problems)
		s.Unfit.Store(&err)
		return err
	}
	s.Unfit.Store(nil)
	return nil
}

// checkTables returns the problems of the mapping on all tables that the store reads.
func (s *Checker) checkTables(ctx context.Context) ([]mapping.Problem, error) {
	s.Q.Tables.Forget()
	in, err := s.AllTables(ctx)
	if err != nil {
		return nil, err
	}
	if len(in) == 0 {
		return []mapping.Problem{{
			Path: "table", What: "no month has a table " + s.Q.M.Orders,
			Fix: "correct the name, or grant SELECT and UPDATE on the tables",
		}}, nil
	}
	orders, items := db.Names(in)
	all := slices.Concat(orders, items)
	for _, stock := range s.Q.M.Stock {
		all = append(all, stock.Table)
	}
	schema, err := s.Describe(ctx, all...)
	if err != nil {
		return nil, err
	}
	problems := s.Q.M.CheckDatabase(schema, orders, items)
	hidden, err := s.HiddenRows(ctx)
	if err != nil {
		return nil, err
	}
	problems = append(problems, s.Q.M.Unaccepted(hidden)...)
	future, err := s.futureNotBefore(ctx)
	return append(problems, s.Q.M.Unaccepted(future)...), err
}

// futureNotBefore reports a Mapping.NotBefore that the database's clock has not reached.
func (s *Checker) futureNotBefore(ctx context.Context) ([]mapping.Problem, error) {
	first := s.Q.M.NotBefore
	if first.IsZero() {
		return nil, nil
	}
	now, err := s.Now(ctx)
	if err != nil || !first.After(now) {
		return nil, err
	}
	return []mapping.Problem{{
		Path: "not_before", What: first.Format(time.RFC3339) + " is in the future", Why: "no order that is due before then is ever closed",
		Fix: "correct the year or the time zone, or start after that moment", Accept: mapping.FutureNotBefore,
	}}, nil
}

// CheckOnClose returns the problems of the statements of Mapping.OnClose that the database knows: a
// statement that it refuses, or that would read a whole table in each close. It executes no
// statement.
func (s *Checker) CheckOnClose(ctx context.Context) (problems []mapping.Problem, err error) {
	for i, statement := range s.Q.M.OnClose {
		path := fmt.Sprintf("on_close[%d]", i)
		scanned, err := s.Dialect.ScannedTable(ctx, s.Gorm, db.OnCloseSQL(statement, s.Q.SampleIDs()))
		refused := db.ErrorCode(err) != ""
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
		statement = s.Dialect.Folded(statement)
		written, _, _ := mapping.OnCloseTable(statement)
		schema, err := s.Describe(ctx, written)
		if err != nil {
			return nil, err
		}
		problems = append(problems, s.Q.M.CheckOnClose(path, statement, schema)...)
	}
	return problems, nil
}
