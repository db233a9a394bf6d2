package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"orderclose"
)

// kind is why stock came back, the last part of the ledger's key.
type kind string

const (
	kindClose  kind = "close"
	kindCancel kind = "cancel"
)

// orderSKU is the key under which stock comes back, once.
type orderSKU struct{ order, sku string }

// recordLines is recordLinesOf of the one table that a mapping without shards has.
func (s *Store) recordLines(tx *gorm.DB, orders []string, k kind, now time.Time) (map[string][]orderclose.Release, error) {
	return s.recordLinesOf(tx, s.q.whole, orders, k, now)
}

// recordLinesOf writes the ledger rows of the orders' lines, those of one SKU
// summed, and returns what each order gives back, in SKU order. The ledger's key
// makes sure that it is given back once.
func (s *Store) recordLinesOf(tx *gorm.DB, t *table, orders []string, k kind, now time.Time) (map[string][]orderclose.Release, error) {
	released := make(map[string][]orderclose.Release, len(orders))
	if t.lines == "" {
		return released, nil
	}
	for part := range slices.Chunk(orders, maxIn) {
		lines, err := readLines(tx, t.lines, s.q.args(part))
		if err != nil {
			return nil, fmt.Errorf("read lines: %w", err)
		}
		in := insert{into: "stock_ledger (order_id, sku_id, kind, quantity, created_at)"}
		at := s.dialect.time(now)
		for _, l := range slices.SortedFunc(maps.Keys(lines), compareOrderSKU) {
			in.row(l.order, l.sku, k, lines[l], at)
			released[l.order] = append(released[l.order], orderclose.Release{
				SKU: l.sku, Quantity: lines[l], Key: orderclose.ReleaseKey(l.order, l.sku, string(k)),
			})
		}
		if err := in.exec(tx); err != nil {
			return nil, fmt.Errorf("write the ledger: %w", err)
		}
	}
	return released, nil
}

func compareOrderSKU(a, b orderSKU) int {
	if c := strings.Compare(a.order, b.order); c != 0 {
		return c
	}
	return strings.Compare(a.sku, b.sku)
}

// readLines returns the quantities of the orders, by order and SKU.
func readLines(tx *gorm.DB, query string, orders []any) (map[orderSKU]int64, error) {
	rows, err := tx.Raw(query, orders).Rows()
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	lines := make(map[orderSKU]int64, 2*len(orders))
	for rows.Next() {
		var l orderSKU
		var quantity int64
		if err := rows.Scan(&l.order, &l.sku, &quantity); err != nil {
			return nil, err
		}
		lines[l] += quantity
	}
	return lines, rows.Err()
}

// moveStock moves what orders release from reserved to available, summed by SKU,
// in SKU order. It must be the last statement of its transaction. A SKU that has
// no row, or less reserved than is to come back, fails all of it. Without a mapped
// stock nothing moves: whoever keeps it takes the release from the event.
func (s *Store) moveStock(tx *gorm.DB, released map[string][]orderclose.Release) error {
	if s.q.m.Stock == nil {
		return nil
	}
	sums := map[string]int64{}
	for _, releases := range released {
		for _, r := range releases {
			sums[r.SKU] += r.Quantity
		}
	}
	skus := slices.SortedFunc(maps.Keys(sums), s.q.m.Stock.SKU.Compare)
	for part := range slices.Chunk(skus, maxIn) {
		args := make([]any, 0, 2*len(part))
		for _, sku := range part {
			args = append(args, s.q.skuArg(sku), sums[sku])
		}
		res := tx.Exec(s.dialect.giveBack(s.q.m.Stock, len(part)), args...)
		if err := wantRows(res, len(part)); err != nil {
			return fmt.Errorf("give back the stock of %q to %q: is a SKU missing from the stock, or less reserved than ordered? %w",
				part[0], part[len(part)-1], err)
		}
	}
	return nil
}
