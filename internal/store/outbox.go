package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"orderclose"
)

// outboxTables are the tables of the outboxes. All have the columns id, order_id,
// payload and created_at.
var outboxTables = map[orderclose.Outbox]string{
	orderclose.EventOutbox:    "outbox_events",
	orderclose.ScheduleOutbox: "outbox_schedules",
}

// Dispatch hands up to limit rows of an outbox whose ids are above after, lowest first,
// to publish, and deletes those whose ids it returns. Begin with 0: more than that is for
// looking past rows that cannot be published. It returns how many rows there were to hand
// over; publish is not called for none. Rows that another dispatcher has in hand,
// in whatever process, are left out, so that several share the work.
//
// Rows are handed over again until they are deleted. On an error they all may be,
// also those that publish reported. The error wraps orderclose.ErrUnavailable if
// it is the database's.
//
// The rows are locked while publish runs, and a connection is used; publish should
// take seconds at most.
func (s *Store) Dispatch(ctx context.Context, box orderclose.Outbox, after int64, limit int, publish func(ctx context.Context, rows []orderclose.OutboxRow) (done []int64)) (int, error) {
	table, err := tableOf(box)
	if err != nil {
		return 0, err
	}
	d := &dispatch{s: s, box: box, table: table, after: after, limit: limit, publish: publish}
	run := d.locked
	if s.inHand != nil {
		run = d.inHand
	}
	if err := run(ctx); err != nil {
		return d.rows, fmt.Errorf("dispatch %s: %w", table, s.explain(ctx, err))
	}
	return d.rows, nil
}

// dispatch is one call of Dispatch.
type dispatch struct {
	s       *Store
	box     orderclose.Outbox
	table   string
	after   int64
	limit   int
	publish func(ctx context.Context, rows []orderclose.OutboxRow) (done []int64)
	rows    int // that there were
}

// locked does it all in one transaction, whose locks others skip: it selects what
// is there rather than what is beyond an id seen before, since ids are not
// committed in order. It is not tried again when it fails, for publish may have
// published.
func (d *dispatch) locked(ctx context.Context) error {
	db := d.s.gorm.WithContext(ctx)
	// Most looks at a quiet outbox find nothing: they shall cost one statement.
	if any, err := d.any(db); err != nil || !any {
		return err
	}
	return db.Transaction(func(tx *gorm.DB) error {
		rows, err := d.read(tx, d.limit, " FOR UPDATE SKIP LOCKED")
		if d.rows = len(rows); err != nil || len(rows) == 0 {
			return err
		}
		return d.delete(tx, d.publish(ctx, rows))
	}, readCommitted)
}

// inHand is for a database with one writer, where a transaction that waited for
// Kafka would stop every other: what a dispatcher has in hand is remembered by this
// process, and only reading and deleting touch the database. A second process that
// has the database open does not know, and may publish the same rows again.
func (d *dispatch) inHand(ctx context.Context) error {
	var rows []orderclose.OutboxRow
	err := d.s.inHand.with(ctx, func(ids map[int64]bool) error {
		all, err := d.read(d.s.gorm.WithContext(ctx), d.limit+len(ids), "")
		for _, r := range all {
			if len(rows) < d.limit && !ids[r.ID] {
				ids[r.ID] = true
				rows = append(rows, r)
			}
		}
		return err
	})
	if d.rows = len(rows); err != nil || len(rows) == 0 {
		return err
	}
	// Let go of only after they are deleted: nobody reads them in between.
	defer d.s.inHand.with(context.WithoutCancel(ctx), func(ids map[int64]bool) error {
		for _, r := range rows {
			delete(ids, r.ID)
		}
		return nil
	})
	done := d.publish(ctx, rows)
	if len(done) == 0 {
		return nil
	}
	return d.s.transact(ctx, func(tx *gorm.DB) error { return d.delete(tx, done) })
}

func (d *dispatch) any(db *gorm.DB) (bool, error) {
	var ids []int64
	err := db.Raw("SELECT id FROM " + d.table + " LIMIT 1").Scan(&ids).Error
	return len(ids) > 0, err
}

