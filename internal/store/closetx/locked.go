package closetx

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/postgres"
	"github.com/orderclose/orderclose/internal/store/schema"
)

// A close waits in no queue of the server for a row, or for its entry in an index, while it holds one. So it is part of no deadlock on the rows of
// orders, lines and stock, in whatever order the shop locks them at READ COMMITTED.
const (
	// stockWait is how long a close tries again to write rows of stock that others lock. A close of 500 orders locks its rows for 2 to 20 ms,
	// so a close can wait for those of a few other processes. Meanwhile payments of its orders wait.
	stockWait = 100 * time.Millisecond
	// firstPoll is the pause before the second such try. The pauses double up to lastPoll.
	firstPoll = 250 * time.Microsecond
	lastPoll  = time.Millisecond
	// crowdedFor is how long closes lock the stock first, after stockWait was not enough twice in a row, or a row of stock was locked then.
	// While another transaction keeps one of 1,000 SKUs locked, four closers so close 1.7 times as many orders a second on MariaDB, and 1.4
	// times as many on PostgreSQL. With checkouts on the same ten SKUs, and no lock that stays, they close 0.9 and 0.3 times as many. These
	// are medians of seven runs on a busy machine, in turns with closes that never lock the stock first; single runs differ by far.
	crowdedFor = 5 * time.Second
	// crowdedBatch is how many orders a transaction closes meanwhile: a checkout waits for one of 100 half as long as for one of 500.
	crowdedBatch = 100
	// roundsFor is how long CloseOrders tries again the orders that it left out, in further transactions. With the
	// first one it stays below the closer's target of 250 ms for a call.
	roundsFor = 150 * time.Millisecond
	// roundPause is the pause before each of these transactions. The shop uses it to lock rows.
	roundPause = 10 * time.Millisecond
	// Transactions of manyOrders or more share SKUs, and each try of a statement with hundreds of SKUs costs the server some milliseconds.
	// Therefore only one such transaction of a Store moves stock at a time. Behind it the Store pauses for stockPause, in which
	// another process can lock the stock. This halves the time in which four processes close 100,000 orders.
	manyOrders = 50
	stockPause = 2 * time.Millisecond
	// lockMemory is how long a row of stock or an order is remembered for which a close has waited in vain. Meanwhile no close of several orders waits
	// for it. Beyond maxStuck of them all are forgotten.
	lockMemory = time.Minute
	maxStuck   = 1000
	// stuckPause is how long such an order is contended before it is tried again, apart from the others.
	stuckPause = 5 * time.Second
	// closeApart closes apartAtOnce orders at the same time, since a locked one waits for a second, and begins no further close after apartFor.
	apartAtOnce = 4
	apartFor    = time.Second
)

// The errors of a Contended order that was left out of a batch.
var (
	errRowLocked  = fmt.Errorf("%w: another transaction locks the order's row", orderclose.ErrContended)
	errLineLocked = fmt.Errorf("%w: another transaction locks a line of the order", orderclose.ErrContended)
)

// Errors of a transaction of a close, which is tried again at once in another way.
var (
	errLinesLocked = fmt.Errorf("%w: another transaction locks a line of the batch", orderclose.ErrContended)
	errMarkLocked  = fmt.Errorf("%w: another transaction locks what the UPDATE of the orders changes", orderclose.ErrContended)
	errEntryLocked = fmt.Errorf("%w: another transaction locks an entry of an index of the stock", orderclose.ErrContended)
	errStockLocked = fmt.Errorf("%w: another transaction locks a row of the stock of the batch", orderclose.ErrContended)
	errWaited      = fmt.Errorf("%w: a close waited in vain for a lock", orderclose.ErrContended)
)

// hotRow names a row of the i-th table of Mapping.Stock.
type hotRow struct {
	i   int
	sku string
}

// stuck has what closes have waited for in vain: a hotRow, or the id of an order. Without that memory, each batch with it would wait again, and
// keep the locks of its orders meanwhile.
type stuck struct {
	mu  sync.Mutex
	all map[any]lockWait
}

// lockWait is a wait for a lock that has ended in vain.
type lockWait struct {
	at  time.Time
	err error
}

func (s *stuck) add(what any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= maxStuck {
		s.all = map[any]lockWait{}
	}
	s.all[what] = lockWait{time.Now(), err}
}

func (s *stuck) forget(what any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, what)
}

// last returns the last wait within lockMemory, and false if there was none.
func (s *stuck) last(what any) (lockWait, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, known := s.all[what]
	return w, known && time.Since(w.at) < lockMemory
}

