package storetest

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var linePromises = []promise[shop]{
	{name: "ALineRemovedDuringACloseIsReturnedOnce", test: lineRemoved, tags: Dialect},
	{name: "LinesThatATriggerOfOrdersRemovesAreReturned", test: linesRemovedByTrigger, tags: Dialect},
	{name: "ALineAddedDuringACloseIsReturned", test: lineAdded, tags: Dialect | Settings},
	{name: "LinesAndOrdersLockedInAnyOrderEndRight", test: linesInAnyOrder, tags: Dialect},
	{name: "ARowOfStockThatIsLockedForLongDelaysItsOrdersOnly", test: stockLockedForLong, tags: Dialect},
}

// change begins a transaction of the shop with these statements. The caller ends it.
func (s *shop) change(queries ...string) *sql.Tx {
	s.Helper()
	tx := must.Get(s.DB().BeginTx(s.Context(), nil))(s)
	for _, q := range queries {
		must.Get(tx.ExecContext(s.Context(), q))(s)
	}
	return tx
}

// watched is held by a test that watches the server's list of transactions. The server refreshes it only if nobody has read it for 100 ms.
var watched sync.Mutex

// closeBeside begins to close orders while a transaction is open, commits the transaction once the
// close waits or has left orders out, and returns the outcomes. Orders that were left out are closed again then.
func (s *shop) closeBeside(tx *sql.Tx, reqs ...orderclose.CloseRequest) []orderclose.Outcome {
	s.Helper()
	watched.Lock()
	defer watched.Unlock()
	waited := s.DB().Stats().WaitCount
	done := make(chan struct{})
	var out []orderclose.Outcome
	var err error
	go func() {
		defer close(done)
		out, err = s.CloseOrders(s.Context(), orderclose.PathPipeline, reqs)
	}()
	Await(s, "the close waits for a lock", func() (string, bool) {
		select {
		case <-done:
			return "", true // the caller compares the outcomes
		default:
			return "no transaction that waits", s.closeWaits(waited)
		}
	})
	s.must(tx.Commit())
	<-done
	if err == nil && slices.ContainsFunc(out, func(o orderclose.Outcome) bool { return o.Verdict == orderclose.Contended }) {
		out, err = s.CloseOrders(s.Context(), orderclose.PathPipeline, reqs)
	}
	s.must(err)
	return out
}

// lockWaits counts the transactions on this database that wait for a lock.
var lockWaits = map[store.DialectName]string{
	store.MySQL: "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id" +
		" WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()",
	store.Postgres: "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
}

// closeWaits reports whether a close waits for a lock; on SQLite, for the only connection.
func (s *shop) closeWaits(waited int64) bool {
	s.Helper()
	if s.lacks(rowLocks) {
		return s.DB().Stats().WaitCount > waited
	}
	return s.count(lockWaits[s.Dialect()]) > 0
}

// A shop's transaction removes a line of an unpaid order and returns its stock, without a lock on the order. Other orders hold nine more of each SKU.
func lineRemoved(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	s.exec("UPDATE stock SET available = 991, reserved = 9")
	s.order("o", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 1}, shopdb.Item{SKU: "nib", Quantity: 1})
	tx := s.change("DELETE FROM order_items WHERE order_id = 'o' AND sku_id = 'ink'",
		"UPDATE stock SET available = available + 1, reserved = reserved - 1 WHERE sku_id = 'ink'")
	out := s.closeBeside(tx, requests("o")...)
	want(t, "verdicts", verdicts(out), []string{"o closed"})
	want(t, "stock", s.stock(), []string{"ink 991 9", "nib 991 9"})
	want(t, "ledger", s.ledger(), []string{"o nib close 1"})
}

// A trigger of the shop removes the lines of an order that is closed. The order held its stock until then.
func linesRemovedByTrigger(t *testing.T, s *shop) {
	s.migrated("ink")
	s.order("o", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 3})
	defer s.trigger("AFTER UPDATE ON orders", "DELETE FROM order_items WHERE order_id = NEW.id")()
	want(t, "verdicts", verdicts(s.close("o")), []string{"o closed"})
	want(t, "stock", s.stock(), []string{"ink 1000 0"})
	want(t, "ledger", s.ledger(), []string{"o ink close 3"})
}

