// Package yudao plays the statements of yudao's mall against its own job, and against closes of orderclose with the mapping of this folder.
package yudao

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/shoptest"
)

// The statuses of yudao's TradeOrderStatusEnum and CouponStatusEnum that the tests need, and the stock of each SKU.
const (
	unpaid, undelivered, canceled = 0, 10, 40
	unused, used                  = 1, 2
	byMember, stock               = 30, 1000
)

// yudao plays the statements of yudao's mall at commit e4e460d5, in the order of its code. A flow calls between after its read and before its write.
type yudao struct{ *shoptest.Shop }

func each(t *testing.T, test func(y yudao)) {
	shoptest.Each(t, shoptest.OnMySQL, func(s *shoptest.Shop) {
		s.Exec("INSERT INTO product_spu (id, name, stock) VALUES (1, 'tea', ?)", 3*stock)
		for sku := range 3 {
			s.Exec("INSERT INTO product_sku (id, spu_id, stock, sales_count) VALUES (?, 1, ?, 0)", sku+1, stock)
		}
		test(yudao{s})
	})
}

// nothing happens between the read and the write of a flow.
func nothing() {}

// createOrder is TradeOrderUpdateServiceImpl.createOrder: an order of 2 of SKU 1 and 1 of another, with a coupon,
// which was created 121 minutes ago, so it is due.
func (y yudao) createOrder(id int) {
	y.Helper()
	for !y.Tx(func(q shoptest.Session) {
		for _, l := range [][2]int{{1, 2}, {2 + id%2, 1}} {
			if q.Exec("UPDATE product_sku SET stock = stock - ?, sales_count = sales_count + ? WHERE id = ? AND stock >= ?", l[1], l[1], l[0], l[1]) == 0 {
				q.Rollback()
			}
			q.Exec("INSERT INTO trade_order_item (user_id, order_id, spu_id, sku_id, count) VALUES (1, ?, 1, ?, ?)", id, l[0], l[1])
		}
		q.Exec("UPDATE product_spu SET stock = stock - 3, sales_count = sales_count + 3 WHERE id = 1")
		q.Exec(`INSERT INTO trade_order (id, no, user_id, status, pay_order_id, pay_price, coupon_id, create_time)
			VALUES (?, ?, 1, 0, ?, 990, ?, NOW() - INTERVAL 121 MINUTE)`, id, id, id, id)
		q.Exec("INSERT INTO promotion_coupon (id, user_id, status, use_order_id, use_time) VALUES (?, 1, ?, ?, NOW())", id, used, id)
	}) {
	}
}

func (y yudao) status(id int) int { return y.Int("SELECT status FROM trade_order WHERE id = ?", id) }

// updateOrderPaid is TradeOrderUpdateServiceImpl.updateOrderPaid, the callback of the payment module.
func (y yudao) updateOrderPaid(id int, between func()) (taken bool) {
	return y.Tx(func(q shoptest.Session) {
		if q.Int("SELECT status FROM trade_order WHERE id = ? AND deleted = 0", id) != unpaid {
			q.Rollback()
		}
		between()
		if q.Exec("UPDATE trade_order SET status = 10, pay_status = 1, pay_time = NOW() WHERE id = ? AND status = 0 AND deleted = 0", id) == 0 {
			q.Rollback()
		}
	})
}

// cancelOrderBySystem is the job TradeOrderAutoCancelJob: it reads all overdue orders, and cancels each in a transaction of its own.
func (y yudao) cancelOrderBySystem(between func()) (done int) {
	var id int
	var orders []int
	y.Rows([]any{&id}, func() {
		orders = append(orders, id)
	}, "SELECT id FROM trade_order WHERE status = 0 AND create_time < NOW() - INTERVAL 2 HOUR AND deleted = 0")
	between()
	for _, id := range orders {
		if y.cancelOrder0(id, 10) {
			done++
		}
	}
	return done
}

// cancelOrderByMember is the customer's cancel.
func (y yudao) cancelOrderByMember(id int, between func()) (done bool) {
	if y.status(id) != unpaid {
		return false
	}
	between()
	return y.cancelOrder0(id, byMember)
}