// has reports whether there was a wait within lockMemory.
func (s *stuck) has(what any) bool {
	_, known := s.last(what)
	return known
}

// leaveStuck leaves out of a batch the orders for which a close has waited in vain. They are contended, and apart has those to try again.
func (s *Closer) leaveStuck(ids []string, all *closing) (rest, apart []string) {
	if len(ids) == 1 {
		return ids, nil
	}
	for _, id := range ids {
		w, known := s.stuck.last(id)
		if !known {
			rest = append(rest, id)
			continue
		}
		all.Contended[id] = w.err
		if time.Since(w.at) >= stuckPause {
			apart = append(apart, id)
		}
	}
	return rest, apart
}

// lockNameAfter is when a close of one order asks what it waits for.
const lockNameAfter = 300 * time.Millisecond

// waited returns the error of a statement that has waited in vain for a lock. asked is what the server told meanwhile.
func (c *closing) waited(err error, asked string) error {
	what := cmp.Or(asked, postgres.Where(err), "a row that a trigger, a foreign key or on_close needs, or at REPEATABLE READ a gap of an index")
	return fmt.Errorf("%w in orders.%s: another transaction locks %s: %w", errWaited, c.step, what, err)
}

// nameLock asks on another connection what a close of one order waits for, once it takes lockNameAfter. stop ends that, and returns the answer: empty
// if the close did not wait, or the server does not tell.
func (c *closing) nameLock() (stop func() string) {
	if !c.alone || c.S.Dialect.LockName == "" {
		return func() string { return "" }
	}
	session, err := db.ValueOf[int64](db.Own(c.Tx), c.S.Dialect.Connection)
	ctx, cancel := context.WithCancel(c.Tx.Statement.Context)
	told := make(chan string, 1)
	go func() {
		name := ""
		if err == nil && retry.Sleep(ctx, lockNameAfter) {
			name, _ = db.ValueOf[string](db.Own(c.S.Gorm.WithContext(ctx)), c.S.Dialect.LockName, session)
		}
		told <- name
	}()
	return func() string {
		cancel()
		return <-told
	}
}

// awaitTurn locks the row of c.turn, and waits for it in the server's queue. The transaction holds nothing yet.
func (c *closing) awaitTurn() error {
	if c.turn == nil {
		return nil
	}
	stock := c.S.Q.M.Stock[c.turn.i]
	is, _ := stockKey(stock)
	query := "SELECT 1 FROM " + mapping.Quote(stock.Table) + c.S.Dialect.Hint(stock.SKU.Index) + " WHERE " + is + c.S.Dialect.ForUpdate
	err := db.EachRow(c.Tx, query, stockArgs(stock, c.turn.sku), func(*sql.Rows) error { return nil })
	if err != nil && c.S.Fault(c.Tx.Statement.Context, err) == db.FaultRetry {
		c.S.stuck.add(*c.turn, err)
		return fmt.Errorf("%w: %w", errStockLocked, err)
	}
	return err
}

// lockStockFirst locks the rows of stock that the orders of c.won need, before anything is written. It leaves out the orders that need a row that another
// transaction locks, and makes the row that most of them need c.turn of the next transaction.
func (c *closing) lockStockFirst() error {
	needs := make([]map[string][]string, len(c.S.Q.M.Stock)) // orders by SKU
	for i := range needs {
		needs[i] = map[string][]string{}
	}
	for _, t := range sorted(c.won) {
		if t.Lines == "" {
			continue
		}
		for part := range slices.Chunk(c.won[t], db.MaxIn) {
			all, _, err := c.S.holdLines(c.Tx, t, part) // an order whose lines cannot be read fails later
			if err != nil {
				return err
			}
			for i := range needs {
				for _, l := range all[i] {
					if l.Quantity != 0 {
						sku := c.S.stockSKU(i, l.SKU)
						needs[i][sku] = append(needs[i][sku], l.Order)
					}
				}
			}
		}
	}
	most := 0
	c.turn = nil
	for i, of := range needs {
		locked, err := c.S.lockStock(c.Tx, c.S.Q.M.Stock[i], slices.Sorted(maps.Keys(of)))
		if err != nil {
			return err
		}
		for sku := range locked {
			if of[sku] == nil {
				return errStockLocked // the lines spell it otherwise
			}
			for _, id := range of[sku] {
				c.leftOut[id] = true
				c.Contended[id] = fmt.Errorf("%w: another transaction locks SKU %q in table %s", orderclose.ErrContended, sku, c.S.Q.M.Stock[i].Table)
			}
			if row := (hotRow{i, sku}); len(of[sku]) > most && !c.S.stuck.has(row) {
				most, c.turn = len(of[sku]), &row
			}
		}
	}
	if len(c.leftOut) == 0 {
		return nil
	}
	c.S.crowded()
	c.leaveContended()
	return nil
}

