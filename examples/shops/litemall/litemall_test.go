// Package litemall plays the statements of litemall against its own time-out task, and against closes of orderclose with the mapping of this folder.
package litemall

import (
	"database/sql"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/shoptest"
)

// The statuses of litemall's OrderUtil that the tests need.
const (
	unpaid, cancelled, timedOut, paid, refunding, refunded = 101, 102, 103, 201, 202, 203
	couponUsable, couponUsed                               = 0, 1
)

// litemall plays the statements of litemall at commit a1ef964a, in the order of its code. A flow calls between after its read and before its write.
type litemall struct {
	*shoptest.Shop
	// fixed says that payNotify has the condition that README.md asks for.
	fixed bool
	// now is the time that the shop's code writes, as SQL.
	now string
}

const stock = 1000 // of each product, before the first order

func each(t *testing.T, test func(l *litemall)) {
	shoptest.Each(t, shoptest.OnMySQL, func(s *shoptest.Shop) {
		for product := range 3 {
			s.Exec("INSERT INTO litemall_goods_product (id, goods_id, number) VALUES (?, 1, ?)", product+1, stock)
		}
		test(&litemall{Shop: s, now: "NOW()"})
	})
}

// nothing happens between the read and the write of a flow.
func nothing() {}

// submit is the part of WxOrderService.submit that writes: an order of 2 of product 1 and 1 of another,
// with a coupon. It was created 31 minutes ago, so it is due.
func (l *litemall) submit(id int) {
	l.Helper()
	for !l.Tx(func(q shoptest.Session) {
		q.Exec(`INSERT INTO litemall_order (id, user_id, order_sn, order_status, groupon_price, actual_price, add_time, update_time)
			VALUES (?, 1, ?, 101, 0, 12.30, NOW() - INTERVAL 31 MINUTE, NOW() - INTERVAL 31 MINUTE)`, id, "SN"+strconv.Itoa(id))
		for product, number := range map[int]int{1: 2, 2 + id%2: 1} {
			q.Exec("INSERT INTO litemall_order_goods (order_id, goods_id, product_id, number) VALUES (?, 1, ?, ?)", id, product, number)
		}
		for _, product := range []int{1, 2 + id%2} {
			number := q.Int("SELECT number FROM litemall_order_goods WHERE order_id = ? AND product_id = ?", id, product)
			if q.Exec("UPDATE litemall_goods_product SET number = number - ?, update_time = NOW() WHERE id = ? AND number >= ?", number, product, number) == 0 {
				q.Rollback()
			}
		}
		q.Exec("INSERT INTO litemall_coupon_user (user_id, coupon_id, status, used_time, order_id) VALUES (1, 1, ?, NOW(), ?)", couponUsed, id)
	}) {
	}
}

// order is a row as litemall reads it: its next statement writes all of these columns.
type order struct {
	id, status int
	payID      sql.NullString
	ended      sql.NullString
	updated    string
}

func read(q shoptest.Session, id int) (o order) {
	q.Read([]any{&o.id, &o.status, &o.payID, &o.ended, &o.updated},
		"SELECT id, order_status, pay_id, CAST(end_time AS CHAR), CAST(update_time AS CHAR) FROM litemall_order WHERE id = ? AND deleted = 0", id)
	return o
}

// update is OrderMapper.updateWithOptimisticLocker: all columns, if update_time is what was read.
func (l *litemall) update(q shoptest.Session, o order) bool {
	return q.Exec("UPDATE litemall_order SET order_status = ?, pay_id = ?, end_time = ?, update_time = "+l.now+" WHERE id = ? AND update_time = ?",
		o.status, o.payID, o.ended, o.id, o.updated) == 1
}

// release returns the stock of the order's lines and its coupon, as its time-out, a cancel and a refund do.
func release(q shoptest.Session, id int) {
	lines := map[int]int{}
	var product, number int
	q.Rows([]any{&product, &number}, func() {
		lines[product] += number
	}, "SELECT product_id, number FROM litemall_order_goods WHERE order_id = ? AND deleted = 0", id)
	for product := 1; product <= 3; product++ {
		if lines[product] > 0 {
			q.Exec("UPDATE litemall_goods_product SET number = number + ?, update_time = NOW() WHERE id = ?", lines[product], product)
		}
	}
	q.Exec("UPDATE litemall_coupon_user SET status = ?, update_time = NOW() WHERE order_id = ? AND deleted = 0", couponUsable, id)
}

// timeout is OrderUnpaidTask.run, which has no transaction. crash says that the process ends between the order and the stock.
func (l *litemall) timeout(id int, between func(), crash bool) (closed bool) {
	o := read(l.Session, id)
	if o.status != unpaid {
		return false
	}
	between()
	o.status = timedOut
	if !l.update(l.Session, o) {
		return false // an exception ends the task, which is in no queue any more
	}
	if !crash {
		release(l.Session, id)
	}
	return true
}

