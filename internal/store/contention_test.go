package store_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
)

func wantError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v; want %v", err, target)
	}
}

// closeA closes the order "a" in another goroutine and sends its error.
func closeA(t *testing.T, s *store.Store) <-chan error {
	done := make(chan error, 1)
	go func() {
		out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
		if err == nil && out[0].Verdict != orderclose.Closed {
			err = cmp.Or(out[0].Err, errors.New(string(out[0].Verdict)))
		}
		done <- err
	}()
	return done
}

// closesA returns once the close that reports to done, or one after it, has closed the order "a". A close
// leaves the order to a transaction that has not ended yet.
func closesA(t *testing.T, s *store.Store, done <-chan error) {
	t.Helper()
	err := <-done
	for ; errors.Is(err, orderclose.ErrContended); err = <-closeA(t, s) {
		<-time.After(50 * time.Millisecond)
	}
	must(t, err)
}

// waiter returns the connection that waits for a lock with a statement that contains part, and
// the start of its transaction; 0 if there is none. The server refreshes its list of
// transactions only if it was not read for a tenth of a second.
func waiter(t *testing.T, db *sql.DB, part string) (id int64, began string) {
	t.Helper()
	<-time.After(150 * time.Millisecond)
	err := db.QueryRowContext(t.Context(), "SELECT trx_mysql_thread_id, CAST(trx_started AS CHAR) FROM information_schema.innodb_trx"+
		" WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE ?", "%"+part+"%").Scan(&id, &began)
	if !errors.Is(err, sql.ErrNoRows) {
		must(t, err)
	}
	return id, began
}

// waitsFor returns once a statement that contains part waits for a lock, in a transaction that
// did not begin at not.
func waitsFor(t *testing.T, db *sql.DB, part, not string) (id int64, began string) {
	t.Helper()
	for range 100 {
		if id, began = waiter(t, db, part); id != 0 && began != not {
			return id, began
		}
	}
	t.Fatalf("nothing with %q waits for a lock", part)
	return 0, ""
}

// The other transaction has changed more rows, so the server rolls the close back.
func TestMySQL_CloseSurvivesADeadlock(t *testing.T) { eachServer(t, closeSurvivesADeadlock) }

func closeSurvivesADeadlock(t *testing.T) {
	s := openMigrated(t, store.Options{})
	overdue(t, s, "a")
	other, err := s.DB().BeginTx(t.Context(), nil)
	must(t, err)
	for i := range 50 {
		exec(t, other, "INSERT INTO stock VALUES (?, 0, 0)", i)
	}
	exec(t, other, "UPDATE stock SET available = available + 1 WHERE sku_id = 'ink'")
	done := closeA(t, s)
	waitsFor(t, s.DB(), "STRAIGHT_JOIN", "")
	exec(t, other, "UPDATE orders SET category = 'other' WHERE id = 'a'") // the server rolls back the close's transaction
	must(t, other.Commit())
	closesA(t, s, done)
}

// A shop that locks a line before its order deadlocks with a close, which is tried again. The shop
// has changed more rows, so the server rolls the close back.
func TestMySQL_CloseSurvivesAShopThatLocksALineBeforeItsOrder(t *testing.T) {
	eachServer(t, lineBeforeOrder)
}

func lineBeforeOrder(t *testing.T) {
	s := openMigrated(t, store.Options{})
	overdue(t, s, "a")
	shop, err := s.DB().BeginTx(t.Context(), nil)
	must(t, err)
	for i := range 50 {
		exec(t, shop, "INSERT INTO stock VALUES (?, 0, 0)", i)
	}
	exec(t, shop, "DELETE FROM order_items WHERE order_id = 'a'")
	exec(t, shop, "UPDATE stock SET available = available + 1, reserved = reserved - 1 WHERE sku_id = 'ink'")
	done := closeA(t, s)
	waitsFor(t, s.DB(), "LOCK IN SHARE MODE", "")
	exec(t, shop, "UPDATE orders SET version = version + 1 WHERE id = 'a'")
	must(t, shop.Commit())
	closesA(t, s, done)
	if got := texts(t, s, "SELECT CONCAT_WS(' ', available, reserved) FROM stock WHERE sku_id = 'ink'"); got != "1000 0" {
		t.Errorf("the stock is %s; want the line returned once", got)
	}
}

