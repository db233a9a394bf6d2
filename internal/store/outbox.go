package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/wire"
)

// tableOf returns the table of an outbox. All have the columns id, order_id, payload and created_at.
func tableOf(box wire.Outbox) string { return "outbox_" + string(box) }

// Dispatch passes up to limit rows of an outbox with ids above after, lowest first, to publish,
// and deletes the rows whose ids publish returns. A caller begins with after = 0, and passes a
// larger id to skip rows that cannot be published. Dispatch returns how many rows it read; for
// no rows it does not call publish. It begins a transaction even if there are no rows, so ask Waiting first. It skips
// rows that another dispatcher has, so several dispatchers share the work. The other dispatcher may be in any process;
// on SQLite, only in this process.
//
// A row is passed again until it is deleted. After an error all rows may be passed again, also rows that publish
// returned.
//
// The rows stay locked, and a connection stays in use, while publish runs; publish should take
// seconds at most.
func (s *Store) Dispatch(ctx context.Context, box wire.Outbox, after int64, limit int,
	publish func(ctx context.Context, rows []wire.OutboxRow) (done []int64)) (n int, err error) {
	d := &dispatch{s: s, box: box, table: tableOf(box), after: after}
	publishing := func(rows []wire.OutboxRow) []int64 { return publish(ctx, rows) }
	if s.dialect.Dispatch == nil {
		n, err = d.withLocks(ctx, limit, publishing)
	} else { // the dialect knows which rows other dispatchers have
		n, err = s.dialect.Dispatch(ctx, Dispatching{
			Limit:   limit,
			Read:    func(limit int) ([]wire.OutboxRow, error) { return d.read(s.gorm.WithContext(ctx), limit, "") },
			Publish: publishing,
			Delete: func(ids []int64) error {
				return s.transact(ctx, func(tx *gorm.DB) error { return d.delete(tx, ids) })
			},
		})
	}
	return n, s.failed(ctx, err, "dispatch %s", d.table)
}

// dispatch is one call of Dispatch.
type dispatch struct {
	s     *Store
	box   wire.Outbox
	table string
	after int64
}

// withLocks reads, publishes and deletes in one transaction. Other dispatchers skip the rows
// that it locks. after only skips rows that cannot be published and is no cursor: ids are not
// committed in order, so a row with a smaller id may appear later. withLocks is not retried after
// an error, since publish may have published.
func (d *dispatch) withLocks(ctx context.Context, limit int, publish func(rows []wire.OutboxRow) (done []int64)) (n int, err error) {
	err = d.s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		rows, err := d.read(tx, limit, " FOR UPDATE SKIP LOCKED")
		if n = len(rows); err != nil || len(rows) == 0 {
			return err
		}
		return d.delete(tx, publish(rows))
	}, readCommitted)
	return n, err
}

// TakeEvents deletes up to limit rows of outbox_events, lowest ids first, and returns them. others is how many rows it left because
// another program has locked or deleted them meanwhile: a second reader of the table.
func (t Tx) TakeEvents(limit int) (rows []wire.OutboxRow, others int, err error) {
	d := &dispatch{s: t.s, box: wire.EventOutbox, table: tableOf(wire.EventOutbox)}
	seen, err := rowsOf(own(t.gorm), "SELECT id FROM "+d.table+" ORDER BY id LIMIT ?", []any{limit}, func(id *int64) []any { return []any{id} })
	if err != nil || len(seen) == 0 {
		return nil, 0, err
	}
	if rows, err = d.read(t.gorm, limit, t.s.dialect.skipLocked); err != nil {
		return nil, 0, err
	}
	taken := map[int64]bool{}
	ids := make([]int64, len(rows))
	for i, row := range rows {
		taken[row.ID], ids[i] = true, row.ID
	}
	for _, id := range seen { // rows that became visible since may have taken the place of the last ones
		if !taken[id] && (len(rows) < limit || id < ids[len(ids)-1]) {
			others++
		}
	}
	return rows, others, d.delete(t.gorm, ids)
}

// Dispatching is one call of Dispatch, on a database without row locks.
type Dispatching struct {
	Limit   int // how many rows Publish gets at most
	Read    func(limit int) ([]wire.OutboxRow, error)
	Publish func(rows []wire.OutboxRow) (done []int64)
	Delete  func(ids []int64) error
}

