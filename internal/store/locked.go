package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

const (
	// lockMemory is how long a lock is remembered. Meanwhile, a batch with that order or SKU
	// checks for the lock before it waits for the row.
	lockMemory = time.Minute
	// maxLockedKeys bounds the number of locks that are remembered.
	maxLockedKeys = 10_000
)

// errRowLocked is the error of a Contended order that was left out of a batch.
var errRowLocked = fmt.Errorf("%w: another transaction locks the order's row, one of its lines, or the row of one of its SKUs", orderclose.ErrContended)

// lockedKeys remembers orders, or SKUs, whose rows another transaction recently locked. Without
// it, one transaction that hangs would cost each batch with such an order a lock wait, and
// another wait for each half of the batch. Safe for concurrent use.
type lockedKeys struct {
	mu    sync.Mutex
	until map[string]time.Time
	last  time.Time // the latest time in until
}

// any reports whether a lock is remembered.
func (k *lockedKeys) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !time.Now().Before(k.last) {
		clear(k.until)
	}
	return len(k.until) > 0
}

// of returns the ids whose lock is remembered.
func (k *lockedKeys) of(ids []string) (known []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.until) == 0 {
		return nil
	}
	now := time.Now()
	for _, id := range ids {
		until, ok := k.until[id]
		switch {
		case ok && now.Before(until):
			known = append(known, id)
		case ok:
			delete(k.until, id)
		}
	}
	return known
}

// note remembers the ids that are locked, and forgets the other ids. If there would be more than
// maxLockedKeys locks, it first forgets all of them: then later batches wait for a locked row
// once more.
func (k *lockedKeys) note(ids []string, are map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.until == nil || len(k.until)+len(are) > maxLockedKeys {
		k.until = map[string]time.Time{}
	}
	for _, id := range ids {
		if delete(k.until, id); are[id] {
			k.last = time.Now().Add(lockMemory)
			k.until[id] = k.last
		}
	}
}

// lookup finds orders of a table that cannot be closed without a lock wait, and adds them to found.
type lookup struct {
	isolation *sql.TxOptions
	find      func(tx *gorm.DB, t *table, ids []string, found map[string]bool) error
}

// lockedLineLookups look for locked lines twice: a read of committed rows does not see a new line of an
// open transaction, and a read of uncommitted rows does not see a deleted line.
func (s *Store) lockedLineLookups() []lookup {
	return []lookup{{readCommitted, s.ordersWithLockedLine}, {readUncommitted, s.ordersWithLockedLine}}
}

// stillLocked returns the orders whose remembered lock, on the order, a line or one of its SKUs,
// still exists. It waits for no lock. If a query fails, it returns no order.
func (s *Store) stillLocked(ctx context.Context, ids []string, where candidates) map[string]bool {
	still := map[string]bool{}
	if known := s.lockedOrders.of(ids); len(known) > 0 {
		maps.Copy(still, s.findLocked(ctx, known, where, lookup{readCommitted, s.ordersWithLockedRow}))
	}
	if known := s.lockedLines.of(ids); len(known) > 0 {
		for _, l := range s.lockedLineLookups() {
			maps.Copy(still, s.findLocked(ctx, known, where, l))
		}
	}
	if s.lockedSKUs.any() {
		maps.Copy(still, s.findLocked(ctx, ids, where, lookup{readCommitted, s.ordersWithKnownLockedSKU}))
	}
	return still
}

// findLocked returns the orders that l finds. It waits for no lock. If a query fails, it returns
// no order.
//
// The row of a SKU that many orders have is often locked for a moment, which is no reason to
// leave orders out. So all SKUs of a batch are checked only after a lock wait timed out. Later
// batches check only the SKUs that were locked then.
func (s *Store) findLocked(ctx context.Context, ids []string, where candidates, l lookup) map[string]bool {
	if s.dialect.oneWriter {
		return nil // this database locks no rows
	}
	found := map[string]bool{}
	err := s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		for _, t := range where.all {
			for part := range slices.Chunk(ids, maxIn) {
				if err := l.find(tx, t, part, found); err != nil {
					return err
				}
			}
		}
		return nil
	}, l.isolation)
	if err != nil {
		return nil
	}
	return found
}

