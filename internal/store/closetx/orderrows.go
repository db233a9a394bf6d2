package closetx

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store/internal/db"
)

// Rows are rows of orders that a transaction has read, and locked as locks says. Its goroutine owns them.
type Rows struct {
	S          *Closer
	Tx         *gorm.DB
	path       orderclose.Path
	requests   map[string]orderclose.CloseRequest // by order id
	Candidates db.Candidates
	Locks      locking

	Now       time.Time              // the database's clock, read once
	Orders    map[string]lockedRow   // by order id
	Contended map[string]error       // requested orders that other transactions lock, and what they lock
	Paused    map[string]bool        // categories whose orders are not closed now
	won       map[*db.Table][]string // ids that a close of these orders closes now, in the order of their index
	Open      map[string]*db.Table   // the tables of unpaid orders, due or not, also excluded ones
	astray    map[string]error       // why orders without a row may be in a table that does not fit
}

// errNoDue says that an order cannot be closed because its due time is 0 or the zero date.
var errNoDue = because(orderclose.NoDueTime, "the order has no due time in the database: write a due time, and publish the order again")

// locking is how a transaction reads the rows of orders.
type locking int

const (
	WaitForLocks locking = iota // locks each row, after the other transactions that lock it
	SkipLocked                  // locks each row that no other transaction locks; the others are contended
	LockNothing                 // reads each row
)

func (s *Closer) NewRows(tx *gorm.DB, requests map[string]orderclose.CloseRequest, where db.Candidates) *Rows {
	return &Rows{S: s, Tx: tx, requests: requests, Candidates: where, Orders: map[string]lockedRow{}, Contended: map[string]error{},
		won: map[*db.Table][]string{}, Open: map[string]*db.Table{}}
}

// lockedRow is the row of an order, locked until the transaction ends.
type lockedRow struct {
	Category string
	Due      time.Time
	Version  int64                      // before this transaction; -1: the table has no version
	Columns  map[string]json.RawMessage // of Mapping.EventColumns
	Verdict  orderclose.Verdict
	err      error     // of the verdict Failed; nil: errNoDue
	table    string    // Dialect.RowTable
	at       time.Time // the clock of the transaction that read the row; zero: that of the first
}

// PreviewClose returns the outcomes that CloseOrders would return now, in the order of reqs,
// and changes nothing: Closed stands for an order that is unpaid and due. It reads by key
// without a lock, so an outcome may change at once. Pauses count, those of
// categories too; with an empty path no pause counts. The errors of a pause and of a database that
// failed are those of CloseOrders.
func (s *Closer) PreviewClose(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	c, err := s.ReadForClose(ctx, path, reqs)
	if err != nil {
		return nil, fmt.Errorf("read %d orders from %q: %w", len(reqs), reqs[0].OrderID, s.Explain(ctx, err))
	}
	out := make([]orderclose.Outcome, len(reqs))
	for i, r := range reqs {
		out[i] = c.Outcome(r.OrderID)
	}
	return out, nil
}

// ReadForClose reads what a close would lock. With an empty path it reads no pauses.
func (s *Closer) ReadForClose(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) (*Rows, error) {
	ids, requests := s.Distinct(reqs)
	candidates, err := s.Candidates(ctx, reqs)
	if err != nil {
		return nil, err
	}
	c := s.NewRows(s.Gorm.WithContext(ctx), requests, candidates)
	if err := c.readOrders(ids, LockNothing, path); err != nil {
		return nil, err
	}
	c.findAstray(ctx)
	return c, c.ReadClock()
}

