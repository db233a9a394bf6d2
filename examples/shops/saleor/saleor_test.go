// Package saleor plays the statements of Saleor against its own task, and against closes of orderclose with the mapping of this folder.
package saleor

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/shoptest"
)

// saleor plays the statements of Saleor at commit 723cd4eb, in the order of its code. A flow calls between after its read and before its write.
type saleor struct{ *shoptest.Shop }

const stock = 1000 // of each variant

// each runs test with a channel whose orders expire after an hour, and one after three days.
func each(t *testing.T, test func(s saleor)) {
	shoptest.Each(t, shoptest.OnPostgres, func(s *shoptest.Shop) {
		s.Exec("INSERT INTO channel_channel (slug, expire_orders_after) VALUES ('hour', 60), ('days', 3 * 24 * 60)")
		s.Exec("INSERT INTO warehouse_stock (warehouse_id, product_variant_id, quantity, quantity_allocated) SELECT $1, n, $2, 0 FROM generate_series(1, 3) AS n",
			id(0), stock)
		s.Exec("INSERT INTO discount_voucher (usage_limit) VALUES (1000)")
		s.Exec("INSERT INTO discount_vouchercode (id, code, used, is_active, voucher_id, created_at) VALUES ($1, 'TEN', 0, true, 1, now())", id(0))
		s.Exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''50ms''', current_database()); END $$") // a short test
		test(saleor{s})
	})
}

// nothing happens between the read and the write of a flow.
func nothing() {}

func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// complete is the part of checkout/complete_checkout.py that writes: an unpaid order of 2 of variant 1 and 1 of
// another, with a voucher. It was created 61 minutes ago, so it has expired in the channel of an hour.
func (s saleor) complete(n, channel int) {
	s.Helper()
	for !s.Tx(func(q shoptest.Session) {
		q.Exec(`INSERT INTO order_order (id, number, created_at, updated_at, status, authorize_status, charge_status, user_email, channel_id, voucher_code)
			VALUES ($1, $2, now() - interval '61 minutes', now(), 'unconfirmed', 'none', 'none', 'ann@example.com', $3, 'TEN')`, id(n), n, channel)
		for i, line := range [][2]int{{1, 2}, {2 + n%2, 1}} {
			q.Exec("INSERT INTO order_orderline (id, order_id, quantity) VALUES ($1, $2, $3)", id(1000*n+i), id(n), line[1])
			q.Exec("INSERT INTO warehouse_allocation (order_line_id, stock_id, quantity_allocated) VALUES ($1, $2, $3)", id(1000*n+i), line[0], line[1])
			q.Exec("UPDATE warehouse_stock SET quantity_allocated = quantity_allocated + $1 WHERE id = $2", line[1], line[0])
		}
		q.Exec("UPDATE discount_vouchercode SET used = used + 1 WHERE code = 'TEN'")
	}) {
	}
}

// expireOrders is order/tasks.py, _expire_orders. It reads from the replica, and does not compare the status when it writes.
func (s saleor) expireOrders(between func()) (done bool) {
	var order string
	var orders []string
	s.Rows([]any{&order}, func() { orders = append(orders, order) }, `SELECT id FROM order_order o WHERE status = 'unconfirmed'
		AND NOT EXISTS (SELECT FROM payment_transactionitem WHERE order_id = o.id) AND NOT EXISTS (SELECT FROM payment_payment WHERE order_id = o.id)
		AND EXISTS (SELECT FROM channel_channel WHERE id = o.channel_id AND expire_orders_after > 0 AND expire_orders_after <=
			date_part('day', now() - o.created_at) * 24 + date_part('hour', now() - o.created_at) * 60 + date_part('minute', now() - o.created_at))
		LIMIT 100`)
	between()
	return s.Tx(func(q shoptest.Session) {
		for _, order := range orders {
			q.Exec("UPDATE order_order SET status = 'expired', expired_at = now() WHERE id IN ($1)", order)
			q.Exec("UPDATE discount_vouchercode SET used = GREATEST(used - 1, 0) WHERE code = (SELECT voucher_code FROM order_order WHERE id = $1)", order)
			q.Exec("INSERT INTO order_orderevent (date, type, parameters, order_id) VALUES (now(), 'expired', '{}', $1)", order)
			deallocate(q, order)
		}
	})
}

// deallocate is warehouse/management.py, deallocate_stock_for_orders.
func deallocate(q shoptest.Session, order string) {
	held := map[int]int{}
	var stock, n int
	q.Rows([]any{&stock, &n}, func() {
		held[stock] += n
	}, `SELECT a.stock_id, a.quantity_allocated FROM warehouse_allocation a JOIN warehouse_stock s ON s.id = a.stock_id
		WHERE a.quantity_allocated > 0 AND a.order_line_id IN (SELECT id FROM order_orderline WHERE order_id = $1) ORDER BY s.id FOR UPDATE OF a, s`, order)
	q.Exec("UPDATE warehouse_allocation SET quantity_allocated = 0 WHERE order_line_id IN (SELECT id FROM order_orderline WHERE order_id = $1)", order)
	for stock := 1; stock <= 3; stock++ {
		q.Exec("UPDATE warehouse_stock SET quantity_allocated = quantity_allocated - $1 WHERE id = $2", held[stock], stock)
	}
}

// initialize creates the transaction of a payment, before the customer pays. It returns the order's status after
// that: a storefront that takes no money for an expired order looks at it.
func (s saleor) initialize(n int) (status string) {
	s.Exec("INSERT INTO payment_transactionitem (order_id, charged_value) VALUES ($1, 0)", id(n))
	s.Read([]any{&status}, "SELECT status FROM order_order WHERE id = $1", id(n))
	return status
}

// charge is what follows the report of a charge: payment/utils.py, process_order_with_transaction. It locks the
// order. In a channel that confirms orders by hand, it leaves the status as it is.
func (s saleor) charge(n int) {
	s.Tx(func(q shoptest.Session) {
		q.Exec("SELECT FROM order_order WHERE id = $1 FOR UPDATE", id(n))
		q.Exec("UPDATE payment_transactionitem SET charged_value = 12.3 WHERE order_id = $1", id(n))
		q.Exec("UPDATE order_order SET charge_status = 'full', updated_at = now() WHERE id = $1", id(n))
	})
}

// confirm is the mutation orderConfirm of the staff: the order is to be delivered.
func (s saleor) confirm(n int) (done bool) {
	var status string
	s.Read([]any{&status}, "SELECT status FROM order_order WHERE id = $1", id(n))
	return status == "unconfirmed" && s.Exec("UPDATE order_order SET status = 'unfulfilled', updated_at = now() WHERE id = $1", id(n)) == 1
}

// cancel is order/actions.py, cancel_order, behind can_cancel.
func (s saleor) cancel(n int, between func()) (done bool) {
	var status string
	s.Read([]any{&status}, "SELECT status FROM order_order WHERE id = $1", id(n))
	if status != "unconfirmed" {
		return false
	}
	between()
	return s.Tx(func(q shoptest.Session) {
		deallocate(q, id(n))
		q.Exec("UPDATE order_order SET status = 'canceled', updated_at = now() WHERE id = $1", id(n))
	})
}

// state is what a test expects: the status of an order and of its charge, what is allocated of variant 1, how many
// pieces of it the order's allocation has, and the uses of the voucher.
type state struct {
	status, charge        string
	allocated, held, used int
}

func (s saleor) expect(n int, want state) {
	s.Helper()
	var got state
	s.Read([]any{&got.status, &got.charge}, "SELECT status, charge_status FROM order_order WHERE id = $1", id(n))
	s.Read([]any{&got.allocated}, "SELECT quantity_allocated FROM warehouse_stock WHERE id = 1")
	s.Read([]any{&got.held}, "SELECT quantity_allocated FROM warehouse_allocation WHERE order_line_id = $1", id(1000*n))
	s.Read([]any{&got.used}, "SELECT used FROM discount_vouchercode")
	expect.That(s, got == want, "order %d: %+v, want %+v", n, got, want)
}

// The races of README.md. The task reads from the replica. Stock is right, because the task and a cancel both lock the allocations.
func TestOwnTask_Races(t *testing.T) {
	for name, race := range map[string]struct {
		play   func(s saleor)
		charge string
	}{
		"a payment and the confirmation between the task's read and write": {func(s saleor) {
			s.expireOrders(func() {
				s.initialize(1)
				s.charge(1)
				s.confirm(1)
				s.expect(1, state{"unfulfilled", "full", 2, 2, 1})
			})
		}, "full"},
		"a payment begins between them and ends later": {func(s saleor) { s.expireOrders(func() { s.initialize(1) }); s.charge(1) }, "full"},
		"a cancel between them":                        {func(s saleor) { s.expireOrders(func() { s.cancel(1, nothing) }) }, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s saleor) {
				s.complete(1, 1)
				race.play(s)
				s.expect(1, state{"expired", race.charge, 0, 0, 0})
			})
		})
	}
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
	expect.Equal(s, s.Sweep(), want, "orders that a sweep closes")
}

// An order with a transaction stays open, as Saleor wants it. Cancels before, during and after a close leave the stock exact.
func TestClose_FollowsSaleorsRule(t *testing.T) {
	each(t, func(s saleor) {
		s.Adopt()
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
	each(t, func(s saleor) {
		s.Adopt()
		var paid atomic.Int64
		closed := s.Crowd(100, func(i int) {
			n := i + 1
			s.complete(n, 1)
			switch rand.IntN(4) {
			case 0, 1:
				if s.initialize(n) == "unconfirmed" {
					s.charge(n)
					paid.Add(1)
					if n%2 == 0 {
						s.confirm(n)
					}
				}
			case 2:
				s.cancel(n, nothing)
			}
		})
		count := func(where string) int64 { return int64(s.Int("SELECT COUNT(*) FROM order_order WHERE " + where)) }
		expect.Same(t, []int64{count("status IN ('unconfirmed', 'unfulfilled') AND charge_status = 'full'"), count("charge_status = 'full'"),
			count("status IN ('expired', 'canceled') AND charge_status = 'none'")}, []int64{paid.Load(), paid.Load(), 100 - paid.Load()},
			"open orders that are paid, paid ones, and closed ones")
		expect.Equal(t, s.Int(`SELECT COUNT(*) FROM warehouse_stock s WHERE quantity_allocated <> (SELECT COALESCE(SUM(l.quantity), 0) FROM warehouse_allocation a
			JOIN order_orderline l ON l.id = a.order_line_id JOIN order_order o ON o.id = l.order_id WHERE a.stock_id = s.id AND o.charge_status = 'full')`), 0,
			"stocks that are wrong")
		expect.Equal(t, s.Int("SELECT used FROM discount_vouchercode"), 100-closed, "uses of the voucher: a cancel keeps its use")
	})
}
