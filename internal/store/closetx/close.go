package closetx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/schema"
)

// Closer closes orders, previews and tries closes, and pauses them.
type Closer struct {
	*schema.Checker
	entries   entryCache
	stuck     stuck
	lastClose atomic.Pointer[time.Time] // when an order was closed last; nil: none was
	// lastCrowd is when closes last waited in vain for the stock. They lock it first for crowdedFor; nil: never.
	lastCrowd atomic.Pointer[time.Time]
	// stockTurn has the time when the last transaction of manyOrders that moved stock has ended. It is empty while one moves stock.
	stockTurn chan time.Time
	waits     atomic.Pointer[bool] // the result of releaseWaits; nil: not asked yet
	watch     atomic.Bool          // a table that a close writes has a trigger
}

// maxRounds is how often one transaction of CloseOrders is tried, each time in another way.
const maxRounds = 5

// CloseOrders closes the orders of reqs that are unpaid and due by the database's clock. In the same
// transaction it releases their stock, and writes a receipt and an outbox event for each. Most calls are one
// transaction; orders that it leaves out because others lock their stock are tried again in further ones. It returns an
// outcome for each request, in the order of reqs. Orders whose rows show that they cannot be closed are Failed, if others are closed with
// them. If several requests name one order, the first gets the verdict; the
// others get AlreadyClosed if it closed.
//
// On an error no order was closed, unless the answer to the commit was lost. If that commit was done, the next call
// answers AlreadyClosed.
//
// The error tells what to do:
//
//   - orderclose.ErrUnavailable: the database failed, and no order caused it. The error also
//     wraps the context's error if the context ended.
//   - orderclose.ErrPaused, with ErrUnavailable and ErrNoOrderAtFault: all orders are paused. If only some
//     categories are paused, their orders are Paused, and there is no error.
//   - orderclose.ErrNoOrderAtFault, with ErrUnavailable: every batch would fail. It is missing after the
//     read timeout: then an order may have made the database hang. It is missing too if the server refuses a statement,
//     and accepts the writes of a close without an order right after: then a trigger may refuse one of the orders.
//   - orderclose.ErrContended: other transactions lock rows of some orders, again and again.
//     The batch without these orders can succeed. If the database can name the locked orders,
//     there is no error: these orders are Contended, and the others are closed.
//   - Any other error: some order caused it. The batch without that order can succeed.
//
// An order whose own row another transaction locks is Contended at once. If another transaction locks one of its lines, or a row of
// its stock for longer than stockWait, the order is left out. It is Contended if its lines are locked, and otherwise after roundsFor.
func (s *Closer) CloseOrders(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	began := time.Now()
	c, err := s.closeUnlocked(ctx, path, reqs)
	if err != nil {
		c, err = s.closeOthers(ctx, path, reqs, err)
	}
	if err != nil {
		if errors.Is(err, orderclose.ErrUnavailable) && !s.mayBeHung(ctx, time.Since(began)) && !s.mayBeOrders(ctx, err) {
			err = fmt.Errorf("%w: %w", err, orderclose.ErrNoOrderAtFault)
		}
		if ids, _ := s.Distinct(reqs); len(ids) == 1 {
			err = s.withCause(ctx, reqs[0], err) //mutant:failure-without-cause
			if bisect.CauseOf(err) != "" {       // its text names the order
				return nil, err
			}
		}
		return nil, fmt.Errorf("close %d orders from %q: %w", len(reqs), reqs[0].OrderID, err)
	}
	out := c.outcomes(reqs)
	if slices.ContainsFunc(out, func(o orderclose.Outcome) bool { return o.Verdict == orderclose.Closed }) {
		s.lastClose.Store(new(time.Now()))
	}
	return out, nil
}

// ClosedWithin reports whether this Store has closed an order within the last while. Then the database
// takes writes, and Writable need not ask.
func (s *Closer) ClosedWithin(last time.Duration) bool {
	return Within(&s.lastClose, last)
}

// Within reports whether a moment was within the last while, also if the clock was set meanwhile. A moment that is nil never was.
func Within(at *atomic.Pointer[time.Time], last time.Duration) bool {
	t := at.Load()
	return t != nil && time.Since(*t) < last
}

// mayBeHung reports whether a call that failed took all of its time, or at least the read timeout. Then an order may have
// made the database hang, so ErrUnavailable does not clear the orders of the call.
func (s *Closer) mayBeHung(ctx context.Context, took time.Duration) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || s.AnswerLimit > 0 && took >= s.AnswerLimit
}

// mayBeOrders reports whether an order may be the cause of an error that says that the server cannot work. A trigger may raise any
// error, or call a routine that is gone, for one order. Then the server accepts the writes of a close without that order.
func (s *Closer) mayBeOrders(ctx context.Context, err error) bool {
	if !db.Raisable(err) || s.Writable(ctx) != nil {
		return false
	}
	problems, err := s.CheckOnClose(ctx)
	return err == nil && len(problems) == 0
}

// MaxBatch implements closer.Store. While shops and closes compete for the stock, transactions are small, so that they are short.
func (s *Closer) MaxBatch() int {
	if s.isCrowded() {
		return crowdedBatch
	}
	return 0
}

