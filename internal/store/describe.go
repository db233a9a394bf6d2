package store

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// readDefinitions is what fails if the definitions of tables cannot be read.
const readDefinitions = "read the definitions of the orders' tables"

// CheckMapping reports what keeps the store from using the orders' tables as they are mapped:
// what is missing or has another type, where, and how to fix it. It only reads. The error is
// a *MappingError, or wraps orderclose.ErrUnavailable if the database failed. It does not
// check tables of SQLite.
func (s *Store) CheckMapping(ctx context.Context) error {
	return s.checkMapping(ctx, s.checkOnClose)
}

// CheckTables is CheckMapping without the statements of the user (Mapping.OnClose): a user without
// the privileges of a close may not even have them explained.
func (s *Store) CheckTables(ctx context.Context) error {
	return s.checkMapping(ctx, func(context.Context) ([]mapping.Problem, error) { return nil, nil })
}

// checkMapping checks the tables and then, if they have no problem, the statements of the user: a
// problem of the tables may be why a statement fails.
func (s *Store) checkMapping(ctx context.Context, statements func(context.Context) ([]mapping.Problem, error)) error {
	if s.dialect.describe == nil {
		return nil
	}
	problems, err := s.checkTables(ctx)
	if err == nil && len(problems) == 0 {
		problems, err = statements(ctx)
	}
	if err != nil {
		return s.failed(ctx, err, readDefinitions)
	}
	for i := range problems {
		if s.ordersAt != nil {
			problems[i].At = s.ordersAt(problems[i].Path)
		}
	}
	if len(problems) > 0 {
		return &MappingError{Problems: problems}
	}
	return nil
}

// MappingError holds the problems that CheckMapping found.
type MappingError struct{ Problems []mapping.Problem }

func (e *MappingError) Error() string {
	return "the database's tables do not match the mapping in topics.yaml: " + strings.ReplaceAll(mapping.Err(e.Problems).Error(), "\n", "; and ")
}