// ordersWithLockedRow adds the orders of a table whose rows are locked, and remembers their locks.
func (s *Store) ordersWithLockedRow(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
	rows, err := s.lockedByOthers(tx, t.name, s.q.m.ID, s.q.args(ids))
	if err != nil {
		return err
	}
	for _, id := range ids {
		if rows[id] {
			found[id] = true
		}
	}
	s.lockedOrders.note(ids, found)
	return nil
}

// ordersWithLockedLine adds the orders of a table with a line that is locked, and remembers their
// locks.
func (s *Store) ordersWithLockedLine(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
	if t.lines == "" {
		return nil
	}
	free := map[string]int{} // by order: lines that are not locked, less all lines
	for lock, n := range map[string]int{"": -1, s.dialect.lock + " SKIP LOCKED": 1} {
		err := eachRow(tx, t.lines+lock, []any{s.q.args(ids)}, func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(&id, new(any), new(any))
			free[id] += n
			return err
		})
		if err != nil {
			return err
		}
	}
	var locked []string
	for _, id := range ids {
		if free[id] < 0 {
			found[id] = true
			locked = append(locked, id)
		}
	}
	s.lockedLines.note(locked, found)
	return nil
}

// ordersWithLockedSKU adds the orders of a table with a SKU whose row is locked.
func (s *Store) ordersWithLockedSKU(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
	return s.ordersByLockedSKU(tx, t, ids, found, func(skus []string) []string { return skus })
}

// ordersWithKnownLockedSKU does the same, but checks only the SKUs whose lock is remembered.
func (s *Store) ordersWithKnownLockedSKU(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
	return s.ordersByLockedSKU(tx, t, ids, found, s.lockedSKUs.of)
}

// ordersByLockedSKU adds the orders of a table with a SKU whose row is locked, and remembers these
// locks. It checks the SKUs that asked returns.
func (s *Store) ordersByLockedSKU(tx *gorm.DB, t *table, ids []string, found map[string]bool, asked func(skus []string) []string) error {
	if t.lines == "" || s.q.m.Stock == nil {
		return nil
	}
	lines, _, err := readLines(tx, t.lines, s.q.args(ids)) // an order whose lines cannot be read fails alone later
	if err != nil {
		return err
	}
	of := map[string][]string{} // orders by SKU
	for _, l := range lines {
		of[l.sku] = append(of[l.sku], l.order)
	}
	stock := s.q.m.Stock
	for part := range slices.Chunk(asked(slices.SortedFunc(maps.Keys(of), stock.SKU.Compare)), maxIn) {
		args := make([]any, len(part))
		for i, sku := range part {
			args[i] = s.q.skuArg(sku)
		}
		rows, err := s.lockedByOthers(tx, stock.Table, stock.SKU, args)
		if err != nil {
			return err
		}
		s.lockedSKUs.note(part, rows)
		for _, sku := range part {
			for _, id := range of[sku] {
				if rows[sku] && slices.Contains(ids, id) {
					found[id] = true
				}
			}
		}
	}
	return nil
}

// lockedByOthers returns the keys of a table, with true for each row that another transaction
// locks.
func (s *Store) lockedByOthers(tx *gorm.DB, name string, key mapping.Key, keys []any) (map[string]bool, error) {
	column := mapping.Quote(key.Column)
	query := "SELECT " + column + " FROM " + mapping.Quote(name) + s.dialect.hint(key.Index) + " WHERE " + column + " IN ? ORDER BY " + column
	rows := map[string]bool{}
	for _, step := range []struct {
		lock string
		is   bool
	}{{"", true}, {s.dialect.lock + " SKIP LOCKED", false}} {
		err := eachRow(tx, query+step.lock, []any{keys}, func(r *sql.Rows) error {
			var k string
			err := r.Scan(&k)
			rows[k] = step.is
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}
