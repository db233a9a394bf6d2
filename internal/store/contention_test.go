package store_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func wantError(t *testing.T, err, target error) {
	t.Helper()
	expect.That(t, errors.Is(err, target), "error %v; want %v", err, target)
}

// closeA closes the order "a" in another goroutine and sends its error.
func closeA(t *testing.T, s *store.Store) <-chan error {
	done := make(chan error, 1)
	go func() { done <- closeOne(t.Context(), s) }()
	return done
}

func closeOne(ctx context.Context, s *store.Store) error {
	out, err := s.CloseOrders(ctx, orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
	if err == nil && out[0].Verdict != orderclose.Closed {
		err = cmp.Or(out[0].Err, errors.New(string(out[0].Verdict)))
	}
	return err
}

// closesA returns once the close that reports to done, or one after it, has closed the order "a". A close
// leaves the order to a transaction that has not ended yet.
func closesA(t *testing.T, s *store.Store, done <-chan error) {
	t.Helper()
	err := <-done
	storetest.Await(t, "the order is closed", func() (string, bool) {
		if errors.Is(err, orderclose.ErrContended) {
			err = closeOne(t.Context(), s)
		}
		return fmt.Sprint(err), !errors.Is(err, orderclose.ErrContended)
	})
	must.Do(t, err)
}

// waiter returns the connection that waits for a lock with a statement that contains part, and the start of its transaction; 0 if there is none. The
// list of transactions of MariaDB and MySQL may be 100 ms old, and have a transaction of the test before. The list of processes is not.
func waiter(t *testing.T, db *sql.DB, part string) (id int64, began string) {
	t.Helper()
	query := "SELECT t.trx_mysql_thread_id, CAST(t.trx_started AS CHAR) FROM information_schema.innodb_trx t JOIN information_schema.processlist p" +
		" ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE() AND t.trx_state = 'LOCK WAIT' AND t.trx_query LIKE ?"
	if isPostgres(t) {
		query = "SELECT pid, COALESCE(CAST(xact_start AS text), '') FROM pg_stat_activity" +
			" WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE ?"
	}
	err := db.QueryRowContext(t.Context(), query, "%"+part+"%").Scan(&id, &began)
	if !errors.Is(err, sql.ErrNoRows) {
		must.Do(t, err)
	}
	return id, began
}

// waitsFor returns once a statement that contains part waits for a lock.
func waitsFor(t *testing.T, db *sql.DB, part string) (id int64, began string) {
	t.Helper()
	storetest.Await(t, fmt.Sprintf("a statement with %q waits for a lock", part), func() (string, bool) {
		id, began = waiter(t, db, part)
		return "none waits", id != 0
	})
	return id, began
}

// A shop locks a row of stock before the order's row. The close waits for it with nothing locked, so there is no deadlock, and the
// shop waits for nothing.
func TestClose_IsPartOfNoDeadlock(t *testing.T) { eachDatabase(t, partOfNoDeadlock) }

func partOfNoDeadlock(t *testing.T) {
	s := openMigrated(t, store.Options{})
	overdue(t, s, "a")
	shop := begin(t, s.DB(), "UPDATE stock SET available = available + 1 WHERE sku_id = 'ink'")
	done := closeA(t, s)
	waitsFor(t, s.DB(), "SELECT 1 FROM") // in the queue of the server
	exec(t, shop, "UPDATE orders SET category = 'other' WHERE id = 'a'")
	must.Do(t, shop.Commit())
	must.Do(t, <-done) // it had its turn
	n := s.MaxBatch()
	expect.That(t, n == 100, "after the wait a batch has up to %d orders, want 100", n)
}

// A demoted primary answers each write with an error and keeps its connections. The store must not use them again.
func TestClose_AReadOnlyServerBlamesNoOrder(t *testing.T) { eachDatabase(t, readOnlyServer) }

func readOnlyServer(t *testing.T) {
	s := openMigrated(t, store.Options{MaxOpenConns: 1})
	overdue(t, s, "a")
	if isPostgres(t) {
		exec(t, s.DB(), "SET default_transaction_read_only = on")
	} else {
		exec(t, s.DB(), "SET SESSION TRANSACTION READ ONLY")
	}
	err := <-closeA(t, s)
	wantError(t, err, orderclose.ErrUnavailable)
	my, ok := errors.AsType[*mysql.MySQLError](err)
	expect.That(t, isPostgres(t) || ok && my.Number == 1792, "error %v; want the server's error in the chain", err)
	closesA(t, s, closeA(t, s)) // on another connection
}

// A demoted primary keeps its connections.
func TestNotReadOnly_AsksTheNextTimeOnAnotherConnection(t *testing.T) {
	on(t, demotedPrimary, "postgres")
}

func demotedPrimary(t *testing.T) {
	s := openMigrated(t, store.Options{MaxOpenConns: 1})
	overdue(t, s, "a")
	exec(t, s.DB(), "SET default_transaction_read_only = on")
	expect.Is(t, s.NotReadOnly(t.Context()), orderclose.ErrUnavailable, "the connection of before")
	closesA(t, s, closeA(t, s))
}

func TestClose_ThatEndsWhileItWaitsBlamesNoOrder(t *testing.T) { eachDatabase(t, endsWhileWaiting) }

func endsWhileWaiting(t *testing.T) {
	for what, want := range map[string]error{"its connection is killed": orderclose.ErrUnavailable, "it is cancelled": context.Canceled} {
		s := openMigrated(t, store.Options{})
		overdue(t, s, "a")
		other := begin(t, s.DB(), "SELECT * FROM stock FOR UPDATE")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- closeOne(ctx, s) }()
		id, _ := waitsFor(t, s.DB(), "SELECT 1 FROM") // in the queue of the server
		switch {
		case want == context.Canceled:
			cancel()
		case isPostgres(t):
			exec(t, s.DB(), "SELECT pg_terminate_backend(?)", id)
		default:
			exec(t, s.DB(), "KILL ?", id)
		}
		err := <-done
		expect.Is(t, err, want, "%s", what)
		expect.Is(t, err, orderclose.ErrUnavailable, "%s", what)
		must.Do(t, other.Rollback())
		closesA(t, s, closeA(t, s))
	}
}

