package store_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// begin begins a transaction with these statements. It is rolled back when the test ends.
func begin(t *testing.T, db *sql.DB, queries ...string) *sql.Tx {
	t.Helper()
	tx := must.Get(db.BeginTx(t.Context(), nil))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	for _, q := range queries {
		exec(t, tx, q)
	}
	return tx
}

// patient returns a DSN whose sessions wait for a lock for longer than the driver waits for an answer. A close that waits for one fails.
func patient(t *testing.T, dsn string) string {
	t.Helper()
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	cfg.Params = map[string]string{"innodb_lock_wait_timeout": "3600"}
	return cfg.FormatDSN()
}

// wantVerdicts closes orders and checks their verdicts.
func wantVerdicts(t *testing.T, s *store.Store, want orderclose.Verdict, reqs ...orderclose.CloseRequest) {
	t.Helper()
	out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, reqs))(t)
	for _, o := range out {
		expect.That(t, o.Verdict == want && !o.At.IsZero() && (want != orderclose.Contended || errors.Is(o.Err, orderclose.ErrContended)),
			"%+v; want it to be %s", o, want)
	}
}

// An order whose row is locked is not searched in the tables of other months.
func TestMySQL_ALockedOrderIsNotSearchedInOtherMonths(t *testing.T) { eachServer(t, lockedInItsMonth) }

func lockedInItsMonth(t *testing.T) {
	sharded := *spelling
	sharded.Orders, sharded.Items = "o_{yyyyMM}", &mapping.Items{Table: "l", Order: "no", SKU: "sku", Quantity: "n"}
	sharded.Shards = &mapping.Shards{On: mapping.OnCreated, Zone: "UTC"}
	s := open(t, store.Options{DSN: patient(t, ownDatabase(t)), Orders: &sharded})
	createTables(t, s)
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	this, last, old := "o_"+month.Format("200601"), "o_"+month.AddDate(0, -1, 0).Format("200601"), "o_"+month.AddDate(0, -20, 0).Format("200601")
	exec(t, s.DB(), "CREATE TABLE "+old+" LIKE o")
	exec(t, s.DB(), "INSERT INTO "+old+" VALUES ('old', 2, 1)")
	for _, table := range []string{this, last} { // no shop has an id twice; here it shows which table was read
		exec(t, s.DB(), "CREATE TABLE "+table+" LIKE o")
		exec(t, s.DB(), "INSERT INTO "+table+" VALUES ('a', 0, 1)")
	}
	exec(t, s.DB(), "INSERT INTO "+last+" VALUES ('b', 0, 1)")
	payment := begin(t, s.DB(), "UPDATE "+this+" SET status = 1 WHERE no = 'a'")
	wantVerdicts(t, s, orderclose.Contended, orderclose.CloseRequest{OrderID: "a", CreatedAt: now})
	wantVerdicts(t, s, orderclose.Closed, orderclose.CloseRequest{OrderID: "b", CreatedAt: now}) // in the month before
	must.Do(t, payment.Rollback())
	wantVerdicts(t, s, orderclose.Closed, orderclose.CloseRequest{OrderID: "a", CreatedAt: now})
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', no, status) FROM "+last), "a 0, b 2", "the month before")
	history := must.Get(s.OrderHistory(t.Context(), "old"))(t)
	expect.That(t, history.Order != nil && history.Order.State == "2", "the history of an order that no close reads any more: %+v", history.Order)
	history = must.Get(s.OrderHistory(t.Context(), "OLD"))(t)
	expect.That(t, !history.Known(), "the history of an id that is one with another order's to the collation: %+v", history.Order)
}

// receiptOfA makes a close of the order "a" wait that has locked the order.
const receiptOfA = "INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES ('a', 'closed', UTC_TIMESTAMP(3), " +
	"UTC_TIMESTAMP(3), 'touch', 0, 0)"

// Two closers have one batch. The second waits for no row, and later learns that the first closed all.
func TestMySQL_TwoClosersWithOneBatch(t *testing.T) { eachServer(t, twoClosers) }

func twoClosers(t *testing.T) {
	dsn := patient(t, migratedDatabase(t))
	s := openMigrated(t, store.Options{DSN: dsn})
	overdue(t, s, "a")
	hold := begin(t, s.DB(), receiptOfA) // the first closer waits for it
	done := closeA(t, s)
	waitsFor(t, s.DB(), "INTO receipts")
	second := open(t, store.Options{DSN: dsn})
	wantVerdicts(t, second, orderclose.Contended, orderclose.CloseRequest{OrderID: "a"})
	must.Do(t, hold.Rollback())
	must.Do(t, <-done)
	wantVerdicts(t, second, orderclose.AlreadyClosed, orderclose.CloseRequest{OrderID: "a"})
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', available, reserved) FROM stock WHERE sku_id = 'ink'"), "1000 0", "the stock")
}
