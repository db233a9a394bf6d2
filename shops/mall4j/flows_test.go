package mall4j

import (
	"fmt"
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

// adopted is each with orderclose beside the shop.
func adopted(t *testing.T, test func(m *mall4j)) {
	each(t, func(m *mall4j) {
		m.Adopt()
		test(m)
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
