package closetx

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/internal/db"
)

// writableWithin bounds Writable.
const writableWithin = 5 * time.Second

// errUndo rolls a transaction back on purpose.
var errUndo = errors.New("undo")

// Writable reports why a close could not be written now: the database is not reachable,
// read-only or full, a table that a close writes is locked, or the user lacks a privilege. In one
// transaction it reads the pauses (and before, with due times by rule, the delays), executes UPDATEs that match no row on the tables of orders and of
// stock, inserts rows into the other tables, and rolls back. Before, it asks whether the server is read-only, because a privileged
// user may write there too. It takes at most 5 s. The error wraps orderclose.ErrUnavailable, and ErrLocked if the wait for a table
// lock timed out.
func (s *Closer) Writable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writableWithin)
	defer cancel()
	if err := s.NotReadOnly(ctx); err != nil {
		return err
	}
	if err := s.writable(ctx); err != nil {
		return fmt.Errorf("test the writes of a close: %w", db.Unavailable(ctx, err))
	}
	return nil
}

// TakesWrites is Writable for a process whose user may only read, such as a console. If the user lacks a
// privilege, it only checks that the server is not read-only.
func (s *Closer) TakesWrites(ctx context.Context) error {
	if err := s.Writable(ctx); !db.Denied(err) {
		return err
	}
	return nil
}

func (s *Closer) writable(ctx context.Context) error {
	if err := s.CheckDelaysIn(s.Gorm.WithContext(ctx)); err != nil {
		return err
	}
	statements, err := s.closeWrites(ctx)
	if err != nil {
		return err
	}
	return s.Gorm.WithContext(ctx).Connection(func(conn *gorm.DB) error {
		defer s.discard(conn)
		return s.undone(ctx, conn, func(tx *gorm.DB) error { return s.tryWrites(tx, statements) })
	})
}

// undone runs work in a transaction of a connection, and rolls back. The server ends each wait for a lock after a
// second. So repeated calls leave no sessions behind on a server that is locked for hours.
func (s *Closer) undone(ctx context.Context, conn *gorm.DB, work func(tx *gorm.DB) error) error {
	err := conn.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		for _, statement := range s.Dialect.ShortWaits {
			if err := tx.Exec(statement).Error; err != nil {
				return err
			}
		}
		if err := work(tx); err != nil {
			return err
		}
		return errUndo
	}, db.ReadCommitted)
	if errors.Is(err, errUndo) {
		return nil
	}
	return err
}

// discard closes the connection of undone, whose session has short waits for locks.
func (s *Closer) discard(conn *gorm.DB) {
	if c, ok := conn.Statement.ConnPool.(*sql.Conn); ok && len(s.Dialect.ShortWaits) > 0 {
		_ = c.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// closeWrites returns an UPDATE for each table of orders and for the stock, and a locking SELECT for
// each table of lines. Each UPDATE sets the columns that a close changes. They match no row.
func (s *Closer) closeWrites(ctx context.Context) ([]string, error) {
	in, err := s.AllTables(ctx)
	if err != nil {
		return nil, err
	}
	var statements []string
	for _, t := range in {
		statements = append(statements, s.Writes(t)...)
	}
	for _, stock := range s.Q.M.Stock {
		statements = append(statements, db.UpdateNone(stock.Table, stock.Available, stock.Reserved, stock.Version, stock.Lock.Name()))
	}
	return statements, nil
}

// tryWrites makes the writes of a close. Each call uses its own id, so that two calls do not
// wait for each other.
func (s *Closer) tryWrites(tx *gorm.DB, statements []string) error {
	id := "write-probe-" + rand.Text()
	if _, err := s.pauses(tx, s.Dialect.Now()); err != nil { // each close reads them
		return s.statementError(err, "SELECT FROM pauses")
	}
	for _, statement := range statements {
		if err := s.statementError(tx.Exec(statement).Error, statement); err != nil {
			return err
		}
	}
	now, err := s.NowIn(tx)
	if err != nil {
		return err
	}
	at := s.Dialect.Time(now)
	for _, in := range []struct {
		into string
		row  []any
	}{
		{"outbox_events (order_id, payload, created_at)", []any{id, "{}", at}},
		{"receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms, returned)", []any{id, orderclose.NotFound, at, at, "probe", 0, 0, "{}"}},
	} {
		rows := db.Insert{Into: in.into}
		rows.Row(in.row...)
		if err := s.statementError(rows.Exec(tx, s.Dialect), "INSERT INTO "+in.into); err != nil {
			return err
		}
	}
	return nil
}

// statementError wraps an error with the statement that failed, and with ErrLocked after a lock
// wait.
func (s *Closer) statementError(err error, statement string) error {
	if err != nil && s.Dialect.Fault(err) == db.FaultRetry {
		err = fmt.Errorf("%w: %w", db.ErrLocked, err)
	}
	return db.Wrap(err, "%s", statement)
}

// Probe makes and commits a write that belongs to no order and changes nothing: it inserts a
// receipt without an order, as a close does, and deletes it in the same transaction. If closing
// one order alone fails and Probe succeeds, the order caused the failure. The error wraps
// orderclose.ErrUnavailable.
func (s *Closer) Probe(ctx context.Context) error {
	err := s.Transact(ctx, func(tx *gorm.DB) error {
		now, err := s.NowIn(tx)
		if err != nil {
			return err
		}
		in := db.Insert{Into: "receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms)"}
		in.Row("", orderclose.NotFound, s.Dialect.Time(now), s.Dialect.Time(now), "probe", 0, 0) // no order has the empty id
		if err := in.Exec(tx, s.Dialect); err != nil {
			return err
		}
		return db.ExecRows(tx, 1, "DELETE FROM receipts WHERE order_id = ''", nil)
	})
	if err != nil {
		return fmt.Errorf("write a probe receipt: %w", db.Unavailable(ctx, err))
	}
	return nil
}
