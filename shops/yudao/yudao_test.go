// Package yudao plays the statements of yudao's mall against its own job, and against closes of orderclose with the mapping of this folder.
package yudao

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

var (
	open      = state{unpaid, used, stock - 2, 2, 3*stock - 3, 3}
	cancelled = state{canceled, unused, stock, 0, 3 * stock, 0}
)

// yudao's job compares the status of each order, so payments and cancels between its read and write are safe.
func TestOwnJob_IsExact(t *testing.T) {
	each(t, func(y yudao) {
		y.createOrder(1)
		y.expect(1, open)
		y.cancelOrderBySystem(nothing)
		y.expect(1, cancelled)
		y.createOrder(2)
		expect.Equal(t, y.cancelOrderBySystem(func() { y.cancelOrderByMember(2, nothing) }), 0, "the job cancels a cancelled order")
		y.expect(2, cancelled)
		y.createOrder(3)
		expect.Equal(t, y.cancelOrderBySystem(func() { y.updateOrderPaid(3, nothing) }), 0, "the job cancels a paid order")
		y.expect(3, state{undelivered, used, stock - 2, 2, 3*stock - 3, 3})
	})
}

// A callback that comes after the job is refused. yudao logs it, and no row tells that there is money without an order.
func TestOwnJob_APaymentAfterItIsLost(t *testing.T) {
	each(t, func(y yudao) {
		y.createOrder(1)
		y.cancelOrderBySystem(nothing)
		expect.That(t, !y.updateOrderPaid(1, nothing), "a cancelled order is paid")
		y.expect(1, cancelled)
	})
}

// A close between the read and the write of each flow, and after each flow. yudao's job may run beside orderclose.
func TestClose_MeetsEachFlow(t *testing.T) {
	adopted(t, func(y yudao) {
		for id, flow := range []func(id int) bool{
			func(id int) bool { return y.updateOrderPaid(id, func() { y.sweep(1) }) },
			func(id int) bool { return y.cancelOrderByMember(id, func() { y.sweep(1) }) },
			func(int) bool { return y.cancelOrderBySystem(func() { y.sweep(1) }) > 0 },
		} {
			y.createOrder(id + 1)
			expect.That(t, !flow(id+1), "flow %d changes the closed order", id)
			y.expect(id+1, cancelled)
		}
		n := y.Int("SELECT COUNT(*) FROM trade_order WHERE cancel_type = 10 AND cancel_time BETWEEN NOW() - INTERVAL 1 MINUTE AND NOW()")
		expect.That(t, n == 3, "%d orders were closed by time-out", n)
		y.createOrder(4)
		y.updateOrderPaid(4, nothing)
		y.createOrder(5)
		y.cancelOrderByMember(5, nothing)
		y.sweep(0)
		y.expect(4, state{undelivered, used, stock - 2, 2, 3*stock - 3, 3})
	})
}

func (y yudao) sweep(want int) {
	y.Helper()
	n := y.Sweep()
	expect.That(y, n == want, "a sweep closes %d orders, want %d", n, want)
}

// Payments, cancels and yudao's own job meet sweeps over 100 due orders. No acknowledged payment is lost, and stock, sales and coupons are exact.
func TestClose_InACrowd(t *testing.T) {
	adopted(t, func(y yudao) {
		var mu sync.Mutex
		done := map[string]int{}
		swept := y.Crowd(100, func(i int) {
			id, what, n := i+1, "left", 1
			y.createOrder(id)
			switch rand.IntN(8) {
			case 0, 1, 2:
				if y.updateOrderPaid(id, nothing) {
					what = "paid"
				}
			case 3, 4:
				if y.cancelOrderByMember(id, nothing) {
					what = "cancelled"
				}
			case 5:
				what, n = "job", y.cancelOrderBySystem(nothing)
			}
			mu.Lock()
			done[what] += n
			mu.Unlock()
		})
		t.Logf("%v, closed %d", done, swept)
		count := func(where string) int { return y.Int("SELECT COUNT(*) FROM trade_order WHERE " + where) }
		if count("status = 0") != 0 || count("status = 10 AND pay_status = 1") != done["paid"] || count("status = 40") != 100-done["paid"] ||
			count("cancel_type = 30") != done["cancelled"] || count("cancel_type = 10") != done["job"]+swept {
			t.Errorf("%v and %d closes are expected", done, swept)
		}
		sold := y.Int("SELECT COALESCE(SUM(count), 0) FROM trade_order_item i JOIN trade_order o ON o.id = i.order_id WHERE o.status = 10")
		for _, table := range []string{"product_sku", "product_spu"} {
			var free, sales int
			y.Read([]any{&free, &sales}, "SELECT SUM(stock), SUM(sales_count) FROM "+table)
			expect.That(t, free+sold == 3*stock && sales == sold,
				"%s: %d are free and %d counted as sold, sold are %d of %d", table, free, sales, sold, 3*stock)
		}
		if n := y.Int("SELECT COUNT(*) FROM promotion_coupon c JOIN trade_order o ON o.id = c.use_order_id WHERE (c.status = 2) <> (o.status = 10)"); n != 0 {
			t.Errorf("%d coupons are wrong", n)
		}
	})
}
