package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"orderclose/internal/tables"
)

// CheckMapping says what keeps the orders' tables from being used as they are
// mapped: what is missing or of another type, where, and what to do. It only
// reads. The error is a *MappingError, or wraps orderclose.ErrUnavailable if the
// database could not be asked. Tables of SQLite are not looked at.
func (s *Store) CheckMapping(ctx context.Context) error {
	if s.dialect.describe == nil {
		return nil
	}
	problems, err := s.judge(ctx)
	if err != nil {
		return fmt.Errorf("look at the orders' tables: %w", s.explain(ctx, err))
	}
	if len(problems) > 0 {
		return &MappingError{Problems: problems}
	}
	return nil
}

// MappingError is what CheckMapping found.
type MappingError struct{ Problems []tables.Problem }

func (e *MappingError) Error() string {
	return "the database's tables are not as topics.yaml maps them: " + strings.ReplaceAll(tables.Err(e.Problems).Error(), "\n", "; and ")
}

func (s *Store) judge(ctx context.Context) ([]tables.Problem, error) {
	in := []*table{s.q.whole}
	if s.q.months != nil {
		s.q.months.forget()
		var err error
		if in, err = s.monthTables(ctx); err != nil {
			return nil, err
		}
		if len(in) == 0 {
			return []tables.Problem{{
				Path: "table", What: "no month has a table " + s.q.m.Orders,
				Do: "mend the name, or grant SELECT and UPDATE on the tables",
			}}, nil
		}
	}
	var orders, items []string
	for _, t := range in {
		orders = append(orders, t.name)
		if t.items != "" && !slices.Contains(items, t.items) {
			items = append(items, t.items)
		}
	}
	all := slices.Concat(orders, items)
	if s.q.m.Stock != nil {
		all = append(all, s.q.m.Stock.Table)
	}
	facts, err := s.dialect.describe(ctx, s.DB(), all)
	if err != nil {
		return nil, err
	}
	return s.q.m.Judge(facts, orders, items), nil
}

// describe asks MySQL what the tables of these names are like. Those that are not
// there, or that the user may not see, are left out.
func describe(ctx context.Context, db *sql.DB, names []string) (tables.Facts, error) {
	facts := tables.Facts{}
	for _, name := range names {
		t, ok, err := describeTable(ctx, db, name)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		if ok {
			facts[name] = t
		}
	}
	return facts, nil
}

// inSchema limits a query of information_schema to one table.
const inSchema = " WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?"

func describeTable(ctx context.Context, db *sql.DB, name string) (t tables.Table, ok bool, err error) {
	database, name := tables.Split(name)
	t.Columns = map[string]tables.Column{}
	err = each(ctx, db, "SELECT COALESCE(engine, '') FROM information_schema.tables"+inSchema, []any{database, name}, func(scan func(...any) error) error {
		ok = true
		return scan(&t.Engine)
	})
	if err != nil || !ok {
		return t, false, err
	}
	err = each(ctx, db, "SELECT LOWER(column_name), LOWER(data_type), column_type, COALESCE(datetime_precision, 0) FROM information_schema.columns"+inSchema,
		[]any{database, name}, func(scan func(...any) error) error {
			var column string
			var c tables.Column
			err := scan(&column, &c.Type, &c.Definition, &c.Digits)
			t.Columns[column] = c
			return err
		})
	if err != nil {
		return t, false, err
	}
	err = each(ctx, db, "SELECT index_name, non_unique, LOWER(COALESCE(column_name, '')) FROM information_schema.statistics"+inSchema+" ORDER BY index_name, seq_in_index",
		[]any{database, name}, func(scan func(...any) error) error {
			var index, column string
			var nonUnique bool
			if err := scan(&index, &nonUnique, &column); err != nil {
				return err
			}
			if n := len(t.Indexes); n == 0 || t.Indexes[n-1].Name != index {
				t.Indexes = append(t.Indexes, tables.Index{Name: index, Unique: !nonUnique})
			}
			last := &t.Indexes[len(t.Indexes)-1]
			last.Columns = append(last.Columns, column)
			return nil
		})
	return t, true, err
}

// each calls row for every row of a query.
func each(ctx context.Context, db *sql.DB, query string, args []any, row func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
