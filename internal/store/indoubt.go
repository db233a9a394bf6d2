package store

import (
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
)

// maxInDoubt bounds the number of orders whose commit in doubt is remembered. A forgotten
// order gets AlreadyClosed instead of Closed if the commit was done.
const maxInDoubt = 100_000

// inDoubt remembers transactions of this process whose COMMIT got no answer. The next
// transaction that locks one of their orders reads the result from the order's receipt,
// which has the id of the transaction that wrote it. Safe for concurrent use.
type inDoubt struct {
	mu    sync.Mutex
	txIDs map[string][]int64 // ids of transactions, by order id
}

// add remembers that a transaction may have closed the orders. If there are then more than
// maxInDoubt orders, it first forgets all older ones.
func (d *inDoubt) add(txID int64, ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.txIDs == nil || len(d.txIDs)+len(ids) > maxInDoubt {
		d.txIDs = map[string][]int64{}
	}
	for _, id := range ids {
		d.txIDs[id] = append(d.txIDs[id], txID)
	}
}

// of returns the ids of transactions that may have closed one of the orders.
func (d *inDoubt) of(ids []string) (txIDs []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		for _, txID := range d.txIDs[id] {
			if !slices.Contains(txIDs, txID) {
				txIDs = append(txIDs, txID)
			}
		}
	}
	return txIDs
}

// forget drops orders whose rows were read under locks: their result is known.
func (d *inDoubt) forget(ids iter.Seq[string]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.txIDs) == 0 {
		return
	}
	for id := range ids {
		delete(d.txIDs, id)
	}
}

// resolveInDoubt turns AlreadyClosed into Closed for orders that a commit in doubt of this process
// closed. The orders' rows are locked, so that commit has ended.
func (c *closing) resolveInDoubt() error {
	var closed []string
	for id, row := range c.orders {
		if row.verdict == orderclose.AlreadyClosed {
			closed = append(closed, id)
		}
	}
	txIDs := c.s.inDoubt.of(closed)
	if len(txIDs) == 0 {
		return nil
	}
	for part := range slices.Chunk(closed, maxIn) {
		if err := c.resolveChunk(part, txIDs); err != nil {
			return err
		}
	}
	return nil
}

func (c *closing) resolveChunk(ids []string, txIDs []int64) error {
	return eachRow(c.tx, "SELECT order_id, closed_at FROM receipts WHERE order_id IN ? AND try IN ?", []any{ids, txIDs}, func(rows *sql.Rows) error {
		var id string
		var at time.Time
		if err := rows.Scan(&id, timeInto(&at)); err != nil {
			return err
		}
		row, ok := c.orders[id]
		if !ok {
			return fmt.Errorf("the database returned a receipt of order %q, which was not requested", id)
		}
		row.verdict, row.at = orderclose.Closed, at
		c.orders[id] = row
		return nil
	})
}
