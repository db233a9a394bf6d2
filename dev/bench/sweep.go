package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/measure"
)

const (
	// sweepPage is the number of orders per page, the default of topics.yaml.
	sweepPage = 500
	// makeAtOnce is how many orders one statement creates.
	makeAtOnce = 100_000
)

// sweepReport is the result of make bench-sweep.
type sweepReport struct {
	Tables      []swept        `json:"tables"`
	OffsetReads measure.Number `json:"offset_reads_per_found"`
	outboxReport
	Others []otherWay `json:"other_ways"` // to find orders, in the largest table
}

// found is the cost of finding the overdue orders of a table in one way.
type found struct {
	Overdue int            `json:"overdue"`
	Reads   measure.Number `json:"reads_per_found"` // rows of index and table that were read
	Seconds measure.Number `json:"find_s"`
}

// swept is the result for a table of one size.
type swept struct {
	Orders int `json:"orders"`
	found
	RPS measure.Number `json:"sweep_rps"` // orders found and closed
}

// otherWay is another common way to write a sweep.
type otherWay struct {
	Name string `json:"found_by"`
	found
}

// benchSweep runs all measurements of make bench-sweep.
func benchSweep(ctx context.Context, p *workspace, pl plan) error {
	steps := []step[sweepReport]{func(_ *sweepReport, s *shop) error { return s.warmUpSweep(ctx, pl.sweepTables[0]/10) }}
	for i, orders := range pl.sweepTables {
		steps = append(steps, func(r *sweepReport, s *shop) (err error) {
			if err := s.growTo(ctx, orders); err != nil {
				return fmt.Errorf("a table of %d orders: %w", orders, err)
			}
			row := swept{Orders: orders}
			if row.found, err = s.find(ctx, byKeyset); err != nil {
				return err
			}
			if i == len(pl.sweepTables)-1 {
				if r.Others, err = s.findOtherwise(ctx); err != nil {
					return err
				}
				r.OffsetReads = r.Others[0].Reads
			}
			if row.RPS, err = s.sweep(ctx, row.Overdue); err != nil {
				return err
			}
			r.Tables = append(r.Tables, row)
			fmt.Fprintf(os.Stderr, "%-10s %d orders: %d found in %.3f s, %.2f rows read for each, swept at %.0f orders/s\n",
				s.on.name, orders, row.Overdue, row.Seconds, row.Reads, row.RPS)
			return nil
		})
	}
	for _, of := range outboxSteps(ctx, p, pl) {
		steps = append(steps, func(r *sweepReport, s *shop) error { return of(&r.outboxReport, s) })
	}
	return compare(ctx, (*sweepReport).medians, steps...)
}

// medians are those of the outbox, with the rates of the sweeps and of finding orders.
func (r *sweepReport) medians() map[string]measure.Number {
	all := r.outboxReport.medians()
	for _, t := range r.Tables {
		all[fmt.Sprintf("swept, of %d", t.Orders)] = t.RPS
		all[fmt.Sprintf("found, of %d", t.Orders)] = measure.Number(t.Overdue) / t.Seconds
	}
	return all
}

// warmUpSweep sweeps a small table. Its result does not count.
func (s *shop) warmUpSweep(ctx context.Context, orders int) error {
	fmt.Fprintf(os.Stderr, "warming up: a sweep of %d orders\n", orders)
	if err := s.growTo(ctx, orders); err != nil {
		return err
	}
	f, err := s.find(ctx, byKeyset)
	if err == nil {
		_, err = s.sweep(ctx, f.Overdue)
	}
	return err
}

// growTo fills the tables with orders, by statements on the server. Orders whose number ends in 00 are unpaid and overdue,
// and have two lines. Those that end in 01 to 04 are unpaid and due tomorrow. The rest is paid or closed.
func (s *shop) growTo(ctx context.Context, orders int) error {
	fmt.Fprintf(os.Stderr, "%-10s making a table of %d orders\n", s.on.name, orders)
	statements := []string{
		"DROP TABLE IF EXISTS digits",
		"CREATE TABLE digits (d INT NOT NULL PRIMARY KEY)",
		"INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
	}
	for _, table := range shopTables {
		statements = append(statements, "TRUNCATE TABLE "+table)
	}
	if err := s.exec(ctx, statements...); err != nil {
		return err
	}
	const numbers = "(SELECT ? + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d AS n FROM digits a, digits b, digits c, digits d, digits e) AS numbers"
	for from := 0; from < orders; from += makeAtOnce {
		// Due times rise with the numbers, a millisecond per order, and end a minute
		// ago.
		if _, err := s.db.ExecContext(ctx, "INSERT INTO orders (id, category, status, created_at, expire_at, version)"+
			" SELECT CONCAT('"+idPrefix+"', LPAD(CONCAT('', n), 9, '0')), 'virtual', CASE WHEN n % 100 < 5 THEN 0 WHEN n % 3 = 0 THEN 2 ELSE 1 END,"+
			" "+fmt.Sprintf(s.on.later, "-86400000")+","+
			" "+fmt.Sprintf(s.on.later, "n - ? - 60000 + CASE WHEN n % 100 BETWEEN 1 AND 4 THEN 86400000 ELSE 0 END")+", 1"+
			" FROM "+numbers+" WHERE n < ? ORDER BY n", orders, from, orders); err != nil {
			return err
		}
	}
	err := s.exec(ctx,
		"INSERT INTO order_items (order_id, line_no, sku_id, quantity) SELECT o.id, l.d, "+
			"CONCAT('SKU-', LPAD(CONCAT('', (CAST(LEFT(RIGHT(o.id, 9), 7) AS DECIMAL(9)) * 7919 + l.d) % 10000), 6, '0')), 1"+
			" FROM orders o JOIN digits l ON l.d IN (1, 2) WHERE o.status = 0 AND o.id LIKE '%00'",
		"INSERT INTO stock (sku_id, available, reserved) SELECT sku_id, 1000000, SUM(quantity) FROM order_items GROUP BY sku_id")
	if err != nil {
		return err
	}
	return s.analyze(ctx)
}

