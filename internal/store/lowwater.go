package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

const (
	// lateCommit is how long a transaction may take from its order's id to its commit. Rows that are younger than that and
	// the longest delay are read again: a cart may become an order until then. A row that is committed later is found
	// by the reading of all rows, which begins every readAllEvery.
	lateCommit   = time.Hour
	readAllEvery = 24 * time.Hour
	// keyRate is how many rows a second are read by the primary key, on average; so many are free.
	keyRate = 1000
	// keyChunk is how many rows a statement reads, and keyReading how long one call reads on. The next call continues.
	keyChunk, keyReading = 10_000, 5 * time.Second
	// keyChecked is how long it is not asked again whether the table has an index.
	keyChecked = 10 * time.Minute
)

// unpaidOrders are the unpaid orders of a table without an index on status and creation, which are found by its growing primary
// key: among the rows with ids above end, and among the orders that were unpaid before.
//
// The table sweeps has the low-water mark, from which a new process begins: no order with this id or a lower one was unpaid when it was read.
type unpaidOrders struct {
	mu        sync.Mutex
	byKey     bool // the primary key is needed
	checked   time.Time
	known     []unpaid // by due time and id
	end, mark int64    // mark is the low-water mark as this process saw it last
	next      time.Time
}

// unpaid is an order that was unpaid when it was read. The zero due time means never. A row without a time of creation,
// which may be a cart, counts as such an order.
type unpaid struct {
	id  int64
	due time.Time
}

func (u unpaid) compare(v unpaid) int { return cmp.Or(u.due.Compare(v.due), cmp.Compare(u.id, v.id)) }

// findsByKey reports whether unpaid orders are found by the primary key. The caller holds unpaid.mu.
func (s *Store) findsByKey(tx *gorm.DB) (bool, error) {
	u := &s.unpaid
	if !s.q.m.ByRule || s.q.single == nil || time.Since(u.checked) < keyChecked {
		return u.byKey, nil
	}
	name, byKey := s.q.single.name, false
	var err error
	if s.dialect.describe == nil {
		err = tx.Raw(s.dialect.Growing, name).Scan(&byKey).Error
	} else {
		var schema mapping.Schema
		if schema, err = s.describe(tx.Statement.Context, name); err == nil {
			byKey = s.q.m.FindsByKey(schema[name])
		}
	}
	if err == nil {
		u.byKey, u.checked = byKey, time.Now()
	}
	return byKey, err
}

// readOpen is readPage for orders with the status Status.From, by the primary key if it is needed.
func (s *Store) readOpen(ctx context.Context, in []*table, p page, each func(o orderclose.Order, last any)) error {
	tx, u := s.gorm.WithContext(ctx), &s.unpaid
	u.mu.Lock()
	byKey, err := s.findsByKey(tx)
	if err == nil && !byKey {
		u.mu.Unlock()
		return s.readPage(tx, in, p, each)
	}
	defer u.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := s.delays(tx); err != nil {
		return err
	}
	if p.after.ID == "" && time.Now().After(u.next) { // the first page of a sweep
		err = s.readUnpaid(tx)
	}
	for known := s.knownPage(p); err == nil && p.limit > 0 && len(known) > 0; known = s.knownPage(p) {
		err = s.eachKnown(tx, known, p, func(o orderclose.Order, last any) { each(o, last); p.limit-- })
		end := known[len(known)-1]
		if p.after = (orderclose.Order{Due: end.due, ID: strconv.FormatInt(end.id, 10)}); p.newest {
			return err
		}
	}
	return err
}

// knownPage returns the known orders of a page, at most maxIn.
func (s *Store) knownPage(p page) (all []unpaid) {
	after := unpaid{due: p.after.Due}
	after.id, _ = s.q.m.ID.After(p.after.ID).(int64)
	for _, k := range s.unpaid.known {
		if !k.due.IsZero() && k.compare(after) > 0 && !k.due.After(p.to) {
			all = append(all, k)
		}
	}
	if p.newest {
		slices.Reverse(all)
	}
	return all[:min(len(all), p.limit, maxIn)]
}

