package store

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// closeOthers closes the orders of a batch that failed, without those whose rows show that they cannot be closed. These are Failed, with
// the error of a close of each alone. So a batch with many of them takes one further transaction, and no search. err is the error of the
// batch; closeOthers returns it if no order is at fault, or none shows.
func (s *Store) closeOthers(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest, err error) (*closing, error) {
	if ids, _ := s.distinct(reqs); len(ids) < 2 || ctx.Err() != nil ||
		errors.Is(err, orderclose.ErrUnavailable) || errors.Is(err, orderclose.ErrContended) {
		return nil, err
	}
	read, refused, failed := s.refused(ctx, path, reqs)
	if failed != nil || len(refused) == 0 {
		return nil, err
	}
	c := read
	rest := slices.DeleteFunc(slices.Clone(reqs), func(r orderclose.CloseRequest) bool { return refused[r.OrderID] != nil })
	if len(rest) > 0 {
		if c, err = s.closeUnlocked(ctx, path, rest); err != nil {
			return nil, err
		}
	}
	c.fail(read, refused)
	return c, nil
}

// fail makes orders Failed that were read.
func (c *closing) fail(read *closing, refused map[string]error) {
	for id, why := range refused {
		row := read.orders[id]
		row.verdict, row.err = orderclose.Failed, why
		c.orders[id] = row
		delete(c.contended, id)
	}
}

// closeApart closes orders of a further round of closeUnlocked whose transaction has failed by the fault of one of them: all but those whose
// rows show a fault, each in a transaction of its own, for another roundsFor. all takes the results.
func (s *Store) closeApart(ctx context.Context, path orderclose.Path, all *closing, ids []string, turn *hotRow) {
	reqs := make([]orderclose.CloseRequest, len(ids))
	for i, id := range ids {
		reqs[i] = all.requests[id]
	}
	read, refused, err := s.refused(ctx, path, reqs)
	if err != nil {
		return // they are contended still
	}
	all.fail(read, refused)
	for began, i := time.Now(), 0; i < len(ids) && time.Since(began) < roundsFor; i++ {
		if refused[ids[i]] != nil {
			continue
		}
		c, err := s.closeRound(ctx, path, ids[i:i+1], all.requests, all.candidates, turn)
		switch {
		case err == nil:
			all.add(c)
		case errors.Is(err, orderclose.ErrUnavailable):
			return
		case !errors.Is(err, orderclose.ErrContended):
			all.fail(read, map[string]error{ids[i]: s.withCause(ctx, reqs[i], err)})
		}
	}
}

// refused returns what it has read of orders, and why their rows refuse some of those that a close would close now: they have a receipt,
// or lines that are wrong, or a SKU whose row of stock is missing, has a NULL or too little reserved. If less is reserved than several
// orders hold together, the first ones get it. It locks nothing. Receipts are read before the orders: a close that commits in between has
// closed its order, and nobody refuses that.
func (s *Store) refused(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) (*closing, map[string]error, error) {
	ids, _ := s.distinct(reqs)
	receipts, refused := map[string]error{}, map[string]error{}
	for part := range slices.Chunk(ids, maxIn) {
		err := eachReceipt(s.gorm.WithContext(ctx), part, func(id string, r *ReceiptRow) { receipts[id] = closedBefore(id, r) })
		if err != nil {
			return nil, nil, err
		}
	}
	c, err := s.readForClose(ctx, path, reqs)
	if err != nil {
		return nil, nil, err
	}
	holds := map[string]moves{} // by order
	for _, t := range sorted(c.won) {
		for _, id := range c.won[t] {
			holds[id] = s.newMoves()
			if receipts[id] != nil {
				refused[id] = receipts[id]
			}
		}
		for part := range slices.Chunk(c.won[t], maxIn) {
			if err := c.holds(t, part, holds, refused); err != nil {
				return nil, nil, err
			}
		}
	}
	return c, refused, c.refusedByStock(ids, holds, refused)
}

// holds reads what orders hold of each table of stock.
func (c *closing) holds(t *table, ids []string, holds map[string]moves, refused map[string]error) error {
	if t.lines == "" {
		return nil
	}
	all, unreadable, err := c.s.readLines(c.tx, t.countedLines, ids)
	for i := range all {
		if err == nil {
			err = strayLine(ids, all[i])
		}
	}
	if err != nil {
		return err
	}
	for i := range all {
		for _, l := range all[i] {
			c.s.add(holds[l.order], i, l)
			refused[l.order] = cmp.Or(refused[l.order], unreadable[l.order], outOfRange(l))
		}
	}
	for id, why := range unreadable {
		if _, asked := holds[id]; asked {
			refused[id] = cmp.Or(refused[id], why)
		}
	}
	maps.DeleteFunc(refused, func(_ string, why error) bool { return why == nil })
	return nil
}

// refusedByStock adds the orders that the rows of the stock refuse.
func (c *closing) refusedByStock(ids []string, holds map[string]moves, refused map[string]error) error {
	rows := make([]map[string]quantities, len(c.s.q.m.Stock))
	for i, stock := range c.s.q.m.Stock {
		skus := map[string]bool{}
		for _, moved := range holds {
			for sku := range moved[i] {
				skus[sku] = true
			}
		}
		var err error
		if rows[i], err = c.s.readQuantities(c.tx, stock, slices.Sorted(maps.Keys(skus))); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if moved := holds[id]; moved != nil && refused[id] == nil {
			if why := takeBack(c.s.q.m.Stock, moved, rows); why != nil {
				refused[id] = why
			}
		}
	}
	return nil
}

// takeBack takes off the reserved quantities what an order holds, or returns why it cannot.
func takeBack(tables []*mapping.Stock, moved moves, rows []map[string]quantities) error {
	for i, stock := range tables {
		for _, sku := range slices.Sorted(maps.Keys(moved[i])) {
			r, exists := rows[i][sku]
			if why := r.refuses(stock, sku, exists, moved[i][sku]); why != nil {
				return why
			}
		}
		if why := oneRow(stock, moved[i], rows[i]); why != nil {
			return why
		}
	}
	for i := range tables {
		for sku, quantity := range moved[i] {
			r := rows[i][sku]
			r.reserved.Int64 -= quantity
			rows[i][sku] = r
		}
	}
	return nil
}
