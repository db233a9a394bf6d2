// Package mall plays the statements of mall against its own time-out, and against closes of orderclose with the mapping of this folder.
package mall

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/shoptest"
)

// The statuses of oms_order that the tests need, and the numbers before the first order.
const (
	unpaid, paid, closed = 0, 1, 4
	stock, points        = 1000, 100
)

// mall plays the statements of mall at commit 74eebe06, in the order of its code. A flow calls between after its read and before its write.
type mall struct{ *shoptest.Shop }

func each(t *testing.T, test func(m mall)) {
	shoptest.Each(t, shoptest.OnMySQL, func(s *shoptest.Shop) {
		for sku := range 3 {
			s.Exec("INSERT INTO pms_sku_stock (id, stock) VALUES (?, ?)", sku+1, stock)
		}
		test(mall{s})
	})
}

// nothing happens between the read and the write of a flow.
func nothing() {}

// generateOrder is the part of OmsPortalOrderServiceImpl.generateOrder that writes: an order of 2 of
// SKU 1 and 1 of another, with a coupon and 10 points. It was created 121 minutes ago, so it is due.
func (m mall) generateOrder(id, member int) {
	m.Helper()
	m.Exec("INSERT IGNORE INTO ums_member (id, username, integration) VALUES (?, ?, ?)", member, member, points)
	for !m.Tx(func(q shoptest.Session) {
		for _, line := range [][2]int{{1, 2}, {2 + id%2, 1}} {
			if q.Exec("UPDATE pms_sku_stock SET lock_stock = lock_stock + ? WHERE id = ? AND lock_stock + ? <= stock", line[1], line[0], line[1]) == 0 {
				q.Rollback()
			}
			q.Exec("INSERT INTO oms_order_item (order_id, product_sku_id, product_quantity) VALUES (?, ?, ?)", id, line[0], line[1])
		}
		q.Exec(`INSERT INTO oms_order (id, member_id, coupon_id, order_sn, create_time, pay_amount, status, use_integration)
			VALUES (?, ?, 7, ?, NOW() - INTERVAL 121 MINUTE, 99.90, 0, 10)`, id, member, id)
		q.Exec("INSERT INTO sms_coupon_history (coupon_id, member_id, use_status, use_time) VALUES (7, ?, 1, NOW())", member)
		q.Exec("UPDATE ums_member SET integration = ? WHERE id = ?", q.Int("SELECT integration FROM ums_member WHERE id = ?", member)-10, member)
	}) {
	}
}

// paySuccess is OmsPortalOrderServiceImpl.paySuccess, which the callback of the provider calls. It compares the status.
func (m mall) paySuccess(id int) (taken bool) {
	return m.Tx(func(q shoptest.Session) {
		if q.Exec("UPDATE oms_order SET status = 1, payment_time = NOW(), pay_type = 1 WHERE id = ? AND delete_status = 0 AND status = 0", id) == 0 {
			q.Rollback()
		}
		for _, l := range lines(q, id) {
			if q.Exec("UPDATE pms_sku_stock SET lock_stock = lock_stock - ?, stock = stock - ? WHERE id = ? AND stock - ? >= 0 AND lock_stock - ? >= 0",
				l.n, l.n, l.sku, l.n, l.n) == 0 {
				q.Rollback()
			}
		}
	})
}

type line struct{ sku, n int }

func lines(q shoptest.Session, id int) (all []line) {
	var l line
	q.Rows([]any{&l.sku, &l.n}, func() { all = append(all, l) }, "SELECT product_sku_id, product_quantity FROM oms_order_item WHERE order_id = ? ORDER BY id", id)
	return all
}

// cancelOrder is OmsPortalOrderServiceImpl.cancelOrder: the receiver of the delayed message calls it, and so
// does the customer. Its UPDATE does not compare the status.
func (m mall) cancelOrder(id int, between func()) (done bool) {
	return m.Tx(func(q shoptest.Session) {
		var member int
		if !q.Read([]any{&member}, "SELECT member_id FROM oms_order WHERE id = ? AND status = 0 AND delete_status = 0", id) {
			q.Rollback()
		}
		between()
		q.Exec("UPDATE oms_order SET status = 4 WHERE id = ?", id)
		for _, l := range lines(q, id) {
			if q.Exec("UPDATE pms_sku_stock SET lock_stock = lock_stock - ? WHERE id = ? AND lock_stock - ? >= 0", l.n, l.sku, l.n) == 0 {
				q.Rollback()
			}
		}
		giveBack(q, member)
	})
}

// giveBack returns the first used coupon of the member, and the points of an order, as a number that was read before.
func giveBack(q shoptest.Session, member int) {
	var coupon int
	if q.Read([]any{&coupon}, "SELECT id FROM sms_coupon_history WHERE member_id = ? AND coupon_id = 7 AND use_status = 1 LIMIT 1", member) {
		q.Exec("UPDATE sms_coupon_history SET use_status = 0, use_time = NOW() WHERE id = ?", coupon)
	}
	q.Exec("UPDATE ums_member SET integration = ? WHERE id = ?", q.Int("SELECT integration FROM ums_member WHERE id = ?", member)+10, member)
}

