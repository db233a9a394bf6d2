// Package mall plays the statements of mall against its own time-out, and against closes of orderclose with the mapping of this folder.
package mall

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// If nothing else happens, mall's cancel is exact.
func TestOwnTimeout_CancelsAnOrder(t *testing.T) {
	each(t, func(m mall) {
		m.generateOrder(1, 1)
		m.expect(1, 1, state{unpaid, stock, 2, points - 10, 0})
		m.cancelOrder(1, nothing)
		m.expect(1, 1, state{closed, stock, 0, points, 1})
	})
}

// A payment between the read and the write of a cancel: the order is closed though it is paid, and it takes what another order has locked.
func TestOwnTimeout_ClosesAPaidOrder(t *testing.T) {
	for name, cancel := range map[string]func(m mall, between func()) bool{
		"message": func(m mall, between func()) bool { return m.cancelOrder(1, between) },
		"poll":    func(m mall, between func()) bool { return m.cancelTimeOutOrder(between) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(m mall) {
				m.generateOrder(1, 1)
				m.generateOrder(3, 2)
				m.Exec("UPDATE oms_order SET create_time = NOW() WHERE id = 3")
				expect.That(t, cancel(m, func() { m.paySuccess(1) }), "the cancel fails")
				m.expect(1, 1, state{closed, stock - 2, 0, points, 1})
				m.expect(3, 2, state{unpaid, stock - 2, 0, points - 10, 0})
				expect.Equal(t, m.Int("SELECT COUNT(*) FROM oms_order WHERE id = 1 AND payment_time IS NOT NULL"), 1, "the payment has no time")
				expect.That(t, !m.paySuccess(3), "the other order can still be paid")
			})
		})
	}
}

// Customer and message cancel one order at once: what it has locked is given back twice.
func TestOwnTimeout_TwoCancelsGiveStockBackTwice(t *testing.T) {
	each(t, func(m mall) {
		m.generateOrder(1, 1)
		m.generateOrder(3, 2)
		m.cancelOrder(1, func() { m.cancelOrder(1, nothing) })
		m.expect(1, 1, state{closed, stock, 0, points, 1})
		m.expect(3, 2, state{unpaid, stock, 0, points - 10, 0})
	})
}

// Two orders of one member are cancelled at once: the points of one are lost.
func TestOwnTimeout_LosesPoints(t *testing.T) {
	each(t, func(m mall) {
		m.generateOrder(1, 1)
		m.generateOrder(3, 1)
		m.cancelOrder(1, func() { m.cancelOrder(3, nothing) })
		expect.Equal(t, m.Int("SELECT integration FROM ums_member WHERE id = 1"), points-10, "points")
	})
}

// A close between the read and the write of a cancel, by the customer or by a message that is still there.
func TestClose_IsNotRepeatedByACancel(t *testing.T) {
	adopted(t, func(m mall) {
		m.generateOrder(1, 1)
		m.generateOrder(3, 2)
		m.Exec("UPDATE oms_order SET create_time = NOW() WHERE id = 3")
		expect.That(t, !m.cancelOrder(1, func() { m.sweep(1) }), "the cancel overwrites the close")
		m.expect(1, 1, state{closed, stock, 2, points, 1})
		m.expect(3, 2, state{unpaid, stock, 2, points - 10, 0})
		expect.That(t, !m.paySuccess(1), "a closed order is paid")
		expect.That(t, !m.cancelOrder(3, func() { m.paySuccess(3) }), "the cancel overwrites the payment")
		m.expect(3, 2, state{paid, stock - 2, 0, points - 10, 0})
	})
}

func (m mall) sweep(want int) {
	m.Helper()
	n := m.Sweep()
	expect.That(m, n == want, "a sweep closes %d orders, want %d", n, want)
}

// Each flow of the shop is before the close. A member with two closed orders gets both coupons and all points.
func TestClose_LeavesWhatTheShopHasDone(t *testing.T) {
	adopted(t, func(m mall) {
		for id := range 4 {
			m.generateOrder(id+1, 1)
		}
		m.paySuccess(1)
		m.cancelOrder(2, nothing)
		m.expect(2, 1, state{closed, stock - 2, 4, points - 30, 1})
		m.sweep(2)
		m.expect(1, 1, state{paid, stock - 2, 0, points - 10, 3})
		m.sweep(0)
	})
}

// Payments and cancels of 100 due orders meet sweeps. No acknowledged payment is lost, and stock, coupons and points are exact.
func TestClose_InACrowd(t *testing.T) {
	adopted(t, func(m mall) {
		var mu sync.Mutex
		done := map[string]int{}
		swept := m.Crowd(100, func(i int) {
			id, what := i+1, "left"
			m.generateOrder(id, id)
			switch rand.IntN(4) {
			case 0, 1:
				if m.paySuccess(id) {
					what = "paid"
				}
			case 2:
				if m.cancelOrder(id, nothing) {
					what = "cancelled"
				}
			}
			mu.Lock()
			done[what]++
			mu.Unlock()
		})
		t.Logf("%v, closed %d", done, swept)
		count := func(status int) int { return m.Int("SELECT COUNT(*) FROM oms_order WHERE status = ?", status) }
		expect.That(t, count(unpaid) == 0 && count(paid) == done["paid"] && count(closed) == done["cancelled"]+swept,
			"%v and %d closes are expected", done, swept)
		expect.Equal(t, m.Int("SELECT COUNT(*) FROM oms_order WHERE status = 4 AND payment_time IS NOT NULL"), 0, "a paid order is closed")
		m.exact()
	})
}

// exact checks the sums of an emptied shop: nothing is locked, and all is sold that is paid.
func (m mall) exact() {
	m.Helper()
	for sku := 1; sku <= 3; sku++ {
		var free, locked int
		m.Read([]any{&free, &locked}, "SELECT stock, lock_stock FROM pms_sku_stock WHERE id = ?", sku)
		sold := m.Int(`SELECT COALESCE(SUM(product_quantity), 0) FROM oms_order_item i JOIN oms_order o ON o.id = i.order_id
			WHERE o.status = 1 AND product_sku_id = ?`, sku)
		expect.That(m, locked == 0 && free+sold == stock, "SKU %d: stock %d, locked %d, sold %d of %d", sku, free, locked, sold, stock)
	}
	var wrong int
	m.Read([]any{&wrong}, `SELECT COUNT(*) FROM oms_order o JOIN ums_member m ON m.id = o.member_id JOIN sms_coupon_history c ON c.member_id = m.id
		WHERE m.integration <> IF(o.status = 1, ?, ?) OR c.use_status <> IF(o.status = 1, 1, 0)`, points-10, points)
	expect.That(m, wrong == 0, "coupons or points of %d orders are wrong", wrong)
}
