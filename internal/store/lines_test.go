package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// In a shop's own tables, the quantity of a line may be zero or negative.
func TestMySQL_LinesWithoutQuantityHoldNothing(t *testing.T) { eachServer(t, linesOfNothing) }

func linesOfNothing(t *testing.T) {
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: spelling})
	createTables(t, s, "INSERT INTO o VALUES ('gift', 0, 1), ('back', 0, 1), ('minus', 0, 1)",
		"INSERT INTO l VALUES ('gift', 'ink', 0), ('gift', 'nib', 2), ('back', 'ink', 3), ('back', 'ink', -3), ('minus', 'ink', -1)")
	out := bisected(t, s, "gift", "back", "minus")
	if out[0].Verdict != orderclose.Closed || out[1].Verdict != orderclose.Closed || out[2].Verdict != orderclose.Failed ||
		out[2].Err == nil || !strings.Contains(out[2].Err.Error(), "holds -1 of SKU") {
		t.Errorf("%+v", out)
	}
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', sku, free, held) FROM g"), "ink 0 100, nib 2 98", "the stock")
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', order_id, returned) FROM receipts"), `back {}, gift {"nib":2}`, "the receipts")
}

// Without the lock, a line whose removal is not committed would come back twice. What the lock does is played on real servers.
func TestOpen_ACloseLocksTheLinesThatItReads(t *testing.T) {
	for _, orders := range []*mapping.Mapping{nil, spelling} {
		for dsn, lock := range map[string]string{"root@tcp(127.0.0.1:1)/shop": " LOCK IN SHARE MODE NOWAIT */",
			"postgres://u@127.0.0.1:1/shop": " FOR SHARE NOWAIT"} {
			s := open(t, store.Options{DSN: dsn, Orders: orders})
			got := s.LineStatement()
			expect.That(t, strings.Contains(got, lock+") AS v UNION ALL SELECT "), "a close reads lines without a lock: %s", got)
		}
	}
}

// Transactions that keep lines locked, one removed and one added, cost the other orders no wait.
func TestMySQL_OrdersWithLockedLinesAreLeftOut(t *testing.T) { eachServer(t, lockedLines) }

func lockedLines(t *testing.T) {
	s := open(t, store.Options{DSN: patient(t, ownDatabase(t)), Orders: spelling})
	createTables(t, s)
	exec(t, s.DB(), "INSERT INTO l VALUES ('other', 'ink', 1)")
	for range 10 { // a table in which the database uses the index
		exec(t, s.DB(), "INSERT INTO l SELECT CONCAT('x', UUID_SHORT()), 'ink', 1 FROM l")
	}
	var reqs []orderclose.CloseRequest
	for i := range 10 {
		id := fmt.Sprintf("o%03d", i)
		exec(t, s.DB(), "INSERT INTO o VALUES ('"+id+"', 0, 1)")
		exec(t, s.DB(), "INSERT INTO l VALUES ('"+id+"', 'ink', 1)")
		reqs = append(reqs, orderclose.CloseRequest{OrderID: id})
	}
	exec(t, s.DB(), "ANALYZE TABLE l")
	tx := begin(t, s.DB(), "DELETE FROM l WHERE no = 'o003'", "INSERT INTO l VALUES ('o005', 'nib', 1)")
	for round, path := range []orderclose.Path{orderclose.PathPipeline, orderclose.PathSweep} {
		out := must.Get(s.CloseOrders(t.Context(), path, reqs))(t)
		for i, o := range out {
			want := orderclose.Closed
			switch {
			case i == 3, i == 5:
				want = orderclose.Contended
			case round > 0:
				want = orderclose.AlreadyClosed
			}
			expect.That(t, o.Verdict == want, "round %d: %+v; want it to be %s", round, o, want)
		}
	}
	must.Do(t, tx.Commit())
	out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, reqs))(t)
	expect.That(t, out[3].Verdict == orderclose.Closed && out[5].Verdict == orderclose.Closed, "after the commit: %+v", out)
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', sku, free, held) FROM g"), "ink 9 91, nib 1 99", "the stock")
}

