package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// lockedKeys remembers the orders with a line, or the SKUs with a row, that another transaction recently
// locked. Without it, each batch with such an order would wait for the lock, and each half of the batch
// would wait again. Safe for concurrent use.
type lockedKeys struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// known returns the remembered locks.
func (k *lockedKeys) known() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	known := make(map[string]bool, len(k.until))
	for key, until := range k.until {
		if now.Before(until) {
			known[key] = true
		} else {
			delete(k.until, key)
		}
	}
	return known
}

// note remembers the keys that are locked, and forgets the other keys. If there would be more than
// maxLockedKeys locks, it first forgets all of them: then later batches wait for a locked row
// once more.
func (k *lockedKeys) note(keys []string, locked map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.until == nil || len(k.until)+len(locked) > maxLockedKeys {
		k.until = map[string]time.Time{}
	}
	for _, key := range keys {
		if delete(k.until, key); locked[key] {
			k.until[key] = time.Now().Add(lockMemory)
		}
	}
}

// stillLocked returns the orders with a line or a SKU whose lock is remembered and still exists. It
// waits for no lock. If a query fails, it returns no order.
func (s *Store) stillLocked(ctx context.Context, ids []string, where candidates) map[string]bool {
	still := map[string]bool{}
	if known := s.lockedLines.known(); len(known) > 0 {
		maps.Copy(still, s.ordersWithLockedLines(ctx, only(known, ids), where))
	}
	if known := s.lockedSKUs.known(); len(known) > 0 {
		maps.Copy(still, s.ordersWithLockedSKUs(ctx, ids, where, known))
	}
	return still
}

// only returns the keys that are in a set. A nil set has all keys.
func only(set map[string]bool, keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return set != nil && !set[key] })
}

// eachTable calls find for each table that may have the orders, and for each part of them, in a
// transaction that looks for locks. It returns the orders that find marks as found; none if find fails.
func (s *Store) eachTable(ctx context.Context, isolation *sql.TxOptions, ids []string, where candidates,
	find func(tx *gorm.DB, t *table, ids []string, found map[string]bool) error) map[string]bool {
	if s.dialect.skipLocked == "" || len(ids) == 0 {
		return nil // this database locks no rows
	}
	found := map[string]bool{}
	err := s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		for _, t := range where.all {
			for part := range slices.Chunk(ids, maxIn) {
				if err := find(tx, t, part, found); err != nil {
					return err
				}
			}
		}
		return nil
	}, isolation)
	if err != nil {
		return nil
	}
	return found
}

// ordersWithLockedLines returns the orders with a line that another transaction locks, and remembers
// their locks. It reads twice: committed rows do not include a new line of an open transaction, and
// uncommitted rows do not include a line that it deletes.
func (s *Store) ordersWithLockedLines(ctx context.Context, ids []string, where candidates) map[string]bool {
	found := map[string]bool{}
	for _, isolation := range []*sql.TxOptions{readCommitted, readUncommitted} {
		maps.Copy(found, s.eachTable(ctx, isolation, ids, where, s.lockedLinesIn))
	}
	s.lockedLines.note(ids, found)
	return found
}

// lockedLinesIn marks the orders of a table with a line that is locked.
func (s *Store) lockedLinesIn(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
	if t.lines == "" {
		return nil
	}
	free := map[string]int{} // by order: lines that are not locked, less all lines
	for lock, n := range map[string]int{"": -1, s.dialect.skipLocked: 1} {
		err := eachRow(tx, t.lines+lock, s.q.lineArgs(ids), func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(append([]any{&id}, skipped(3+max(len(s.q.m.Stock)-1, 0))...)...)
			free[id] += n
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, id := range ids {
		if free[id] < 0 {
			found[id] = true
		}
	}
	return nil
}

// ordersWithLockedSKUs returns the orders with a SKU whose row another transaction locks, and remembers
// these locks. It checks the SKUs in a set; nil: all.
//
// The row of a SKU that many orders have is often locked for a moment, which is no reason to
// leave orders out. So all SKUs of a batch are checked only after a lock wait timed out. Later
// batches check only the SKUs that were locked then.
func (s *Store) ordersWithLockedSKUs(ctx context.Context, ids []string, where candidates, set map[string]bool) map[string]bool {
	return s.eachTable(ctx, readCommitted, ids, where, func(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
		if t.lines == "" || len(s.q.m.Stock) == 0 {
			return nil
		}
		all, _, err := s.readLines(tx, t.lines, ids) // an order whose lines cannot be read fails alone later
		if err != nil {
			return err
		}
		for i, stock := range s.q.m.Stock {
			of := map[string][]string{} // orders by SKU
			for _, l := range all[i] {
				sku := s.q.stockSKU(i, l.sku)
				of[sku] = append(of[sku], l.order)
			}
			locked, err := s.lockedSKUsOf(tx, stock, only(set, slices.SortedFunc(maps.Keys(of), compareStock(stock))))
			if err != nil {
				return err
			}
			for sku := range locked {
				for _, id := range of[sku] {
					if slices.Contains(ids, id) {
						found[id] = true
					}
				}
			}
		}
		return nil
	})
}

// skipped returns n destinations for columns that are not read.
func skipped(n int) []any {
	into := make([]any, n)
	for i := range into {
		into[i] = new(any)
	}
	return into
}

// lockedSKUsOf returns the SKUs whose rows other transactions lock, and remembers these locks.
func (s *Store) lockedSKUsOf(tx *gorm.DB, stock *mapping.Stock, skus []string) (map[string]bool, error) {
	locked := map[string]bool{}
	is, read := stockKey(stock)
	query := "SELECT " + strings.Join(read, ", ") + " FROM " + mapping.Quote(stock.Table) + s.dialect.hint(stock.SKU.Index) + " WHERE " + is
	for part := range slices.Chunk(skus, maxIn) {
		var args []any
		for _, sku := range part {
			args = append(args, stockArgs(stock, sku)...)
		}
		query := query + strings.Repeat(" OR "+is, len(part)-1) + " ORDER BY " + mapping.Quote(stock.SKU.Column)
		for _, lock := range []string{"", s.dialect.skipLocked} {
			err := eachRow(tx, query+lock, args, func(rows *sql.Rows) error {
				var sku string
				var location sql.NullString
				err := rows.Scan(&sku, &location)
				sku = located(sku, location)
				if locked[sku] = true; lock != "" {
					delete(locked, sku)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	s.lockedSKUs.note(skus, locked)
	return locked, nil
}