// findAstray looks for the orders without a row in the tables that do not fit the mapping. No transaction is open: it may have the last connection.
func (c *Rows) findAstray(ctx context.Context) {
	var missing []orderclose.CloseRequest
	for id, r := range c.requests {
		if _, found := c.Orders[id]; !found && c.Contended[id] == nil {
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		c.astray = c.S.Astray(ctx, missing)
	}
}

// WithOrders runs do in a transaction that has read orders as readOrders does.
func (s *Closer) WithOrders(ctx context.Context, reqs []orderclose.CloseRequest, locks locking, path orderclose.Path, do func(c *Rows) error) error {
	where, err := s.Candidates(ctx, reqs) // outside the transaction, which holds one connection already
	if err != nil {
		return err
	}
	ids, requests := s.Distinct(reqs)
	return s.Transact(ctx, func(tx *gorm.DB) error {
		c := s.NewRows(tx, requests, where)
		if err := c.readOrders(ids, locks, path); err != nil {
			return err
		}
		return do(c)
	})
}

// readOrders reads the rows of orders, and locks them as locks says. With an empty path it reads no pauses.
func (c *Rows) readOrders(ids []string, locks locking, path orderclose.Path) error {
	if c.Locks, c.path = locks, path; path != "" { //mutant:paused-payment-asked
		if err := c.readPauses(); err != nil {
			return err
		}
	}
	return c.LockOrders(ids)
}

// sorted returns the tables of orders, always in the same order.
func sorted(orders map[*db.Table][]string) []*db.Table {
	return slices.SortedFunc(maps.Keys(orders), func(a, b *db.Table) int { return strings.Compare(a.Name, b.Name) })
}

// LockOrders reads each order in the first of its tables that has it, and locks it as c.locks says.
func (c *Rows) LockOrders(ids []string) error {
	for n := 0; len(ids) > 0; n++ {
		in := map[*db.Table][]string{}
		for _, id := range ids {
			if t := c.Candidates.Nth(id, n); t != nil {
				in[t] = append(in[t], id)
			}
		}
		var missing []string
		for _, t := range sorted(in) {
			for part := range slices.Chunk(in[t], db.MaxIn) {
				if err := db.Searched(part, func(ids []string) error { return c.lock(t, ids) }); err != nil {
					return err
				}
				absent, err := c.notInTable(t, part)
				if err != nil {
					return err
				}
				missing = append(missing, absent...)
			}
		}
		ids = missing
	}
	return nil
}

// notInTable returns the ids that have no row in a table. An id whose row exists, but was skipped because
// of a lock, is contended. The next table does not have its row either.
func (c *Rows) notInTable(t *db.Table, ids []string) ([]string, error) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, found := c.Orders[id]; return found })
	if len(ids) == 0 || c.Locks != SkipLocked {
		return ids, nil
	}
	locked, err := c.S.existing(c.Tx, t, ids)
	return slices.DeleteFunc(ids, func(id string) bool { // the collation may also match another order of the batch
		if slices.Contains(locked, id) {
			c.Contended[id] = errRowLocked
		}
		return c.Contended[id] != nil
	}), err
}

// lock reads the rows of ids in a table, locks them as c.locks says, and decides on each. It leaves out
// rows that were not requested, which the database matches by the collation.
func (c *Rows) lock(t *db.Table, ids []string) error {
	query := map[locking]string{WaitForLocks: t.Lock, SkipLocked: t.LockFree, LockNothing: t.Read}[c.Locks]
	columns, typed := eventColumns{names: c.S.Q.M.EventColumns}, false
	var found []string
	err := db.EachRow(c.Tx, query, append(c.S.Q.StateArgs(), c.S.Q.D.Now(), c.S.Q.Args(ids)), func(rows *sql.Rows) (err error) {
		var (
			id        string
			row       lockedRow
			st        db.State
			due, from any // no sql.RawBytes: columns.read would wait for ever if the call is cancelled before it
			now       time.Time
		)
		if !typed {
			if err := c.S.Q.CheckDueType(rows); err != nil {
				return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, err)
			}
			typed = true
		}
		into := append([]any{&id, db.Nullable(&row.Category), &st, &due, &row.Version, db.TimeInto(&now), &from, &row.table}, columns.into()...)
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if _, asked := c.requests[id]; !asked {
			return nil
		}
		if row.Columns, err = columns.read(rows); err != nil {
			return err
		}
		if row.Due, err = c.S.Q.DecodeDue(due); err != nil {
			return db.Unavailable(c.Tx.Statement.Context, err) // the mapping is wrong, not an order
		}
		if c.Now.IsZero() {
			c.Now = now // the clock of the first statement: an older clock never closes early
		}
		row.Verdict = verdict(st, row.Due, c.S.Q.NotBefore(), c.Now)
		if row.Verdict == orderclose.Closed && c.Paused[row.Category] {
			row.Verdict = orderclose.Paused
		}
		first, known := c.Orders[id]
		switch {
		case !known:
			c.Orders[id] = row
			found = append(found, id)
			if st == db.StateOpen || st == db.StateExcluded {
				c.Open[id] = t
			}
		case first.table != row.table && (first.Verdict == orderclose.Closed || row.Verdict == orderclose.Closed): // no unique index has both rows
			row.Verdict, row.err = orderclose.Failed, inTwo(id, first.table, row.table)
			c.Orders[id] = row
			delete(c.Open, id)
		}
		return nil
	})
	for _, id := range found {
		if c.Orders[id].Verdict == orderclose.Closed {
			c.won[t] = append(c.won[t], id)
		}
	}
	return err
}