// Columns of a shop's own tables may be NULL.
func TestMySQL_NULLsFailOnlyTheOrdersThatTheyMakeUnclear(t *testing.T) { eachServer(t, nulls) }

func nulls(t *testing.T) {
	mapping := *spelling
	mapping.Version = "v"
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: &mapping})
	createTables(t, s, "ALTER TABLE o ADD COLUMN v INT NULL", "ALTER TABLE l MODIFY COLUMN n INT NULL",
		"INSERT INTO o (no, status, due) VALUES ('fee', 0, 1), ('unclear', 0, 1)",
		"INSERT INTO l VALUES ('fee', 'ink', 1), ('fee', NULL, 1), ('fee', NULL, NULL), ('unclear', 'ink', NULL)")
	out := must.Get(bisect.Bisect(t.Context(), s, orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "fee"}, {OrderID: "unclear"}}))(t)
	if out[0].Verdict != orderclose.Closed || out[1].Verdict != orderclose.Failed || !strings.Contains(fmt.Sprint(out[1].Err),
		`SKU "ink" whose quantity is NULL`) {
		t.Errorf("%+v", out)
	}
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', no, status, COALESCE(v, '-')) FROM o"), "fee 2 1, unclear 0 -", "the orders")
	for _, id := range []string{"fee", "unclear"} {
		_, err := s.OrderHistory(t.Context(), id)
		expect.That(t, err == nil, "%v", err)
	}
}

// Dropping an index that all orders need stops the closer, and costs no order an attempt.
func TestMySQL_AMissingIndexBlamesNoOrder(t *testing.T) { eachServer(t, missingIndex) }

func missingIndex(t *testing.T) {
	mapped := *spelling
	mapped.Stock = []*mapping.Stock{{Table: "g", SKU: mapping.Key{Column: "sku", Index: "by_sku"}, Available: "free"}}
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: &mapped})
	createTables(t, s, "INSERT INTO o VALUES ('a', 0, 1)", "INSERT INTO l VALUES ('a', 'ink', 1)", "ALTER TABLE g ADD UNIQUE KEY by_other_name (sku)")
	_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
	expect.That(t, errors.Is(err, orderclose.ErrUnavailable), "%v; want the store to be unavailable", err)
}

// Orders may spell a SKU in several ways that are one row of the stock. An order that does so itself is named.
func TestMySQL_SKUsInSeveralSpellings(t *testing.T) { eachServer(t, spelledSKUs) }

func spelledSKUs(t *testing.T) {
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: spelling})
	createTables(t, s, "INSERT INTO o VALUES ('a', 0, 1), ('b', 0, 1), ('both', 0, 1), ('gone', 0, 1)",
		"INSERT INTO l VALUES ('a', 'ink', 1), ('b', 'INK', 2), ('b', 'Nib', 1), ('both', 'ink', 3), ('both', 'INK', 3), ('gone', 'Pen', 1)")
	says := map[string]string{"both": `lines_wrong: SKUs "INK" and "ink" are one row of table g`, "gone": `stock_row_missing: SKU "Pen" has no row in table g`}
	for range 2 {
		for _, o := range bisected(t, s, "a", "b", "both", "gone") {
			want := says[o.OrderID]
			expect.That(t, (o.Verdict == orderclose.Failed) == (want != "") && strings.Contains(fmt.Sprint(o.Err), want), "%+v, want %q", o, want)
		}
	}
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', sku, free, held) FROM g"), "ink 3 97, nib 1 99", "the stock")
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', order_id, returned) FROM receipts"), `a {"ink":1}, b {"INK":2,"Nib":1}`, "the receipts")
}

// bisected closes orders as a closer does, and searches those that fail.
func bisected(t *testing.T, s *store.Store, ids ...string) []orderclose.Outcome {
	t.Helper()
	reqs := make([]orderclose.CloseRequest, len(ids))
	for i, id := range ids {
		reqs[i].OrderID = id
	}
	return must.Get(bisect.Bisect(t.Context(), s, orderclose.PathSweep, reqs))(t)
}