// eachKnown calls each for the known orders that are still unpaid, and due when they were. The others wait for the next reading.
func (s *Store) eachKnown(tx *gorm.DB, known []unpaid, p page, each func(o orderclose.Order, last any)) error {
	type row struct {
		orderclose.Order
		last any
	}
	ids, rows := make([]int64, len(known)), map[int64]row{}
	for i, k := range known {
		ids[i] = k.id
	}
	where := condition{" IN ? AND " + mapping.Quote(s.q.m.Status.Column) + " = ?", append([]any{ids, p.status.Arg()}, p.where.args...)}
	if p.where.sql != "" {
		where.sql += " AND " + p.where.sql
	}
	err := s.readByKey(tx, where, p.last, maxIn, func(id int64, o orderclose.Order, last any) { rows[id] = row{o, last} })
	for _, k := range known {
		if r, ok := rows[k.id]; ok && r.Due.Equal(k.due) {
			each(r.Order, r.last)
		}
	}
	return err
}

// readUnpaid reads the rows that may have changed since the last reading.
func (s *Store) readUnpaid(tx *gorm.DB) error {
	u, began, end, read := &s.unpaid, time.Now(), s.unpaid.end, 0
	var mark, last, longest sql.NullInt64
	var now time.Time
	err := tx.Raw("SELECT (SELECT order_id FROM sweeps WHERE name = ?), (SELECT MAX("+mapping.Quote(s.q.m.ID.Column)+") FROM "+mapping.Quote(s.q.single.name)+"),"+
		" (SELECT MAX(delay_us) FROM order_delays WHERE pipeline = ? AND delay_us <> ?), ?",
		s.markRow(), s.q.pipeline, neverMicros, s.dialect.now()).Row().Scan(&mark, &last, &longest, timeInto(&now))
	switch {
	case err != nil:
		return err
	case last.Int64 < max(end, mark.Int64): // the table was emptied, or is an older copy
		end = 0
	case mark.Int64 > end, mark.Int64 < u.mark: // another process has read more, or has found an order that is unpaid again
		end = mark.Int64
	}
	var ids []int64
	for _, k := range u.known {
		if k.id <= end {
			ids = append(ids, k.id)
		}
	}
	var known []unpaid
	note := func(id int64, o orderclose.Order, open any) {
		if read++; open != nil || o.CreatedAt.IsZero() { //mutant:mark-passes-cart
			known = append(known, unpaid{id, o.Due})
		}
	}
	for some := range slices.Chunk(ids, maxIn) {
		if err := s.readByKey(tx, condition{" IN ?", []any{some}}, s.isOpen(), maxIn, note); err != nil {
			return err
		}
	}
	aged, old := true, now.Add(-lateCommit-time.Duration(longest.Int64)*time.Microsecond)
	all, err := s.readFrom(tx, end, func(id int64, o orderclose.Order, open any) {
		note(id, o, open)
		if aged = aged && !o.CreatedAt.After(old); aged {
			end = id
		}
	})
	if err != nil {
		return err
	}
	if u.next = began; all {
		u.next = began.Add(time.Duration(max(read-keyRate, 0)) * time.Second / keyRate)
	}
	slices.SortFunc(known, unpaid.compare)
	u.known, u.end, u.mark = known, end, mark.Int64
	return nil
}

// readFrom reads the rows with larger ids, and reports whether it came to the last row.
func (s *Store) readFrom(tx *gorm.DB, at int64, each func(id int64, o orderclose.Order, open any)) (all bool, err error) {
	for began := time.Now(); err == nil && !all && time.Since(began) < keyReading; {
		rows := 0
		err = s.readByKey(tx, condition{" > ?", []any{at}}, s.isOpen(), keyChunk, func(id int64, o orderclose.Order, open any) {
			rows, at = rows+1, id
			each(id, o, open)
		})
		all = rows < keyChunk
	}
	return all, err
}

