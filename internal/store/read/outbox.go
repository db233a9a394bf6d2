package read

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/wire"
)

// tableOf returns the table of an outbox. All have the columns id, order_id, payload and created_at.
func tableOf(box wire.Outbox) string { return "outbox_" + string(box) }

// Dispatch passes up to limit rows of an outbox with ids above after, lowest first, to publish,
// and deletes the rows whose ids publish returns. A caller begins with after = 0, and passes a
// larger id to skip rows that cannot be published. Dispatch returns how many rows it read, and
// limit if it passed fewer because they have batchBytes together; for no rows it does not call
// publish. It begins a transaction even if there are no rows, so ask Waiting first. It skips rows
// that another dispatcher has, so several dispatchers share the work. The other dispatcher may be
// in any process; on SQLite, only in this process.
//
// A row is passed again until it is deleted. After an error all rows may be passed again, also rows that publish
// returned.
//
// The rows stay locked, and a connection stays in use, while publish runs; publish should take
// seconds at most.
func (s *Reader) Dispatch(ctx context.Context, box wire.Outbox, after int64, limit int,
	publish func(ctx context.Context, rows []wire.OutboxRow) (done []int64)) (n int, err error) {
	d := &dispatch{s: s, box: box, table: tableOf(box), after: after}
	if s.Dialect.Dispatch == nil {
		n, err = d.withLocks(ctx, limit, publish)
	} else {
		n, err = s.Dialect.Dispatch(ctx, db.Dispatching{
			Limit:   limit,
			Read:    func(limit int) ([]wire.OutboxRow, bool, error) { return d.read(s.Gorm.WithContext(ctx), limit, "") },
			Publish: func(rows []wire.OutboxRow) []int64 { return publish(ctx, rows) },
			Delete: func(ids []int64) error {
				return s.Transact(ctx, func(tx *gorm.DB) error { return d.delete(tx, ids) })
			},
		})
	}
	return n, s.FailedTo(ctx, err, "dispatch %s", d.table)
}

// dispatch is one call of Dispatch.
type dispatch struct {
	s     *Reader
	box   wire.Outbox
	table string
	after int64
}

// withLocks reads, publishes and deletes in one transaction. Other dispatchers skip the rows
// that it locks. after only skips rows that cannot be published and is no cursor: ids are not
// committed in order, so a row with a smaller id may appear later. withLocks is not retried after
// an error, since publish may have published.
func (d *dispatch) withLocks(ctx context.Context, limit int,
	publish func(ctx context.Context, rows []wire.OutboxRow) (done []int64)) (n int, err error) {
	if err := d.s.MayWrite(ctx); err != nil {
		return 0, err
	}
	err = d.s.Gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		rows, left, err := d.read(tx, limit, " FOR UPDATE SKIP LOCKED")
		if n = len(rows); err != nil || len(rows) == 0 {
			return err
		}
		if left {
			n = limit
		}
		return d.delete(tx, publish(ctx, rows))
	}, db.ReadCommitted)
	return n, err
}

const (
	// smallPayload bounds the payloads that are read with the ids, in bytes. Larger ones are read afterwards, as many as fit.
	smallPayload = 4 << 10
	// batchBytes bounds the payloads that are in memory together, in bytes. Everybody who may insert rows of the outbox decides
	// how large they are.
	batchBytes = 4 << 20
)

