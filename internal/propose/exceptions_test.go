package propose

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// TestPropose_MoneyAndExceptionsAreQuestions: 100 orders are paid, 100 closed, and 40 unpaid for less than their delay, of which each fourth has something
// that no closed one has. The file is written only after a question, or has a condition.
func TestPropose_MoneyAndExceptionsAreQuestions(t *testing.T) {
	const payments = "CREATE TABLE payments (id INT PRIMARY KEY, order_id VARCHAR(64), status VARCHAR(20))"
	for _, c := range []struct {
		name, only     string // only: the servers
		column         string // with its type
		usual, special string
		id             string // the type of the id
		further        []string
		answers        Answers
		want           string
	}{
		{"partly paid", "", "amount_paid DECIMAL(10,2) NOT NULL", "0.00", "5.00", "", nil, Answers{}, "money may have come for 10 of 40 unpaid orders"},
		{"partly paid, and told", "", "amount_paid DECIMAL(10,2) NOT NULL", "0.00", "5.00", "", nil, Answers{Keep: []string{"amount_paid=set"}},
			"where: {amount_paid: 0}"},
		{"a deleted order in a BIT", "mysql mariadb", "del BIT(1)", "0", "1", "", nil, Answers{}, "where: {del: [0, null]}"},
		{"a way to pay by number", "", "payment_method INT NOT NULL", "0", "1", "", nil, Answers{}, "payment_method 1: 10 of 40 unpaid, 0 of 100 closed"},
		{"a way to pay by number, and told", "", "payment_method INT NOT NULL", "0", "1", "", nil, Answers{Keep: []string{"payment_method=1"}},
			"where: {payment_method: {not: 1}}"},
		{"cash on delivery", "", "payment_method VARCHAR(20)", "'card'", "'cod'", "", nil, Answers{Keep: []string{"payment_method=cod,bank"}},
			`where: {payment_method: {not: ["cod", "bank"]}}`},
		{"a column that does not matter", "", "is_gift SMALLINT NOT NULL", "0", "1", "", nil, Answers{Keep: []string{"none"}}, "default: 30m"},
		{"payments that name a UUID in text", "postgres", "channel INT", "1", "1", "UUID", []string{payments,
			"INSERT INTO payments SELECT row_number() OVER (), UPPER(id::text), CASE WHEN special = 1 THEN 'SUCCESS' ELSE 'PENDING' END FROM orders"},
			Answers{Unpaid: "unpaid"},
			"10 of 40 unpaid orders have a payment in payments"},
		{"a payment whose callback was lost", "", "channel INT", "1", "1", "", []string{strings.Replace(payments, "VARCHAR(64)", "BIGINT", 1),
			"INSERT INTO payments SELECT id, id, 'PAID' FROM orders WHERE id IN (203)"},
			Answers{Keep: []string{"payments=ids"}}, "where: {id: {not: 203}}"},
		{"payments that name a number in text", "", "channel INT", "1", "1", "", []string{payments,
			"INSERT INTO payments SELECT id, CONCAT(id), CASE WHEN special = 1 THEN 'SUCCESS' ELSE 'PENDING' END FROM orders"}, Answers{Unpaid: "unpaid"},
			"10 of 40 unpaid orders have a payment in payments"},
		{"a date", "", "release_date DATE", "NULL", "'2027-01-01'", "", nil, Answers{}, "release_date set: 10 of 40 unpaid, 0 of 100 closed"},
		{"orders that are paid after the delay", "", "paid_at BIGINT", "NULL", "NULL", "", []string{
			"UPDATE orders SET paid_at = created_at + CASE WHEN id <= 25 THEN 7200 ELSE 60 END WHERE status = 'paid'"}, Answers{},
			"25 of 100 paid orders, such as 25, 24, 23, 22, 21, were paid later than that"},
		{"an answer that keeps the orders of today alone", "", "is_gift SMALLINT NOT NULL", "0", "1", "", nil, Answers{Keep: []string{"unknown"}},
			"later orders of the same kind close after the delay"},
		{"names of statuses in two languages", "", "order_status_id INT NOT NULL", "1", "1", "", []string{
			"UPDATE orders SET order_status_id = CASE status WHEN 'unpaid' THEN 1 WHEN 'paid' THEN 2 ELSE 7 END",
			"CREATE TABLE order_status (order_status_id INT, language_id INT, name VARCHAR(20), PRIMARY KEY (order_status_id, language_id))",
			"INSERT INTO order_status VALUES (1, 1, 'Unpaid'), (1, 2, 'Offen'), (2, 1, 'Paid'), (2, 2, 'Bezahlt'), (7, 1, 'Canceled'), (7, 2, 'Storniert')",
			"ALTER TABLE orders DROP COLUMN status"}, Answers{}, "{column: order_status_id, from: 1, to: 7, paid: [2]}"},
		{"a closed status that no row has", "", "channel INT", "1", "1", "", nil, Answers{Closed: "600003"}, `to: "600003"`},
		{"an unpaid status that no row has", "", "channel INT", "1", "1", "", nil, Answers{Unpaid: "WAIT_PAY", Delay: time.Hour}, `from: "WAIT_PAY"`},
		{"nothing to close", "", "channel INT", "1", "1", "", nil, Answers{Unpaid: "none"}, "refused: --unpaid none: an order of orders never waits"},
		{"orders of another schema", "postgres", "channel INT", "1", "1", "", []string{"CREATE SCHEMA shop", "ALTER TABLE orders SET SCHEMA shop"}, Answers{},
			"Other schemas have tables: shop. Append search_path"},
		{"frozen stock", "", "channel INT", "1", "1", "", []string{"CREATE TABLE order_item (id INT PRIMARY KEY, order_id BIGINT, sku_id BIGINT, quantity INT)",
			"CREATE TABLE sku (id INT PRIMARY KEY, stock INT, lock_stock INT)"}, Answers{}, "take its pieces from sku.stock and add them to lock_stock"},
		{"stock without what is frozen", "", "channel INT", "1", "1", "", []string{
			"CREATE TABLE order_item (id INT PRIMARY KEY, order_id BIGINT, sku_id BIGINT, quantity INT)",
			"CREATE TABLE sku (id INT PRIMARY KEY, stock INT, lock_stock INT)"},
			Answers{Stock: "reserved"}, "{table: sku, sku: {column: id, type: integer}, reserved: lock_stock}"},
	} {
		for name, server := range servers(t) {
			if c.only != "" && !strings.Contains(c.only, name) {
				continue
			}
			t.Run(name+"/"+c.name, func(t *testing.T) {
				id, number := "BIGINT", func(n int) string { return fmt.Sprint(n) }
				if c.id != "" {
					id, number = c.id, func(n int) string { return fmt.Sprintf("'%08x-0000-4000-8000-00000000000a'", n) }
				}
				all := []string{"CREATE TABLE orders (id " + id + " PRIMARY KEY, status VARCHAR(20) NOT NULL, created_at BIGINT NOT NULL, special SMALLINT, " +
					c.column + ")"}
				var rows []string
				for n := range 240 {
					status, ago, value, special := "paid", 3000*60+n*300, c.usual, 0
					switch {
					case n >= 200:
						status, ago = "unpaid", (n-199)*40
						if n%4 == 0 {
							value, special = c.special, 1
						}
					case n >= 100:
						status = "closed"
					}
					rows = append(rows, fmt.Sprintf("(%s, '%s', %d, %d, %s)", number(n+1), status, time.Now().Unix()-int64(ago), special, value))
				}
				all = append(all, "INSERT INTO orders VALUES "+strings.Join(rows, ", "))
				if !strings.Contains(strings.Join(c.further, ""), "special") {
					all = append(all, "ALTER TABLE orders DROP COLUMN special")
				}
				c.answers.Zone, c.answers.Table = "UTC", "orders"
				if c.answers.Delay == 0 {
					c.answers.Delay = 30 * time.Minute
				}
				p := open(t, server, "orders", append(all, c.further...)).Propose(c.answers)
				got := fmt.Sprintf("refused: %s\n%s%+v\ndoubts: %q", p.Refused, p.YAML, p.Questions, p.Doubts)
				expect.That(t, strings.Contains(got, c.want), "%q is not in:\n%s", c.want, got)
			})
		}
	}
}

