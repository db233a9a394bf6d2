package store_test

import (
	"os"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// paymentsPage returns the statements of docs/payments.md for shops, without their indent.
func paymentsPage(t *testing.T) (blocks []string) {
	t.Helper()
	data := must.Get(os.ReadFile("../../docs/payments.md"))(t)
	_, section, _ := strings.Cut(string(data), "\n## What your shop must do\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, rest := range strings.Split(section, "```sql\n")[1:] {
		block, _, _ := strings.Cut(rest, "```")
		blocks = append(blocks, strings.TrimSpace(block))
	}
	must.That(t, len(blocks) == 3, "docs/payments.md has %d statements, want the table, the second check, and that of another table", len(blocks))
	return blocks
}

// A shop records a payment, checks again, and tells orderclose-payments about it by the statements of docs/payments.md.
func TestMySQL_TheStatementsOfThePaymentsPage(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		blocks := paymentsPage(t)
		s := open(t, store.Options{DSN: migratedDatabase(t)})
		check := checker(t, s, blocks)
		exec(t, s.DB(), "INSERT INTO orders (id, category, status, version, created_at, expire_at) VALUES ('a', '', 0, 1, UTC_TIMESTAMP(3), "+
			"UTC_TIMESTAMP(3) + INTERVAL 1 HOUR)")
		check("unpaid and not due", blocks[1], 1)
		exec(t, s.DB(), "UPDATE orders SET status = 1")
		check("paid", blocks[1], 0)
		exec(t, s.DB(), "UPDATE orders SET status = 0, expire_at = UTC_TIMESTAMP(3)")
		check("due", blocks[1], 0)

		const seldom = "SELECT COUNT(*) FROM order_payments WHERE order_id IN ('a') AND (reference IS NOT NULL OR started_at > NOW() - INTERVAL 10 MINUTE)"
		page := must.Get(os.ReadFile("../../docs/payments.md"))(t)
		_, condition, _ := strings.Cut(seldom, "('a') ")
		expect.That(t, strings.Contains(string(page), condition), "docs/payments.md has no %q", condition)
		for _, row := range []struct {
			set  string
			want int
		}{{"reference = NULL", 1}, {"started_at = NOW() - INTERVAL 11 MINUTE", 0}, {"reference = 'cs_1'", 1}} {
			exec(t, s.DB(), "UPDATE order_payments SET "+row.set)
			var n int
			must.Do(t, s.DB().QueryRowContext(t.Context(), seldom).Scan(&n))
			expect.That(t, n == row.want, "after %s the query returns %d rows, want %d", row.set, n, row.want)
		}
	})
}

// The same with the shop's own table, whose column has the time of +08:00.
func TestMySQL_TheSecondCheckOfThePaymentsPageOnATableOfTheShop(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		blocks := paymentsPage(t)
		s := open(t, store.Options{DSN: ownDatabase(t)})
		exec(t, s.DB(), "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, state VARCHAR(9) NOT NULL, pay_deadline DATETIME(3) NULL)")
		check := checker(t, s, blocks)
		update, _, _ := strings.Cut(blocks[1], "WHERE")
		exec(t, s.DB(), "INSERT INTO orders VALUES ('a', 'WAIT_PAY', UTC_TIMESTAMP(3) + INTERVAL 8 HOUR + INTERVAL 1 MINUTE)")
		check("not due", update+blocks[2], 1)
		exec(t, s.DB(), "UPDATE orders SET pay_deadline = NULL")
		check("never due", update+blocks[2], 1)
		exec(t, s.DB(), "UPDATE orders SET pay_deadline = UTC_TIMESTAMP(3) + INTERVAL 8 HOUR")
		check("due", update+blocks[2], 0)
		exec(t, s.DB(), "UPDATE orders SET pay_deadline = NULL, state = 'PAID'")
		check("paid", update+blocks[2], 0)
	})
}

// checker creates the table of payments with the payment 17 of order a, and returns a function that runs a second check: it changes so many rows.
func checker(t *testing.T, s *store.Store, blocks []string) func(what, statement string, want int64) {
	t.Helper()
	exec(t, s.DB(), strings.TrimSuffix(blocks[0], ";"))
	exec(t, s.DB(), "INSERT INTO order_payments (id, order_id) VALUES (17, 'a')")
	return func(what, statement string, want int64) {
		t.Helper()
		exec(t, s.DB(), "UPDATE order_payments SET reference = NULL")
		result := must.Get(s.DB().ExecContext(t.Context(), statement))(t)
		n, err := result.RowsAffected()
		expect.That(t, err == nil && n == want, "%s: the second check changes %d rows, want %d; %v", what, n, want, err)
	}
}