func lineAdded(t *testing.T, s *shop) {
	s.needs(waitsForNewRows)
	s.migrated("ink", "nib")
	s.order("o", -time.Minute, shopdb.Item{SKU: "nib", Quantity: 1})
	tx := s.change("UPDATE stock SET available = available - 1, reserved = reserved + 1 WHERE sku_id = 'ink'",
		"INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('o', 7, 'ink', 1)")
	out := s.closeBeside(tx, requests("o")...)
	want(t, "verdicts", verdicts(out), []string{"o closed"})
	want(t, "stock", s.stock(), []string{"ink 1000 0", "nib 1000 0"})
	want(t, "ledger", s.ledger(), []string{"o ink close 1", "o nib close 1"})
}

// The shop removes a line of each order while batches close them, with a lock on the order before the line, or after it. Each line comes back once. The
// shop repeats a transaction that the database rolled back, and leaves orders alone that are no longer unpaid.
func linesInAnyOrder(t *testing.T, s *shop) {
	s.migrated("ink", "nib")
	ids := names("o%03d", 120)
	for _, id := range ids {
		s.order(id, -time.Minute, shopdb.Item{SKU: "ink", Quantity: 1}, shopdb.Item{SKU: "nib", Quantity: 1})
	}
	done := make(chan error, 1)
	go func() {
		for i, id := range ids {
			if err := s.dropLine(id, i%2 == 0); err != nil {
				done <- fmt.Errorf("remove a line of %s: %w", id, err)
				return
			}
		}
		done <- nil
	}()
	for left := ids; len(left) > 0; {
		part := left[:min(20, len(left))]
		left = left[len(part):]
		out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, requests(part...)))(t)
		for _, o := range out {
			if o.Verdict == orderclose.Contended {
				left = append(left[:len(left):len(left)], o.OrderID)
			} else if o.Verdict != orderclose.Closed {
				t.Errorf("%+v", o)
			}
		}
	}
	s.must(<-done)
	want(t, "stock", s.stock(), []string{"ink 1000 0", "nib 1000 0"})
	want(t, "ink in receipts and lines", s.texts("SELECT order_id FROM receipts WHERE returned LIKE '%\"ink\"%' ORDER BY order_id"),
		s.texts("SELECT order_id FROM order_items WHERE sku_id = 'ink' ORDER BY order_id"))
}

// dropLine removes the line of ink and returns its stock if the order is unpaid. It locks the order before the line, or after it.
func (s *shop) dropLine(id string, orderFirst bool) error {
	ended := errors.New("the order is no longer unpaid")
	err := s.Checkout(s.Context(), func(tx *shopdb.Tx) error {
		steps := []string{"UPDATE orders SET version = version + 1 WHERE id = ? AND status = 0", "DELETE FROM order_items WHERE order_id = ? AND sku_id = 'ink'"}
		if !orderFirst {
			steps[0], steps[1] = steps[1], steps[0]
		}
		for _, q := range steps {
			res, err := tx.SQL().ExecContext(s.Context(), q, id)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				return errors.Join(ended, err)
			}
		}
		_, err := tx.SQL().ExecContext(s.Context(), "UPDATE stock SET available = available + 1, reserved = reserved - 1 WHERE sku_id = 'ink'")
		return err
	})
	if errors.Is(err, ended) {
		return nil
	}
	return err
}