func (d *dispatch) read(db *gorm.DB, limit int, lock string) ([]orderclose.OutboxRow, error) {
	rows, err := db.Raw("SELECT id, order_id, payload FROM "+d.table+" WHERE id > ? ORDER BY id LIMIT ?"+lock, d.after, limit).Rows()
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []orderclose.OutboxRow
	for rows.Next() {
		var r orderclose.OutboxRow
		if err := rows.Scan(&r.ID, &r.OrderID, &r.Payload); err != nil {
			return nil, err
		}
		if d.box == orderclose.EventOutbox {
			r.Payload = WholeEvent(r.OrderID, r.Payload)
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

func (d *dispatch) delete(tx *gorm.DB, ids []int64) error {
	for part := range slices.Chunk(ids, maxIn) {
		args := make([]any, len(part))
		for i, id := range part {
			args[i] = id
		}
		if _, err := execLong(tx, d.s.dialect.deleteByID(d.table, len(part)), args); err != nil {
			return err
		}
	}
	return nil
}

// mysqlDeleteByID looks each row up by its key. Of an IN list a server may make a
// scan, hinted or not, and that waits for the rows that others have locked.
func mysqlDeleteByID(table string, n int) string {
	return "DELETE t FROM (SELECT ? AS id" + strings.Repeat(" UNION ALL SELECT ?", n-1) + ") AS v" +
		" STRAIGHT_JOIN " + table + " AS t FORCE INDEX (PRIMARY) ON t.id = v.id"
}

func sqliteDeleteByID(table string, n int) string {
	return "DELETE FROM " + table + " WHERE id IN (?" + strings.Repeat(", ?", n-1) + ")"
}

// Backlog tells how much waits in an outbox and for how long.
func (s *Store) Backlog(ctx context.Context, box orderclose.Outbox) (orderclose.OutboxBacklog, error) {
	table, err := tableOf(box)
	if err != nil {
		return orderclose.OutboxBacklog{}, err
	}
	b, err := s.backlog(ctx, table)
	if err != nil {
		return b, fmt.Errorf("look at %s: %w", table, s.explain(ctx, err))
	}
	return b, nil
}

// Unpublished reads a page of the rows of orders that are not scheduled yet: up to
// limit rows whose ids are above afterID, lowest first, without their payloads. It
// takes no lock, and rows that a dispatcher has in hand are among them. Begin with
// 0; a page with fewer rows is the last. Rows that are added meanwhile may be
// missed: this is for those that were there when it began.
func (s *Store) Unpublished(ctx context.Context, afterID int64, limit int) ([]orderclose.OutboxRow, error) {
	table := outboxTables[orderclose.ScheduleOutbox]
	var page []orderclose.OutboxRow
	err := eachRow(s.gorm.WithContext(ctx), "SELECT id, order_id FROM "+table+" WHERE id > ? ORDER BY id LIMIT ?", []any{afterID, limit}, func(rows *sql.Rows) error {
		var r orderclose.OutboxRow
		err := rows.Scan(&r.ID, &r.OrderID)
		page = append(page, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", table, s.explain(ctx, err))
	}
	return page, nil
}

func tableOf(box orderclose.Outbox) (string, error) {
	table, ok := outboxTables[box]
	if !ok {
		return "", fmt.Errorf("there is no outbox %q", box)
	}
	return table, nil
}

func (s *Store) backlog(ctx context.Context, table string) (orderclose.OutboxBacklog, error) {
	var b orderclose.OutboxBacklog
	db := s.gorm.WithContext(ctx)
	if err := db.Raw("SELECT COUNT(*) FROM (SELECT 1 FROM "+table+" LIMIT ?) AS counted", orderclose.OutboxCount).Row().Scan(&b.Rows); err != nil {
		return b, err
	}
	rows, err := db.Raw("SELECT created_at, ? FROM "+table+" ORDER BY id LIMIT 1", s.dialect.now()).Rows()
	if err != nil {
		return b, err
	}
	defer func() { _ = rows.Close() }()
	if rows.Next() {
		var created, now time.Time
		if err := rows.Scan(timeInto(&created), timeInto(&now)); err != nil {
			return b, err
		}
		b.Oldest = max(now.Sub(created), 0)
	}
	return b, rows.Err()
}

// inHand are the ids that dispatchers of this process have in hand. Whoever uses it
// waits in a way that a context can end.
type inHand struct {
	turn chan struct{}
	ids  map[int64]bool
}

func newInHand() *inHand { return &inHand{turn: make(chan struct{}, 1), ids: map[int64]bool{}} }

// with lets one caller at a time have the ids.
func (h *inHand) with(ctx context.Context, do func(ids map[int64]bool) error) error {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-h.turn }()
	return do(h.ids)
}