// Binary ids and SKUs are refused, and the fix in the problem's text works.
func TestMySQL_BinaryIDsAreMappedAsText(t *testing.T) { eachServer(t, binaryIDs) }

func binaryIDs(t *testing.T) {
	dsn := ownDatabase(t)
	s := openShop(t, dsn, storetest.Shop{Mapping: spelling},
		"CREATE TABLE o (no BINARY(16) PRIMARY KEY, status INT NOT NULL, due INT NOT NULL, KEY (status, due, no))",
		"CREATE TABLE l (no BINARY(16) NOT NULL, sku BINARY(4), n INT NOT NULL, KEY (no))",
		"CREATE TABLE g (sku VARBINARY(4) PRIMARY KEY, free INT NOT NULL, held INT NOT NULL)",
		"INSERT INTO o VALUES (x'00112233445566778899aabbccddeeff', 0, 1)",
		"INSERT INTO l VALUES (x'00112233445566778899aabbccddeeff', x'00ff1234', 1)",
		"INSERT INTO g VALUES (x'00ff1234', 0, 100)",
	)
	err := s.CheckMapping(t.Context())
	for _, path := range []string{"orders.id.column", "orders.items.order", "orders.items.sku", "orders.stock.sku.column"} {
		expect.That(t, err != nil && strings.Contains(err.Error(), path+": column"), "no problem with %s: %v", path, err)
	}
	for _, table := range []string{"o", "l"} {
		exec(t, s.DB(), "ALTER TABLE "+table+" ADD COLUMN no_text VARCHAR(64) AS (HEX(no)) STORED, ADD KEY by_no_text (no_text)")
	}
	exec(t, s.DB(), "ALTER TABLE o ADD UNIQUE KEY uk (no_text), ADD KEY by_due (status, due, no_text)")
	exec(t, s.DB(), "ALTER TABLE l ADD COLUMN sku_text VARCHAR(64) AS (HEX(sku)) STORED")
	exec(t, s.DB(), "ALTER TABLE g ADD COLUMN sku_text VARCHAR(64) AS (HEX(sku)) STORED, ADD UNIQUE KEY uk (sku_text)")
	text := *spelling
	text.ID = mapping.Key{Column: "no_text", Index: "uk"}
	text.Items = &mapping.Items{Table: "l", Order: "no_text", SKU: "sku_text", Quantity: "n"}
	text.Stock = []*mapping.Stock{{Table: "g", SKU: mapping.Key{Column: "sku_text", Index: "uk"}, Available: "free", Reserved: "held"}}
	s = open(t, store.Options{DSN: dsn, Orders: &text})
	must.Do(t, s.CheckMapping(t.Context()))
	out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "00112233445566778899AABBCCDDEEFF"}}))(t)
	got := texts(t, s, "SELECT CONCAT_WS(' ', sku_text, free, held) FROM g")
	expect.That(t, out[0].Verdict == orderclose.Closed && got == "00FF1234 1 99", "%+v; the stock is %s", out, got)
}

// spelling maps tables in which all ids and SKUs compare without their case.
var spelling = &mapping.Mapping{
	Orders: "o", ID: mapping.Key{Column: "no"},
	Status: mapping.Status{Column: "status", From: mapping.OneOf{mapping.IntValue(0)}, To: mapping.IntValue(2)},
	Due:    mapping.TimeColumn{Column: "due", Type: mapping.UnixSeconds},
	Items:  &mapping.Items{Table: "l", Order: "no", SKU: "sku", Quantity: "n"},
	Stock:  []*mapping.Stock{{Table: "g", SKU: mapping.Key{Column: "sku"}, Available: "free", Reserved: "held"}},
}

