package mall

import (
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

// adopted is each with orderclose beside the shop.
func adopted(t *testing.T, test func(m mall)) {
	each(t, func(m mall) {
		m.Adopt()
		test(m)
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
