package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

const (
	// lateCommit is how long a transaction may take from its order's id to its commit. Rows of younger orders are read
	// again. A row that is committed later is found by the reading of all rows.
	lateCommit = time.Hour
	// readAllEvery is the time between two readings of all rows, which find orders that are unpaid again.
	readAllEvery = 24 * time.Hour
	// keyRate is how many rows a second are read by the primary key, on average. The first keyRate rows are free.
	keyRate = 1000
	// keyChunk is how many rows one statement reads, and keyReading how long one call reads. The next call continues.
	keyChunk   = 10_000
	keyReading = 5 * time.Second
	// maxKnown is how many unpaid orders are kept in memory. Those with larger ids are read when some of them have ended.
	maxKnown = 1_000_000
	// keyChecked is how long the answer is valid whether a table has the index.
	keyChecked = 10 * time.Minute
)

// unpaidOrders are the unpaid orders of a table without an index on status and creation, which are found by its primary key. It
// reads the rows with new ids, those of young orders, and those of orders that were unpaid before.
//
// Each process keeps them in memory. The table sweeps has the low-water mark, from which a process begins: no order with
// such an id or a lower one was unpaid when it was read.
type unpaidOrders struct {
	mu      sync.Mutex
	byKey   bool      // the primary key serves, and no index
	checked time.Time // when byKey was found out
	end     int64     // the rows up to this id are not young, and were read
	known   []unpaid  // by due time and id
	mark    int64     // as the table sweeps had it
	next    time.Time // nothing is read before
}

// unpaid is an order that was unpaid when it was read last. A postponement may have changed its due time since.
type unpaid struct {
	id  int64
	due time.Time // zero: never
}

func (u unpaid) compare(v unpaid) int {
	return cmp.Or(u.due.Compare(v.due), cmp.Compare(u.id, v.id))
}

// readOpen reads a page of orders with the status Status.From, as readPage does. It begins with the search by the primary key if
// the table needs it.
func (s *Store) readOpen(ctx context.Context, in []*table, p page, each func(o orderclose.Order, last any)) error {
	tx := s.gorm.WithContext(ctx)
	s.unpaid.mu.Lock()
	defer s.unpaid.mu.Unlock()
	byKey, err := s.findsByKey(tx)
	if err == nil && byKey {
		if _, err = s.delays(tx); err == nil {
			err = s.readUnpaid(tx, in[0])
		}
	}
	switch {
	case err != nil:
		return err
	case !byKey:
		return s.readPage(tx, in, p, each)
	}
	return s.knownPage(tx, in[0], p, each)
}

// findsByKey reports whether the orders are found by the primary key. The caller holds unpaid.mu.
func (s *Store) findsByKey(tx *gorm.DB) (bool, error) {
	u := &s.unpaid
	if !s.q.m.ByRule || s.q.single == nil || s.dialect.describe == nil || time.Since(u.checked) < keyChecked {
		return u.byKey, nil
	}
	name := s.q.single.name
	schema, err := s.describe(tx.Statement.Context, name)
	if err == nil {
		u.byKey, u.checked = s.q.m.FindsByKey(schema[name]), time.Now()
	}
	return u.byKey, err
}

// knownPage reads a page of the known orders. Their rows say whether they are still unpaid. If a row has another due time, the page begins
// anew in the new order.
func (s *Store) knownPage(tx *gorm.DB, t *table, p page, each func(o orderclose.Order, last any)) error {
	type row struct {
		o    orderclose.Order
		last any
	}
	for p.limit > 0 {
		known := s.unpaid.page(p)
		ids, rows, moved := make([]int64, len(known)), make([]*row, len(known)), false
		for i, k := range known {
			ids[i] = k.id
		}
		if len(known) == 0 {
			return nil
		}
		where := condition{" IN ? AND " + mapping.Quote(s.q.m.Status.Column) + " = ?" + andOf(p.where), append([]any{ids, p.status.Arg()}, p.where.args...)}
		err := s.readByKey(tx, t, where, p.last, maxIn, func(id int64, o orderclose.Order, last any) {
			i := slices.Index(ids, id)
			if !known[i].due.Equal(o.Due) {
				known[i].due, moved = o.Due, true
			}
			rows[i] = &row{o, last}
		})
		if err != nil {
			return err
		}
		if moved {
			slices.SortFunc(s.unpaid.known, unpaid.compare)
			continue
		}
		end := known[len(known)-1]
		if p.newest {
			slices.Reverse(rows)
		}
		for _, r := range rows {
			if r != nil {
				each(r.o, r.last)
				p.limit--
			}
		}
		if p.newest {
			return nil
		}
		p.after = orderclose.Order{Due: end.due, ID: strconv.FormatInt(end.id, 10)}
	}
	return nil
}

