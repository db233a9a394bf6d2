package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit/measure"
)

// lossSKUs is the number of SKUs of the lost orders.
const lossSKUs = 1000

// lost is how late orders close whose records are lost, if a compensator alone looks for them.
type lost struct {
	PerSecond int            `json:"lost_per_s"`
	Median    measure.Number `json:"late_p50_s"`
	Latest    measure.Number `json:"late_max_s"`
}

// lose makes orders that have no record. They are due one after another, at the rate, for some seconds. A compensator alone closes them.
// lose returns how late it is.
func (s *shop) lose(ctx context.Context, perSecond, seconds int) (l lost, err error) {
	l.PerSecond = perSecond
	n := perSecond * seconds
	if err := s.insertLost(ctx, n, seconds); err != nil {
		return l, err
	}
	c, err := compensator.New(compensator.Options{Store: s.store, Name: "bench-loss", Period: 24 * time.Hour})
	if err != nil {
		return l, err
	}
	running, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	for closed := 0; closed < n && err == nil && retry.Sleep(running, time.Second); {
		err = s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM receipts WHERE order_id LIKE 'LOST-%'").Scan(&closed)
	}
	if err == nil && running.Err() != nil {
		err = fmt.Errorf("not all of %d lost orders were closed within five minutes", n)
	}
	stop()
	if failed := <-ended; err == nil {
		err = failed
	}
	var median, latest int64
	if err == nil {
		q := fmt.Sprintf("SELECT lateness_ms FROM receipts WHERE order_id LIKE 'LOST-%%' ORDER BY lateness_ms LIMIT 1 OFFSET %d", n/2)
		err = s.db.QueryRowContext(ctx, q).Scan(&median)
	}
	if err == nil {
		err = s.db.QueryRowContext(ctx, "SELECT MAX(lateness_ms) FROM receipts WHERE order_id LIKE 'LOST-%'").Scan(&latest)
	}
	l.Median, l.Latest = measure.Number(median)/1000, measure.Number(latest)/1000
	fmt.Fprintf(os.Stderr, "%-10s %d orders/s lost: closed %.1f s late in the median, %.1f s at most\n", s.on.name, perSecond, l.Median, l.Latest)
	return l, err
}

// insertLost inserts n orders with a line each. The first is due in five seconds, and the last some seconds later.
func (s *shop) insertLost(ctx context.Context, n, seconds int) error {
	clear := []string{}
	for _, table := range []string{"receipts", "stock_ledger", "outbox_events", "orders", "order_items"} {
		column := "order_id"
		if table == "orders" {
			column = "id"
		}
		clear = append(clear, "DELETE FROM "+table+" WHERE "+column+" LIKE 'LOST-%'")
	}
	numbers := "(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d + 100000 * f.d AS n" +
		" FROM digits a, digits b, digits c, digits d, digits e, digits f) AS numbers WHERE n < " + strconv.Itoa(n)
	id := "CONCAT('LOST-', LPAD(CONCAT('', n), 9, '0'))"
	sku := fmt.Sprintf("CONCAT('LOST-', LPAD(CONCAT('', n %% %d), 6, '0'))", lossSKUs)
	ahead := fmt.Sprintf(s.on.later, fmt.Sprintf("5000 + n * %d / %d", seconds*1000, n))
	return s.exec(ctx, append(clear,
		"DELETE FROM stock WHERE sku_id LIKE 'LOST-%'",
		"INSERT INTO order_items (order_id, line_no, sku_id, quantity) SELECT "+id+", 1, "+sku+", 1 FROM "+numbers,
		"INSERT INTO stock (sku_id, available, reserved) SELECT sku_id, 0, COUNT(*) FROM order_items WHERE order_id LIKE 'LOST-%' GROUP BY sku_id",
		"INSERT INTO orders (id, category, status, created_at, expire_at, version) SELECT "+
			id+", 'virtual', 0, "+fmt.Sprintf(s.on.later, "0")+", "+ahead+", 1 FROM "+numbers)...)
}