// Of a table whose newest rows cannot be read in time no others are read: init refuses it, with the index that helps.
func TestRead_NewestRowsThatCannotBeReadInTime(t *testing.T) {
	for name, server := range servers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, server, "orders", []string{"CREATE TABLE orders (no VARCHAR(20) PRIMARY KEY, status VARCHAR(20) NOT NULL, created_at BIGINT NOT NULL)",
				"INSERT INTO orders VALUES ('1', 'unpaid', 1790000000), ('2', 'closed', 1790000000)"})
			other := must.Get(f.store.DB().Conn(t.Context()))(t)
			lock := map[bool]string{true: "BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE", false: "LOCK TABLES orders WRITE"}[f.catalog().schemas != ""]
			must.Get(other.ExecContext(t.Context(), lock))(t)
			defer func() { _ = other.Raw(func(any) error { return driver.ErrBadConn }) }()
			f.Tables[0].read = false
			f.ReadRows(t.Context(), "orders")
			got, want := f.Propose(Answers{Table: "orders"}).Refused, "in time, and older ones may say something else. An index on orders.created_at helps"
			if f.catalog().schemas != "" { // a wait for a lock ends earlier than a read
				want = "its rows cannot be read"
			}
			expect.That(t, strings.Contains(got, want), "%s", got)
		})
	}
}

func TestColumn_LabelsHaveNoCase(t *testing.T) {
	c := &column{labels: map[string]string{"pay_wait": "等待支付"}}
	expect.Equal(t, c.label("PAY_WAIT"), "等待支付", "the label of a value in another case")
}

func TestHolds_ZeroIsNothing(t *testing.T) {
	for _, v := range []any{nil, "", "0", "0.00", "-0.000", int64(0), false, "\x00", "0000-00-00 00:00:00"} {
		expect.That(t, !holds(v), "%q holds something", v)
	}
	for _, v := range []any{"5.00", "x", int64(-1), true, "\x01", "2026-01-01"} {
		expect.That(t, holds(v), "%q holds nothing", v)
	}
}
