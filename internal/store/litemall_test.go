package store_test

import (
	"database/sql"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// prepay plays a change of an order as litemall makes it: it reads the row, and later writes all columns if the time of
// the last change is still the same. It reports whether the write succeeded.
func prepay(t *testing.T, db *sql.DB, id int, meanwhile func()) bool {
	t.Helper()
	var status int
	var updated string
	must.Do(t, db.QueryRowContext(t.Context(), "SELECT order_status, CONCAT(update_time) FROM litemall_order WHERE id = ?", id).Scan(&status, &updated))
	if status != 101 {
		return false
	}
	meanwhile()
	res := must.Get(db.ExecContext(t.Context(), "UPDATE litemall_order SET order_status = ?, end_time = NULL, update_time = UTC_TIMESTAMP() + INTERVAL 8 HOUR"+
		" WHERE id = ? AND update_time = ?", status, id, updated))(t)
	return must.Get(res.RowsAffected())(t) == 1
}

// The shop reads an order, a close follows in the second in which the row was written, and then the shop writes what it
// has read. Without the lock the write succeeds, and the order is unpaid again.
func TestMySQL_ACloseIsNotOverwrittenByAnOptimisticShop(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		for _, locked := range []bool{true, false} {
			shop := examples(t)[4]
			m := *shop.Mapping
			if !locked {
				m.Lock = nil
			}
			shop.Mapping = &m
			s := openShop(t, ownDatabase(t), shop)
			must.Do(t, s.CheckMapping(t.Context()))
			hints := must.Get(s.MappingHints(t.Context()))(t)
			noted := fmt.Sprint(hints)
			expect.That(t, locked != strings.Contains(noted, "update_time"), "locked %v: %s", locked, noted)
			exec(t, s.DB(), "INSERT INTO litemall_goods_product (id, number) VALUES (10, 0)")
			const orders = 40
			overwritten := 0
			for id := 1; id <= orders; id++ {
				exec(t, s.DB(), "INSERT INTO litemall_order (id, order_status, add_time, update_time) VALUES (?, 101, UTC_TIMESTAMP() + INTERVAL 7 HOUR, "+
					"UTC_TIMESTAMP() + INTERVAL 8 HOUR)", id)
				exec(t, s.DB(), "INSERT INTO litemall_order_goods (order_id, product_id, number, deleted) VALUES (?, 10, 2, 0), (?, 10, 5, 1)", id, id)
				exec(t, s.DB(), "INSERT INTO litemall_coupon_user (user_id, status, order_id) VALUES (1, 1, ?)", id)
				if prepay(t, s.DB(), id, func() {
					verdicts := must.Get(closeOrders(t, s, strconv.Itoa(id)))(t)
					expect.That(t, verdicts[0] == orderclose.Closed, "verdict %v", verdicts)
				}) {
					overwritten++
				}
			}
			expect.That(t, locked == (overwritten == 0), "locked %v: the shop has overwritten %d of %d closes", locked, overwritten, orders)
			if !locked {
				continue
			}
			raceWithPrepay(t, s, orders)
			var open, stock, coupons, stamped, ended int
			must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM litemall_order WHERE order_status <> 103), (SELECT number FROM "+
				"litemall_goods_product),"+
				" (SELECT COUNT(*) FROM litemall_coupon_user WHERE status = 0), (SELECT COUNT(*) FROM litemall_goods_product WHERE update_time > "+
				"UTC_TIMESTAMP() + INTERVAL 7 HOUR),"+
				" (SELECT COUNT(*) FROM litemall_order WHERE end_time IS NOT NULL)").Scan(&open, &stock, &coupons, &stamped, &ended))
			if got, want := []int{open, stock, coupons, stamped, ended}, []int{0, 4 * orders, 2 * orders, 1, 2 * orders}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("open orders, stock, coupons, products with a time, orders with a time: %v; want %v", got, want)
			}
		}
	})
}

// raceWithPrepay closes further orders while customers open the page of the payment again and again.
func raceWithPrepay(t *testing.T, s *store.Store, orders int) {
	t.Helper()
	ids := make([]string, orders)
	for i := range ids {
		id := orders + i + 1
		ids[i] = strconv.Itoa(id)
		exec(t, s.DB(), "INSERT INTO litemall_order (id, order_status, add_time, update_time) VALUES (?, 101, UTC_TIMESTAMP() + INTERVAL 7 HOUR, "+
			"UTC_TIMESTAMP() + INTERVAL 8 HOUR)", id)
		exec(t, s.DB(), "INSERT INTO litemall_order_goods (order_id, product_id, number, deleted) VALUES (?, 10, 2, 0)", id)
		exec(t, s.DB(), "INSERT INTO litemall_coupon_user (user_id, status, order_id) VALUES (1, 1, ?)", id)
	}
	var customers sync.WaitGroup
	for i := range 4 {
		customers.Go(func() {
			for n := range 3 * orders {
				prepay(t, s.DB(), orders+1+(n*7+i)%orders, runtime.Gosched)
			}
		})
	}
	for n := range 200 { // an order whose row the shop locks is contended
		_, err := closeOrders(t, s, ids[n%orders])
		expect.That(t, err == nil, "%v", err)
	}
	customers.Wait()
	verdicts := must.Get(closeOrders(t, s, ids...))(t)
	for _, v := range verdicts {
		expect.That(t, v == orderclose.AlreadyClosed || v == orderclose.Closed, "verdicts at the end: %v", verdicts)
	}
}
