package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Without is the stock that the close of one order leaves out, because it can never come back: the product was deleted.
type Without struct {
	SKUs   []string // as the receipt spells them
	Reason string   // of at most 255 characters, kept in the receipt
}

// withoutKey is the context key of WithoutStock.
type withoutKey struct{}

// WithoutStock returns the context for CloseOrders of one order without some of its stock. The receipt says that 0 of it returned, and why.
// The close fails if a SKU is not in the order, or has a row in the table of stock, and unless the mapping has one table of stock.
func WithoutStock(ctx context.Context, w Without) context.Context {
	return context.WithValue(ctx, withoutKey{}, w)
}

// without returns the stock that the close of a transaction leaves out.
func without(tx *gorm.DB) Without {
	w, _ := tx.Statement.Context.Value(withoutKey{}).(Without)
	return w
}

// leaveOut notes in returned which of the lines the context of tx leaves out, and returns the other lines.
func (s *Store) leaveOut(tx *gorm.DB, lines []line, returned returns) (others []line, err error) {
	w := without(tx)
	if len(w.SKUs) == 0 {
		return lines, nil
	}
	if len(s.q.m.Stock) != 1 {
		return nil, fmt.Errorf("%d tables of stock are mapped: only with one can a close leave out stock", len(s.q.m.Stock))
	}
	stock := s.q.m.Stock[0]
	is, _ := stockKey(stock)
	for _, l := range lines {
		if !slices.Contains(w.SKUs, l.sku) {
			others = append(others, l)
			continue
		}
		there, err := anyRow(tx, "SELECT 1 FROM "+mapping.Quote(stock.Table)+" WHERE "+is, stockArgs(stock, s.q.stockSKU(0, l.sku))...)
		if err != nil || there { //mutant:without-stock-there
			return nil, cmp.Or(err, fmt.Errorf("SKU %q has a row in table %s: close the order with its stock", l.sku, stock.Table))
		}
		returned[l.order][l.sku] = 0
	}
	if out := len(lines) - len(others); out != len(w.SKUs) {
		return nil, fmt.Errorf("the order has %d of the SKUs %q", out, w.SKUs)
	}
	return others, nil
}
