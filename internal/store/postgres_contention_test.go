package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

func openPostgres(t *testing.T, o store.Options) *store.Store {
	t.Helper()
	o.DSN = postgresDatabase(t)
	return openMigrated(t, o)
}

// blocked returns the process that waits for a lock with a statement that contains part.
func blocked(t *testing.T, db *sql.DB, part string) (pid int) {
	t.Helper()
	for range 300 {
		err := db.QueryRowContext(t.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE ?", "%"+part+"%").Scan(&pid)
		if err == nil {
			return pid
		}
		if !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatalf("nothing with %q waits for a lock", part)
	return 0
}

const releasesStock = "locked AS MATERIALIZED"

// The close has waited for longer than the other transaction, so the server rolls the close back.
func TestPostgres_CloseSurvivesADeadlock(t *testing.T) {
	s := openPostgres(t, store.Options{})
	overdue(t, s, "a")
	other := begin(t, s.DB(), "UPDATE stock SET available = available + 1 WHERE sku_id = 'ink'")
	s.SetRetryFor(time.Minute)
	done := closeA(t, s)
	blocked(t, s.DB(), releasesStock)
	exec(t, other, "UPDATE orders SET category = 'other' WHERE id = 'a'")
	must(t, other.Commit())
	closesA(t, s, done)
}

func TestPostgres_AKilledConnectionBlamesNoOrder(t *testing.T) {
	s := openPostgres(t, store.Options{})
	overdue(t, s, "a")
	other := begin(t, s.DB(), "SELECT * FROM stock FOR UPDATE")
	done := closeA(t, s)
	exec(t, s.DB(), "SELECT pg_terminate_backend(?)", blocked(t, s.DB(), releasesStock))
	wantError(t, <-done, orderclose.ErrUnavailable)
	must(t, other.Rollback())
	closesA(t, s, closeA(t, s))
}

func TestPostgres_AReadOnlyServerBlamesNoOrder(t *testing.T) {
	s := openPostgres(t, store.Options{MaxOpenConns: 1})
	overdue(t, s, "a")
	exec(t, s.DB(), "SET default_transaction_read_only = on")
	wantError(t, <-closeA(t, s), orderclose.ErrUnavailable)
	closesA(t, s, closeA(t, s)) // on another connection
}

// Rows that other transactions keep locked cost the other orders of a batch one lock wait, and later batches none.
func TestPostgres_LockedOrdersAreLeftOut(t *testing.T) {
	s := openPostgres(t, store.Options{})
	must(t, scenario.OrdersOf(s).PutStock(t.Context(), "nib", 1000))
	now, err := s.Now(t.Context())
	must(t, err)
	var reqs []orderclose.CloseRequest
	for i := range 10 {
		id := fmt.Sprintf("o%d", i)
		items := []shopdb.Item{{SKU: "ink", Quantity: 1}}
		if i == 5 {
			items = append(items, shopdb.Item{SKU: "nib", Quantity: 1})
		}
		must(t, scenario.OrdersOf(s).CreateOrder(t.Context(), orderclose.Order{ID: id, CreatedAt: now.Add(-time.Hour), Due: now.Add(-time.Minute)}, items))
		reqs = append(reqs, orderclose.CloseRequest{OrderID: id})
	}
	tx := begin(t, s.DB(), "SELECT 1 FROM orders WHERE id = 'o3' FOR UPDATE", "SELECT 1 FROM stock WHERE sku_id = 'nib' FOR UPDATE",
		"DELETE FROM order_items WHERE order_id = 'o7'", "UPDATE stock SET reserved = reserved - 0 WHERE sku_id = 'nib'")
	verdicts := func() (contended []string) {
		out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, reqs)
		must(t, err)
		for _, o := range out {
			if o.Verdict == orderclose.Contended {
				contended = append(contended, o.OrderID)
			} else if o.Verdict != orderclose.Closed && o.Verdict != orderclose.AlreadyClosed {
				t.Errorf("%+v", o)
			}
		}
		return contended
	}
	for range 2 {
		if got := verdicts(); !slices.Equal(got, []string{"o3", "o5", "o7"}) {
			t.Errorf("%q are locked", got)
		}
	}
	must(t, tx.Rollback())
	if got := verdicts(); len(got) > 0 {
		t.Errorf("after the rollback %q are locked", got)
	}
	if got := texts(t, s, "SELECT CONCAT_WS(' ', sku_id, available, reserved) FROM stock ORDER BY sku_id"); got != "ink 1000 0, nib 1000 0" {
		t.Errorf("the stock is %s", got)
	}
}

// A page enters the index at its position, and reads an entry for each row that it returns.
func TestPostgres_APageReadsOnlyTheRowsItReturns(t *testing.T) {
	s := openPostgres(t, store.Options{})
	exec(t, s.DB(), "INSERT INTO orders (id, category, status, created_at, expire_at, version) SELECT CONCAT(i), '', i % 3, now(), now() - make_interval(secs => i / 3), 1 FROM generate_series(1, 30000) AS i")
	exec(t, s.DB(), "ANALYZE orders")
	now, err := s.Now(t.Context())
	must(t, err)
	query, args := s.PageStatement(now, orderclose.Order{ID: "300", Due: now.Add(-time.Hour)}, 100)
	plan := texts(t, s, "EXPLAIN (ANALYZE) "+query, args...)
	if !strings.Contains(plan, "Index Scan using orders_overdue") || !strings.Contains(plan, "rows=100 ") || strings.Contains(plan, "Sort") || strings.Contains(plan, "Removed by Filter") {
		t.Error(plan)
	}
}

// A shop may replace the lines of an order while a close waits for the old ones. The SELECT that waited returns
// neither the old line nor the new one, and an order without lines would hold nothing.
func TestPostgres_LinesThatAreReplacedDuringACloseComeBack(t *testing.T) {
	s := openPostgres(t, store.Options{})
	overdue(t, s, "a")
	shop := begin(t, s.DB(), "UPDATE stock SET available = available - 2, reserved = reserved + 2", "DELETE FROM order_items WHERE order_id = 'a'",
		"INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('a', 7, 'ink', 3)")
	s.SetRetryFor(time.Minute)
	done := closeA(t, s)
	blocked(t, s.DB(), "FOR SHARE")
	must(t, shop.Commit())
	must(t, <-done)
	if got := texts(t, s, "SELECT CONCAT_WS(' ', sku_id, available, reserved) FROM stock"); got != "ink 1000 0" {
		t.Errorf("the stock is %s", got)
	}
}
