package closetx

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// closeOthers closes the orders of a batch that failed, without those whose rows show that they cannot be closed. These are Failed, with
// the error of a close of each alone. So a batch with many of them takes one further transaction, and no search. err is the error of the
// batch; closeOthers returns it if no order is at fault, or none shows.
func (s *Closer) closeOthers(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest, err error) (*Rows, error) {
	if ids, _ := s.Distinct(reqs); len(ids) < 2 || ctx.Err() != nil ||
		errors.Is(err, orderclose.ErrUnavailable) || errors.Is(err, orderclose.ErrContended) {
		return nil, err
	}
	f, failed := s.refused(ctx, path, reqs)
	if failed != nil || len(f.why) == 0 {
		return nil, err
	}
	c := f.read
	rest := slices.DeleteFunc(slices.Clone(reqs), func(r orderclose.CloseRequest) bool { return f.why[r.OrderID] != nil })
	if len(rest) > 0 {
		if c, err = s.closeUnlocked(ctx, path, rest); err != nil {
			return nil, err
		}
	}
	c.fail(f.read, f.why)
	return c, nil
}

// fail makes orders Failed that were read.
func (c *Rows) fail(read *Rows, refused map[string]error) {
	for id, why := range refused {
		row := read.Orders[id]
		row.Verdict, row.err = orderclose.Failed, why
		c.Orders[id] = row
		delete(c.Contended, id)
	}
}

// closeApart closes each of orders in a transaction of its own, except those whose rows show a fault. One of them has made a transaction of several
// fail, or waits for a lock: then it keeps no lock of another order. all takes the results. An order that is not tried within apartFor is
// contended. If all that were tried have waited in vain, the others would too.
func (s *Closer) closeApart(ctx context.Context, path orderclose.Path, all *closing, ids []string, turn *hotRow) {
	if len(ids) == 0 {
		return
	}
	reqs := make([]orderclose.CloseRequest, len(ids))
	for i, id := range ids {
		reqs[i] = all.requests[id]
	}
	f := &refusals{read: &all.Rows}
	if turn != nil { // a fault
		var err error
		if f, err = s.refused(ctx, path, reqs); err != nil {
			return // they are contended still
		}
		all.fail(f.read, f.why)
	}
	limited, end := context.WithTimeout(ctx, apartFor)
	defer end()
	var mu sync.Mutex // of all, and of closed
	var closed bool
	var closers sync.WaitGroup
	left := make(chan int)
	for range min(apartAtOnce, len(ids)) {
		closers.Go(func() {
			for i := range left {
				c, err := s.closeRound(ctx, path, ids[i:i+1], all.requests, all.Candidates, turn)
				if err != nil && !errors.Is(err, orderclose.ErrUnavailable) {
					err = s.withCause(ctx, reqs[i], err)
				}
				mu.Lock()
				switch {
				case err == nil:
					delete(all.Contended, ids[i])
					all.add(c)
					closed = true
				case errors.Is(err, orderclose.ErrUnavailable):
					end()
				case errors.Is(err, orderclose.ErrContended):
					all.Contended[ids[i]] = err
				default:
					all.fail(f.read, map[string]error{ids[i]: err})
				}
				mu.Unlock()
			}
		})
	}
	for i, id := range ids {
		if f.why[id] != nil {
			continue
		}
		select {
		case left <- i:
		case <-limited.Done():
		}
	}
	close(left)
	closers.Wait()
	for _, id := range ids {
		if err := all.Contended[id]; !closed && errors.Is(err, errWaited) {
			s.stuck.add(id, err)
		}
	}
}

// refusals say which orders cannot be closed.
type refusals struct {
	read  *Rows
	why   map[string]error        // by order
	holds map[string]moves        // by order that a close would close now
	stock []map[string]quantities // the rows of each Mapping.Stock that they need
}

// refused returns what it has read of orders, and why their rows refuse some of those that a close would close now: they have a receipt,
// or lines that are wrong, or a SKU whose row of stock is missing, has a NULL or too little reserved. If less is reserved than several
// orders hold together, the first ones get it. It locks nothing. Receipts are read before the orders: a close that commits in between has
// closed its order, and nobody refuses that.
func (s *Closer) refused(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) (f *refusals, err error) {
	ids, _ := s.Distinct(reqs)
	receipts := map[string]error{}
	for part := range slices.Chunk(ids, db.MaxIn) {
		err := EachReceipt(s.Gorm.WithContext(ctx), part, func(id string, r *ReceiptRow) { receipts[id] = closedBefore(id, r) })
		if err != nil {
			return nil, err
		}
	}
	f = &refusals{why: map[string]error{}, holds: map[string]moves{}}
	if f.read, err = s.ReadForClose(ctx, path, reqs); err != nil {
		return nil, err
	}
	for _, t := range sorted(f.read.won) {
		for _, id := range f.read.won[t] {
			f.holds[id] = s.newMoves()
			if receipts[id] != nil {
				f.why[id] = f.read.orInTwo(t, id, receipts[id])
			}
		}
		for part := range slices.Chunk(f.read.won[t], db.MaxIn) {
			if err := f.readLines(t, part); err != nil {
				return nil, err
			}
		}
	}
	return f, f.compareStock(ids)
}

// readLines reads what orders hold of each table of stock.
func (f *refusals) readLines(t *db.Table, ids []string) error {
	if t.Lines == "" {
		return nil
	}
	s := f.read.S
	all, unreadable, err := s.ReadLines(f.read.Tx, t.CountedLines, ids)
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
			s.add(f.holds[l.Order], i, l)
			f.why[l.Order] = cmp.Or(f.why[l.Order], unreadable[l.Order], outOfRange(l))
		}
	}
	for id, why := range unreadable {
		if _, asked := f.holds[id]; asked {
			f.why[id] = cmp.Or(f.why[id], why)
		}
	}
	maps.DeleteFunc(f.why, func(_ string, why error) bool { return why == nil })
	return nil
}

// compareStock adds the orders that the rows of the stock refuse.
func (f *refusals) compareStock(ids []string) error {
	s := f.read.S
	for i, stock := range s.Q.M.Stock {
		skus := map[string]bool{}
		for _, moved := range f.holds {
			for sku := range moved[i] {
				skus[sku] = true
			}
		}
		rows, err := s.readQuantities(f.read.Tx, stock, slices.Sorted(maps.Keys(skus)))
		if err != nil {
			return err
		}
		f.stock = append(f.stock, rows)
	}
	for _, id := range ids {
		if moved := f.holds[id]; moved != nil && f.why[id] == nil {
			if why := takeBack(s.Q.M.Stock, moved, f.stock); why != nil {
				f.why[id] = why
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