// leaveContended closes no order in this transaction that is contended.
func (c *closing) leaveContended() {
	for t, ids := range c.won {
		if c.won[t] = slices.DeleteFunc(ids, func(id string) bool { return c.Contended[id] != nil }); len(c.won[t]) == 0 {
			delete(c.won, t)
		}
	}
}

// NewCloser returns a Closer that has moved no stock.
func NewCloser(of *schema.Checker) *Closer {
	s := &Closer{Checker: of, stockTurn: make(chan time.Time, 1)}
	s.stockTurn <- time.Time{}
	return s
}

// awaitStockTurn waits until no other transaction of many orders of this Store moves stock, for stockWait at most: the other one may hang.
// A transaction that has locked its stock first does not wait, nor one of a database that has one write transaction at a time.
func (c *closing) awaitStockTurn() error {
	if c.stockFirst || len(c.all) < manyOrders || c.S.Dialect.OneWriter {
		return nil
	}
	ctx := c.Tx.Statement.Context
	limited, cancel := context.WithTimeout(ctx, stockWait)
	defer cancel()
	select {
	case ended := <-c.S.stockTurn:
		c.stockTurn = true
		if time.Since(ended) < stockPause {
			retry.Sleep(ctx, stockPause)
		}
	case <-limited.Done():
	}
	return ctx.Err()
}

// endStockTurn lets another transaction move stock.
func (c *closing) endStockTurn() {
	if c != nil && c.stockTurn {
		c.stockTurn = false
		c.S.stockTurn <- time.Now()
	}
}

// crowded makes closes lock the stock first for crowdedFor.
func (s *Closer) crowded() { s.lastCrowd.Store(new(time.Now())) }

func (s *Closer) isCrowded() bool { return Within(&s.lastCrowd, crowdedFor) }

// release runs ReleaseStock for SKUs, in the order of their keys. While another transaction, such as another close, locks one of the rows, release repeats the
// statement. At the time until it gives up: the error is errStockLocked. If lockStockFirst has locked the rows before, release runs the statement once.
func (c *closing) release(i int, skus []string, args []any, until time.Time) error {
	d, ctx, stock := c.S.Dialect, c.Tx.Statement.Context, c.S.Q.M.Stock[i]
	change := func(lock, noWait string) (err error) {
		var rows map[string]quantities
		if c.watched {
			rows, err = c.S.stockRows(c.Tx, stock, skus, lock)
		}
		if err == nil && lock != "" && c.entries {
			free, wrong := c.S.withEntries(c.Tx, stock, skus, rows)
			if err = wrong; err == nil && len(free) < len(rows) {
				err = errEntryLocked
			}
		}
		if err == nil {
			err = db.ExecRows(c.Tx, len(skus), noWait+d.ReleaseStock(stock, len(skus)), args)
		}
		if err == nil {
			maps.Copy(c.before[i], rows)
		}
		return err
	}
	if c.stockFirst || d.OneWriter {
		return change("", "") // its triggers wait in the queue of the server, in which no crowd overtakes them
	}
	if d.FailFast != "" {
		if err := c.Tx.Exec(d.FailFast).Error; err != nil {
			return err
		}
	}
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		err := change(d.ForUpdate+" NOWAIT", d.NoWait)
		switch {
		case !db.HasCode(err, db.LockedCodes) && !errors.Is(err, errEntryLocked):
			return err
		case time.Now().After(until) || !retry.Sleep(ctx, pause):
			return cmp.Or(ctx.Err(), errStockLocked)
		}
		if err = c.undoRelease(err); err != nil {
			return err
		}
	}
}

// undoRelease prepares the transaction for the next try of ReleaseStock, after a lock has made the last try fail. With innodb_rollback_on_timeout=ON, MariaDB
// has then rolled back the whole transaction, and would commit each further statement alone. In this case the error is errStockLocked.
func (c *closing) undoRelease(failed error) error {
	if c.S.Dialect.FailFast != "" {
		return c.Tx.Exec("ROLLBACK TO SAVEPOINT stock").Error
	}
	if !db.HasCode(failed, "1205") {
		return nil // MySQL says 3572
	}
	open, err := db.ValueOf[bool](db.Own(c.Tx), c.S.Dialect.InTransaction)
	if err == nil && !open {
		err = errStockLocked
	}
	return err
}

