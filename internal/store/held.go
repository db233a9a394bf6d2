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

	"orderclose"
	"orderclose/internal/tables"
)

const (
	// heldFor is how long it is remembered that an order or a SKU was held: as long, it
	// is asked whether it still is before its row is waited for.
	heldFor = time.Minute
	// maxHeld bounds how many are remembered.
	maxHeld = 10_000
)

// errHeld is why an order is Contended that was left out.
var errHeld = fmt.Errorf("%w: somebody holds its row, or that of a SKU of it", orderclose.ErrContended)

// held are orders, or SKUs, whose rows somebody held of late. One
// transaction that hangs would otherwise cost each batch with such an order a lock
// wait, and another for each half of it.
type held struct {
	mu    sync.Mutex
	until map[string]time.Time
	last  time.Time // of until
}

// any reports whether anything was held of late.
func (h *held) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !time.Now().Before(h.last) {
		clear(h.until)
	}
	return len(h.until) > 0
}

// of returns those of the ids that were held of late.
func (h *held) of(ids []string) (known []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.until) == 0 {
		return nil
	}
	now := time.Now()
	for _, id := range ids {
		until, ok := h.until[id]
		switch {
		case ok && now.Before(until):
			known = append(known, id)
		case ok:
			delete(h.until, id)
		}
	}
	return known
}

// note remembers which of the ids are held, and that the others are not.
func (h *held) note(ids []string, are map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil || len(h.until)+len(are) > maxHeld {
		h.until = map[string]time.Time{}
	}
	for _, id := range ids {
		if delete(h.until, id); are[id] {
			h.last = time.Now().Add(heldFor)
			h.until[id] = h.last
		}
	}
}

// stillHeld returns which of the orders that were held of late, or that have a SKU
// which was, still are. It waits for nobody. If it cannot tell, none is.
func (s *Store) stillHeld(ctx context.Context, ids []string, where places) map[string]bool {
	still := map[string]bool{}
	if known := s.held.of(ids); len(known) > 0 {
		maps.Copy(still, s.findHeld(ctx, known, where, s.heldRows))
	}
	if s.heldStock.any() {
		maps.Copy(still, s.findHeld(ctx, ids, where, s.stillHeldSKUs))
	}
	return still
}

// findHeld returns which of the orders cannot be closed without a wait: somebody has
// locked their rows, or those of their SKUs, as is asked by heldIn. It waits for
// nobody, and if it cannot tell it says that none is.
//
// A SKU that many sell is often locked for a moment. So all SKUs are asked about only
// when something was waited for in vain, and from then on those that were held.
func (s *Store) findHeld(ctx context.Context, ids []string, where places, heldIn func(*gorm.DB, *table, []string, map[string]bool) error) map[string]bool {
	if s.dialect.oneWriter {
		return nil // no rows are locked there
	}
	found := map[string]bool{}
	err := s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		for _, t := range where.all {
			for part := range slices.Chunk(ids, maxIn) {
				if err := heldIn(tx, t, part, found); err != nil {
					return err
				}
			}
		}
		return nil
	}, readCommitted)
	if err != nil {
		return nil
	}
	return found
}

// heldRows adds the orders of a table whose rows are held, and remembers them.
func (s *Store) heldRows(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
	rows, err := s.locked(tx, t.name, s.q.m.ID, s.q.args(ids))
	if err != nil {
		return err
	}
	for _, id := range ids {
		if rows[id] {
			found[id] = true
		}
	}
	s.held.note(ids, found)
	return nil
}

// heldSKUs adds the orders of a table that have a SKU whose row is held.
func (s *Store) heldSKUs(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
	return s.heldBySKU(tx, t, ids, found, func(skus []string) []string { return skus })
}

// stillHeldSKUs does the same for those SKUs that were held of late.
func (s *Store) stillHeldSKUs(tx *gorm.DB, t *table, ids []string, found map[string]bool) error {
	return s.heldBySKU(tx, t, ids, found, s.heldStock.of)
}

// heldBySKU adds the orders of a table that have a SKU, of those that are asked about,
// whose row is held, and remembers these SKUs.
func (s *Store) heldBySKU(tx *gorm.DB, t *table, ids []string, found map[string]bool, asked func(skus []string) []string) error {
	if t.lines == "" || s.q.m.Stock == nil {
		return nil
	}
	lines, _, err := readLines(tx, t.lines, s.q.args(ids)) // an order that cannot be read fails alone
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
		rows, err := s.locked(tx, stock.Table, stock.SKU, args)
		if err != nil {
			return err
		}
		s.heldStock.note(part, rows)
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

// locked returns which rows of a table somebody else has locked, by key.
func (s *Store) locked(tx *gorm.DB, name string, key tables.Key, keys []any) (map[string]bool, error) {
	column := tables.Quote(key.Column)
	query := "SELECT " + column + " FROM " + tables.Quote(name) + s.dialect.hint(key.Index) + " WHERE " + column + " IN ? ORDER BY " + column
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