func TestMySQL_CloseSurvivesALockWait(t *testing.T) { eachServer(t, closeSurvivesALockWait) }

func closeSurvivesALockWait(t *testing.T) {
	cfg, err := mysql.ParseDSN(ownDatabase(t))
	must(t, err)
	cfg.Params["innodb_lock_wait_timeout"] = "1"
	s := openMigrated(t, store.Options{DSN: cfg.FormatDSN()})
	overdue(t, s, "a")
	other, err := s.DB().BeginTx(t.Context(), nil)
	must(t, err)
	exec(t, other, "SELECT * FROM stock FOR UPDATE")
	closing := open(t, store.Options{DSN: cfg.FormatDSN()})
	closing.SetRetryFor(time.Minute) // a busy server ends a lock wait seconds late
	done := closeA(t, closing)
	_, first := waitsFor(t, s.DB(), "STRAIGHT_JOIN", "")
	must(t, waitsAgain(t, s.DB(), first, done))
	must(t, other.Commit())
	must(t, <-done)
}

// waitsAgain returns nil once a transaction that did not begin at first waits for a lock, or the
// error with which the close ended before.
func waitsAgain(t *testing.T, db *sql.DB, first string, done <-chan error) error {
	t.Helper()
	for {
		if id, began := waiter(t, db, "STRAIGHT_JOIN"); id != 0 && began != first {
			return nil
		}
		select {
		case err := <-done:
			return err
		default:
		}
	}
}

func TestMySQL_AReadOnlyServerBlamesNoOrder(t *testing.T) {
	eachServer(t, readOnlyServer)
}

func readOnlyServer(t *testing.T) {
	s := openMigrated(t, store.Options{MaxOpenConns: 1})
	overdue(t, s, "a")
	exec(t, s.DB(), "SET SESSION TRANSACTION READ ONLY")
	_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
	wantError(t, err, orderclose.ErrUnavailable)
	if my, ok := errors.AsType[*mysql.MySQLError](err); !ok || my.Number != 1792 {
		t.Errorf("error %v; want the server's error in the chain", err)
	}
}

func TestMySQL_AKilledConnectionBlamesNoOrder(t *testing.T) {
	eachServer(t, killedConnection)
}

func killedConnection(t *testing.T) {
	s := openMigrated(t, store.Options{})
	overdue(t, s, "a")
	other, err := s.DB().BeginTx(t.Context(), nil)
	must(t, err)
	exec(t, other, "SELECT * FROM stock FOR UPDATE")
	done := closeA(t, s)
	id, _ := waitsFor(t, s.DB(), "STRAIGHT_JOIN", "")
	exec(t, s.DB(), "KILL ?", id)
	wantError(t, <-done, orderclose.ErrUnavailable)
	must(t, other.Rollback())
	closesA(t, s, closeA(t, s))
}

func TestMySQL_CancelledWhileWaiting(t *testing.T) { eachServer(t, cancelledWhileWaiting) }

func cancelledWhileWaiting(t *testing.T) {
	s := openMigrated(t, store.Options{})
	overdue(t, s, "a")
	other, err := s.DB().BeginTx(t.Context(), nil)
	must(t, err)
	exec(t, other, "SELECT * FROM stock FOR UPDATE")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.CloseOrders(ctx, orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
		done <- err
	}()
	waitsFor(t, s.DB(), "STRAIGHT_JOIN", "")
	cancel()
	err = <-done
	wantError(t, err, context.Canceled)
	wantError(t, err, orderclose.ErrUnavailable)
	must(t, other.Rollback())
	closesA(t, s, closeA(t, s))
}