// cancelTimeOutOrder is OmsPortalOrderServiceImpl.cancelTimeOutOrder: all overdue orders, without comparing the status again.
func (m mall) cancelTimeOutOrder(between func()) (done bool) {
	return m.Tx(func(q shoptest.Session) {
		var id, member int
		overdue := map[int]int{}
		q.Rows([]any{&id, &member}, func() {
			overdue[id] = member
		}, "SELECT id, member_id FROM oms_order WHERE status = 0 AND create_time < NOW() - INTERVAL 120 MINUTE")
		between()
		for id := range overdue {
			q.Exec("UPDATE oms_order SET status = 4 WHERE id IN (?)", id)
		}
		for id, member := range overdue {
			for _, l := range lines(q, id) {
				q.Exec("UPDATE pms_sku_stock SET lock_stock = lock_stock - ? WHERE id = ?", l.n, l.sku)
			}
			giveBack(q, member)
		}
	})
}

// state is what a test expects: the status of an order, SKU 1, and the points and usable coupons of a member.
type state struct{ status, stock, locked, points, coupons int }

func (m mall) expect(id, member int, want state) {
	m.Helper()
	var got state
	m.Read([]any{&got.status}, "SELECT status FROM oms_order WHERE id = ?", id)
	m.Read([]any{&got.stock, &got.locked}, "SELECT stock, lock_stock FROM pms_sku_stock WHERE id = 1")
	m.Read([]any{&got.points}, "SELECT integration FROM ums_member WHERE id = ?", member)
	m.Read([]any{&got.coupons}, "SELECT COUNT(*) FROM sms_coupon_history WHERE member_id = ? AND use_status = 0", member)
	expect.That(m, got == want, "order %d: %+v, want %+v", id, got, want)
}

// The races of README.md: two orders, a race, and what is left. A cancel by the poll takes all overdue orders, so the second one is young.
func TestOwnTimeout_Races(t *testing.T) {
	payment := func(cancel func(m mall, between func()) bool) func(m mall) {
		return func(m mall) {
			m.Exec("UPDATE oms_order SET create_time = NOW() WHERE id = 3")
			expect.That(m, cancel(m, func() { m.paySuccess(1) }), "the cancel fails")
			m.expect(1, 1, state{closed, stock - 2, 0, points, 1})
			m.expect(3, 2, state{unpaid, stock - 2, 0, points - 10, 0})
			expect.Equal(m, m.Int("SELECT COUNT(*) FROM oms_order WHERE id = 1 AND payment_time IS NOT NULL"), 1, "paid and closed")
			expect.That(m, !m.paySuccess(3), "the other order can still be paid")
		}
	}
	for name, race := range map[string]func(m mall){
		"a payment between the read and the write of a cancel": payment(func(m mall, between func()) bool { return m.cancelOrder(1, between) }),
		"a payment between the read and the write of the poll": payment(mall.cancelTimeOutOrder),
		"the message and the customer cancel at once": func(m mall) {
			m.cancelOrder(1, func() { m.cancelOrder(1, nothing) })
			m.expect(1, 1, state{closed, stock, 0, points, 1})
			m.expect(3, 2, state{unpaid, stock, 0, points - 10, 0})
		},
		"two orders of one member are cancelled at once": func(m mall) {
			m.generateOrder(5, 1)
			m.cancelOrder(1, func() { m.cancelOrder(5, nothing) })
			expect.Equal(m, m.Int("SELECT integration FROM ums_member WHERE id = 1"), points-10, "points")
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(m mall) {
				m.ChangesWhatItHasNotRead()
				m.generateOrder(1, 1)
				m.generateOrder(3, 2)
				race(m)
			})
		})
	}
}

// A close between the read and the write of a cancel, by the customer or by a message that is still there.
func TestClose_IsNotRepeatedByACancel(t *testing.T) {
	each(t, func(m mall) {
		m.Adopt()
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
	expect.Equal(m, m.Sweep(), want, "orders that a sweep closes")
}

// Each flow of the shop is before the close. A member with two closed orders gets both coupons and all points.
func TestClose_LeavesWhatTheShopHasDone(t *testing.T) {
	each(t, func(m mall) {
		m.Adopt()
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
	each(t, func(m mall) {
		m.Adopt()
		var paidOrders, cancelled atomic.Int64
		swept := m.Crowd(100, func(i int) {
			id := i + 1
			m.generateOrder(id, id)
			switch rand.IntN(4) {
			case 0, 1:
				if m.paySuccess(id) {
					paidOrders.Add(1)
				}
			case 2:
				if m.cancelOrder(id, nothing) {
					cancelled.Add(1)
				}
			}
		})
		count := func(status int) int64 { return int64(m.Int("SELECT COUNT(*) FROM oms_order WHERE status = ?", status)) }
		expect.Same(t, []int64{count(unpaid), count(paid), count(closed)}, []int64{0, paidOrders.Load(), cancelled.Load() + int64(swept)},
			"unpaid, paid and closed orders")
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
