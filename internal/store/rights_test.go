package store_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/rights"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
	"github.com/orderclose/orderclose/internal/wire"
)

// asUserOf creates a user with the privileges of docs/data/access.yaml, and returns its DSN.
func asUserOf(t *testing.T, admin *store.Store, dsn string, shop storetest.Shop) string {
	t.Helper()
	return asUserWith(t, admin, dsn, shop, must.Get(rights.Read("../.."))(t))
}

func asUserWith(t *testing.T, admin *store.Store, dsn string, shop storetest.Shop, rows rights.Rows) string {
	t.Helper()
	own, change := newUser(t, admin, dsn)
	names := map[string]string{"orders": shop.Mapping.Orders, "order_items": shop.Mapping.Items.Table, "stock": shop.Mapping.Stock[0].Table}
	for _, g := range rows.Grants() {
		change("GRANT", strings.Join(g.Privileges, ", ")+" ON "+cmp.Or(names[g.Table], g.Table))
	}
	return own
}

// A user who may write only the columns that a close changes can close orders.
func TestMySQL_UpdateOnTheWrittenColumnsSuffices(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := migratedDatabase(t)
		admin := openMigrated(t, store.Options{DSN: dsn})
		overdue(t, admin, "order")
		own, change := newUser(t, admin, dsn)
		change("GRANT", "SELECT, UPDATE (status, closed_at, version) ON orders", "SELECT, UPDATE (available, reserved) ON stock",
			"SELECT, UPDATE (line_no) ON order_items", "INSERT ON receipts", "INSERT ON outbox_events", "SELECT ON pauses")
		s := open(t, store.Options{DSN: own})
		must.Do(t, s.Writable(t.Context()))
		wantVerdicts(t, s, orderclose.Closed, orderclose.CloseRequest{OrderID: "order"})
	})
}

// Who asks what a close would do, and which orders are closed, needs SELECT on the mapped tables, and no table of ours. The mapping has
// statements of a close, which this user may not run.
func TestMySQL_APreviewOnlyReads(t *testing.T) { eachServer(t, previewOnlyReads) }

func previewOnlyReads(t *testing.T) {
	dsn, shop := ownDatabase(t), withConstants(examples(t)[0])
	admin := open(t, store.Options{DSN: dsn, Orders: shop.Mapping})
	for _, ddl := range shop.DDL {
		exec(t, admin.DB(), ddl)
	}
	exec(t, admin.DB(), "INSERT INTO t_order (id, state, create_time, pay_deadline) VALUES (1, 'WAIT_PAY', '2026-01-01', '2026-01-01')")
	exec(t, admin.DB(), "INSERT INTO t_order (id, state, create_time, pay_deadline, finish_time) VALUES (2, 'CLOSED', '2026-01-01', "+
		"'2026-01-01', '2026-01-01 00:00:09')")
	reads := rights.Rows{Database: [][]string{{"reader", "orders", "SELECT"}, {"reader", "order_items", "SELECT"}, {"reader", "stock", "SELECT"}}}
	s := open(t, store.Options{DSN: asUserWith(t, admin, dsn, shop, reads), Orders: shop.Mapping})
	must.Do(t, s.Ping(t.Context()))
	must.Do(t, s.CheckTables(t.Context()))
	out := must.Get(s.PreviewClose(t.Context(), "", []orderclose.CloseRequest{{OrderID: "1"}, {OrderID: "2"}}))(t)
	expect.That(t, out[0].Verdict == orderclose.Closed && out[1].Verdict == orderclose.AlreadyClosed, "%+v", out)
	parts := must.Get(s.AuditParts(t.Context()))(t)
	due, closedAt := out[0].Due, map[string]time.Time{}
	for _, part := range parts {
		part.RowsOnly = s.CanAudit(t.Context()) != nil
		page := must.Get(s.AuditPage(t.Context(), part, due, due.Add(time.Hour), orderclose.Order{}, 10))(t)
		for _, r := range page {
			closedAt[r.ID] = r.ClosedAt
		}
	}
	expect.That(t, len(closedAt) == 2 && closedAt["1"].IsZero() && closedAt["2"].Equal(due.Add(9*time.Second)), "due at %v, closed at %v", due, closedAt)
}

func publishAll(_ context.Context, rows []wire.OutboxRow) (done []int64) {
	for _, r := range rows {
		done = append(done, r.ID)
	}
	return done
}

// The server does not list tables on which the user has no privilege.
func TestMigrated_AMissingGrantIsNotAMissingSchema(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := migratedDatabase(t)
		own, change := newUser(t, openMigrated(t, store.Options{DSN: dsn}), dsn)
		change("GRANT", "SELECT ON orders")
		err := open(t, store.Options{DSN: own}).Migrated(t.Context())
		expect.Says(t, err, "grant SELECT on the table orderclose_schema", "a missing grant")
		change("GRANT", "SELECT ON *")
		must.Do(t, open(t, store.Options{DSN: own}).Migrated(t.Context()))
	})
}