// restart is TaskStartupRunner.run with tasks that are due: it queues each unpaid order.
func (l *litemall) restart() {
	var ids []int
	var id int
	l.Rows([]any{&id}, func() { ids = append(ids, id) }, "SELECT id FROM litemall_order WHERE order_status = 101 AND deleted = 0")
	for _, id := range ids {
		l.timeout(id, nothing, false)
	}
}

// payNotify is WxOrderService.payNotify, the callback of the payment provider. Its condition hasPayed is
// false for 102 and 103. The provider repeats a callback that failed.
func (l *litemall) payNotify(id int, between func()) (taken bool) {
	return l.Tx(func(q shoptest.Session) {
		o := read(q, id)
		if o.status != unpaid && (l.fixed || o.status != cancelled && o.status != timedOut) {
			q.Rollback()
		}
		between()
		o.status, o.payID = paid, sql.NullString{String: "wx" + strconv.Itoa(id), Valid: true}
		if !l.update(q, o) {
			q.Rollback()
		}
	})
}

// cancel is WxOrderService.cancel.
func (l *litemall) cancel(id int, between func()) (done bool) {
	return l.Tx(func(q shoptest.Session) {
		o := read(q, id)
		if o.status != unpaid {
			q.Rollback()
		}
		between()
		o.status = cancelled
		if !l.update(q, o) {
			q.Rollback()
		}
		release(q, id)
	})
}

// prepay is WxOrderService.prepay: it writes back what it has read, with a new update_time.
func (l *litemall) prepay(id int, between func()) (done bool) {
	return l.Tx(func(q shoptest.Session) {
		o := read(q, id)
		if o.status != unpaid {
			q.Rollback()
		}
		between()
		if !l.update(q, o) {
			q.Rollback()
		}
	})
}

// refund is WxOrderService.refund and then AdminOrderService.refund, which the administrator repeats after an error.
func (l *litemall) refund(id int) (done bool) {
	return l.Tx(func(q shoptest.Session) {
		if o := read(q, id); o.status == paid {
			o.status = refunding
			if !l.update(q, o) {
				q.Rollback()
			}
		}
	}) && l.refundMoney(id)
}

func (l *litemall) refundMoney(id int) (done bool) {
	for !done && l.Int("SELECT order_status FROM litemall_order WHERE id = ?", id) == refunding {
		done = l.Tx(func(q shoptest.Session) {
			o := read(q, id)
			if o.status != refunding {
				q.Rollback()
			}
			o.status = refunded
			if !l.update(q, o) {
				q.Rollback()
			}
			release(q, id)
		})
	}
	return done
}

// state is what a test expects of an order: its status, the stock of product 1, and its coupon.
type state struct{ status, stock, coupon int }

func (l *litemall) expect(id int, want state) {
	l.Helper()
	got := state{l.Int("SELECT order_status FROM litemall_order WHERE id = ?", id), l.Int("SELECT number FROM litemall_goods_product WHERE id = 1"),
		l.Int("SELECT status FROM litemall_coupon_user WHERE order_id = ?", id)}
	expect.That(l, got == want, "order %d: status, stock, coupon are %+v, want %+v", id, got, want)
}

// The races of README.md.
func TestOwnTask_Races(t *testing.T) {
	for name, race := range map[string]func(l *litemall){
		"a payment after the time-out": func(l *litemall) {
			l.timeout(1, nothing, false)
			expect.That(l, l.payNotify(1, nothing), "the callback refuses the payment")
			l.expect(1, state{paid, stock, couponUsable})
			l.refund(1)
			l.expect(1, state{refunded, stock + 2, couponUsable})
		},
		"a prepay between the task's read and write": func(l *litemall) { // it changes update_time
			expect.That(l, !l.timeout(1, func() { l.prepay(1, nothing) }, false), "the task closes the order")
			l.expect(1, state{unpaid, stock - 2, couponUsed})
			l.restart()
			l.expect(1, state{timedOut, stock, couponUsable})
		},
		"two prepays and the time-out in one second": func(l *litemall) { // update_time counts seconds
			l.now = "'2026-11-23 12:00:00'"
			l.prepay(1, nothing)
			l.prepay(1, func() { l.timeout(1, nothing, false) })
			l.expect(1, state{unpaid, stock, couponUsable})
			l.restart()
			l.expect(1, state{timedOut, stock + 2, couponUsable})
		},
		"the process ends between the order and the stock": func(l *litemall) { // the task has no transaction
			l.timeout(1, nothing, true)
			l.restart()
			l.expect(1, state{timedOut, stock - 2, couponUsed})
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(l *litemall) {
				l.ChangesWhatItHasNotRead()
				l.submit(1)
				race(l)
			})
		})
	}
}

