package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/measure"
)

const (
	// warmOrders is the number of paid orders behind those of a lot, which are sent
	// through all partitions before the measurement.
	warmOrders = 1000
	// fillRate is the minimum number of orders a second at which the tables are
	// filled.
	fillRate = 5000
)

// endToEnd is how long after its due time an order was closed, at one rate: in total, until the answer was
// committed, and for each stage.
type endToEnd struct {
	Rate int `json:"rate"`
	measure.Spread
	ByStage map[string]measure.Spread `json:"by_stage"`
}

// moments are the times of one order.
type moments struct {
	due       time.Time
	appended  time.Time // to the close topic, by the broker's clock
	closedAt  time.Time // by the database's clock
	committed time.Time // when the closer had the answer
}

// measureEndToEnd sends orders that are in the database at an even rate into a delay
// topic. One process with a relay and a closer, as in production, does the rest.
func measureEndToEnd(ctx context.Context, p *workspace, s *shop, rate int, spell time.Duration) (endToEnd, error) {
	uncounted := int(warmUpStream.Seconds()) * rate
	orders := uncounted + int(spell.Seconds())*rate
	fmt.Fprintf(os.Stderr, "end to end: %d orders a second for %v, after a warm-up of %v\n", rate, spell, warmUpStream)
	begin := time.Now().Add(time.Duration(orders/fillRate)*time.Second + 10*time.Second).Truncate(time.Millisecond)
	l := lot{orders: orders + warmOrders, skus: manySKUs, paidFrom: orders, due: func(n int) time.Time { return dueAt(begin, rate, n) }}
	if err := s.fill(ctx, l); err != nil {
		return endToEnd{}, err
	}
	marks, err := os.MkdirTemp("", "orderclose-bench.")
	if err != nil {
		return endToEnd{}, err
	}
	defer os.RemoveAll(marks)
	line, err := openPipeline(ctx, p, orders, func(j *job) {
		j.Side, j.DSN, j.Marks = sidePipeline, s.dsn, filepath.Join(marks, "marks")
	})
	if err != nil {
		return endToEnd{}, err
	}
	got, err := line.run(ctx, s, begin, rate, orders)
	if _, stopped := line.close(ctx); err == nil {
		err = stopped
	}
	if err == nil {
		err = s.sumsOK(ctx, l)
	}
	if err == nil {
		err = s.addReceipts(ctx, got)
	}
	if err == nil {
		err = addMarks(filepath.Join(marks, "marks"), got)
	}
	if err != nil {
		return endToEnd{}, err
	}
	return spreadOf(rate, got[uncounted:]), nil
}

// run sends the orders and waits until all are closed.
func (l *pipeline) run(ctx context.Context, s *shop, begin time.Time, rate, orders int) ([]moments, error) {
	if !sleep(ctx, time.Until(begin)) {
		return nil, ctx.Err()
	}
	if late := time.Since(begin); late > time.Second {
		return nil, fmt.Errorf("making the orders took %v longer than planned: this machine is too busy", late)
	}
	all, err := l.stream(ctx, begin, rate, orders)
	if err != nil {
		return nil, err
	}
	got := make([]moments, orders)
	for _, r := range all {
		if r.number < orders {
			got[r.number].due, got[r.number].appended = dueAt(begin, rate, r.number), r.appended
		}
	}
	return got, s.awaitClosed(ctx, orders)
}

// awaitClosed waits for that many receipts.
func (s *shop) awaitClosed(ctx context.Context, orders int) error {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	for {
		var n int
		err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM receipts").Scan(&n)
		if err == nil && n >= orders {
			return nil
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return errors.Join(fmt.Errorf("%d of %d orders are closed", n, orders), err, ctx.Err())
		}
	}
}

// addReceipts adds when the database closed each order.
func (s *shop) addReceipts(ctx context.Context, got []moments) error {
	rows, err := s.db.QueryContext(ctx, "SELECT order_id, closed_at FROM receipts")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var at time.Time
		if err := rows.Scan(&id, &at); err != nil {
			return err
		}
		n, err := numberOf([]byte(id))
		if err != nil || n >= len(got) {
			return fmt.Errorf("a receipt of order %q, which was never sent: %w", id, err)
		}
		got[n].closedAt = at
	}
	return rows.Err()
}

// addMarks adds the times that the closer's process has stored: a number and unix
// microseconds for each order.
func addMarks(file string, got []moments) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n int
		var at int64
		if _, err := fmt.Sscan(lines.Text(), &n, &at); err != nil {
			return fmt.Errorf("%s: %q: %w", file, lines.Text(), err)
		}
		if n < len(got) {
			got[n].committed = time.UnixMicro(at)
		}
	}
	return nil
}

func spreadOf(rate int, got []moments) endToEnd {
	of := func(part func(moments) time.Duration) measure.Spread {
		all := make([]time.Duration, len(got))
		for i, m := range got {
			all[i] = part(m)
		}
		return measure.SpreadOf(all)
	}
	return endToEnd{rate, of(func(m moments) time.Duration { return m.committed.Sub(m.due) }), map[string]measure.Spread{
		"relay":  of(func(m moments) time.Duration { return m.appended.Sub(m.due) }),
		"closer": of(func(m moments) time.Duration { return m.closedAt.Sub(m.appended) }),
		"commit": of(func(m moments) time.Duration { return m.committed.Sub(m.closedAt) }),
	}}
}
