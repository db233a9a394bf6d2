// Package litemall plays the statements of litemall against its own time-out task, and against closes of orderclose with the mapping of this folder.
package litemall

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// If nothing else happens, litemall's own task is exact.
func TestOwnTask_ClosesAnOrder(t *testing.T) {
	each(t, func(l *litemall) {
		l.submit(1)
		l.expect(1, state{unpaid, stock - 2, couponUsed})
		l.timeout(1, nothing, false)
		l.expect(1, state{timedOut, stock, couponUsable})
	})
}

// The order is paid, and its goods are for sale again.
func TestOwnTask_APaymentAfterTheTimeoutHasNoStock(t *testing.T) {
	each(t, func(l *litemall) {
		l.submit(1)
		l.timeout(1, nothing, false)
		expect.That(t, l.payNotify(1, nothing), "the callback refuses the payment")
		l.expect(1, state{paid, stock, couponUsable})
		l.refund(1)
		l.expect(1, state{refunded, stock + 2, couponUsable})
	})
}

// A prepay changes update_time between the task's read and write. The task ends, and only a restart queues the order again.
func TestOwnTask_APrepayMakesItForgetTheOrder(t *testing.T) {
	each(t, func(l *litemall) {
		l.submit(1)
		expect.That(t, !l.timeout(1, func() { l.prepay(1, nothing) }, false), "the task closes the order")
		l.expect(1, state{unpaid, stock - 2, couponUsed})
		l.restart()
		l.expect(1, state{timedOut, stock, couponUsable})
	})
}

// update_time counts seconds: a prepay that has read the order in the second of its time-out opens the order
// again, and the task after a restart returns its stock once more.
func TestOwnTask_InOneSecondAPrepayReopensTheOrder(t *testing.T) {
	each(t, func(l *litemall) {
		l.submit(1)
		l.now = "'2026-11-23 12:00:00'"
		l.prepay(1, nothing)
		l.prepay(1, func() { l.timeout(1, nothing, false) })
		l.expect(1, state{unpaid, stock, couponUsable})
		l.restart()
		l.expect(1, state{timedOut, stock + 2, couponUsable})
	})
}

// The task has no transaction, so stock and coupon of an order stay away if the process ends.
func TestOwnTask_ACrashLosesTheStock(t *testing.T) {
	each(t, func(l *litemall) {
		l.submit(1)
		l.timeout(1, nothing, true)
		l.restart()
		l.expect(1, state{timedOut, stock - 2, couponUsed})
	})
}

// Each flow of the shop meets a close between its read and its write, also in one second.
func TestClose_WinsAgainstWhatWasReadBefore(t *testing.T) {
	adopted(t, func(l *litemall) {
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
		expect.That(t, n <= 0, "%d closed orders have no end_time", n)
	})
}

// Each flow of the shop is before the close.
func TestClose_LeavesWhatTheShopHasDone(t *testing.T) {
	adopted(t, func(l *litemall) {
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
	n := l.Sweep()
	expect.That(l, n == want, "a sweep closes %d orders, want %d", n, want)
}

// A payment after a close needs one condition in payNotify, whatever closes the orders. Without it litemall takes
// the payment; the receipt of the close shows the order to an audit.
func TestClose_APaymentAfterACloseNeedsTheFix(t *testing.T) {
	adopted(t, func(l *litemall) {
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
	adopted(t, func(l *litemall) {
		l.fixed = true
		var mu sync.Mutex
		done := map[string]int{}
		closed := l.Crowd(100, func(i int) {
			id := i + 1
			l.submit(id)
			what := "left"
			switch rand.IntN(5) {
			case 0:
				if l.prepay(id, nothing); l.payNotify(id, nothing) {
					what = "paid"
				}
			case 1:
				if l.payNotify(id, nothing) && l.refund(id) {
					what = "refunded"
				}
			case 2:
				if l.cancel(id, nothing) {
					what = "cancelled"
				}
			case 3:
				l.prepay(id, nothing)
			}
			mu.Lock()
			done[what]++
			mu.Unlock()
		})
		status := func(status int) int {
			return l.Int("SELECT COUNT(*) FROM litemall_order WHERE order_status = ?", status)
		}
		t.Logf("%v, closed %d", done, closed)
		if status(unpaid) != 0 || status(timedOut) != closed || status(paid) < done["paid"] || status(refunded) != done["refunded"] ||
			status(cancelled) != done["cancelled"] {
			t.Errorf("%v and %d closes are expected", done, closed)
		}
		for product := 1; product <= 3; product++ {
			held := l.Int(`SELECT COALESCE(SUM(g.number), 0) FROM litemall_order_goods g JOIN litemall_order o ON o.id = g.order_id
				WHERE o.order_status = 201 AND g.product_id = ?`, product)
			if n := l.Int("SELECT number FROM litemall_goods_product WHERE id = ?", product); n+held != stock {
				t.Errorf("product "+strconv.Itoa(product)+": %d are free and %d sold, of %d", n, held, stock)
			}
		}
		if n := l.Int("SELECT COUNT(*) FROM litemall_coupon_user c JOIN litemall_order o ON o.id = c.order_id WHERE (c.status = 1) <> " +
			"(o.order_status = 201)"); n != 0 {
			t.Errorf("%d coupons are wrong", n)
		}
	})
}