// releaseWaits reports whether ReleaseStock waits for rows that other transactions lock, so that they have to be locked before.
func (s *Closer) releaseWaits(tx *gorm.DB) (bool, error) {
	if known := s.waits.Load(); known != nil {
		return *known, nil
	}
	if s.Dialect.ReleaseWaits == "" {
		return false, nil
	}
	waits, err := db.ValueOf[bool](db.Own(tx), s.Dialect.ReleaseWaits)
	if err == nil {
		s.waits.Store(&waits)
	}
	return waits, err
}

// lockStock locks the rows of SKUs that no other transaction locks, and returns the SKUs of the others, spelled as
// in the stock. It waits for no lock, and ignores SKUs without a row.
func (s *Closer) lockStock(tx *gorm.DB, stock *mapping.Stock, skus []string) (locked map[string]bool, err error) {
	if s.Dialect.OneWriter {
		return nil, nil
	}
	locked = map[string]bool{}
	for part := range slices.Chunk(skus, db.MaxIn) {
		free, err := s.stockRows(tx, stock, part, s.Dialect.SkipLocked)
		if err == nil {
			free, err = s.withEntries(tx, stock, part, free)
		}
		if err != nil {
			return nil, err
		}
		if len(free) == len(part) {
			continue
		}
		all, err := s.stockRows(tx, stock, part, "")
		if err != nil {
			return nil, err
		}
		for sku := range all {
			if _, is := free[sku]; !is {
				locked[sku] = true
			}
		}
	}
	return locked, nil
}

// stockKeys is stockKey of several SKUs, with its arguments.
func stockKeys(stock *mapping.Stock, skus []string) (is string, read []string, args []any) {
	is, read = stockKey(stock)
	for _, sku := range skus {
		args = append(args, stockArgs(stock, sku)...)
	}
	if stock.Location.Column == "" {
		return mapping.Quote(stock.SKU.Column) + " IN ?", read, []any{args}
	}
	return is + strings.Repeat(" OR "+is, len(skus)-1), read, args
}

// stockRows returns the rows of the stock of at most maxIn SKUs, locked by lock, by SKUs spelled as in the stock.
func (s *Closer) stockRows(tx *gorm.DB, stock *mapping.Stock, skus []string, lock string) (map[string]quantities, error) {
	is, read, args := stockKeys(stock, skus)
	found := make(map[string]quantities, len(skus))
	read = append(read, db.OrElse(stock.Available, "0"), db.OrElse(stock.Reserved, "0"))
	query := "SELECT " + strings.Join(read, ", ") + " FROM " + mapping.Quote(stock.Table) + s.Dialect.Hint(stock.SKU.Index) +
		" WHERE " + is + " ORDER BY " + mapping.Quote(stock.SKU.Column) + lock
	return found, db.EachRow(tx, query, args, func(rows *sql.Rows) error {
		var r quantities
		var location sql.NullString
		err := rows.Scan(&r.sku, &location, &r.available, &r.reserved)
		r.sku = Located(r.sku, location)
		found[r.sku] = r
		return err
	})
}

// ordersWithLockedLines returns the orders with a line that another transaction locks; none if a query fails. It reads twice: committed rows do not include a
// new line of an open transaction, and uncommitted rows do not include a line that it deletes.
func (s *Closer) ordersWithLockedLines(ctx context.Context, ids []string, where db.Candidates) map[string]bool {
	found := map[string]bool{}
	for _, isolation := range []*sql.TxOptions{db.ReadCommitted, db.ReadUncommitted} {
		err := s.Gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			for _, t := range where.All {
				for part := range slices.Chunk(ids, db.MaxIn) {
					if err := s.lockedLinesIn(tx, t, part, found); err != nil {
						return err
					}
				}
			}
			return nil
		}, isolation)
		if err != nil {
			return nil
		}
	}
	return found
}

// lockedLinesIn marks the orders of a table with a line that is locked.
func (s *Closer) lockedLinesIn(tx *gorm.DB, t *db.Table, ids []string, found map[string]bool) error {
	if t.Lines == "" {
		return nil
	}
	free := map[string]int{} // by order: lines that are not locked, less all lines
	for lock, n := range map[string]int{"": -1, s.Dialect.Share("SKIP LOCKED"): 1} {
		err := db.EachRow(tx, t.Lines+lock, s.Q.LineArgs(ids), func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(append([]any{&id}, db.Skipped(3+max(len(s.Q.M.Stock)-1, 0))...)...)
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
