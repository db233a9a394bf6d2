// Package mall4j plays the statements of mall4j against its own task, and against closes of orderclose with the mapping of this folder.
package mall4j

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/shoptest"
)

// The statuses of mall4j's OrderStatus that the tests need, and the stock of each SKU.
const (
	unpaid, paid, closed = 1, 2, 6
	stock                = 1000
)

// mall4j plays the statements of mall4j at commit 2617536e, in the order of its code. A flow calls between after its read and before its write.
type mall4j struct {
	*shoptest.Shop
	// fixed says that cancelOrders has the condition that README.md asks for.
	fixed bool
}

func each(t *testing.T, test func(m *mall4j)) {
	shoptest.Each(t, shoptest.OnMySQL, func(s *shoptest.Shop) {
		s.Exec("INSERT INTO tz_prod (prod_id, total_stocks, version) VALUES (1, ?, 0)", 3*stock)
		for sku := range 3 {
			s.Exec("INSERT INTO tz_sku (sku_id, prod_id, stocks, update_time) VALUES (?, 1, ?, NOW())", sku+1, stock)
		}
		test(&mall4j{Shop: s})
	})
}

// nothing happens between the read and the write of a flow.
func nothing() {}

func number(n int) string { return fmt.Sprintf("NO%06d", n) }

// submit is SubmitOrderListener.defaultSubmitOrderListener: an order of 2 of SKU 1 and 1 of another, which was
// created 31 minutes ago, so it is due. SKUs and products are in maps, and here in the order of their keys.
func (m *mall4j) submit(n int) {
	m.Helper()
	for !m.Tx(func(q shoptest.Session) {
		q.Exec(`INSERT INTO tz_order (order_id, user_id, order_number, actual_total, status, create_time, update_time, is_payed, delete_status)
			VALUES (?, 'ann', ?, 12.30, 1, NOW() - INTERVAL 31 MINUTE, NOW() - INTERVAL 31 MINUTE, 0, 0)`, n, number(n))
		q.Exec("INSERT INTO tz_order_settlement (pay_no, order_number, version, pay_status) VALUES (?, ?, 0, 0)", number(n), number(n))
		for _, l := range [][2]int{{1, 2}, {2 + n%2, 1}} {
			q.Exec("INSERT INTO tz_order_item (order_number, prod_id, sku_id, prod_count) VALUES (?, 1, ?, ?)", number(n), l[0], l[1])
			if q.Exec("UPDATE tz_sku SET stocks = stocks - ?, version = version + 1, update_time = NOW() WHERE sku_id = ? AND ? <= stocks", l[1], l[0], l[1]) == 0 {
				q.Rollback()
			}
		}
		q.Exec("UPDATE tz_prod SET total_stocks = total_stocks - 3, version = version + 1 WHERE prod_id = 1 AND 3 <= total_stocks")
	}) {
	}
}

// cancelOrder is OrderTask.cancelOrder: it reads overdue orders with their lines, and then calls cancelOrders.
func (m *mall4j) cancelOrder(between func()) (done bool) {
	var order string
	var orders []string
	m.Rows([]any{&order}, func() {
		orders = append(orders, order)
	}, "SELECT order_number FROM tz_order WHERE status = 1 AND update_time < NOW() - INTERVAL 30 MINUTE")
	between()
	return len(orders) > 0 && m.cancelOrders(orders)
}

// cancel is MyOrderController.cancel, the customer's button.
func (m *mall4j) cancel(n int, between func()) (done bool) {
	if m.Int("SELECT status FROM tz_order WHERE order_number = ?", number(n)) != unpaid {
		return false
	}
	between()
	return m.cancelOrders([]string{number(n)})
}

// cancelOrders is OrderServiceImpl.cancelOrders: it returns the stock of all its orders, whether the UPDATE has found them or not.
func (m *mall4j) cancelOrders(orders []string) (done bool) {
	return m.Tx(func(q shoptest.Session) {
		for _, order := range orders {
			if q.Exec("UPDATE tz_order SET status = 6, cancel_time = NOW() WHERE is_payed = 0 AND order_number IN (?)", order) == 0 && m.fixed {
				q.Rollback()
			}
		}
		for _, order := range orders {
			var sku, count int
			lines := map[int]int{}
			q.Rows([]any{&sku, &count}, func() { lines[sku] += count }, "SELECT sku_id, prod_count FROM tz_order_item WHERE order_number = ?", order)
			q.Exec("UPDATE tz_prod SET total_stocks = total_stocks + ? WHERE prod_id = 1", lines[1]+lines[2]+lines[3])
			for sku := 1; sku <= 3; sku++ {
				if lines[sku] > 0 {
					q.Exec("UPDATE tz_sku SET stocks = stocks + ? WHERE sku_id = ?", lines[sku], sku)
				}
			}
		}
	})
}

// paySuccess is PayServiceImpl.paySuccess: a settlement is paid once, and its order becomes paid whatever its status is.
func (m *mall4j) paySuccess(n int) (taken bool) {
	return m.Tx(func(q shoptest.Session) {
		var status, version int
		if q.Read([]any{&status, &version}, "SELECT pay_status, version FROM tz_order_settlement WHERE pay_no = ?", number(n)); status == 1 {
			q.Rollback()
		}
		if q.Exec("UPDATE tz_order_settlement SET pay_status = 1, version = version + 1 WHERE pay_no = ? AND version = ?", number(n), version) == 0 {
			q.Rollback()
		}
		q.Exec("UPDATE tz_order SET status = 2, is_payed = 1, update_time = NOW(), pay_time = NOW(), pay_type = 1 WHERE order_number IN (?)", number(n))
	})
}

