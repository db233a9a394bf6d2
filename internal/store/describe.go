package store

import (
	"context"
	"fmt"
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
func (s *Store) CheckMapping(ctx context.Context) error { return s.checkMapping(ctx, true) }

// CheckTables is CheckMapping without the statements of the user (Mapping.OnClose): a user without
// the privileges of a close may not even have them explained.
func (s *Store) CheckTables(ctx context.Context) error { return s.checkMapping(ctx, false) }

// checkMapping checks the tables and then, if they have no problem, the statements of the user: a
// problem of the tables may be why a statement fails.
func (s *Store) checkMapping(ctx context.Context, statements bool) error {
	if s.dialect.describe == nil {
		return nil
	}
	problems, err := s.checkTables(ctx)
	if err == nil && len(problems) == 0 && statements {
		problems, err = s.checkOnClose(ctx)
	}
	if err != nil {
		return s.failed(ctx, err, readDefinitions)
	}
	if len(problems) > 0 {
		return s.placed(problems)
	}
	return nil
}

// placed returns the error of problems, with the position of each in topics.yaml.
func (s *Store) placed(problems []mapping.Problem) error {
	for i := range problems {
		if s.ordersAt != nil {
			problems[i].At = s.ordersAt(problems[i].Path)
		}
	}
	return &MappingError{Problems: problems}
}

// MappingError holds the problems that CheckMapping found.
type MappingError struct{ Problems []mapping.Problem }

func (e *MappingError) Error() string {
	return "the database's tables do not match the mapping in topics.yaml: " + strings.ReplaceAll(mapping.Err(e.Problems).Error(), "\n", "; and ")
}

// checkTables returns the problems of the mapping on all tables that the store reads.
func (s *Store) checkTables(ctx context.Context) ([]mapping.Problem, error) {
	s.q.tables.forget()
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
	for _, stock := range s.q.m.Stock {
		all = append(all, stock.Table)
	}
	schema, err := s.describe(ctx, all...)
	if err != nil {
		return nil, err
	}
	problems := s.q.m.CheckDatabase(schema, orders, items)
	hidden, err := s.hiddenRows(ctx)
	if err != nil {
		return nil, err
	}
	problems = append(problems, s.q.m.Unaccepted(hidden)...)
	future, err := s.futureNotBefore(ctx)
	return append(problems, s.q.m.Unaccepted(future)...), err
}

// showRows is what to do about row-level security.
const showRows = "ALTER ROLE with BYPASSRLS for this user, or a policy for this user that shows all rows"

// hiddenRows reports the tables with row-level security that applies to this user. A policy may hide rows. An order in a hidden
// row is not closed. No count and no audit shows it.
func (s *Store) hiddenRows(ctx context.Context) (problems []mapping.Problem, err error) {
	if s.dialect.rowSecurity == nil {
		return nil, nil
	}
	in, err := s.allTables(ctx)
	names := s.ownTables()
	for _, t := range in {
		names = append(names, t.name, t.items)
	}
	for _, stock := range s.q.m.Stock {
		names = append(names, stock.Table)
	}
	for _, statement := range s.q.m.OnClose {
		written, _, _ := mapping.OnCloseTable(statement)
		names = append(names, written)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		schema, table := mapping.Split(name)
		active := false
		if err == nil && name != "" {
			active, err = s.dialect.rowSecurity(s.gorm.WithContext(ctx), schema, table)
		}
		if active {
			problems = append(problems, mapping.Problem{
				Path: "table", What: "row-level security of table " + name + " applies to this database user",
				Why: "rows that its policies hide are never closed, and nothing shows them",
				Fix: showRows, Accept: mapping.RowSecurity,
			})
		}
	}
	return problems, err
}

// seesAllRows returns an error if hiddenRows reports a table that the mapping does not accept.
func (s *Store) seesAllRows(ctx context.Context) error {
	hidden, err := s.hiddenRows(ctx)
	if hidden = s.q.m.Unaccepted(hidden); err == nil && len(hidden) > 0 {
		return &MappingError{Problems: hidden}
	}
	return s.failed(ctx, err, readDefinitions)
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

// describe returns the definitions of tables. It leaves out tables that do not exist or that the user may not see.
// On SQLite it returns none.
func (s *Store) describe(ctx context.Context, names ...string) (mapping.Schema, error) {
	schema := mapping.Schema{}
	for _, name := range names {
		if s.dialect.describe == nil {
			continue
		}
		database, table := mapping.Split(name)
		t, ok, err := s.dialect.describe(s.gorm.WithContext(ctx), database, table)
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

// describeTable is Dialect.describe of MySQL and MariaDB.
func describeTable(tx *gorm.DB, database, table string) (t mapping.Table, ok bool, err error) {
	args := []any{database, table}
	found, err := rowsOf(own(tx), "SELECT table_schema, table_name, table_schema = DATABASE(), table_type LIKE '%VIEW', COALESCE(engine, ''), "+
		"COALESCE(create_options, '') LIKE '%partitioned%' FROM information_schema.tables"+inSchema,
		args, func(t *mapping.Table) []any {
			return []any{&t.Schema, &t.Name, &t.Home, &t.View, &t.Engine, &t.Partitioned}
		})
	if err != nil || len(found) == 0 {
		return t, false, err
	}
	if t = found[0]; t.View {
		return t, true, nil
	}
	if t.Columns, err = describeColumns(tx, args); err != nil {
		return t, false, err
	}
	if t.Indexes, err = describeIndexes(tx, args); err != nil {
		return t, false, err
	}
	err = tx.Raw("SELECT trigger_name FROM information_schema.triggers"+
		" WHERE event_object_schema = ? AND event_object_table = ? AND event_manipulation = 'UPDATE' ORDER BY trigger_name", t.Schema, t.Name).Scan(&t.Triggers).Error
	if err == nil && len(t.Triggers) == 0 {
		err = tx.Raw(triggersUnread, t.Schema, t.Schema, t.Name).Row().Scan(&t.TriggersUnread)
	}
	return t, err == nil, err
}

// countTriggers is Dialect.Triggers of MariaDB. A look-up by both names opens no other table. On MySQL it is 0: most users see no triggers there,
// so each close looks at the stock.
func countTriggers(tables []string) string {
	var counts []string
	for _, name := range tables {
		database, table := mapping.Split(name)
		counts = append(counts, fmt.Sprintf("(SELECT COUNT(*) FROM information_schema.triggers WHERE event_object_schema = COALESCE(NULLIF('%s', ''), DATABASE())"+
			" AND event_object_table = '%s')", database, table))
	}
	return "0 /*M!100600 + " + strings.Join(counts, " + ") + " */"
}

// triggersUnread asks whether no grant lets this user see the triggers of a table: TRIGGER, or on
// MariaDB also UPDATE. It does not know grants through a role.
const triggersUnread = "SELECT COUNT(*) = 0 FROM (" +
	"SELECT grantee, privilege_type FROM information_schema.user_privileges" +
	" UNION ALL SELECT grantee, privilege_type FROM information_schema.schema_privileges WHERE ? LIKE table_schema" +
	" UNION ALL SELECT grantee, privilege_type FROM information_schema.table_privileges WHERE table_schema = ? AND table_name = ?" +
	") AS oc_all WHERE REPLACE(grantee, CHAR(39), '') = CURRENT_USER()" +
	" AND (privilege_type = 'TRIGGER' OR privilege_type = 'UPDATE' AND VERSION() LIKE '%MariaDB%')"

// columnsQuery reads the columns of a table. The default of a column that is the time of the INSERT has
// several spellings in MySQL and MariaDB.
const columnsQuery = "SELECT LOWER(column_name) AS name, LOWER(data_type) AS type, column_type AS definition, COALESCE(datetime_precision, 0) AS digits," +
	" COALESCE(character_maximum_length, 0) AS length, COALESCE(collation_name, '') AS collation, is_nullable = 'YES' AS nullable," +
	" is_nullable = 'YES' OR column_default IS NOT NULL AS `default`, LOWER(extra) LIKE '%on update%' AS on_update, " +
	"LOWER(extra) LIKE '%auto_increment%' AS numbered," +
	" COALESCE(LOWER(column_default) REGEXP" +
	" '^[(]?(current_timestamp|now|localtime|localtimestamp|utc_timestamp|unix_timestamp)([(][0-9]*[)])?[)]?$', 0) AS default_now," +
	" LOWER(extra) REGEXP 'virtual generated|stored generated|persistent' AS `generated`, LOWER(COALESCE(generation_expression, '')) AS expression," +
	" COALESCE(refers_to, '') AS refers_to FROM information_schema.columns" +
	" LEFT JOIN (SELECT LOWER(column_name) AS referring, MIN(referenced_table_name) AS refers_to FROM information_schema.key_column_usage" + inSchema +
	" AND referenced_table_name IS NOT NULL GROUP BY LOWER(column_name)) AS oc_keys ON referring = LOWER(column_name)" + inSchema

func describeColumns(tx *gorm.DB, args []any) (map[string]mapping.Column, error) {
	var all []struct {
		Name string
		mapping.Column
	}
	err := tx.Raw(columnsQuery, slices.Concat(args, args)...).Scan(&all).Error
	columns := map[string]mapping.Column{}
	for _, c := range all {
		columns[c.Name] = c.Column
	}
	return columns, err
}

// usedIndexes holds conditions on information_schema.statistics that select indexes in use, by
// the column that they need: MySQL has invisible indexes, MariaDB ignored ones.
var usedIndexes = map[string]string{"IS_VISIBLE": " AND is_visible = 'YES'", "IGNORED": " AND ignored = 'NO'"}

// describeIndexes leaves out indexes that the database does not use.
func describeIndexes(tx *gorm.DB, args []any) ([]mapping.Index, error) {
	var of []string
	err := tx.Raw("SELECT UPPER(column_name) FROM information_schema.columns WHERE table_schema = 'information_schema'" +
		" AND table_name = 'STATISTICS'").Scan(&of).Error
	if err != nil {
		return nil, err
	}
	used := ""
	for _, column := range of {
		used += usedIndexes[column]
	}
	var rows []mapping.IndexColumn
	err = tx.Raw("SELECT index_name AS name, non_unique = 0 AS once, CONCAT(LOWER(COALESCE(column_name, '')), "+
		"COALESCE(CONCAT('(', sub_part, ')'), ''), IF(collation = 'D', ' DESC', '')) AS col"+
		" FROM information_schema.statistics"+inSchema+used+" ORDER BY index_name, seq_in_index", args...).Scan(&rows).Error
	return mapping.Indexes(rows), err
}
