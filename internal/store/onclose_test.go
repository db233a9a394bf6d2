package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// mall is the public shop with statements of its own.
func mall(t *testing.T) storetest.Shop { return examples(t)[3] }

// openMall opens a database with the tables of mall. Each order is {id, member, points} and was due an hour ago; each has used a coupon of the kind 7.
func openMall(t *testing.T, dsn string, m *mapping.Mapping, orders ...[3]int) *store.Store {
	t.Helper()
	shop := mall(t)
	shop.Mapping = m
	s := openShop(t, dsn, shop)
	exec := func(query string, args ...any) {
		t.Helper()
		exec(t, s.DB(), query, args...)
	}
	exec("INSERT INTO pms_sku_stock (id, stock, lock_stock) VALUES (10, 100, 50)")
	for _, o := range orders {
		exec("INSERT IGNORE INTO ums_member (id, integration) VALUES (?, 100)", o[1])
		exec("INSERT INTO oms_order (id, member_id, coupon_id, order_sn, create_time, status, use_integration) VALUES (?, ?, 7, CONCAT('SN', ?), UTC_TIMESTAMP() + "+
			"INTERVAL 6 HOUR, 0, ?)", o[0], o[1], o[0], o[2])
		exec("INSERT INTO oms_order_item (order_id, product_sku_id, product_quantity) VALUES (?, 10, 1)", o[0])
		exec("INSERT INTO sms_coupon_history (coupon_id, member_id, use_status, use_time) VALUES (7, ?, 1, UTC_TIMESTAMP())", o[1])
	}
	return s
}

// mallState returns the coupons as "member:used", the points as "member=points", and the reserved stock.
func mallState(t *testing.T, db *sql.DB) (state string) {
	t.Helper()
	must.Do(t, db.QueryRowContext(t.Context(), "SELECT CONCAT_WS(' ',"+
		"(SELECT GROUP_CONCAT(member_id, ':', use_status ORDER BY id SEPARATOR ' ') FROM sms_coupon_history),"+
		"(SELECT GROUP_CONCAT(id, '=', integration ORDER BY id SEPARATOR ' ') FROM ums_member),"+
		"(SELECT lock_stock FROM pms_sku_stock))").Scan(&state))
	return state
}

func closeOrders(t *testing.T, s *store.Store, ids ...string) (verdicts []orderclose.Verdict, err error) {
	t.Helper()
	reqs := make([]orderclose.CloseRequest, len(ids))
	for i, id := range ids {
		reqs[i].OrderID = id
	}
	out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, reqs)
	for _, o := range out {
		verdicts = append(verdicts, o.Verdict)
	}
	return verdicts, err
}

func TestMySQL_StatementsOfACloseChangeTheRowsOfItsOrders(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		// The member 1 has used three coupons of one kind, for the orders 1, 2 and 3.
		s := openMall(t, ownDatabase(t), mall(t).Mapping, [3]int{1, 1, 5}, [3]int{2, 1, 0}, [3]int{3, 1, 20}, [3]int{4, 2, 1})
		must.Do(t, s.CheckMapping(t.Context()))
		for range 2 { // a record that is delivered again changes nothing
			must.Get(closeOrders(t, s, "1", "3", "4"))(t)
			got, want := mallState(t, s.DB()), "1:0 1:0 1:1 2:0 1=125 2=101 47"
			expect.That(t, got == want, "%s; want %s", got, want)
		}
		var payload string
		must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT payload FROM outbox_events WHERE order_id = '3'").Scan(&payload))
		_, event, err := orderclose.DecodeOrderClosed(store.ExpandEvent("3", []byte(payload)))
		must.Do(t, err)
		want := map[string]json.RawMessage{"member_id": json.RawMessage("1"), "order_sn": json.RawMessage(`"SN3"`), "pay_amount": json.RawMessage(`"99.90"`)}
		expect.Same(t, event.Columns, want, "columns of the event")
	})
}

// A checkout locks the coupon of one order. The other orders of the batch are closed without it.
func TestMySQL_ALockedRowOfAStatementDelaysItsOrderOnly(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		s := openMall(t, ownDatabase(t), mall(t).Mapping, [3]int{1, 1, 0}, [3]int{2, 2, 0}, [3]int{3, 3, 0})
		checkout := begin(t, s.DB(), "UPDATE sms_coupon_history SET use_time = NULL WHERE member_id = 2")
		verdicts := must.Get(closeOrders(t, s, "1", "2", "3"))(t)
		expect.Same(t, verdicts, []orderclose.Verdict{orderclose.Closed, orderclose.Contended, orderclose.Closed}, "verdicts")
		must.Do(t, checkout.Rollback())
		must.Get(closeOrders(t, s, "2"))(t)
		got, want := mallState(t, s.DB()), "1:0 2:0 3:0 1=100 2=100 3=100 47"
		expect.That(t, got == want, "%s; want %s", got, want)
	})
}