// closeUnlocked closes the orders that no other transaction locks. Those of a batch that has waited in vain for a lock it closes apart.
func (s *Closer) closeUnlocked(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) (*Rows, error) {
	ids, requests := s.Distinct(reqs)
	candidates, err := s.Candidates(ctx, reqs)
	if err != nil {
		return nil, err
	}
	all := s.newClosing(nil, requests, candidates)
	ids, stuck := s.leaveStuck(ids, all)
	var turn *hotRow
	if len(ids) > 0 {
		if ids, turn, err = s.closeRounds(ctx, path, all, ids); err != nil {
			return nil, err
		}
	}
	s.closeApart(ctx, path, all, append(ids, stuck...), turn)
	all.findAstray(ctx)
	if all.Now.IsZero() {
		all.Now, err = s.Now(ctx)
	}
	return &all.Rows, err
}

// closeRounds closes orders in one transaction. Orders that it left out because of their stock it tries again for roundsFor, in transactions
// of their own. Each of these first waits, with nothing locked, for the row of stock that most of them need. all takes the results. It returns
// the orders to close apart: one of them is at fault, or has waited in vain for a lock.
func (s *Closer) closeRounds(ctx context.Context, path orderclose.Path, all *closing, ids []string) (apart []string, turn *hotRow, err error) {
	for began, n := time.Now(), 0; ; n++ {
		c, err := s.closeRound(ctx, path, ids, all.requests, all.Candidates, turn)
		switch {
		case errors.Is(err, errWaited) && len(ids) > 1:
			for _, id := range ids {
				all.Contended[id] = err
			}
			return ids, turn, nil
		case err != nil && (n == 0 || len(all.all) == 0 && errors.Is(err, orderclose.ErrUnavailable)):
			return nil, nil, err
		case err != nil && !errors.Is(err, orderclose.ErrContended) && !errors.Is(err, orderclose.ErrUnavailable):
			return ids, turn, nil
		case err != nil:
			return nil, nil, nil // what this transaction left is contended still
		}
		all.add(c)
		ids, turn = slices.DeleteFunc(ids, func(id string) bool { return !c.leftOut[id] }), c.turn
		if turn == nil || n > 0 && time.Since(began) > roundsFor || !retry.Sleep(ctx, roundPause) {
			return nil, nil, nil
		}
	}
}

// closeRound is one transaction of closeUnlocked. It is tried again after a lock that another way of closing can
// avoid.
func (s *Closer) closeRound(ctx context.Context, path orderclose.Path, ids []string, requests map[string]orderclose.CloseRequest,
	candidates db.Candidates, turn *hotRow) (c *closing, err error) {
	locked := map[string]error{} // orders with locked lines
	waited := false              // for the stock, in vain
	s.loadEntries(ctx, candidates.All)
	entries, err := s.releaseWaits(s.Gorm.WithContext(ctx)) // else the UPDATE of the orders fails at once, or no entry is locked apart
	if err != nil {
		return nil, s.Explain(ctx, err)
	}
	for range maxRounds {
		left := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return locked[id] != nil })
		c, err = s.tryClose(ctx, path, left, requests, candidates, turn, entries)
		switch {
		case errors.Is(err, errWatch): // once more, with a look at the stock before
		case errors.Is(err, errMarkLocked):
			entries = true
		case errors.Is(err, errLinesLocked):
			for id := range s.ordersWithLockedLines(ctx, left, candidates) {
				locked[id] = errLineLocked
			}
		case errors.Is(err, errStockLocked) && turn == nil:
			if waited { // twice: it was more than another close
				s.crowded()
			}
			waited = true
			retry.Sleep(ctx, roundPause)
		case err == nil:
			maps.Copy(c.Contended, locked)
			if len(ids) == 1 {
				s.stuck.forget(ids[0])
			}
			return c, nil
		default:
			if db.HasCode(err, db.LockedCodes) {
				s.entries.Clear() // an index may be new
			}
			if len(ids) == 1 && errors.Is(err, errWaited) {
				s.stuck.add(ids[0], err)
			}
			return nil, err
		}
	}
	return nil, err
}

// tryClose closes orders in one transaction. The closing holds what became of each order.
func (s *Closer) tryClose(ctx context.Context, path orderclose.Path, ids []string, requests map[string]orderclose.CloseRequest, candidates db.Candidates,
	turn *hotRow, entries bool) (*closing, error) {
	var c *closing
	committing := false
	defer func() { c.endStockTurn() }()
	err := s.Transact(ctx, func(tx *gorm.DB) error {
		c.endStockTurn() // the commit of the last try has failed
		c = s.newClosing(tx, requests, candidates)
		c.Locks, c.path, c.turn = SkipLocked, path, turn
		c.stockFirst, c.watched = turn != nil || s.isCrowded(), s.watch.Load()
		c.entries = entries || c.stockFirst
		c.alone = len(ids) == 1 && (len(requests) > 1 || s.stuck.has(ids[0]))
		err := c.run(ids)
		if committing = err == nil; !committing {
			c.endStockTurn() // before a pause of transact
		}
		return err
	})
	if committing && db.HasCode(err, db.LockedCodes) {
		err = c.waited(err, "") // a deferred foreign key has waited
	}
	return c, err
}
