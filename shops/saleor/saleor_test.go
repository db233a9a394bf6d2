// Package saleor plays the statements of Saleor against its own task, and against closes of orderclose with the mapping of this folder.
package saleor

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// If nothing else happens, Saleor's task is exact.
func TestOwnTask_ExpiresAnOrder(t *testing.T) {
	each(t, func(s saleor) {
		s.complete(1, 1)
		s.expect(1, state{"unconfirmed", "none", 2, 2, 1})
		s.expireOrders(nothing)
		s.expect(1, state{"expired", "none", 0, 0, 0})
	})
}

// A payment and the staff's confirmation between the task's read, which is from the replica, and its write: the
// order that is to be delivered has expired, and its goods are for sale again.
func TestOwnTask_ExpiresAPaidOrder(t *testing.T) {
	each(t, func(s saleor) {
		s.complete(1, 1)
		s.expireOrders(func() {
			s.initialize(1)
			s.charge(1)
			s.confirm(1)
			s.expect(1, state{"unfulfilled", "full", 2, 2, 1})
		})
		s.expect(1, state{"expired", "full", 0, 0, 0})
	})
}

// The payment begins before the task writes, and ends after that.
func TestOwnTask_ExpiresAnOrderWhoseCustomerIsPaying(t *testing.T) {
	each(t, func(s saleor) {
		s.complete(1, 1)
		s.expireOrders(func() { s.initialize(1) })
		s.charge(1)
		s.expect(1, state{"expired", "full", 0, 0, 0})
	})
}

// A cancel between the task's read and write: the order counts as expired, though the customer was told that it is
// cancelled. The stock is right, because both lock the allocations.
func TestOwnTask_OverwritesACancel(t *testing.T) {
	each(t, func(s saleor) {
		s.complete(1, 1)
		s.expireOrders(func() { s.cancel(1, nothing) })
		s.expect(1, state{"expired", "none", 0, 0, 0})
	})
}

// The task adds days as 24 and hours as 60 minutes. So an order that may be open for three days is open for 121.
func TestOwnTask_CountsDaysAsHours(t *testing.T) {
	each(t, func(s saleor) {
		s.complete(1, 2)
		for age, want := range map[string]string{"120 days 23 hours 59 minutes": "unconfirmed", "121 days 23 hours 59 minutes": "expired"} {
			s.Exec("UPDATE order_order SET status = 'unconfirmed', created_at = now() - $1::interval", age)
			s.expireOrders(nothing)
			var got string
			s.Read([]any{&got}, "SELECT status FROM order_order")
			expect.That(t, got == want, "after %s: %s, want %s", age, got, want)
		}
	})
}

func (s saleor) sweep(want int) {
	s.Helper()
	n := s.Sweep()
	expect.That(s, n == want, "a sweep closes %d orders, want %d", n, want)
}

// An order with a transaction stays open, as Saleor wants it. Cancels before, during and after a close leave the stock exact.
func TestClose_FollowsSaleorsRule(t *testing.T) {
	adopted(t, func(s saleor) {
		s.complete(1, 1)
		s.complete(2, 2)
		s.complete(3, 1)
		s.initialize(1)
		s.sweep(1)
		s.expect(2, state{"unconfirmed", "none", 4, 2, 2})
		s.expect(3, state{"expired", "none", 4, 0, 2})
		expect.Equal(t, s.Int("SELECT COUNT(*) FROM order_orderevent WHERE type = 'expired' AND order_id = $1", id(3)), 1, "events")
		s.charge(1)
		s.sweep(0)
		s.expect(1, state{"unconfirmed", "full", 4, 2, 2})
		s.confirm(1)
		s.sweep(0)
		s.expect(1, state{"unfulfilled", "full", 4, 2, 2})
		s.complete(4, 1)
		s.cancel(4, func() { s.sweep(1) })
		s.expect(4, state{"canceled", "none", 4, 0, 2})
		s.complete(5, 1)
		s.cancel(5, nothing)
		s.sweep(0)
		s.expect(5, state{"canceled", "none", 4, 0, 3})
	})
}

// Payments and cancels of 100 due orders meet sweeps. No order that has a payment is closed, and what is allocated is exact.
func TestClose_InACrowd(t *testing.T) {
	adopted(t, func(s saleor) {
		var mu sync.Mutex
		done := map[string]int{}
		closed := s.Crowd(100, func(i int) {
			n, what := i+1, "left"
			s.complete(n, 1)
			switch rand.IntN(4) {
			case 0, 1:
				if s.initialize(n) == "unconfirmed" {
					s.charge(n)
					what = "paid"
					if n%2 == 0 {
						s.confirm(n)
					}
				}
			case 2:
				if s.cancel(n, nothing) {
					what = "cancelled"
				}
			}
			mu.Lock()
			done[what]++
			mu.Unlock()
		})
		t.Logf("%v, closed %d", done, closed)
		count := func(where string) int { return s.Int("SELECT COUNT(*) FROM order_order WHERE " + where) }
		if n := count("status IN ('unconfirmed', 'unfulfilled') AND charge_status = 'full'"); n != done["paid"] || count("charge_status = 'full'") != n {
			t.Errorf("%d paid orders are open, of %d", n, done["paid"])
		}
		expect.Equal(t, count("status IN ('expired', 'canceled') AND charge_status = 'none'"), 100-done["paid"], "orders are closed")
		if n := s.Int(`SELECT COUNT(*) FROM warehouse_stock s WHERE quantity_allocated <> (SELECT COALESCE(SUM(l.quantity), 0) FROM warehouse_allocation a
			JOIN order_orderline l ON l.id = a.order_line_id JOIN order_order o ON o.id = l.order_id WHERE a.stock_id = s.id AND o.charge_status = 'full')`); n != 0 {
			t.Errorf("%d stocks are wrong", n)
		}
		if n := s.Int("SELECT used FROM discount_vouchercode"); n != 100-closed {
			t.Errorf("the voucher has %d uses, want %d: a cancel keeps its use", n, 100-closed)
		}
	})
}