// The points of the second order do not fit into the column.
func TestMySQL_AFailureOfAStatementIsThatOfItsOrder(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		s := openMall(t, ownDatabase(t), mall(t).Mapping, [3]int{1, 1, 1}, [3]int{2, 2, 2147483647})
		for _, ids := range [][]string{{"1", "2"}, {"2"}} {
			_, err := closeOrders(t, s, ids...)
			expect.That(t, err != nil && !errors.Is(err, orderclose.ErrUnavailable) && strings.Contains(err.Error(), "orders.on_close[1]"),
				"%q: %v; want an error of an order that names the statement", ids, err)
		}
		must.Get(closeOrders(t, s, "1"))(t)
		got, want := mallState(t, s.DB()), "1:0 2:1 1=101 2=100 49"
		expect.That(t, got == want, "%s; want %s", got, want)
	})
}

func TestMySQL_StatementsOfACloseAreChecked(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		exec(t, openMall(t, dsn, mall(t).Mapping).DB(), "CREATE TABLE passes (id INT PRIMARY KEY, order_id VARCHAR(32), used INT, KEY (order_id)) ENGINE = InnoDB")
		for statement, want := range map[string]string{
			"UPDATE no_such_table SET a = 1 WHERE order_id IN ({ids})": "the database refuses " +
				"the statement: Error 1146",
			"UPDATE ums_member SET no_such_column = 1 WHERE id IN ({ids})": "the database refuses " +
				"the statement: Error 1054",
			"UPDATE ums_member SET integration = 1 WHERE id IN ({ids}) AND": "the database refuses " +
				"the statement: Error 1064",
			"UPDATE ums_member SET integration = ? WHERE id IN ({ids})": "the database refuses " +
				"the statement: Error 1064",
			"UPDATE ums_member SET integration = 1 WHERE integration IN ({ids})": "no index to find its rows of ums_member",
			"DELETE FROM sms_coupon_history WHERE coupon_id IN ({ids})": "no index to find its " +
				"rows of sms_coupon_history",
			// ids are numbers, the column is text
			"UPDATE passes SET used = 0 WHERE order_id IN ({ids})":                                                      "no index to find its rows of passes",
			"INSERT INTO ums_member (id) SELECT h.id + 1000000 FROM sms_coupon_history h WHERE h.use_status IN ({ids})": "no index to find its rows of h",
			"INSERT INTO ums_member (id) SELECT id + 1000000 FROM oms_order WHERE id IN ({ids})":                        "",
			// What is not stored has no index.
			"INSERT INTO ums_member (id) SELECT j.n + 2000000 FROM oms_order o JOIN JSON_TABLE(CONCAT('[', o.id, ']'), '$[*]' COLUMNS (n INT PATH '$')) j " +
				"WHERE o.id IN ({ids})": "",
			"INSERT INTO ums_member (id) WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) SELECT o.id + 3000000 + c.n " +
				"FROM oms_order o JOIN c WHERE o.id IN ({ids})": "",
			"INSERT INTO ums_member (id) SELECT o.id + 4000000 + d.n FROM oms_order o JOIN (SELECT 1 AS n UNION ALL SELECT 2) d WHERE o.id IN ({ids})": "",
			"INSERT INTO ums_member (id) SELECT h.id + 5000000 FROM sms_coupon_history h JOIN JSON_TABLE('[1]', '$[*]' COLUMNS (n INT PATH '$')) j " +
				"WHERE h.use_status IN ({ids})": "no index to find its rows of h",
			"DELETE FROM ums_member WHERE id IN ({ids}) ORDER BY id": "",
		} {
			m := *mall(t).Mapping
			m.OnClose, m.Accept = []string{statement}, []string{mapping.OnCloseOtherID}
			s := open(t, store.Options{DSN: dsn, Orders: &m})
			err := s.CheckMapping(context.Background())
			expect.That(t, (want != "" || err == nil) && (want == "" || err != nil && strings.Contains(err.Error(), want)),
				"%s: %v; want %q", statement, err, want)
		}
	})
}