func (d *dispatch) read(db *gorm.DB, limit int, lock string) ([]wire.OutboxRow, error) {
	query := "SELECT id, order_id, payload FROM " + d.table + " WHERE id > ? ORDER BY id LIMIT ?" + lock
	var all []wire.OutboxRow
	err := eachRow(db, query, []any{d.after, limit}, func(rows *sql.Rows) error {
		var r wire.OutboxRow
		err := rows.Scan(&r.ID, &r.OrderID, &r.Payload)
		if err == nil && d.box == wire.EventOutbox {
			r.Payload, r.Traceparent = expandEvent(r.OrderID, r.Payload) //mutant:short-payload-published
		}
		all = append(all, r)
		return err
	})
	if err != nil {
		return nil, err // no dispatcher must keep rows that are not published
	}
	return all, nil
}

// delete deletes rows by their ids.
func (d *dispatch) delete(tx *gorm.DB, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	list, err := json.Marshal(ids)
	if err == nil {
		_, err = execLong(tx, d.s.dialect.DeleteByID(d.table), []any{string(list)})
	}
	return err
}

// deleteByID deletes each row by its key. For an IN list or a range a server may scan the table,
// even with a hint, and the scan waits for rows that other transactions locked. The ids are in one
// text, because a server spends longer on parsing a list of a thousand than on deleting the rows.
func deleteByID(table string) string {
	return "DELETE t FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS v" +
		" STRAIGHT_JOIN " + table + " AS t FORCE INDEX (PRIMARY) ON t.id = v.id"
}

// Waiting reports for each of some outboxes whether it has a row. It is one statement, since most of a quiet outbox's reads
// find none.
func (s *Store) Waiting(ctx context.Context, boxes ...wire.Outbox) ([]bool, error) {
	var firsts []string
	ids, into := make([]sql.NullInt64, len(boxes)), make([]any, len(boxes))
	for i, box := range boxes {
		// Until PostgreSQL has cleaned up what was deleted, the index has less of it than the table.
		firsts = append(firsts, "(SELECT id FROM "+tableOf(box)+" ORDER BY id LIMIT 1)")
		into[i] = &ids[i]
	}
	err := s.gorm.WithContext(ctx).Raw("SELECT " + strings.Join(firsts, ", ")).Row().Scan(into...)
	waiting := make([]bool, len(boxes))
	for i, id := range ids {
		waiting[i] = id.Valid
	}
	return waiting, s.failed(ctx, err, "read the outboxes")
}

// Backlog returns how many rows wait in an outbox, counted up to wire.OutboxCount, and the age of the row with the
// smallest id, by the database's clock.
func (s *Store) Backlog(ctx context.Context, box wire.Outbox) (wire.OutboxBacklog, error) {
	var b wire.OutboxBacklog
	table := tableOf(box)
	query := "SELECT created_at, ?, (SELECT COUNT(*) FROM (SELECT 1 FROM " + table + " LIMIT ?) AS counted) FROM " + table + " ORDER BY id LIMIT 1"
	err := eachRow(s.gorm.WithContext(ctx), query, []any{s.dialect.now(), wire.OutboxCount}, func(rows *sql.Rows) error {
		var created, now time.Time
		err := rows.Scan(timeInto(&created), timeInto(&now), &b.Rows)
		b.Oldest = max(now.Sub(created), 0)
		return err
	})
	return b, s.failed(ctx, err, "read %s", table)
}

// dropPage is how many rows DropOutbox looks at in one transaction.
const dropPage = 1000

// DropOutbox deletes the rows of an outbox that are older than keep, by the database's clock, and returns how many.
// It is for a database whose outboxes nobody dispatches.
func (s *Store) DropOutbox(ctx context.Context, box wire.Outbox, keep time.Duration) (all int64, err error) {
	table := tableOf(box)
	for dropped := int64(dropPage); dropped == dropPage && err == nil; {
		dropped = 0
		err = s.transact(ctx, func(tx *gorm.DB) error {
			var last sql.NullInt64
			if err := tx.Raw("SELECT MAX(id) FROM (SELECT id FROM "+table+" ORDER BY id LIMIT ?) AS oldest", dropPage).Row().Scan(&last); err != nil {
				return err
			}
			now, err := s.now(tx)
			if err != nil {
				return err
			}
			res := tx.Exec("DELETE FROM "+table+" WHERE id <= ? AND created_at < ?", last, s.dialect.time(now.Add(-keep)))
			dropped = res.RowsAffected
			return res.Error
		})
		all += dropped
	}
	return all, s.failed(ctx, err, "delete old rows of %s", table)
}