func andOf(c condition) string {
	if c.sql == "" {
		return ""
	}
	return " AND " + c.sql
}

// page returns the known orders of a page, at most maxIn, and without those that are never due.
func (u *unpaidOrders) page(p page) []unpaid {
	from, _ := slices.BinarySearchFunc(u.known, p.after, func(k unpaid, after orderclose.Order) int {
		last, err := strconv.ParseInt(after.ID, 10, 64)
		if err != nil {
			return cmp.Or(k.due.Compare(after.Due), 1) // all orders that are due then
		}
		return cmp.Or(k.compare(unpaid{last, after.Due}), -1)
	})
	to, _ := slices.BinarySearchFunc(u.known, p.to, func(k unpaid, to time.Time) int { return cmp.Or(k.due.Compare(to), -1) })
	never, _ := slices.BinarySearchFunc(u.known, time.Time{}, func(k unpaid, to time.Time) int { return cmp.Or(k.due.Compare(to), -1) })
	from = max(from, never)
	n := min(p.limit, maxIn, max(to-from, 0))
	if p.newest {
		return u.known[to-n : to]
	}
	return u.known[from : from+n]
}

// readUnpaid reads the rows that may have changed since the last call, unless it was too short ago. After an error it has changed nothing.
func (s *Store) readUnpaid(tx *gorm.DB, t *table) error {
	u, began := &s.unpaid, time.Now()
	if began.Before(u.next) {
		return nil
	}
	var mark, last sql.NullInt64
	var now time.Time
	id := mapping.Quote(s.q.m.ID.Column)
	err := tx.Raw("SELECT (SELECT order_id FROM sweeps WHERE name = ?), (SELECT MAX("+id+") FROM "+mapping.Quote(t.name)+"), ?", lowWater(s.q.pipeline), s.dialect.now()).
		Row().Scan(&mark, &last, timeInto(&now))
	if err != nil {
		return err
	}
	end, read, known := u.end, 0, []unpaid{}
	switch {
	case last.Int64 < max(end, mark.Int64): // the table was emptied, or has a copy of earlier rows
		end = 0
	case mark.Int64 > end, mark.Int64 < u.mark: // another process has read more, or has found an order that is unpaid again
		end = mark.Int64
	}
	note := func(id int64, o orderclose.Order, open any) {
		if read++; open != nil {
			known = append(known, unpaid{id, o.Due})
		}
	}
	var ids []int64
	for _, k := range u.known {
		if k.id <= end {
			ids = append(ids, k.id)
		}
	}
	for some := range slices.Chunk(ids, maxIn) {
		if err := s.readByKey(tx, t, condition{" IN ?", []any{some}}, s.isOpen(), maxIn, note); err != nil {
			return err
		}
	}
	at, aged, more := end, true, true
	for more && len(known) < maxKnown && time.Since(began) < keyReading {
		before := read
		err := s.readByKey(tx, t, condition{" > ?", []any{at}}, s.isOpen(), keyChunk, func(id int64, o orderclose.Order, open any) {
			note(id, o, open)
			at = id
			if aged = aged && !o.CreatedAt.After(now.Add(-lateCommit)); aged {
				end = id
			}
		})
		if err != nil {
			return err
		}
		more = read-before == keyChunk
	}
	slices.SortFunc(known, unpaid.compare)
	u.known, u.end, u.mark, u.next = known, end, mark.Int64, began
	if !more || len(known) >= maxKnown {
		u.next = began.Add(time.Duration(max(read-keyRate, 0)) * time.Second / keyRate)
	}
	return nil
}