// state is what a test expects: the status of an order, the stock of SKU 1, and the product's.
type state struct{ status, sku, product int }

func (m *mall4j) expect(n int, want state) {
	m.Helper()
	got := state{m.Int("SELECT status FROM tz_order WHERE order_number = ?", number(n)), m.Int("SELECT stocks FROM tz_sku WHERE sku_id = 1"),
		m.Int("SELECT total_stocks FROM tz_prod WHERE prod_id = 1")}
	expect.That(m, got == want, "order %d: status, SKU, product are %+v, want %+v", n, got, want)
}

// The races of README.md: each leaves goods of a paid order for sale again, or returns stock twice.
func TestOwnTask_Races(t *testing.T) {
	for name, race := range map[string]struct {
		play func(m *mall4j)
		want state
	}{
		"a payment between the task's read and write": {func(m *mall4j) { m.cancelOrder(func() { m.paySuccess(1) }) }, state{paid, stock, 3 * stock}},
		"the customer cancels between them":           {func(m *mall4j) { m.cancelOrder(func() { m.cancel(1, nothing) }) }, state{closed, stock + 2, 3*stock + 3}},
		"a payment after the time-out":                {func(m *mall4j) { m.cancelOrder(nothing); m.paySuccess(1) }, state{paid, stock, 3 * stock}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(m *mall4j) {
				m.submit(1)
				race.play(m)
				m.expect(1, race.want)
			})
		})
	}
}

// A close between the read and the write of the customer's cancel and of mall4j's task, and before a payment.
func TestClose_IsNotRepeated(t *testing.T) {
	each(t, func(m *mall4j) {
		m.Adopt()
		for n, flow := range []func(n int) bool{
			func(n int) bool { return m.cancel(n, func() { m.sweep(1) }) },
			func(int) bool { return m.cancelOrder(func() { m.sweep(1) }) },
			func(n int) bool { m.sweep(1); return m.paySuccess(n) },
		} {
			m.submit(n + 1)
			expect.That(t, !flow(n+1), "flow %d changes the closed order", n)
			m.expect(n+1, state{closed, stock, 3 * stock})
		}
		expect.Equal(t, m.Exec("UPDATE tz_order SET delete_status = 2 WHERE order_number = ?", number(1)), 1, "a closed order cannot be deleted")
		expect.Equal(t, m.Int("SELECT COUNT(*) FROM tz_order_settlement WHERE pay_status = 1"), 0, "settlements are paid")
	})
}

func (m *mall4j) sweep(want int) {
	m.Helper()
	expect.Equal(m, m.Sweep(), want, "orders that a sweep closes")
}

// Each flow of the shop is before the close.
func TestClose_LeavesWhatTheShopHasDone(t *testing.T) {
	each(t, func(m *mall4j) {
		m.Adopt()
		m.submit(1)
		m.paySuccess(1)
		m.sweep(0)
		m.expect(1, state{paid, stock - 2, 3*stock - 3})
		m.submit(2)
		m.cancel(2, nothing)
		m.sweep(0)
		m.expect(2, state{closed, stock - 2, 3*stock - 3})
	})
}

// Payments and cancels of 100 due orders meet sweeps. No acknowledged payment is lost, and the stock of SKUs and products is exact.
func TestClose_InACrowd(t *testing.T) {
	each(t, func(m *mall4j) {
		m.Adopt()
		m.fixed = true
		var paidOrders, cancelled atomic.Int64
		swept := m.Crowd(100, func(i int) {
			n := i + 1
			m.submit(n)
			switch rand.IntN(4) {
			case 0, 1:
				if m.paySuccess(n) {
					paidOrders.Add(1)
				}
			case 2:
				if m.cancel(n, nothing) {
					cancelled.Add(1)
				}
			}
		})
		count := func(status int) int64 { return int64(m.Int("SELECT COUNT(*) FROM tz_order WHERE status = ?", status)) }
		expect.Same(t, []int64{count(unpaid), count(paid), count(closed)}, []int64{0, paidOrders.Load(), cancelled.Load() + int64(swept)},
			"unpaid, paid and closed orders")
		expect.Equal(t, m.Int("SELECT COUNT(*) FROM tz_order o JOIN tz_order_settlement s ON s.order_number = o.order_number "+
			"WHERE (s.pay_status = 1) <> (o.status = 2)"), 0, "orders that differ from their settlement")
		sold := 0
		for sku := 1; sku <= 3; sku++ {
			n := m.Int(`SELECT COALESCE(SUM(i.prod_count), 0) FROM tz_order_item i JOIN tz_order o ON o.order_number = i.order_number
				WHERE o.status = 2 AND i.sku_id = ?`, sku)
			free := m.Int("SELECT stocks FROM tz_sku WHERE sku_id = ?", sku)
			expect.That(t, free+n == stock, "SKU %d: %d are free and %d sold, of %d", sku, free, n, stock)
			sold += n
		}
		expect.Equal(t, m.Int("SELECT total_stocks FROM tz_prod WHERE prod_id = 1")+sold, 3*stock, "free and sold of the product")
	})
}