// mappedLines plays lineRemoved in a shop's own tables.
func mappedLines(t *testing.T, s *mapped) {
	s.begin()
	m := s.Mapping
	if m.Items == nil || len(m.Stock) == 0 {
		return
	}
	o := s.an(1, -time.Minute)
	s.put(m.Status.From[0], o)
	remove := fmt.Sprintf("DELETE FROM %s WHERE %s = '%s' AND %s = '%s'", mapping.Quote(s.table(m.Items.Table, o.CreatedAt)),
		mapping.Quote(m.Items.Order), o.ID, mapping.Quote(m.Items.SKU), s.SKUs[0])
	set := ""
	for column, by := range map[string]string{m.Stock[0].Available: " + 2", m.Stock[0].Reserved: " - 2"} {
		if column != "" {
			set += ", " + mapping.Quote(column) + " = " + mapping.Quote(column) + by
		}
	}
	back := fmt.Sprintf("UPDATE %s SET %s WHERE %s = '%s'", mapping.Quote(m.Stock[0].Table), set[2:], mapping.Quote(m.Stock[0].SKU.Column), s.SKUs[0])
	out := s.closeBeside(s.change(remove, back), ask(o)...)
	want(t, "verdicts", verdicts(out), []string{o.ID + " closed"})
	want(t, "ledger", s.ledger(), []string{o.ID + " " + s.SKUs[1] + " close 3"})
	for column, pieces := range map[string][]string{m.Stock[0].Available: {"902", "903"}, m.Stock[0].Reserved: {"998", "997"}} {
		if column != "" {
			want(t, column, s.texts("SELECT CONCAT("+mapping.Quote(column)+") FROM "+mapping.Quote(m.Stock[0].Table)+
				" ORDER BY "+mapping.Quote(m.Stock[0].SKU.Column)), pieces)
		}
	}
}

// Another session locks a row of the stock until all batches were tried. Each call closes the orders that do not need this row. The first call
// has four transactions at most: two that wait for the row for 50 ms, one without its orders, and one that waits in the server's queue. Later calls
// wait for nothing: each is one transaction.
func stockLockedForLong(t *testing.T, s *shop) {
	s.needs(rowLocks)
	s.migrated("ink", "nib")
	var batches [5][]string
	for i, id := range names("o%03d", 100) {
		items := []shopdb.Item{{SKU: "ink", Quantity: 1}}
		if i%10 == 7 {
			items = append(items, shopdb.Item{SKU: "nib", Quantity: 1})
		}
		s.order(id, -time.Minute, items...)
		batches[i/20] = append(batches[i/20], id)
	}
	dsn, transactions := Counted(t, s.dsn, "START TRANSACTION", "begin isolation level")
	closer := opener(t, dsn, nil)()
	tx := s.change("SELECT sku_id FROM stock WHERE sku_id = 'nib' FOR UPDATE")
	closes := func(most int64, verdict orderclose.Verdict, ids ...string) (locked []string) {
		t.Helper()
		before := transactions()
		out := must.Get(closer.CloseOrders(t.Context(), orderclose.PathPipeline, requests(ids...)))(t)
		for _, o := range out {
			want := verdict
			if len(ids) == 20 && strings.HasSuffix(o.OrderID, "7") {
				locked, want = append(locked, o.OrderID), orderclose.Contended
			}
			expect.That(t, o.Verdict == want, "%+v; want it to be %s", o, want)
		}
		if n := transactions() - before; n > most {
			t.Errorf("%d orders from %s took %d transactions, want %d at most", len(ids), ids[0], n, most)
		}
		return locked
	}
	most, locked := int64(4), []string(nil)
	for _, batch := range batches {
		locked, most = append(locked, closes(most, orderclose.Closed, batch...)...), 1
	}
	closes(1, orderclose.Contended, locked...)
	s.must(tx.Rollback())
	Await(t, "the server releases the row", func() (string, bool) {
		out := must.Get(closer.CloseOrders(t.Context(), orderclose.PathPipeline, requests(locked...)))(t)
		return fmt.Sprint(verdicts(out)), !slices.ContainsFunc(out, func(o orderclose.Outcome) bool { return o.Verdict == orderclose.Contended })
	})
	want(t, "orders that are not closed", s.count("SELECT COUNT(*) FROM orders WHERE status <> 2"), 0)
	want(t, "stock", s.stock(), []string{"ink 1000 0", "nib 1000 0"})
}