// isOpen writes the expression that is not NULL for an unpaid order.
func (s *Store) isOpen() condition {
	return condition{"CASE WHEN " + mapping.Quote(s.q.m.Status.Column) + " = ? THEN 1 END", []any{s.q.m.Status.From.Arg()}}
}

// readByKey reads rows in the order of the key, for which where says what is compared with the key. The due time of an order that is not
// unpaid is zero.
func (s *Store) readByKey(tx *gorm.DB, where, last condition, limit int, each func(id int64, o orderclose.Order, last any)) error {
	q, key, open, orders := s.q, mapping.Quote(s.q.m.ID.Column), s.isOpen(), s.q.single.name
	query := fmt.Sprintf("SELECT %s, %s, %s, CASE WHEN %s IS NOT NULL THEN %s END, %s FROM %s", key, orElse(q.m.Category, "''"), mapping.Quote(q.m.Due.Column),
		open.sql, q.dueOf(orders), last.sql, mapping.Quote(orders)+q.d.hint(q.m.ID.Index)) + " WHERE " + key + where.sql + " ORDER BY " + key + " LIMIT ?"
	return s.eachOrder(tx, query, append(slices.Concat(open.args, last.args, where.args), limit), func(o orderclose.Order, last any) {
		id, _ := strconv.ParseInt(o.ID, 10, 64) // FindsByKey has checked the type
		each(id, o, last)
	})
}

// markRow is the row of sweeps with the low-water mark, and againRow that with the position of the reading of all rows, and when
// it began. No topic has such names.
func (s *Store) markRow() string  { return s.q.pipeline + "/mark" }
func (s *Store) againRow() string { return s.q.pipeline + "/again" }

// moveMark continues the reading of all rows, and stores the low-water mark.
func (s *Store) moveMark(ctx context.Context) error {
	tx, u := s.gorm.WithContext(ctx), &s.unpaid
	u.mu.Lock()
	defer u.mu.Unlock()
	if byKey, err := s.findsByKey(tx); err != nil || !byKey {
		return err
	}
	began, at, err := s.readAgain(tx)
	if err != nil {
		return err
	}
	u.mark = u.end
	for _, k := range u.known {
		u.mark = min(u.mark, k.id-1) //mutant:mark-passes-unpaid
	}
	return s.transact(ctx, func(tx *gorm.DB) error {
		keep := s.dialect.replace("sweeps", 1, "name", "finished_at", "order_id")
		return cmp.Or(tx.Exec(keep, s.markRow(), s.dialect.now(), u.mark).Error, tx.Exec(keep, s.againRow(), s.dialect.time(began), at).Error)
	})
}

// readAgain continues the reading of all rows, and adds the unpaid orders that it finds to the known ones. It returns where the
// next call continues.
func (s *Store) readAgain(tx *gorm.DB) (began time.Time, at int64, err error) {
	const done = math.MaxInt64
	var from sql.NullInt64
	var now time.Time
	err = tx.Raw("SELECT (SELECT finished_at FROM sweeps WHERE name = ?), (SELECT order_id FROM sweeps WHERE name = ?), ?", s.againRow(), s.againRow(), s.dialect.now()).
		Row().Scan(timeInto(&began), &from, timeInto(&now))
	switch at = from.Int64; {
	case err != nil || !from.Valid: // the first reading is of all rows
		return now, done, err
	case at == done && now.Sub(began) < readAllEvery: //mutant:mark-never-reread
		return began, at, nil
	case at == done:
		began, at = now, 0
	}
	known := s.unpaid.known
	all, err := s.readFrom(tx, at, func(id int64, o orderclose.Order, open any) {
		if at = id; open != nil || o.CreatedAt.IsZero() {
			known = append(known, unpaid{id, o.Due})
		}
	})
	if all {
		at = done
	}
	slices.SortFunc(known, unpaid.compare)
	s.unpaid.known = slices.CompactFunc(known, func(a, b unpaid) bool { return a.compare(b) == 0 })
	return began, at, err
}
