package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func TestMySQL_Writable(t *testing.T) { eachServer(t, writable) }

func writable(t *testing.T) {
	dsn := migratedDatabase(t)
	admin := openMigrated(t, store.Options{DSN: dsn})
	t.Run("LeavesNothingBehind", func(t *testing.T) { writableLeavesNothing(t, dsn) })
	t.Run("SeesALockedTable", func(t *testing.T) { writableSeesLocks(t, admin) })
	t.Run("SeesAMissingRight", func(t *testing.T) { writableSeesRights(t, admin, dsn) })
}

func writableLeavesNothing(t *testing.T, dsn string) {
	s := open(t, store.Options{DSN: dsn, MaxOpenConns: 1})
	setting := func() (n int) {
		must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT @@lock_wait_timeout").Scan(&n))
		return n
	}
	before := setting()
	expect.That(t, before == 20, "the server waits %d s for a table lock, and the client 15", before)
	mustBeWritable(t, s)
	var rows int
	must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM receipts) + (SELECT COUNT(*) FROM outbox_events)").Scan(&rows))
	if rows != 0 || setting() != before {
		t.Errorf("%d rows; the wait for a table lock is %d s, was %d s", rows, setting(), before)
	}
	exec(t, s.DB(), "SET SESSION TRANSACTION READ ONLY")
	err := s.Writable(t.Context())
	expect.That(t, err != nil && errors.Is(err, orderclose.ErrUnavailable) && strings.Contains(err.Error(), "1792"), "read-only: %v", err)
}

// mustBeWritable requires that Writable finds nothing. A busy machine may not answer within its time.
func mustBeWritable(t *testing.T, s *store.Store) {
	t.Helper()
	storetest.Await(t, "an answer within its time", func() (string, bool) {
		err := s.Writable(t.Context())
		if errors.Is(err, context.DeadlineExceeded) {
			return err.Error(), false
		}
		must.Do(t, err)
		return "", true
	})
}

// Writable waits for a table lock for one second.
func writableSeesLocks(t *testing.T, s *store.Store) {
	other := must.Get(s.DB().Conn(t.Context()))(t)
	defer func() { _ = other.Close() }()
	exec(t, other, "LOCK TABLES stock WRITE")
	err := s.Writable(t.Context())
	expect.That(t, errors.Is(err, store.ErrLocked) && strings.Contains(err.Error(), "`stock`"), "stock is locked: %v", err)
	exec(t, other, "UNLOCK TABLES")
	mustBeWritable(t, s)
}

// The error names the column on which the user lacks a privilege.
func writableSeesRights(t *testing.T, admin *store.Store, dsn string) {
	own, change := newUser(t, admin, dsn)
	change("GRANT", "SELECT, INSERT ON *", "UPDATE ON orders", "UPDATE ON order_items", "UPDATE (available) ON stock")
	s := open(t, store.Options{DSN: own})
	err := s.Writable(t.Context())
	expect.That(t, err != nil && strings.Contains(err.Error(), "'reserved'"), "without the privilege to update reserved: %v", err)
	must.Do(t, s.TakesWrites(t.Context())) // the server does
	change("GRANT", "UPDATE ON stock")
	mustBeWritable(t, s)
}
