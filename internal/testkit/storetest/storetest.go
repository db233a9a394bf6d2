// Package storetest tests the promises of the store, on every database that it supports. Call
// Run for the reference schema and RunMapped for a shop's own tables.
package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// Run runs the suite on the reference schema, its promises in parallel.
func Run(t *testing.T, server Server) {
	on := server.databases(t, nil, nil)
	for _, promises := range [][]promise[shop]{
		closePromises, linePromises, faultPromises, crowdPromises, pagePromises, turnPromises, betweenPromises, countPromises, sweepPromises,
		pausePromises, checkoutPromises, schemaPromises, stockPromises,
		historyPromises, outboxPromises, payOrdersPromises, latePaymentPromises, auditPromises, categoryPromises,
		reminderPromises, moneyPromises, eventsAgainPromises,
		transactionPromises,
	} {
		play(t, server, promises, func(t *testing.T, p promise[shop]) {
			t.Parallel()
			p.test(t, on.shop(t, p.tags))
		})
	}
}

// shop is a store under test, with helpers.
type shop struct {
	*testing.T
	*store.Store
	*shopdb.Orders
	// another opens another store on the same database, as another process does.
	another func() *store.Store
	dsn     string // empty: the database has no tables yet
}

// shop returns a store for a promise.
func (d databases) shop(t *testing.T, tags Tag) *shop {
	t.Helper()
	open, dsn := d.of(t, tags)
	s := &shop{T: t, Store: open(), another: open, dsn: dsn}
	if d.mapping == nil {
		s.Orders = scenario.OrdersOf(s.Store)
	}
	return s
}

// must ends the test on an error.
func (s *shop) must(err error) {
	s.Helper()
	must.Do(s, err)
}

// migrated creates the schema if there is none yet, and puts a thousand of each SKU in stock.
func (s *shop) migrated(skus ...string) *shop {
	s.Helper()
	if s.dsn == "" {
		s.must(s.Migrate(s.Context()))
	}
	for _, sku := range skus {
		s.must(s.PutStock(s.Context(), sku, 1000))
	}
	return s
}

// now returns the database's clock.
func (s *shop) now() time.Time {
	s.Helper()
	return must.Get(s.Now(s.Context()))(s)
}

// order creates an order that is due in the given time from now; negative: overdue.
func (s *shop) order(id string, in time.Duration, items ...shopdb.Item) orderclose.Order {
	s.Helper()
	now := s.now()
	o := orderclose.Order{ID: id, Category: "book", CreatedAt: now.Add(min(in, 0) - time.Second), Due: now.Add(in)}
	s.must(s.CreateOrder(s.Context(), o, items))
	return o
}

// overdueOrders creates orders that were due a minute ago.
func (s *shop) overdueOrders(ids ...string) {
	s.Helper()
	for _, id := range ids {
		s.order(id, -time.Minute)
	}
}

// orderOfEachStatus creates an overdue order of each status, and one that is unpaid and due in an hour. The overdue unpaid order has the id "overdue".
func (s *shop) orderOfEachStatus() {
	s.Helper()
	s.overdueOrders("overdue", "paid", "closed", "cancelled", "shipped", "confirmed")
	s.order("unpaid", time.Hour)
	for _, id := range []string{"paid", "shipped", "confirmed"} {
		s.answer(s.Pay(s.Context(), id, "p"))
	}
	for _, id := range []string{"shipped", "confirmed"} {
		s.answer(s.Ship(s.Context(), id))
	}
	s.answer(s.Confirm(s.Context(), "confirmed"))
	s.answer(s.Cancel(s.Context(), "cancelled"))
	s.close("closed")
}

// bulk inserts unpaid orders without lines, quickly.
func (s *shop) bulk(orders []orderclose.Order) {
	s.Helper()
	for part := range slices.Chunk(orders, 500) {
		query, args := "INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ", []any{}
		for i, o := range part {
			if i > 0 {
				query += ", "
			}
			query += "(?, ?, 0, ?, ?, 1)"
			args = append(args, o.ID, o.Category, s.time(o.CreatedAt), s.time(o.Due))
		}
		s.exec(query, args...)
	}
}

// capability is what most databases can do.
type capability string