// read returns rows, lowest id first: as many of the first limit ones as have batchBytes together. left says that it left some of those.
func (d *dispatch) read(tx *gorm.DB, limit int, lock string) (all []wire.OutboxRow, left bool, err error) {
	query := "SELECT id, order_id, created_at, OCTET_LENGTH(payload), CASE WHEN OCTET_LENGTH(payload) <= ? THEN payload END FROM " + d.table +
		" WHERE id > ? ORDER BY id LIMIT ?" + lock
	bytes, large := 0, []any{}
	err = db.EachRow(tx, query, []any{smallPayload, d.after, limit}, func(rows *sql.Rows) error {
		var r wire.OutboxRow
		var size int
		if err := rows.Scan(&r.ID, &r.OrderID, db.TimeInto(&r.Created), &size, &r.Payload); err != nil {
			return err
		}
		if size > wire.MaxRecordBytes {
			r.TooLarge = size
			bytes += wire.MaxDeadValue
		} else {
			bytes += size
		}
		if left || bytes > batchBytes && len(all) > 0 {
			left = true
			return nil
		}
		if size > smallPayload {
			large = append(large, r.ID)
		}
		all = append(all, r)
		return nil
	})
	if err == nil && len(large) > 0 {
		all, err = d.readLarge(tx, all, large)
	}
	if err != nil {
		return nil, false, err // no dispatcher must keep rows that are not published
	}
	for i := range all {
		if r := &all[i]; d.box == wire.EventOutbox && r.TooLarge == 0 {
			r.Payload, r.Traceparent = closetx.ExpandTraced(r.OrderID, r.Payload) //mutant:short-payload-published
		}
	}
	return all, left, nil
}

// readLarge reads the payloads of the rows with the given ids: of one that is too large only the beginning. It leaves out rows
// that another dispatcher has deleted meanwhile.
func (d *dispatch) readLarge(tx *gorm.DB, all []wire.OutboxRow, ids []any) ([]wire.OutboxRow, error) {
	query := "SELECT id, CASE WHEN OCTET_LENGTH(payload) <= ? THEN payload ELSE SUBSTR(payload, 1, ?) END FROM " + d.table +
		" WHERE id IN (?" + strings.Repeat(", ?", len(ids)-1) + ")"
	payloads := map[int64][]byte{}
	err := db.EachRow(tx, query, append([]any{wire.MaxRecordBytes, wire.MaxDeadValue / 4}, ids...), func(rows *sql.Rows) error {
		var id int64
		var payload []byte
		err := rows.Scan(&id, &payload)
		payloads[id] = payload
		return err
	})
	for i := range all {
		if payload, ok := payloads[all[i].ID]; ok {
			all[i].Payload = payload
		}
	}
	return slices.DeleteFunc(all, func(r wire.OutboxRow) bool { return r.Payload == nil }), err
}

// delete deletes rows by their ids.
func (d *dispatch) delete(tx *gorm.DB, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	list, err := json.Marshal(ids)
	if err == nil {
		_, err = db.ExecLong(tx, d.s.Dialect.DeleteByID(d.table), []any{string(list)})
	}
	return err
}

// Waiting reports for each of some outboxes whether it has a row. It is one statement, since most of a quiet outbox's reads
// find none.
func (s *Reader) Waiting(ctx context.Context, boxes ...wire.Outbox) ([]bool, error) {
	var firsts []string
	ids, into := make([]sql.NullInt64, len(boxes)), make([]any, len(boxes))
	for i, box := range boxes {
		// Until PostgreSQL has cleaned up what was deleted, the index has less of it than the table.
		firsts = append(firsts, "(SELECT id FROM "+tableOf(box)+" ORDER BY id LIMIT 1)")
		into[i] = &ids[i]
	}
	err := s.Gorm.WithContext(ctx).Raw("SELECT " + strings.Join(firsts, ", ")).Row().Scan(into...)
	waiting := make([]bool, len(boxes))
	for i, id := range ids {
		waiting[i] = id.Valid
	}
	return waiting, s.FailedTo(ctx, err, "read the outboxes")
}

// Backlog returns how many rows wait in an outbox, counted up to wire.OutboxCount, and the age of the row with the
// smallest id, by the database's clock.
func (s *Reader) Backlog(ctx context.Context, box wire.Outbox) (wire.OutboxBacklog, error) {
	var b wire.OutboxBacklog
	table := tableOf(box)
	query := "SELECT created_at, ?, (SELECT COUNT(*) FROM (SELECT 1 FROM " + table + " LIMIT ?) AS counted) FROM " + table + " ORDER BY id LIMIT 1"
	err := db.EachRow(s.Gorm.WithContext(ctx), query, []any{s.Dialect.Now(), wire.OutboxCount}, func(rows *sql.Rows) error {
		var created, now time.Time
		err := rows.Scan(db.TimeInto(&created), db.TimeInto(&now), &b.Rows)
		b.Oldest = max(now.Sub(created), 0)
		return err
	})
	return b, s.FailedTo(ctx, err, "read %s", table)
}

