package shoptest

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// Session runs statements of the shop, each for itself or in a transaction.
type Session struct {
	shop *Shop
	on   interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
}

// rolledBack ends a transaction from within its function.
type rolledBack struct{}

// Exec runs a statement, and returns how many rows it found.
func (q Session) Exec(query string, args ...any) int {
	q.shop.Helper()
	result, err := q.on.ExecContext(q.shop.Context(), query, args...)
	q.check(query, err)
	n, err := result.RowsAffected()
	q.check(query, err)
	return int(n)
}

// Read reads one row into the variables of into. It returns false if there is none.
func (q Session) Read(into []any, query string, args ...any) bool {
	q.shop.Helper()
	err := q.on.QueryRowContext(q.shop.Context(), query, args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false
	}
	q.check(query, err)
	return true
}

// Int reads a number.
func (q Session) Int(query string, args ...any) (n int) {
	q.shop.Helper()
	q.Read([]any{&n}, query, args...)
	return n
}

// Rows calls each for each row, with its columns in the variables of into.
func (q Session) Rows(into []any, each func(), query string, args ...any) {
	q.shop.Helper()
	rows, err := q.on.QueryContext(q.shop.Context(), query, args...)
	q.check(query, err)
	for rows.Next() {
		q.check(query, rows.Scan(into...))
		each()
	}
	q.check(query, errors.Join(rows.Err(), rows.Close()))
}

// Rollback ends the transaction, as an exception in the shop's code does.
func (q Session) Rollback() { panic(rolledBack{}) }

// refusals are the error codes of a statement that a trigger refuses.
var refusals = regexp.MustCompile(`\(45000\)|SQLSTATE P0001`)

// check ends the transaction on an error. Neither a deadlock nor the refusal of a trigger is a failure of the
// test: the shops of these tests do not repeat their transactions, and the customer sees an error.
func (q Session) check(query string, err error) {
	q.shop.Helper()
	if err == nil {
		return
	}
	if err := store.Classify(err); !errors.Is(err, orderclose.ErrContended) && !refusals.MatchString(err.Error()) {
		q.shop.Errorf("%s: %v", query, err)
	}
	q.Rollback()
}

// Tx runs do in a transaction, and reports whether it was committed.
func (s *Shop) Tx(do func(q Session)) (committed bool) {
	s.Helper()
	tx, err := s.db.BeginTx(s.Context(), nil)
	s.check("BEGIN", err)
	defer func() {
		if p := recover(); p != nil {
			_ = tx.Rollback()
			if p != (rolledBack{}) {
				panic(p)
			}
		}
	}()
	do(Session{s, tx})
	q := Session{s, tx}
	q.check("COMMIT", tx.Commit())
	return true
}

// Close closes the orders with these ids as the pipeline does, and returns their verdicts. As the closer, it
// repeats halves of a batch that meets the locks of another transaction.
func (s *Shop) Close(ids ...string) (verdicts []orderclose.Verdict) {
	s.Helper()
	var requests []orderclose.CloseRequest
	for _, id := range ids {
		requests = append(requests, orderclose.CloseRequest{OrderID: id})
	}
	out, err := s.Store.CloseOrders(s.Context(), orderclose.PathPipeline, requests)
	switch half := len(ids) / 2; {
	case errors.Is(err, orderclose.ErrContended) && half > 0:
		return append(s.Close(ids[:half]...), s.Close(ids[half:]...)...)
	case errors.Is(err, orderclose.ErrContended):
		return []orderclose.Verdict{orderclose.Contended}
	case err != nil:
		s.Errorf("close %v: %v", ids, err)
	}
	for _, o := range out {
		expect.That(s, o.Err == nil || o.Verdict == orderclose.Contended, "close %s: %s: %v", o.OrderID, o.Verdict, o.Err)
		verdicts = append(verdicts, o.Verdict)
	}
	return verdicts
}

// Sweep closes all overdue orders, as the compensator does, and returns how many it has closed. It repeats orders whose rows other transactions lock.
func (s *Shop) Sweep() (closed int) {
	s.Helper()
	for range 100 {
		n, left := s.sweep()
		if closed += n; left == 0 {
			return closed
		}
	}
	s.Error("the sweeps do not come to an end")
	return closed
}

// sweep closes the orders that are overdue now. left is how many of them it has not closed.
func (s *Shop) sweep() (closed, left int) {
	s.Helper()
	overdue, _, _, err := s.Store.OverdueNow(s.Context(), 0)
	expect.That(s, err == nil, "read the overdue orders: %v", err)
	var ids []string
	for _, o := range overdue {
		ids = append(ids, o.ID)
	}
	if len(ids) == 0 {
		return 0, 0
	}
	for _, v := range s.Close(ids...) {
		if v == orderclose.Closed {
			closed++
		}
	}
	return closed, len(ids) - closed
}

// Crowd runs customer for each number below n, eight at a time, and sweeps meanwhile. In the end no order is
// overdue. It returns how many orders the sweeps have closed.
func (s *Shop) Crowd(n int, customer func(i int)) (closed int) {
	s.Helper()
	numbers, stop := make(chan int), make(chan struct{})
	var crowd, sweeps sync.WaitGroup
	for range 8 {
		crowd.Go(func() {
			for i := range numbers {
				customer(i)
			}
		})
	}
	sweeps.Go(func() {
		for pause := time.NewTicker(20 * time.Millisecond); ; {
			n, _ := s.sweep()
			closed += n
			select {
			case <-pause.C:
			case <-stop:
				pause.Stop()
				return
			}
		}
	})
	for i := range n {
		numbers <- i
	}
	close(numbers)
	crowd.Wait()
	close(stop)
	sweeps.Wait()
	return closed + s.Sweep()
}