const (
	rowLocks        capability = "several transactions write at the same time"
	describedTables capability = "the definitions of tables are checked"
	waitsForNewRows capability = "a locking read waits for rows that another transaction has inserted"
	trials          capability = "a close is tried and rolled back"
)

// lacking lists what each kind of database cannot do.
var lacking = map[store.DialectName][]capability{
	store.SQLite:   {rowLocks, describedTables, trials},
	store.Postgres: {waitsForNewRows},
}

// lacks reports whether the database lacks a capability.
func (s *shop) lacks(c capability) bool { return slices.Contains(lacking[s.Dialect()], c) }

// needs skips the test if the database lacks a capability.
func (s *shop) needs(c capability) {
	s.Helper()
	if s.lacks(c) {
		s.Skipf("not on %s: %s", s.Dialect(), c)
	}
}

// time returns t as the database stores it.
func (s *shop) time(t time.Time) any {
	if s.Dialect() == store.SQLite {
		return t.UnixMilli()
	}
	return t
}

func (s *shop) exec(query string, args ...any) {
	s.Helper()
	must.Get(s.DB().ExecContext(s.Context(), query, args...))(s)
}

// close closes the orders by the pipeline's path, as a first attempt.
func (s *shop) close(ids ...string) []orderclose.Outcome {
	s.Helper()
	return must.Get(s.CloseOrders(s.Context(), orderclose.PathPipeline, requests(ids...)))(s)
}

func requests(ids ...string) []orderclose.CloseRequest {
	reqs := make([]orderclose.CloseRequest, len(ids))
	for i, id := range ids {
		reqs[i].OrderID = id
	}
	return reqs
}

// verdicts returns each outcome's order id and verdict.
func verdicts(out []orderclose.Outcome) []string {
	text := make([]string, len(out))
	for i, o := range out {
		text[i] = o.OrderID + " " + string(o.Verdict)
	}
	return text
}

// want reports a difference between got and want.
func want[V any](t testing.TB, what string, got, want V) {
	t.Helper()
	expect.Same(t, got, want, "%s", what)
}

// state returns everything that a close may change, as text, for comparison.
func (s *shop) state() []string {
	s.Helper()
	return slices.Concat(
		s.texts("SELECT CONCAT_WS(' ', 'order', id, status, version, closed_at IS NULL, paid_at IS NULL, COALESCE(payment_id, '-')) FROM orders ORDER BY id"),
		s.stock(), s.ledger(),
		s.texts("SELECT CONCAT_WS(' ', 'receipt', order_id) FROM receipts ORDER BY order_id"), s.late())
}

func (s *shop) stock() []string {
	s.Helper()
	return s.texts("SELECT CONCAT_WS(' ', sku_id, available, reserved) FROM stock ORDER BY sku_id")
}

// ledger returns the stock that moved: what receipts say of closes, and the rows of the table stock_ledger.
func (s *shop) ledger() []string {
	s.Helper()
	all := s.texts("SELECT CONCAT_WS(' ', order_id, sku_id, kind, quantity) FROM stock_ledger")
	for _, receipt := range s.texts("SELECT CONCAT_WS(' ', order_id, returned) FROM receipts WHERE returned LIKE '{%'") {
		id, lines, _ := strings.Cut(receipt, " {")
		returned := map[string]int64{}
		s.must(json.Unmarshal([]byte("{"+lines), &returned))
		for sku, quantity := range returned {
			all = append(all, fmt.Sprint(id, " ", sku, " close ", quantity))
		}
	}
	slices.Sort(all)
	return all
}

func (s *shop) texts(query string, args ...any) []string {
	s.Helper()
	rows := must.Get(s.DB().QueryContext(s.Context(), query, args...))(s)
	defer func() { _ = rows.Close() }()
	var texts []string
	for rows.Next() {
		var text string
		s.must(rows.Scan(&text))
		texts = append(texts, text)
	}
	s.must(rows.Err())
	return texts
}

func (s *shop) count(query string, args ...any) int {
	s.Helper()
	var n int
	s.must(s.DB().QueryRowContext(s.Context(), query, args...).Scan(&n))
	return n
}

func names(format string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf(format, i)
	}
	return ids
}