// cancelOrder0 compares the status, and then runs the handlers of stock and coupon.
func (y yudao) cancelOrder0(id, cancelType int) (done bool) {
	return y.Tx(func(q shoptest.Session) {
		if q.Exec("UPDATE trade_order SET status = 40, cancel_type = ?, cancel_time = NOW() WHERE id = ? AND status = 0 AND deleted = 0", cancelType, id) == 0 {
			q.Rollback()
		}
		lines, sum := map[int]int{}, 0
		var sku, count int
		q.Rows([]any{&sku, &count}, func() { lines[sku] += count; sum += count }, "SELECT sku_id, count FROM trade_order_item WHERE order_id = ?", id)
		for sku := 1; sku <= 3; sku++ {
			q.Exec("UPDATE product_sku SET stock = stock + ?, sales_count = sales_count - ? WHERE id = ?", lines[sku], lines[sku], sku)
		}
		q.Exec("UPDATE product_spu SET stock = stock + ?, sales_count = sales_count - ? WHERE id = 1", sum, sum)
		q.Exec("UPDATE promotion_coupon SET status = ? WHERE id = (SELECT coupon_id FROM trade_order WHERE id = ?) AND status = ?", unused, id, used)
	})
}

// state is what a test expects: the status of an order and of its coupon, stock and sales of SKU 1, and the product's.
type state struct{ status, coupon, stock, sales, product, productSales int }

func (y yudao) expect(id int, want state) {
	y.Helper()
	got := state{status: y.status(id), coupon: y.Int("SELECT status FROM promotion_coupon WHERE id = ?", id)}
	y.Read([]any{&got.stock, &got.sales}, "SELECT stock, sales_count FROM product_sku WHERE id = 1")
	y.Read([]any{&got.product, &got.productSales}, "SELECT stock, sales_count FROM product_spu WHERE id = 1")
	expect.That(y, got == want, "order %d: %+v, want %+v", id, got, want)
}

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
	each(t, func(y yudao) {
		y.Adopt()
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
	expect.Equal(y, y.Sweep(), want, "orders that a sweep closes")
}

// Payments, cancels and yudao's own job meet sweeps over 100 due orders. No acknowledged payment is lost, and stock, sales and coupons are exact.
func TestClose_InACrowd(t *testing.T) {
	each(t, func(y yudao) {
		y.Adopt()
		var paid, cancels, ownCloses atomic.Int64
		swept := y.Crowd(100, func(i int) {
			id := i + 1
			y.createOrder(id)
			switch rand.IntN(8) {
			case 0, 1, 2:
				if y.updateOrderPaid(id, nothing) {
					paid.Add(1)
				}
			case 3, 4:
				if y.cancelOrderByMember(id, nothing) {
					cancels.Add(1)
				}
			case 5:
				ownCloses.Add(int64(y.cancelOrderBySystem(nothing)))
			}
		})
		count := func(where string) int64 { return int64(y.Int("SELECT COUNT(*) FROM trade_order WHERE " + where)) }
		expect.Same(t, []int64{count("status = 0"), count("status = 10 AND pay_status = 1"), count("status = 40"), count("cancel_type = 30"),
			count("cancel_type = 10")}, []int64{0, paid.Load(), 100 - paid.Load(), cancels.Load(), ownCloses.Load() + int64(swept)},
			"unpaid, paid and closed orders, by members and by time-out")
		sold := y.Int("SELECT COALESCE(SUM(count), 0) FROM trade_order_item i JOIN trade_order o ON o.id = i.order_id WHERE o.status = 10")
		for _, table := range []string{"product_sku", "product_spu"} {
			var free, sales int
			y.Read([]any{&free, &sales}, "SELECT SUM(stock), SUM(sales_count) FROM "+table)
			expect.That(t, free+sold == 3*stock && sales == sold,
				"%s: %d are free and %d counted as sold, sold are %d of %d", table, free, sales, sold, 3*stock)
		}
		expect.Equal(t, y.Int("SELECT COUNT(*) FROM promotion_coupon c JOIN trade_order o ON o.id = c.use_order_id "+
			"WHERE (c.status = 2) <> (o.status = 10)"), 0, "coupons that are wrong")
	})
}