// Each flow of the shop meets a close between its read and its write, also in one second.
func TestClose_WinsAgainstWhatWasReadBefore(t *testing.T) {
	each(t, func(l *litemall) {
		l.Adopt()
		for id, flow := range []func(int, func()) bool{l.payNotify, l.cancel, l.prepay} {
			l.submit(id + 1)
			if id == 0 { // the shop has changed the order in this second
				l.now = "UTC_TIMESTAMP() + INTERVAL 8 HOUR"
				l.prepay(id+1, nothing)
				l.now = "NOW()"
			}
			expect.That(t, !flow(id+1, func() { l.sweep(1) }), "flow %d overwrites the close", id)
			l.expect(id+1, state{timedOut, stock, couponUsable})
		}
		n := l.Int("SELECT COUNT(*) FROM litemall_order WHERE end_time IS NULL OR update_time NOT BETWEEN end_time AND end_time + INTERVAL 1 SECOND")
		expect.Equal(t, n, 0, "closed orders without end_time")
	})
}

// Each flow of the shop is before the close.
func TestClose_LeavesWhatTheShopHasDone(t *testing.T) {
	each(t, func(l *litemall) {
		l.Adopt()
		l.submit(1)
		l.payNotify(1, nothing)
		l.sweep(0)
		l.expect(1, state{paid, stock - 2, couponUsed})
		l.refund(1)
		l.expect(1, state{refunded, stock, couponUsable})
		l.submit(2)
		l.cancel(2, nothing)
		l.sweep(0)
		l.expect(2, state{cancelled, stock, couponUsable})
		l.submit(3)
		l.prepay(3, nothing)
		l.sweep(1)
		l.expect(3, state{timedOut, stock, couponUsable})
		for id, want := range map[string]orderclose.Verdict{"1": orderclose.AlreadyPaid, "2": orderclose.AlreadyClosed, "3": orderclose.AlreadyClosed} {
			expect.Equal(t, l.Close(id)[0], want, "order %s", id)
		}
	})
}

func (l *litemall) sweep(want int) {
	l.Helper()
	expect.Equal(l, l.Sweep(), want, "orders that a sweep closes")
}

// A payment after a close needs one condition in payNotify, whatever closes the orders. Without it litemall takes
// the payment; the receipt of the close shows the order to an audit.
func TestClose_APaymentAfterACloseNeedsTheFix(t *testing.T) {
	each(t, func(l *litemall) {
		l.Adopt()
		for _, l.fixed = range []bool{false, true} {
			id := 1
			if l.fixed {
				id = 2
			}
			l.submit(id)
			l.sweep(1)
			taken := l.payNotify(id, nothing)
			expect.That(t, taken != l.fixed, "fixed: %v, the callback takes the payment: %v", l.fixed, taken)
		}
		l.expect(2, state{timedOut, stock, couponUsable})
		n := l.Int("SELECT COUNT(*) FROM litemall_order o JOIN receipts r ON r.order_id = CAST(o.id AS CHAR) WHERE o.order_status = 201")
		expect.That(t, n == 1, "%d paid orders have a receipt of a close", n)
	})
}

// Payments, cancels, prepays and refunds of 100 due orders meet sweeps. No acknowledged payment is lost, and stock and coupons are exact.
func TestClose_InACrowd(t *testing.T) {
	each(t, func(l *litemall) {
		l.Adopt()
		l.fixed = true
		var paidOrders, refundedOrders, cancelledOrders atomic.Int64
		closed := l.Crowd(100, func(i int) {
			id := i + 1
			l.submit(id)
			switch rand.IntN(5) {
			case 0:
				if l.prepay(id, nothing); l.payNotify(id, nothing) {
					paidOrders.Add(1)
				}
			case 1:
				if l.payNotify(id, nothing) && l.refund(id) {
					refundedOrders.Add(1)
				}
			case 2:
				if l.cancel(id, nothing) {
					cancelledOrders.Add(1)
				}
			case 3:
				l.prepay(id, nothing)
			}
		})
		count := func(status int) int64 {
			return int64(l.Int("SELECT COUNT(*) FROM litemall_order WHERE order_status = ?", status))
		}
		expect.Same(t, []int64{count(unpaid), count(timedOut), count(refunded), count(cancelled)},
			[]int64{0, int64(closed), refundedOrders.Load(), cancelledOrders.Load()}, "unpaid, closed, refunded and cancelled orders")
		expect.That(t, count(paid) >= paidOrders.Load(), "%d orders are paid, of %d", count(paid), paidOrders.Load())
		for product := 1; product <= 3; product++ {
			held := l.Int(`SELECT COALESCE(SUM(g.number), 0) FROM litemall_order_goods g JOIN litemall_order o ON o.id = g.order_id
				WHERE o.order_status = 201 AND g.product_id = ?`, product)
			expect.Equal(t, l.Int("SELECT number FROM litemall_goods_product WHERE id = ?", product)+held, stock, "free and sold of product %d", product)
		}
		expect.Equal(t, l.Int("SELECT COUNT(*) FROM litemall_coupon_user c JOIN litemall_order o ON o.id = c.order_id "+
			"WHERE (c.status = 1) <> (o.order_status = 201)"), 0, "coupons that are wrong")
	})
}
