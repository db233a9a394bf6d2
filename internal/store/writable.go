package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"orderclose"
	"orderclose/internal/tables"
)

const (
	// writableWithin bounds Writable.
	writableWithin = 5 * time.Second
	// tableLockWait is for how many seconds Writable waits for the lock of a table that
	// another session holds. The server stops waiting by itself: asking again and again
	// leaves nothing behind on a server that is locked for hours.
	tableLockWait = 1
)

// ErrLocked says that a statement waited in vain for the lock of a table.
var ErrLocked = errors.New("another session holds the lock of a table: FLUSH TABLES WITH READ LOCK, LOCK TABLES, or a long ALTER TABLE or transaction; SHOW PROCESSLIST names it")

// errUndo ends a transaction that shall leave nothing behind.
var errUndo = errors.New("undo")

// Writable reports why a close could not be written now: the database is away,
// read-only or full, a table that a close writes to is locked, or the user lacks a right
// to it. It updates no row in each table of orders and of stock, inserts into the tables
// beside them, and rolls back. It takes 5 s at most. The error wraps
// orderclose.ErrUnavailable, and ErrLocked where it is so.
func (s *Store) Writable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writableWithin)
	defer cancel()
	err := s.writable(ctx)
	if err != nil {
		return fmt.Errorf("try to write as a close does, and roll back: %w", unavailable(ctx, err))
	}
	return nil
}

func (s *Store) writable(ctx context.Context) error {
	statements, err := s.closeWrites(ctx)
	if err != nil {
		return err
	}
	// One connection throughout: the bound on the wait is the session's.
	return s.gorm.WithContext(ctx).Connection(func(conn *gorm.DB) (err error) {
		if s.dialect.lockWait != "" {
			var before int64
			if err := conn.Raw("SELECT @@" + s.dialect.lockWait).Scan(&before).Error; err != nil {
				return err
			}
			if err := conn.Exec("SET SESSION "+s.dialect.lockWait+" = ?", tableLockWait).Error; err != nil {
				return err
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				err = errors.Join(err, conn.WithContext(ctx).Exec("SET SESSION "+s.dialect.lockWait+" = ?", before).Error)
			}()
		}
		err = conn.Transaction(func(tx *gorm.DB) error {
			if err := s.tryWrites(tx, statements); err != nil {
				return err
			}
			return errUndo
		}, readCommitted)
		if errors.Is(err, errUndo) {
			return nil
		}
		return err
	})
}

// closeWrites are statements that change the columns that a close changes, of no row.
func (s *Store) closeWrites(ctx context.Context) ([]string, error) {
	in := []*table{s.q.whole}
	if s.q.months != nil {
		var err error
		if in, err = s.monthTables(ctx); err != nil {
			return nil, err
		}
	}
	m := s.q.m
	var statements []string
	for _, t := range in {
		columns := []string{m.Status.Column, m.Version}
		if m.ClosedAt != nil {
			columns = append(columns, m.ClosedAt.Column)
		}
		statements = append(statements, updateNone(t.name, columns...))
	}
	if m.Stock != nil {
		statements = append(statements, updateNone(m.Stock.Table, m.Stock.Available, m.Stock.Reserved))
	}
	return statements, nil
}

func updateNone(table string, columns ...string) string {
	var set []string
	for _, c := range columns {
		if c != "" {
			set = append(set, tables.Quote(c)+" = "+tables.Quote(c))
		}
	}
	return "UPDATE " + tables.Quote(table) + " SET " + strings.Join(set, ", ") + " WHERE 1 = 0"
}

// tryWrites writes what a close writes. Each call has an id of its own: two of them do
// not wait for each other.
func (s *Store) tryWrites(tx *gorm.DB, statements []string) error {
	id := "write-probe-" + rand.Text()
	for _, statement := range statements {
		if err := s.lockedOut(tx.Exec(statement).Error, statement); err != nil {
			return err
		}
	}
	now, err := s.now(tx)
	if err != nil {
		return err
	}
	at := s.dialect.time(now)
	for _, in := range []struct {
		into string
		row  []any
	}{
		{"outbox_events (order_id, payload, created_at)", []any{id, "{}", at}},
		{"stock_ledger (order_id, sku_id, kind, quantity, created_at)", []any{id, id, kindClose, 0, at}},
		{"receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms)", []any{id, orderclose.NotFound, at, at, "probe", 0, 0}},
	} {
		rows := insert{into: in.into}
		rows.row(in.row...)
		if err := s.lockedOut(rows.exec(tx), "INSERT INTO "+in.into); err != nil {
			return err
		}
	}
	return nil
}

// lockedOut names a statement that failed, and says what it waited for.
func (s *Store) lockedOut(err error, statement string) error {
	switch {
	case err == nil:
		return nil
	case s.dialect.Fault(err) == FaultRetry:
		return fmt.Errorf("%s: %w: %w", statement, ErrLocked, err)
	}
	return fmt.Errorf("%s: %w", statement, err)
}
