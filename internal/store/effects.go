package store

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// word matches what may be a name in SQL.
var word = regexp.MustCompile(`[\pL\pN_$]+`)

// rollsBack reports an error that wraps ErrNoTrial if a rollback may not undo everything that a close changes. It
// looks at the tables that a close writes, at their triggers, and at each table and routine whose name occurs in
// the code of these triggers, and so on. So it may name a table that no trigger writes.
func (s *Store) rollsBack(ctx context.Context) error {
	names, err := s.orderTables(ctx)
	names = append(names, "receipts", "outbox_events")
	for _, stock := range s.q.m.Stock {
		names = append(names, stock.Table)
	}
	for _, statement := range s.q.m.OnClose {
		table, _, _ := mapping.OnCloseTable(statement)
		names = append(names, table)
	}
	var known []string
	for code := names; err == nil; {
		before := len(known)
		for _, text := range code {
			for _, w := range word.FindAllString(text, -1) {
				known = append(known, w, strings.ToLower(w))
			}
		}
		slices.Sort(known)
		if known = slices.Compact(known); len(known) == before {
			return nil
		}
		var lasting []string
		if code, lasting, err = s.dialect.effects(s.gorm.WithContext(ctx), known); len(lasting) > 0 {
			return fmt.Errorf("%w: a rollback may not undo it, because %s", ErrNoTrial, strings.Join(lasting, ", "))
		}
	}
	return s.failed(ctx, err, readDefinitions)
}

// amongNames limits a query of information_schema to objects of the connection's database, and of databases that
// are named themselves. Its arguments are the names, twice.
const amongNames = "(%[1]s_schema = DATABASE() OR %[1]s_schema IN ?) AND %[1]s_schema NOT IN ('information_schema', 'mysql', " +
	"'performance_schema', 'sys') AND %[1]s_name IN ?"

// effects is Dialect.effects of MySQL and MariaDB.
func effects(tx *gorm.DB, names []string) (code, lasting []string, err error) {
	type object struct{ schema, name, is string }
	read := func(o *object) []any { return []any{&o.schema, &o.name, &o.is} }
	tables, err := readAll(tx,
		"SELECT table_schema, table_name, COALESCE(engine, '') FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND "+fmt.Sprintf(amongNames, "table"),
		[]any{names, names}, read)
	for _, t := range tables {
		if !strings.EqualFold(t.is, "InnoDB") {
			lasting = append(lasting, fmt.Sprintf("table %s has the engine %s", t.name, t.is))
		}
		var bodies []string
		unread := false
		if err == nil {
			err = tx.Raw("SELECT COALESCE(action_statement, '') FROM information_schema.triggers WHERE event_object_schema = ? AND event_object_table = ?",
				t.schema, t.name).Scan(&bodies).Error
		}
		if err == nil && len(bodies) == 0 {
			err = tx.Raw(triggersUnread, t.schema, t.schema, t.name).Row().Scan(&unread)
		}
		if unread || slices.Contains(bodies, "") {
			lasting = append(lasting, "the triggers of "+t.name+" could not be read")
		}
		code = append(code, bodies...)
	}
	if err != nil {
		return nil, nil, err
	}
	routines, err := readAll(tx,
		"SELECT routine_schema, routine_name, COALESCE(routine_definition, '') FROM information_schema.routines WHERE "+fmt.Sprintf(amongNames, "routine"),
		[]any{names, names}, read)
	for _, r := range routines {
		if code = append(code, r.is); r.is == "" {
			lasting = append(lasting, "the routine "+r.name+" could not be read")
		}
	}
	return code, lasting, err
}