// page reads the page behind an order, or, for OFFSET, behind that many orders.
type page func(ctx context.Context, st *store.Store, cutoff time.Time, last orderclose.Order, offset int) ([]orderclose.Order, error)

// byKeyset reads a page as the compensator does.
func byKeyset(ctx context.Context, st *store.Store, cutoff time.Time, last orderclose.Order, _ int) ([]orderclose.Order, error) {
	return st.Overdue(ctx, cutoff, last, sweepPage)
}

// bySQL returns a page function with a statement of its own.
func bySQL(where string, args func(last orderclose.Order, offset int) []any, rest string) page {
	return func(ctx context.Context, st *store.Store, cutoff time.Time, last orderclose.Order, offset int) ([]orderclose.Order, error) {
		rows, err := st.DB().QueryContext(ctx, "SELECT id, expire_at FROM orders "+where+" ORDER BY expire_at, id "+rest,
			append([]any{cutoff}, args(last, offset)...)...)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var all []orderclose.Order
		for rows.Next() {
			var o orderclose.Order
			if err := rows.Scan(&o.ID, &o.Due); err != nil {
				return nil, err
			}
			all = append(all, o)
		}
		return all, rows.Err()
	}
}

// findOtherwise finds the same orders in the other ways. PostgreSQL takes the hint as a comment.
func (s *shop) findOtherwise(ctx context.Context) ([]otherWay, error) {
	var all []otherWay
	for _, way := range []struct {
		name string
		page page
	}{
		{"OFFSET", bySQL("/*! FORCE INDEX (orders_overdue) */ WHERE status = 0 AND expire_at <= ?",
			func(_ orderclose.Order, offset int) []any { return []any{sweepPage, offset} }, "LIMIT ? OFFSET ?")},
		{"tuple comparison", bySQL("WHERE status = 0 AND expire_at <= ? AND (expire_at, id) > (?, ?)",
			func(last orderclose.Order, _ int) []any { return []any{last.Due, last.ID, sweepPage} }, "LIMIT ?")},
		{"no index, all at once", bySQL("WHERE status + 0 = 0 AND expire_at <= ?",
			func(_ orderclose.Order, offset int) []any { return []any{1_000_000_000, offset} }, "LIMIT ? OFFSET ?")},
	} {
		f, err := s.find(ctx, way.page)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		all = append(all, otherWay{way.name, f})
	}
	return all, nil
}

// find reads the overdue orders page by page, and counts the rows that the server
// read for them.
func (s *shop) find(ctx context.Context, read page) (f found, err error) {
	// The counters belong to a session: use one connection.
	st, err := store.Open(store.Options{DSN: s.dsn, MaxOpenConns: 1})
	if err != nil {
		return f, err
	}
	defer st.Close()
	cutoff, err := st.Now(ctx)
	if err != nil {
		return f, err
	}
	if err := s.flush(ctx, s.store); err != nil { // what filled the tables
		return f, err
	}
	before, err := s.readsOf(ctx, st)
	if err != nil {
		return f, err
	}
	began := time.Now()
	last := orderclose.Order{Due: time.Unix(1, 0).UTC()}
	for {
		orders, err := read(ctx, st, cutoff, last, f.Overdue)
		if err != nil {
			return f, err
		}
		if len(orders) == 0 {
			break
		}
		f.Overdue += len(orders)
		last = orders[len(orders)-1]
		if len(orders) != sweepPage {
			break
		}
	}
	f.Seconds = measure.Number(time.Since(began).Seconds())
	after, err := s.readsOf(ctx, st)
	if f.Overdue == 0 {
		err = errors.Join(err, errors.New("no order is overdue"))
	}
	f.Reads = measure.Number(after-before) / measure.Number(max(f.Overdue, 1))
	return f, err
}

// readsOf returns how many rows of indexes and tables this session has read.
// PostgreSQL counts those of all sessions in the orders.
func (s *shop) readsOf(ctx context.Context, st *store.Store) (n int, err error) {
	if err := s.flush(ctx, st); err != nil {
		return 0, err
	}
	rows, err := st.DB().QueryContext(ctx, s.on.reads)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var value int
		if err := rows.Scan(&name, &value); err != nil {
			return 0, err
		}
		n += value
	}
	return n, rows.Err()
}

// flush makes the reads of a store's session count.
func (s *shop) flush(ctx context.Context, st *store.Store) error {
	if s.on.flush == "" {
		return nil
	}
	_, err := st.DB().ExecContext(ctx, s.on.flush)
	return err
}

// sweep lets a compensator close all overdue orders at full speed, and checks that it
// has.
func (s *shop) sweep(ctx context.Context, want int) (rps measure.Number, err error) {
	c, err := compensator.New(compensator.Options{Store: s.store, Reader: s.store, Alone: true, Rate: -1, PageSize: sweepPage})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	report, err := c.Sweep(ctx, false)
	took := time.Since(began)
	if err == nil && report.Closed != want {
		err = fmt.Errorf("the sweep closed %d of %d orders: %+v", report.Closed, want, report)
	}
	var reserved int
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SELECT SUM(reserved) FROM stock").Scan(&reserved)
	}
	if err == nil && reserved != 0 {
		err = fmt.Errorf("%d pieces are still reserved", reserved)
	}
	return measure.Number(float64(want) / took.Seconds()), err
}
