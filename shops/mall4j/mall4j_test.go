// Package mall4j plays the statements of mall4j against its own task, and against closes of orderclose with the mapping of this folder.
package mall4j

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// If nothing else happens, mall4j's task is exact.
func TestOwnTask_ClosesAnOrder(t *testing.T) {
	each(t, func(m *mall4j) {
		m.submit(1)
		m.expect(1, state{unpaid, stock - 2, 3*stock - 3})
		m.cancelOrder(nothing)
		m.expect(1, state{closed, stock, 3 * stock})
	})
}

// A payment between the task's read and write: the order stays paid, and its goods are for sale again.
func TestOwnTask_ReturnsTheStockOfAPaidOrder(t *testing.T) {
	each(t, func(m *mall4j) {
		m.submit(1)
		m.cancelOrder(func() { m.paySuccess(1) })
		m.expect(1, state{paid, stock, 3 * stock})
	})
}

// Customer and task cancel one order at once: its stock comes back twice.
func TestOwnTask_ReturnsStockTwice(t *testing.T) {
	each(t, func(m *mall4j) {
		m.submit(1)
		m.cancelOrder(func() { m.cancel(1, nothing) })
		m.expect(1, state{closed, stock + 2, 3*stock + 3})
	})
}

// A payment after the time-out: the order is paid, and its goods are for sale again.
func TestOwnTask_APaymentAfterItHasNoStock(t *testing.T) {
	each(t, func(m *mall4j) {
		m.submit(1)
		m.cancelOrder(nothing)
		m.paySuccess(1)
		m.expect(1, state{paid, stock, 3 * stock})
	})
}

// A close between the read and the write of the customer's cancel and of mall4j's task, and before a payment.
func TestClose_IsNotRepeated(t *testing.T) {
	adopted(t, func(m *mall4j) {
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
	n := m.Sweep()
	expect.That(m, n == want, "a sweep closes %d orders, want %d", n, want)
}

// Each flow of the shop is before the close.
func TestClose_LeavesWhatTheShopHasDone(t *testing.T) {
	adopted(t, func(m *mall4j) {
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
	adopted(t, func(m *mall4j) {
		m.fixed = true
		var mu sync.Mutex
		done := map[string]int{}
		swept := m.Crowd(100, func(i int) {
			n, what := i+1, "left"
			m.submit(n)
			switch rand.IntN(4) {
			case 0, 1:
				if m.paySuccess(n) {
					what = "paid"
				}
			case 2:
				if m.cancel(n, nothing) {
					what = "cancelled"
				}
			}
			mu.Lock()
			done[what]++
			mu.Unlock()
		})
		t.Logf("%v, closed %d", done, swept)
		count := func(status int) int { return m.Int("SELECT COUNT(*) FROM tz_order WHERE status = ?", status) }
		expect.That(t, count(unpaid) == 0 && count(paid) == done["paid"] && count(closed) == done["cancelled"]+swept,
			"%v and %d closes are expected", done, swept)
		if n := m.Int("SELECT COUNT(*) FROM tz_order o JOIN tz_order_settlement s ON s.order_number = o.order_number WHERE (s.pay_status = 1) <> " +
			"(o.status = 2)"); n != 0 {
			t.Errorf("%d orders differ from their settlement", n)
		}
		sold := 0
		for sku := 1; sku <= 3; sku++ {
			n := m.Int(`SELECT COALESCE(SUM(i.prod_count), 0) FROM tz_order_item i JOIN tz_order o ON o.order_number = i.order_number
				WHERE o.status = 2 AND i.sku_id = ?`, sku)
			free := m.Int("SELECT stocks FROM tz_sku WHERE sku_id = ?", sku)
			expect.That(t, free+n == stock, "SKU %d: %d are free and %d sold, of %d", sku, free, n, stock)
			sold += n
		}
		if free := m.Int("SELECT total_stocks FROM tz_prod WHERE prod_id = 1"); free+sold != 3*stock {
			t.Errorf("product: %d are free and %d sold, of %d", free, sold, 3*stock)
		}
	})
}