// checkTables returns the problems of the mapping on all tables that the store reads.
func (s *Store) checkTables(ctx context.Context) ([]mapping.Problem, error) {
	if s.q.months != nil {
		s.q.months.forget()
	}
	in, err := s.allTables(ctx)
	if err != nil {
		return nil, err
	}
	if len(in) == 0 {
		return []mapping.Problem{{
			Path: "table", What: "no month has a table " + s.q.m.Orders,
			Fix: "correct the name, or grant SELECT and UPDATE on the tables",
		}}, nil
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
	schema, err := s.dialect.describe(s.gorm.WithContext(ctx), all)
	if err != nil {
		return nil, err
	}
	problems := s.q.m.CheckDatabase(schema, orders, items)
	future, err := s.futureNotBefore(ctx)
	return append(problems, s.q.m.Unaccepted(future)...), err
}

// futureNotBefore reports a Mapping.NotBefore that the database's clock has not reached.
func (s *Store) futureNotBefore(ctx context.Context) ([]mapping.Problem, error) {
	first := s.q.m.NotBefore
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

// describe returns the definitions of MySQL tables. It leaves out tables that do not exist or
// that the user may not see.
func describe(tx *gorm.DB, names []string) (mapping.Schema, error) {
	schema := mapping.Schema{}
	for _, name := range names {
		t, ok, err := describeTable(tx, name)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		if ok {
			schema[name] = t
		}
	}
	return schema, nil
}

// inSchema limits a query of information_schema to one table.
const inSchema = " WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?"

func describeTable(tx *gorm.DB, name string) (t mapping.Table, ok bool, err error) {
	database, table := mapping.Split(name)
	args := []any{database, table}
	err = eachRow(tx, "SELECT table_schema, table_name, table_schema = DATABASE(), table_type LIKE '%VIEW', COALESCE(engine, '') FROM information_schema.tables"+inSchema,
		args, func(rows *sql.Rows) error {
			ok = true
			return rows.Scan(&t.Schema, &t.Name, &t.Home, &t.View, &t.Engine)
		})
	if err != nil || !ok || t.View {
		return t, ok && err == nil, err
	}
	if t.Columns, err = describeColumns(tx, args); err != nil {
		return t, false, err
	}
	if t.Indexes, err = describeIndexes(tx, args); err != nil {
		return t, false, err
	}
	err = eachRow(tx, "SELECT trigger_name FROM information_schema.triggers"+
		" WHERE event_object_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND event_object_table = ? AND event_manipulation = 'UPDATE' ORDER BY trigger_name",
		args, func(rows *sql.Rows) error {
			var trigger string
			err := rows.Scan(&trigger)
			t.Triggers = append(t.Triggers, trigger)
			return err
		})
	if err == nil && len(t.Triggers) == 0 {
		err = tx.Raw(triggersUnread, t.Schema, t.Schema, t.Name).Row().Scan(&t.TriggersUnread)
	}
	return t, err == nil, err
}

// triggersUnread asks whether no grant lets this user see the triggers of a table: TRIGGER, or on
// MariaDB also UPDATE. It does not know grants through a role.
const triggersUnread = "SELECT COUNT(*) = 0 FROM (" +
	"SELECT grantee, privilege_type FROM information_schema.user_privileges" +
	" UNION ALL SELECT grantee, privilege_type FROM information_schema.schema_privileges WHERE ? LIKE table_schema" +
	" UNION ALL SELECT grantee, privilege_type FROM information_schema.table_privileges WHERE table_schema = ? AND table_name = ?" +
	") AS oc_all WHERE REPLACE(grantee, CHAR(39), '') = CURRENT_USER()" +
	" AND (privilege_type = 'TRIGGER' OR privilege_type = 'UPDATE' AND VERSION() LIKE '%MariaDB%')"

// presentMoment matches a default that is the time of the INSERT, as MySQL and MariaDB write
// it.
var presentMoment = regexp.MustCompile(`^\(?(current_timestamp|now|localtime|localtimestamp|utc_timestamp|unix_timestamp)(\(\d*\))?\)?$`)

func describeColumns(tx *gorm.DB, args []any) (map[string]mapping.Column, error) {
	columns := map[string]mapping.Column{}
	err := eachRow(tx, "SELECT LOWER(column_name), LOWER(data_type), column_type, COALESCE(datetime_precision, 0), COALESCE(character_maximum_length, 0),"+
		" COALESCE(collation_name, ''), is_nullable = 'YES', LOWER(column_default), LOWER(extra), LOWER(COALESCE(generation_expression, '')) FROM information_schema.columns"+inSchema,
		args, func(rows *sql.Rows) error {
			var column, extra string
			var def sql.NullString
			var c mapping.Column
			err := rows.Scan(&column, &c.Type, &c.Definition, &c.Digits, &c.Length, &c.Collation, &c.Nullable, &def, &extra, &c.Expression)
			c.Default, c.DefaultNow = c.Nullable || def.Valid, presentMoment.MatchString(def.String)
			c.OnUpdate = strings.Contains(extra, "on update")
			c.Numbered = strings.Contains(extra, "auto_increment")
			for _, kind := range []string{"virtual generated", "stored generated", "persistent"} {
				c.Generated = c.Generated || strings.Contains(extra, kind)
			}
			columns[column] = c
			return err
		})
	if err != nil {
		return nil, err
	}
	return columns, eachRow(tx, "SELECT LOWER(column_name), referenced_table_name FROM information_schema.key_column_usage"+inSchema+" AND referenced_table_name IS NOT NULL",
		args, func(rows *sql.Rows) error {
			var column, other string
			err := rows.Scan(&column, &other)
			c := columns[column]
			c.RefersTo = other
			columns[column] = c
			return err
		})
}

// usedIndexes holds conditions on information_schema.statistics that select indexes in use, by
// the column that they need: MySQL has invisible indexes, MariaDB ignored ones.
var usedIndexes = map[string]string{"IS_VISIBLE": " AND is_visible = 'YES'", "IGNORED": " AND ignored = 'NO'"}

// describeIndexes leaves out indexes that the database does not use.
func describeIndexes(tx *gorm.DB, args []any) ([]mapping.Index, error) {
	used := ""
	err := eachRow(tx, "SELECT UPPER(column_name) FROM information_schema.columns WHERE table_schema = 'information_schema' AND table_name = 'STATISTICS'",
		nil, func(rows *sql.Rows) error {
			var column string
			err := rows.Scan(&column)
			used += usedIndexes[column]
			return err
		})
	if err != nil {
		return nil, err
	}
	var indexes []mapping.Index
	err = eachRow(tx, "SELECT index_name, non_unique, CONCAT(LOWER(COALESCE(column_name, '')), COALESCE(CONCAT('(', sub_part, ')'), ''), IF(collation = 'D', ' DESC', ''))"+
		" FROM information_schema.statistics"+inSchema+used+" ORDER BY index_name, seq_in_index",
		args, func(rows *sql.Rows) error {
			var index, column string
			var nonUnique bool
			if err := rows.Scan(&index, &nonUnique, &column); err != nil {
				return err
			}
			if n := len(indexes); n == 0 || indexes[n-1].Name != index {
				indexes = append(indexes, mapping.Index{Name: index, Unique: !nonUnique})
			}
			last := &indexes[len(indexes)-1]
			last.Columns = append(last.Columns, column)
			return nil
		})
	return indexes, err
}
