package store_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// Policies hide the orders of another tenant. The user neither owns the tables nor may bypass the policies.
func TestPostgres_RowSecurityThatHidesOrdersIsRefused(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		m := ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: integer}
  status: {column: state, from: 0, to: 4, paid: [1]}
  due: {column: due, type: unix_ms}
  items: {table: t_line, order: oid, sku: sku, quantity: num}
  stock: {table: t_stock, sku: sku, available: free}
  on_close: ["UPDATE t_coupon SET used = false WHERE oid IN ({ids})"]
`)
		dsn := ownDatabase(t)
		owner := openShop(t, dsn, storetest.Shop{Mapping: m},
			"CREATE TABLE t_order (id BIGINT PRIMARY KEY, tenant INT NOT NULL, state INT NOT NULL, due BIGINT NOT NULL)",
			"CREATE INDEX st ON t_order (state, due, id)",
			"CREATE TABLE t_line (id SERIAL PRIMARY KEY, oid BIGINT NOT NULL, sku TEXT NOT NULL, num INT NOT NULL)",
			"CREATE INDEX ol ON t_line (oid)",
			"CREATE TABLE t_stock (sku TEXT PRIMARY KEY, free INT NOT NULL)",
			"CREATE TABLE t_coupon (oid BIGINT NOT NULL, used BOOLEAN NOT NULL)",
			"CREATE INDEX oc ON t_coupon (oid)",
			"INSERT INTO t_order VALUES (1, 1, 0, 1000), (2, 2, 0, 1000)",
		)
		role := must.Get(url.Parse(dsn))(t)
		name := "closer_" + strings.TrimPrefix(role.Path, "/")
		exec(t, owner.DB(), "CREATE ROLE "+name+" LOGIN")
		t.Cleanup(func() {
			must.Get(owner.DB().Exec("DROP OWNED BY " + name + "; DROP ROLE " + name))(t)
		})
		exec(t, owner.DB(), "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+name)
		exec(t, owner.DB(), "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO "+name)
		role.User = url.User(name)
		closer := open(t, store.Options{DSN: role.String(), Orders: m})
		now := must.Get(owner.Now(t.Context()))(t)
		sweep := func(s *store.Store) string {
			orders, err := s.Overdue(t.Context(), now, orderclose.Order{}, 10)
			return fmt.Sprint(len(orders), " ", err)
		}
		must.Do(t, closer.CheckMapping(t.Context()))
		expect.Equal(t, sweep(closer), "2 <nil>", "without policies")
		for _, table := range []string{"t_order", "t_line", "t_coupon", "receipts"} {
			exec(t, owner.DB(), "ALTER TABLE "+table+" ENABLE ROW LEVEL SECURITY")
			exec(t, owner.DB(), "CREATE POLICY one ON "+table+" USING ("+map[bool]string{true: "tenant = 1", false: "true"}[table == "t_order"]+")")
			err := closer.CheckMapping(t.Context())
			if wrong, ok := errors.AsType[*store.MappingError](err); !ok || len(wrong.Problems) != 1 || wrong.Problems[0].Accept != mapping.RowSecurity ||
				!strings.Contains(err.Error(), "table "+table+" ") {
				t.Errorf("policies of %s: %v", table, err)
			}
			if got := sweep(closer); !strings.Contains(got, "0 ") || !strings.Contains(got, "row-level security of table "+table+" applies") {
				t.Errorf("a sweep with policies of %s: %s", table, got)
			}
			// A closer that runs asks the definitions no more, and loses no stock of lines that it does not see.
			if _, err := closer.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "1"}}); err == nil ||
				!errors.Is(err, orderclose.ErrNoOrderAtFault) || !strings.Contains(err.Error(), "BYPASSRLS") {
				t.Errorf("a close with policies of %s: %v", table, err)
			}
			if table == "t_order" || table == "receipts" {
				_, err := paid(t, closer, "1", "p1")
				expect.That(t, err != nil && strings.Contains(err.Error(), "row-level security"), "a payment with policies of %s: %v", table, err)
			}
			expect.Says(t, expect.Err(closer.AuditParts(t.Context())), "row-level security of table "+table+" applies", "an audit with policies of %s", table)
			expect.Equal(t, sweep(owner), "2 <nil>", "a sweep of the owner")
			accepting := *m
			accepting.Accept = []string{mapping.RowSecurity}
			tolerant := open(t, store.Options{DSN: role.String(), Orders: &accepting})
			must.Do(t, tolerant.CheckMapping(t.Context()))
			out, err := tolerant.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "3"}})
			must.That(t, err == nil && out[0].Verdict == orderclose.NotFound, "a close with accepted policies of %s: %v, %v", table, out, err)
			notes := must.Get(tolerant.MappingHints(t.Context()))(t)
			expect.That(t, strings.Contains(strings.Join(notes, "; "), "row-level security of table "+table), "an accepted policy leaves no note: %q", notes)
			exec(t, owner.DB(), "ALTER TABLE "+table+" DISABLE ROW LEVEL SECURITY")
		}
	})
}