// dropPage is how many rows DropOutbox looks at in one transaction.
const dropPage = 1000

// DropOutbox deletes the rows of an outbox that are older than keep, by the database's clock, and returns how many.
// It is for a database whose outboxes nobody dispatches.
func (s *Reader) DropOutbox(ctx context.Context, box wire.Outbox, keep time.Duration) (all int64, err error) {
	table := tableOf(box)
	for dropped := int64(dropPage); dropped == dropPage && err == nil; {
		dropped = 0
		err = s.Transact(ctx, func(tx *gorm.DB) error {
			var last sql.NullInt64
			if err := tx.Raw("SELECT MAX(id) FROM (SELECT id FROM "+table+" ORDER BY id LIMIT ?) AS oldest", dropPage).Row().Scan(&last); err != nil {
				return err
			}
			now, err := s.NowIn(tx)
			if err != nil {
				return err
			}
			res := tx.Exec("DELETE FROM "+table+" WHERE id <= ? AND created_at < ?", last, s.Dialect.Time(now.Add(-keep)))
			dropped = res.RowsAffected
			return res.Error
		})
		all += dropped
	}
	return all, s.FailedTo(ctx, err, "delete old rows of %s", table)
}

// Tx is a transaction of InTx. Arguments of its statements are ?, and names may be in backquotes, on each database.
type Tx struct {
	*sql.Tx
	s    *Reader
	gorm *gorm.DB
}

// InTx runs fn in a transaction at READ COMMITTED, for the webhook. It runs fn again if the transaction lost a deadlock
// or a lock wait, so fn must not keep state between runs. The errors are those of the other methods.
func (s *Reader) InTx(ctx context.Context, fn func(tx Tx) error) error {
	return s.FailedTo(ctx, s.Transact(ctx, func(tx *gorm.DB) error { return fn(Tx{tx.Statement.ConnPool.(*sql.Tx), s, tx}) }), "transaction")
}

// Now returns the time of the database's clock.
func (t Tx) Now() (time.Time, error) { return t.s.NowIn(t.gorm) }

// ForUpdate returns the end of a SELECT that locks its rows; "" on SQLite, which has one transaction at a time.
func (t Tx) ForUpdate() string { return t.s.Dialect.ForUpdate }

// TakeEvents passes up to limit rows of outbox_events, lowest ids first, to keep, and deletes them. more says that the table may have more
// rows. others is how many rows it left because another program has locked or deleted them meanwhile: a second reader of the table.
func (t Tx) TakeEvents(limit int, keep func(rows []wire.OutboxRow) error) (n int, more bool, others int, err error) {
	d := &dispatch{s: t.s, box: wire.EventOutbox, table: tableOf(wire.EventOutbox)}
	seen, err := db.RowsOf(db.Own(t.gorm), "SELECT id FROM "+d.table+" ORDER BY id LIMIT ?", []any{limit}, func(id *int64) []any { return []any{id} })
	if err != nil || len(seen) == 0 {
		return 0, false, 0, err
	}
	rows, left, err := d.read(t.gorm, limit, t.s.Dialect.SkipLocked)
	if err == nil && len(rows) > 0 {
		err = keep(rows)
	}
	if err != nil || len(rows) == 0 {
		return 0, false, 0, err
	}
	taken := map[int64]bool{}
	ids := make([]int64, len(rows))
	for i, row := range rows {
		taken[row.ID], ids[i] = true, row.ID
	}
	for _, id := range seen { // rows that became visible since may have taken the place of the last ones
		if !taken[id] && (len(rows) < limit && !left || id < ids[len(ids)-1]) {
			others++
		}
	}
	return len(rows), left || len(rows) == limit, others, d.delete(t.gorm, ids)
}