// isOpen writes the expression that is not NULL for an order with the status Status.From.
func (s *Store) isOpen() condition {
	return condition{"CASE WHEN " + mapping.Quote(s.q.m.Status.Column) + " = ? THEN 1 END", []any{s.q.m.Status.From.Arg()}}
}

// readByKey reads rows in the order of the primary key, after which where is written. The due time of an order that is not unpaid, or
// never due, is zero.
func (s *Store) readByKey(tx *gorm.DB, t *table, where, last condition, limit int, each func(id int64, o orderclose.Order, last any)) error {
	q, key, open := s.q, mapping.Quote(s.q.m.ID.Column), s.isOpen()
	query := fmt.Sprintf("SELECT %s, %s, %s, CASE WHEN %s IS NOT NULL THEN %s END, %s FROM %s%s WHERE %[1]s%[9]s ORDER BY %[1]s LIMIT ?",
		key, orElse(q.m.Category, "''"), mapping.Quote(q.m.Due.Column), open.sql, q.dueOf(t.name), last.sql, mapping.Quote(t.name), q.d.hint(q.m.ID.Index), where.sql)
	return s.eachOrder(tx, query, append(slices.Concat(open.args, last.args, where.args), limit), func(o orderclose.Order, last any) {
		id, _ := strconv.ParseInt(o.ID, 10, 64) // FindsByKey has checked the type
		each(id, o, last)
	})
}

// lowWater is the row of sweeps for the low-water mark, and wholeReading that for the position of the reading of all rows, with the time
// when that began. No topic has such names.
func lowWater(pipeline string) string     { return pipeline + "/mark" }
func wholeReading(pipeline string) string { return pipeline + "/all" }

// moveMark stores the low-water mark after a sweep. It also reads some of the rows up to the mark again.
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
	mark := u.end
	for _, k := range u.known {
		mark = min(mark, k.id-1)
	}
	u.mark = mark
	return s.transact(ctx, func(tx *gorm.DB) error {
		d := s.dialect
		err := tx.Exec(d.replace("sweeps", 1, "name", "finished_at", "order_id"), lowWater(s.q.pipeline), d.now(), mark).Error
		return cmp.Or(err, tx.Exec(d.replace("sweeps", 1, "name", "finished_at", "order_id"), wholeReading(s.q.pipeline), d.time(began), at).Error)
	})
}

// readAgain continues the reading of all rows, and adds the unpaid orders that it finds to the known ones. It returns when this reading
// began, and up to which id it has read.
func (s *Store) readAgain(tx *gorm.DB) (began time.Time, at int64, err error) {
	u, start := &s.unpaid, time.Now()
	var from sql.NullInt64
	var moved, now time.Time
	err = tx.Raw("SELECT (SELECT finished_at FROM sweeps WHERE name = ?), (SELECT order_id FROM sweeps WHERE name = ?), (SELECT finished_at FROM sweeps WHERE name = ?), ?",
		wholeReading(s.q.pipeline), wholeReading(s.q.pipeline), lowWater(s.q.pipeline), s.dialect.now()).Row().Scan(timeInto(&began), &from, timeInto(&moved), timeInto(&now))
	if at = min(from.Int64, u.end); !from.Valid {
		return now, u.end, err // the first sweep has read all rows
	}
	known := map[int64]bool{}
	for _, k := range u.known {
		known[k.id] = true
	}
	for left := int(now.Sub(moved).Seconds() * keyRate); err == nil && at < u.end && left > 0 && time.Since(start) < keyReading; {
		err = s.readByKey(tx, s.q.single, condition{" > ?", []any{at}}, s.isOpen(), min(left, keyChunk), func(id int64, o orderclose.Order, open any) {
			if left--; id <= u.end && open != nil && !known[id] {
				u.known = append(u.known, unpaid{id, o.Due})
			}
			at = id
		})
	}
	slices.SortFunc(u.known, unpaid.compare)
	if at >= u.end && now.Sub(began) >= readAllEvery {
		began, at = now, 0
	}
	return began, min(at, u.end), err
}
