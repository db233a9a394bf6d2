package litemall

import (
	"database/sql"
	"strconv"
	"testing"

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

// adopted is each with orderclose beside the shop.
func adopted(t *testing.T, test func(l *litemall)) {
	each(t, func(l *litemall) {
		l.Adopt()
		test(l)
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

// refund is WxOrderService.refund and then AdminOrderService.refund.
func (l *litemall) refund(id int) (done bool) {
	return l.Tx(func(q shoptest.Session) {
		if o := read(q, id); o.status == paid {
			o.status = refunding
			if !l.update(q, o) {
				q.Rollback()
			}
		}
	}) && l.Tx(func(q shoptest.Session) {
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

// state is what a test expects of an order: its status, the stock of product 1, and its coupon.
type state struct{ status, stock, coupon int }

func (l *litemall) expect(id int, want state) {
	l.Helper()
	got := state{l.Int("SELECT order_status FROM litemall_order WHERE id = ?", id), l.Int("SELECT number FROM litemall_goods_product WHERE id = 1"),
		l.Int("SELECT status FROM litemall_coupon_user WHERE order_id = ?", id)}
	expect.That(l, got == want, "order %d: status, stock, coupon are %+v, want %+v", id, got, want)
}