// createTables creates the tables, runs the queries and migrates.
func createTables(t *testing.T, s *store.Store, queries ...string) {
	t.Helper()
	for _, q := range append([]string{
		"CREATE TABLE o (no VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, status INT NOT NULL, due INT NOT NULL, KEY (status, due, no)) " +
			"DEFAULT CHARSET utf8mb4",
		"CREATE TABLE l (no VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL, sku VARCHAR(20) COLLATE utf8mb4_general_ci, n INT NOT NULL, KEY (no)) " +
			"DEFAULT CHARSET utf8mb4",
		"CREATE TABLE g (sku VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, free INT NOT NULL, held INT NOT NULL) DEFAULT CHARSET utf8mb4",
		"INSERT INTO g VALUES ('ink', 0, 100), ('nib', 0, 100)",
	}, queries...) {
		exec(t, s.DB(), q)
	}
	must.Do(t, s.Migrate(t.Context()))
}

// texts returns the rows of a query, sorted.
func texts(t *testing.T, s *store.Store, query string, args ...any) string {
	t.Helper()
	rows := must.Get(s.DB().QueryContext(t.Context(), query, args...))(t)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		must.Do(t, rows.Scan(&text))
		all = append(all, text)
	}
	must.Do(t, rows.Err())
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// The ids of orders compare exactly and the ids of their lines do not, as after a change of the
// collation of one table. The mapping is refused, and what the problem says fixes it.
func TestMySQL_OtherCollationsAreRefused(t *testing.T) { eachServer(t, otherCollations) }

func otherCollations(t *testing.T) {
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: spelling})
	createTables(t, s, "ALTER TABLE o MODIFY no VARCHAR(20) COLLATE utf8mb4_bin", "ALTER TABLE g MODIFY sku VARCHAR(20) COLLATE utf8mb4_unicode_ci NOT NULL")
	for _, fix := range []string{
		"ALTER TABLE `l` MODIFY `no` varchar(20) COLLATE utf8mb4_bin NOT NULL",
		"ALTER TABLE `l` MODIFY `sku` varchar(20) COLLATE utf8mb4_unicode_ci NULL",
	} {
		err := s.CheckMapping(t.Context())
		expect.That(t, err != nil && strings.Contains(err.Error(), fix), "%v; want %s", err, fix)
		exec(t, s.DB(), fix)
	}
	must.Do(t, s.CheckMapping(t.Context()))
}

// A program that does not check the mapping still mixes up no lines of orders whose ids differ in case. Such orders stay open, and are named.
func TestMySQL_LinesOfIDsThatDifferInCaseAreNotMixedUp(t *testing.T) { eachServer(t, differInCase) }

func differInCase(t *testing.T) {
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: spelling})
	createTables(t, s, "ALTER TABLE o MODIFY no VARCHAR(20) COLLATE utf8mb4_bin",
		"INSERT INTO o VALUES ('aB', 0, 1), ('Ab', 1, 1), ('ord-1', 0, 1), ('x-1', 0, 1), ('X-1', 0, 1), ('good', 0, 1)", // Ab is paid
		"INSERT INTO l VALUES ('aB', 'ink', 1), ('Ab', 'ink', 10), ('ORD-1', 'ink', 5), ('ord-1', 'ink', 2), ('x-1', 'ink', 3), ('X-1', 'ink', 4), "+
			"('good', 'ink', 6)")
	for range 2 {
		for _, ids := range [][]string{{"aB", "ord-1", "x-1", "good"}, {"X-1"}} {
			for _, o := range bisected(t, s, ids...) {
				failed := o.Verdict == orderclose.Failed
				expect.That(t, failed == (o.OrderID != "good") && (!failed || strings.Contains(o.Err.Error(), "lines_wrong: the lines of order")), "%+v", o)
			}
		}
	}
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', sku, free, held) FROM g"), "ink 6 94, nib 0 100", "the stock")
	exec(t, s.DB(), "UPDATE l SET no = 'ord-1' WHERE no = 'ORD-1'")
	if o := bisected(t, s, "ord-1")[0]; o.Verdict != orderclose.Closed {
		t.Errorf("with its own id in all lines: %+v", o)
	}
	expect.Equal(t, texts(t, s, "SELECT CONCAT_WS(' ', order_id, returned) FROM receipts"), `good {"ink":6}, ord-1 {"ink":7}`, "the receipts")
}