// inTwo returns the error of an order in two tables.
func inTwo(id, one, other string) error {
	return because(orderclose.InTwoTables, "order %q is in the tables %s and %s: let one of them have it", id, one, other)
}

// orInTwo returns the error of an order that is open in a table though it has a receipt: why, unless another table has the order too.
func (c *Rows) orInTwo(t *db.Table, id string, why error) error {
	for _, other := range c.Candidates.All {
		if other == t {
			continue
		}
		if found, err := c.S.existing(c.Tx, other, []string{id}); err == nil && slices.Contains(found, id) {
			return fmt.Errorf("%w; %w", inTwo(id, t.Name, other.Name), why)
		}
	}
	return why
}

// ReadClock reads the clock if no row returned it.
func (c *Rows) ReadClock() (err error) {
	if c.Now.IsZero() {
		c.Now, err = c.S.NowIn(c.Tx)
	}
	return err
}

// Refuses returns why this Store closes no order now, by the last answer of CheckMapping. No order is at fault.
func (s *Closer) Refuses() error {
	if err := s.Unfit.Load(); err != nil {
		return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, *err)
	}
	return nil
}

// readPauses reads the pauses. If all orders are paused, it returns an error that says so. A call without a path obeys no pause.
func (c *Rows) readPauses() error {
	c.Paused = map[string]bool{}
	if c.path == "" {
		return nil
	}
	if err := c.S.Refuses(); err != nil {
		return err
	}
	pauses, err := c.S.pauses(c.Tx, c.S.Dialect.Now())
	if err != nil {
		return err
	}
	for _, p := range pauses {
		if p.Category == "" { //mutant:global-pause-ignored
			return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, p.Err())
		}
		c.Paused[p.Category] = true
	}
	return nil
}

// readDelays keeps a process from closing orders with other delays than its own. No order is at fault.
func (c *Rows) readDelays() error {
	err := c.S.CheckDelaysIn(c.Tx)
	if errors.Is(err, db.ErrDelays) {
		err = fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, err)
	}
	return err
}

// outcomes returns the outcomes of reqs. A repeated request of an order that this
// transaction closed gets AlreadyClosed.
func (c *Rows) outcomes(reqs []orderclose.CloseRequest) []orderclose.Outcome {
	out := make([]orderclose.Outcome, len(reqs))
	seen := make(map[string]bool, len(reqs))
	for i, r := range reqs {
		out[i] = c.Outcome(r.OrderID)
		if seen[r.OrderID] && out[i].Verdict == orderclose.Closed {
			out[i].Verdict = orderclose.AlreadyClosed
		}
		seen[r.OrderID] = true
	}
	return out
}

// Outcome returns the outcome of one order.
func (c *Rows) Outcome(id string) orderclose.Outcome {
	row, ok := c.Orders[id]
	switch {
	case c.Contended[id] != nil:
		return orderclose.Outcome{OrderID: id, Verdict: orderclose.Contended, At: c.Now, Err: c.Contended[id]}
	case c.astray[id] != nil:
		return orderclose.Outcome{OrderID: id, Verdict: orderclose.Failed, At: c.Now, Err: c.astray[id], Cause: orderclose.TableUnfit}
	case !ok:
		return orderclose.Outcome{OrderID: id, Verdict: orderclose.NotFound, At: c.Now, Err: notFound(id)}
	}
	o := orderclose.Outcome{OrderID: id, Verdict: row.Verdict, Due: row.Due, At: c.Now}
	if !row.at.IsZero() {
		o.At = row.at
	}
	switch row.Verdict {
	case orderclose.Failed:
		o.Err = cmp.Or(row.err, errNoDue)
		o.Cause = bisect.CauseOf(o.Err)
	case orderclose.Paused:
		o.Err = pausing.ErrPausedCategory
	}
	return o
}

// notFound is the error of an order without a row. A sweep may find ids that orderclose refuses.
func notFound(id string) error {
	if err := orderclose.ValidateID(id); err != nil {
		return because(orderclose.RowNotFound, "orderclose closes no order with this id: %w", err)
	}
	return because(orderclose.RowNotFound, "the database has no order %q", id)
}
