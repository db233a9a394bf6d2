// Package judge says what a run with real faults has broken, and how late orders were. It shares
// no code with the stages: it reads Kafka and the database by package checker and by queries of
// its own, and what the shop and its stock service have noted.
//
//	judge.go    the verdict at the end
//	witness.go  looks for early closes while the run goes on
//	lateness.go how late each order was, and when lateness was normal again after a fault
package judge

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/testkit/checker"
)

// maxNamed bounds how many examples a violation names. All are counted.
const maxNamed = 5

// Release is one call of the service that keeps stock.
type Release struct {
	Order, SKU, Key string
	Quantity        int64
}

// History is what the shop and its stock service know of a run.
type History struct {
	// Created are the orders whose transaction the database has acknowledged. Paid, of those, are
	// the orders whose payment it has acknowledged.
	Created, Paid []string
	// Releases are the calls that the stock service has acknowledged, repeats included. Nil: there
	// is no such service.
	Releases []Release
	// Expect is for the checker. Judge sets Paid.
	Expect checker.Expect
}

// Verdict is the result of a run.
type Verdict struct {
	Orders int
	// Early counts orders that were closed before they were due, by the clock of the database.
	Early int
	// Lost counts what has disappeared: an acknowledged order, a record without a successor, a
	// release that the stock service never got.
	Lost int
	// Double counts contradictions of ledger, stock, events and releases: stock that was given
	// back twice, or in the wrong quantity, or for an order that is not closed; and orders that
	// were paid and closed.
	Double int
	// Open counts unpaid orders that are overdue.
	Open int
	// ByPath counts closed orders by the path that closed them.
	ByPath map[string]int
	Paid   int
	// Cancelled counts cancelled orders.
	Cancelled int
	Samples   []Sample
	// Violations describe every broken promise.
	Violations []string
}

// Judge reads the servers and compares them with the history. An error means that reading failed.
func Judge(ctx context.Context, s checker.Servers, h History) (*Verdict, error) {
	h.Expect.Paid = h.Paid
	c, err := checker.Check(ctx, s, h.Expect)
	if err != nil {
		return nil, err
	}
	v := &Verdict{
		Orders: c.Orders, Early: c.Early, Lost: c.Lost, Double: c.Inconsistent, Open: c.Open,
		ByPath: c.ByPath, Paid: c.Paid, Cancelled: c.Cancelled, Violations: c.Violations,
	}
	for _, text := range c.Violations {
		if strings.Contains(text, "paid and is closed") || strings.Contains(text, "was paid and has status") {
			v.Double++
		}
	}
	orders, err := readOrders(ctx, s.DB)
	if err != nil {
		return nil, err
	}
	v.checkCreated(orders, h.Created)
	if h.Releases != nil {
		items, err := readItems(ctx, s.DB)
		if err != nil {
			return nil, err
		}
		v.checkReleases(orders, items, h.Releases)
	}
	if v.Samples, err = readSamples(ctx, s.DB); err != nil {
		return nil, err
	}
	return v, nil
}

// statusClosed is the value of orders.status of a closed order.
const statusClosed = 2

// checkCreated: an acknowledged order is in the database.
func (v *Verdict) checkCreated(orders map[string]int, created []string) {
	var gone []string
	for _, id := range created {
		if _, ok := orders[id]; !ok {
			gone = append(gone, id)
		}
	}
	v.Lost += v.violation(gone, "%d orders were acknowledged and are not in the database, such as %v")
}

type line struct{ order, sku string }

// checkReleases: the stock service got each line of each closed order, with one key and the right
// quantity, and nothing of other orders.
func (v *Verdict) checkReleases(orders map[string]int, items map[line]int64, releases []Release) {
	keys := map[line]string{}
	var twice, wrong, early, missing []string
	for _, r := range releases {
		at := line{r.Order, r.SKU}
		key, again := keys[at]
		switch {
		case again && key != r.Key:
			twice = append(twice, r.Order+" "+r.SKU)
		case orders[r.Order] != statusClosed:
			early = append(early, r.Order+" "+r.SKU)
		case items[at] != r.Quantity:
			wrong = append(wrong, fmt.Sprintf("%s %s: %d of %d", r.Order, r.SKU, r.Quantity, items[at]))
		}
		keys[at] = r.Key
	}
	for at := range items {
		if _, ok := keys[at]; orders[at.order] == statusClosed && !ok {
			missing = append(missing, at.order+" "+at.sku)
		}
	}
	v.Double += v.violation(twice, "%d lines were released with different keys, such as %v")
	v.Double += v.violation(wrong, "%d releases have the wrong quantity, such as %v")
	v.Double += v.violation(early, "%d releases are of orders that are not closed, such as %v")
	v.Lost += v.violation(missing, "%d lines of closed orders were never released, such as %v")
}

// violation adds a violation that counts and names examples, if there are any. It returns their
// number.
func (v *Verdict) violation(of []string, format string) int {
	if len(of) > 0 {
		slices.Sort(of)
		v.Violations = append(v.Violations, fmt.Sprintf(format, len(of), of[:min(len(of), maxNamed)]))
	}
	return len(of)
}

// readOrders returns the status of each order.
func readOrders(ctx context.Context, db *sql.DB) (map[string]int, error) {
	orders := map[string]int{}
	err := read(ctx, db, "SELECT id, status FROM orders", func(rows *sql.Rows) error {
		var id string
		var status int
		err := rows.Scan(&id, &status)
		orders[id] = status
		return err
	})
	return orders, err
}

// readItems returns the quantity of each order and SKU.
func readItems(ctx context.Context, db *sql.DB) (map[line]int64, error) {
	items := map[line]int64{}
	err := read(ctx, db, "SELECT order_id, sku_id, quantity FROM order_items", func(rows *sql.Rows) error {
		var at line
		var quantity int64
		err := rows.Scan(&at.order, &at.sku, &quantity)
		items[at] += quantity
		return err
	})
	return items, err
}

// read calls each for each row of a query.
func read(ctx context.Context, db *sql.DB, query string, each func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("judge: %s: %w", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return fmt.Errorf("judge: %s: %w", query, err)
		}
	}
	return rows.Err()
}
