package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/wire"
)

// dialect returns the dialect of SQLite. clock is the current time. SQLite has no row locks: the
// transaction must take the write lock when it begins.
func dialect(clock func() time.Time) db.Dialect {
	return db.Dialect{
		Name:      db.SQLite,
		Times:     mapping.TimeColumn{Type: mapping.UnixMillis},
		Bigint:    "bigint",
		TextSQL:   "CAST(%s AS text)",
		BytesSQL:  "CAST(%s AS text)",
		OneWriter: true,
		Clock:     clock,
		Now:       func() any { return clock().UnixMilli() },
		Millis:    func() any { return clock().UnixMilli() },
		Fault:     fault,
		// Without statistics, SQLite uses the index on status and due for a list of ids.
		Unindexed:    "+",
		ReleaseStock: releaseStock,
		Triggers: func(tables []string) string {
			return "(SELECT COUNT(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ('" + strings.Join(tables, "', '") + "'))"
		},
		HereSQL:  "''",
		HasTable: "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
		Tables:   "SELECT name FROM sqlite_master WHERE type = 'table' AND ? = '' AND name LIKE ?",
		DeleteByID: func(table string) string {
			return "DELETE FROM " + table + " WHERE id IN (SELECT value FROM json_each(?))"
		},
		Dispatch:     newDispatchedRows().dispatch,
		SessionLock:  noLock,
		OnConflict:   db.OnConflict,
		Given:        db.Excluded,
		JSONArray:    "JSON_ARRAY",
		Version:      "SELECT sqlite_version()",
		ReadOnly:     "SELECT 0",
		RowTable:     "''",
		Rows:         db.Values,
		ScannedTable: func(context.Context, *gorm.DB, string) (string, error) { return "", nil },
		Distinct:     db.GroupBy,
		Snapshot:     &sql.TxOptions{},
	}
}

// noLock is db.Dialect.SessionLock: only one process may migrate.
func noLock(ctx context.Context, _ *sql.DB, _ string) (held context.Context, release func(context.Context), err error) {
	return ctx, func(context.Context) {}, nil
}

func releaseStock(s *mapping.Stock, n int) string {
	set, where := db.ReleaseStock(s, "")
	names, row, on := "sku, quantity", "(?, ?)", ""
	if s.Location.Column != "" {
		names, row, on = "sku, location, quantity", "(?, ?, ?)", " AND s."+mapping.Quote(s.Location.Column)+" = v.location"
	}
	return "WITH v (" + names + ") AS (VALUES " + row + strings.Repeat(", "+row, n-1) + ")" +
		" UPDATE " + mapping.Quote(s.Table) + " AS s SET " + set +
		" FROM v WHERE s." + mapping.Quote(s.SKU.Column) + " = v.sku" + on + " AND " + where
}

// dispatchedRows holds the ids of the outbox rows that dispatchers of this process have.
type dispatchedRows struct {
	mutex chan struct{} // guards ids; a channel, so that waiting for it ends with the caller's context
	ids   map[int64]bool
}

func newDispatchedRows() *dispatchedRows {
	return &dispatchedRows{mutex: make(chan struct{}, 1), ids: map[int64]bool{}}
}

// dispatch implements db.Dialect.Dispatch. A transaction that waits for Kafka would block all others.
// This process remembers which rows its dispatchers have, and only reading and deleting use the database. A
// second process with the same database does not know these rows, and may publish them again.
func (r *dispatchedRows) dispatch(ctx context.Context, d db.Dispatching) (int, error) {
	var rows []wire.OutboxRow
	var left bool
	err := r.with(ctx, func(ids map[int64]bool) error {
		all, more, err := d.Read(d.Limit + len(ids))
		left = more
		for _, row := range all {
			if len(rows) < d.Limit && !ids[row.ID] {
				ids[row.ID] = true
				rows = append(rows, row)
			}
		}
		return err
	})
	if err != nil || len(rows) == 0 {
		return len(rows), err
	}
	// Forgotten only after the delete: nobody reads the rows in between.
	defer r.with(context.WithoutCancel(ctx), func(ids map[int64]bool) error {
		for _, row := range rows {
			delete(ids, row.ID)
		}
		return nil
	})
	n := len(rows)
	if left {
		n = d.Limit
	}
	done := d.Publish(rows) //mutant:delete-before-publish
	if len(done) == 0 {
		return n, nil
	}
	return n, d.Delete(done)
}

// with gives one caller at a time access to the ids.
func (r *dispatchedRows) with(ctx context.Context, do func(ids map[int64]bool) error) error {
	select {
	case r.mutex <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.mutex }()
	return do(r.ids)
}