// A transaction that keeps the row of one order locked, or a line, costs the others nothing. A locked row of a SKU
// costs one lock wait, and later batches do not wait for it.
func TestClose_LockedOrdersAreLeftOut(t *testing.T) { eachDatabase(t, lockedOrdersAreLeftOut) }

func lockedOrdersAreLeftOut(t *testing.T) {
	own := migratedDatabase(t)
	direct := openMigrated(t, store.Options{DSN: own})
	must.Do(t, scenario.OrdersOf(direct).PutStock(t.Context(), "nib", 1000))
	var reqs []orderclose.CloseRequest
	for i := range 20 {
		id, items := fmt.Sprintf("o%02d", i), []shopdb.Item{{SKU: "ink", Quantity: 1}}
		if i == 5 {
			items = append(items, shopdb.Item{SKU: "nib", Quantity: 1})
		}
		overdueWith(t, direct, id, items...)
		reqs = append(reqs, orderclose.CloseRequest{OrderID: id})
	}
	dsn, timeouts := lockTimeouts(t, own)
	s := open(t, store.Options{DSN: dsn})
	tx := begin(t, direct.DB(), "SELECT 1 FROM orders WHERE id = 'o03' FOR UPDATE", "SELECT 1 FROM stock WHERE sku_id = 'nib' FOR UPDATE",
		"DELETE FROM order_items WHERE order_id = 'o07'", "UPDATE stock SET reserved = reserved - 0 WHERE sku_id = 'nib'")
	contended := func(reqs []orderclose.CloseRequest) (ids []string) {
		t.Helper()
		out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, reqs))(t)
		for _, o := range out {
			if o.Verdict == orderclose.Contended {
				ids = append(ids, o.OrderID)
			} else if o.Verdict != orderclose.Closed && o.Verdict != orderclose.AlreadyClosed {
				t.Errorf("%+v", o)
			}
		}
		return ids
	}
	for i, round := range []struct{ from, to int }{{0, 10}, {0, 10}, {0, 5}, {3, 4}, {5, 6}} {
		before := timeouts()
		var want []string
		for _, n := range []int{3, 5, 7} {
			if round.from <= n && n < round.to {
				want = append(want, reqs[n].OrderID)
			}
		}
		got := contended(reqs[round.from:round.to])
		expect.That(t, slices.Equal(got, want), "%d to %d: %q are locked, want %q", round.from, round.to, got, want)
		// On PostgreSQL each try to write the stock is a wait of a millisecond, so the first round has several.
		if n := timeouts() - before; !waitsLookLikeNOWAIT(t) && (i == 0 && n != 1 && !isPostgres(t) || i > 0 && n > 0) {
			t.Errorf("round %d has waited for locks %d times", i, n)
		}
	}
	must.Do(t, tx.Rollback())
	if got := contended(reqs); len(got) > 0 {
		t.Errorf("after the rollback %q are locked", got)
	}
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', sku_id, available, reserved) FROM stock ORDER BY sku_id"), "ink 1000 0, nib 1000 0", "the stock")
}

// A page enters the index at its position, and reads an entry for each row that it returns.
func TestPostgres_APageReadsOnlyTheRowsItReturns(t *testing.T) { onPostgres(t, pageOfPostgres) }

func pageOfPostgres(t *testing.T) {
	s := openMigrated(t, store.Options{})
	exec(t, s.DB(), "INSERT INTO orders (id, category, status, created_at, expire_at, version) SELECT CONCAT(i), '', i % 3, now(), now() - make_interval(secs "+
		"=> i / 3), 1 FROM generate_series(1, 30000) AS i")
	exec(t, s.DB(), "ANALYZE orders")
	now := must.Get(s.Now(t.Context()))(t)
	query, args := s.PageStatement(now, orderclose.Order{ID: "300", Due: now.Add(-time.Hour)}, 100)
	plan := texts(t, s, "EXPLAIN (ANALYZE) "+query, args...)
	if !strings.Contains(plan, "Index Scan using orders_overdue") || !strings.Contains(plan, "rows=100 ") || strings.Contains(plan, "Sort") ||
		strings.Contains(plan, "Removed by Filter") {
		t.Error(plan)
	}
}

// A shop replaces the lines of an order. The close leaves the order out, and then returns the new lines.
func TestPostgres_LinesThatAreReplacedDuringACloseComeBack(t *testing.T) {
	onPostgres(t, replacedLines)
}

func replacedLines(t *testing.T) {
	s := openMigrated(t, store.Options{})
	overdue(t, s, "a")
	shop := begin(t, s.DB(), "UPDATE stock SET available = available - 2, reserved = reserved + 2", "DELETE FROM order_items WHERE order_id = 'a'",
		"INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('a', 7, 'ink', 3)")
	err := <-closeA(t, s)
	wantError(t, err, orderclose.ErrContended)
	must.Do(t, shop.Commit())
	must.Do(t, <-closeA(t, s))
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', sku_id, available, reserved) FROM stock"), "ink 1000 0", "the stock")
}
