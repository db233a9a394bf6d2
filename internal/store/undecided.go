package store

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"orderclose"
)

// maxUndecided bounds for how many orders it is remembered that a commit had no
// answer. Who is forgotten is told AlreadyClosed if that commit was done.
const maxUndecided = 100_000

// undecided are transactions of this process whose commit had no answer. Whether
// one was done is not guessed: the next transaction that locks one of its orders
// reads it from the order's receipt, which names the transaction that wrote it.
type undecided struct {
	mu    sync.Mutex
	tries map[string][]int64 // by order id
}

// add remembers a transaction that may have closed the orders.
func (u *undecided) add(try int64, ids []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tries == nil || len(u.tries)+len(ids) > maxUndecided {
		u.tries = map[string][]int64{}
	}
	for _, id := range ids {
		u.tries[id] = append(u.tries[id], try)
	}
}

// of returns the transactions that may have closed one of the orders.
func (u *undecided) of(ids []string) (tries []int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range ids {
		for _, try := range u.tries[id] {
			if !slices.Contains(tries, try) {
				tries = append(tries, try)
			}
		}
	}
	return tries
}

// settle forgets orders whose rows were read under their locks: what had become
// of them was told.
func (u *undecided) settle(ids []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.tries) == 0 {
		return
	}
	for _, id := range ids {
		delete(u.tries, id)
	}
}

// recognise turns AlreadyClosed into Closed where this process did it, by a commit
// that it had no answer of. The orders' rows are locked, so that commit is over.
func (c *closing) recognise() error {
	var closed []string
	for id, row := range c.orders {
		if row.verdict == orderclose.AlreadyClosed {
			closed = append(closed, id)
		}
	}
	tries := c.s.undecided.of(closed)
	if len(tries) == 0 {
		return nil
	}
	for part := range slices.Chunk(closed, maxIn) {
		if err := c.recogniseIn(part, tries); err != nil {
			return err
		}
	}
	return nil
}

func (c *closing) recogniseIn(ids []string, tries []int64) error {
	rows, err := c.tx.Raw("SELECT order_id, closed_at FROM receipts WHERE order_id IN ? AND try IN ?", ids, tries).Rows()
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		var at time.Time
		if err := rows.Scan(&id, timeInto(&at)); err != nil {
			return err
		}
		row, ok := c.orders[id]
		if !ok {
			return fmt.Errorf("a receipt of order %q, which was not asked for", id)
		}
		row.verdict, row.at = orderclose.Closed, at
		c.orders[id] = row
	}
	return rows.Err()
}
