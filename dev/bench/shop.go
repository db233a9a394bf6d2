package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// The shop whose orders are closed: every order has two lines of one piece each.
const (
	manySKUs = 10_000
	hotSKUs  = 10
	// stockOfSKU is the stock of each SKU before anything is ordered.
	stockOfSKU = 1_000_000_000
	fillBatch  = 1000 // rows per INSERT
)

// shop is a temporary database on a server; close drops it.
type shop struct {
	on    database
	dsn   string
	db    *sql.DB // for filling and checking
	store *store.Store
	drop  func(context.Context) error
}

// openShop creates a database and its tables, on a server with durable commits.
func openShop(ctx context.Context, on database) (*shop, error) {
	s := &shop{on: on}
	server, err := on.server()
	if err != nil {
		return nil, err
	}
	if s.dsn, s.drop, err = scenario.CreateDatabase(ctx, server, nil, "oc_bench_"+strings.ToLower(rand.Text()[:8])); err != nil {
		return nil, err
	}
	if s.store, err = store.Open(store.Options{DSN: s.dsn}); err == nil {
		s.db = s.store.DB()
		if err = s.store.Migrate(ctx); err == nil {
			err = s.durable(ctx)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// durable rejects a server that answers a commit before it is on disk: it would be
// several times as fast, and the result would be useless.
func (s *shop) durable(ctx context.Context) error {
	var name, value string
	for _, want := range s.on.durable {
		if err := s.db.QueryRowContext(ctx, fmt.Sprintf(s.on.settings, want[0])).Scan(&name, &value); err != nil {
			return err
		}
		if value != want[1] {
			return fmt.Errorf("the server has %s = %s, want %s: what it commits is not durable", name, value, want[1])
		}
	}
	return nil
}

func (s *shop) close() {
	if s.store != nil {
		s.store.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.drop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// lot is a set of orders to close.
type lot struct {
	orders int
	skus   int
	paid   int // number of paid orders in each hundred; the others are unpaid
	// paidFrom is the number from which on all orders are paid; 0 means none.
	paidFrom int
	// due returns the due time of the order with that number.
	due func(number int) time.Time
}

// skusOf returns the two SKUs of an order. Orders with similar numbers have different
// SKUs.
func (l lot) skusOf(number int) [2]int {
	first := number * 7919 % l.skus
	return [2]int{first, (first + 1 + number%(l.skus-1)) % l.skus}
}

func (l lot) status(number int) store.Status {
	if number%100 < l.paid || l.paidFrom > 0 && number >= l.paidFrom {
		return store.Paid
	}
	return store.Unpaid
}

// shopTables are the tables that a lot fills, or its close.
var shopTables = []string{"orders", "order_items", "stock", "stock_ledger", "receipts", "outbox_events"}

// exec runs statements, one after another.
func (s *shop) exec(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// fill empties the tables and fills them with a lot.
func (s *shop) fill(ctx context.Context, l lot) error {
	for _, table := range shopTables {
		if err := s.exec(ctx, "TRUNCATE TABLE "+table); err != nil {
			return err
		}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	orders := rows{tx: tx, into: "orders (id, category, status, created_at, expire_at, version)"}
	items := rows{tx: tx, into: "order_items (order_id, line_no, sku_id, quantity)"}
	reserved := make([]int64, l.skus)
	for n := range l.orders {
		due := l.due(n)
		err := orders.add(ctx, idOf(n), "virtual", l.status(n), due.Add(-5*time.Minute), due, 1)
		for i, sku := range l.skusOf(n) {
			reserved[sku]++
			err = errors.Join(err, items.add(ctx, idOf(n), i+1, skuName(sku), 1))
		}
		if err != nil {
			return err
		}
	}
	stock := rows{tx: tx, into: "stock (sku_id, available, reserved)"}
	for sku, n := range reserved {
		if err := stock.add(ctx, skuName(sku), stockOfSKU-n, n); err != nil {
			return err
		}
	}
	if err := errors.Join(orders.flush(ctx), items.flush(ctx), stock.flush(ctx), tx.Commit()); err != nil {
		return err
	}
	return s.analyze(ctx)
}

// analyze updates the server's table statistics, since the tables were empty before.
func (s *shop) analyze(ctx context.Context) error {
	return s.exec(ctx, s.on.analyze)
}

func skuName(sku int) string { return fmt.Sprintf("SKU-%06d", sku) }

// rows collects rows into multi-row INSERTs.
type rows struct {
	tx    *sql.Tx
	into  string
	count int
	args  []any
}

func (r *rows) add(ctx context.Context, args ...any) error {
	r.args = append(r.args, args...)
	if r.count++; r.count < fillBatch {
		return nil
	}
	return r.flush(ctx)
}

func (r *rows) flush(ctx context.Context) error {
	if r.count == 0 {
		return nil
	}
	one := "(" + strings.Repeat("?, ", len(r.args)/r.count-1) + "?)"
	_, err := r.tx.ExecContext(ctx, "INSERT INTO "+r.into+" VALUES "+strings.Repeat(one+", ", r.count-1)+one, r.args...)
	r.count, r.args = 0, r.args[:0]
	return err
}

// sumsOK checks the tables after every unpaid order of a lot was closed: status,
// receipts, events and stock have nothing missing and nothing twice. The
// error names the difference.
func (s *shop) sumsOK(ctx context.Context, l lot) error {
	unpaid := 0
	for n := range l.orders {
		if l.status(n) == store.Unpaid {
			unpaid++
		}
	}
	for _, want := range []struct {
		what, query string
		count       int
	}{
		{"orders closed", "SELECT COUNT(*) FROM orders WHERE status = 2", unpaid},
		{"orders closed before they were due", "SELECT COUNT(*) FROM orders WHERE closed_at < expire_at", 0},
		{"receipts", "SELECT COUNT(*) FROM receipts", unpaid},
		{"events", "SELECT COUNT(*) FROM outbox_events", unpaid},
		{"lines in receipts", "SELECT COUNT(*) FROM order_items JOIN receipts USING (order_id)" +
			` WHERE returned LIKE CONCAT('%"', sku_id, '":', quantity, '%')`, 2 * unpaid},
		{"pieces reserved", "SELECT SUM(reserved) FROM stock", 2 * (l.orders - unpaid)},
		{"SKUs whose pieces are not what they were", fmt.Sprintf("SELECT COUNT(*) FROM stock WHERE available + reserved <> %d", stockOfSKU), 0},
		{"SKUs whose pieces came back otherwise than the receipts say", `SELECT COUNT(*) FROM stock JOIN (
			SELECT i.sku_id, SUM(i.quantity) AS ordered FROM order_items i GROUP BY i.sku_id) o USING (sku_id)
			LEFT JOIN (SELECT sku_id, SUM(quantity) AS back FROM order_items JOIN receipts USING (order_id) GROUP BY sku_id) b USING (sku_id)
			WHERE reserved <> ordered - COALESCE(back, 0)`, 0},
	} {
		var got int
		if err := s.db.QueryRowContext(ctx, want.query).Scan(&got); err != nil {
			return err
		}
		if got != want.count {
			return fmt.Errorf("%d %s, want %d", got, want.what, want.count)
		}
	}
	return nil
}
