package store_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/rights"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
	"github.com/orderclose/orderclose/internal/wire"
)

// The privileges in docs/data/access.yaml suffice for a reminder, for a close, for publishing their events from the
// outbox, for a sweep and for a late payment.
func TestMySQL_TheDocumentedPrivilegesSuffice(t *testing.T) { eachServer(t, rightsSuffice) }

func rightsSuffice(t *testing.T) {
	dsn, shop := ownDatabase(t), examples(t)[0]
	admin := openShop(t, dsn, shop, "INSERT INTO t_order (id, state, create_time, pay_deadline) VALUES (1, 'WAIT_PAY', '2026-01-01', '2026-01-01')",
		"INSERT INTO t_order_line (order_id, goods_id, num) VALUES (1, 10, 2)", "INSERT INTO t_goods_stock VALUES (10, 5, 5)")
	s := open(t, store.Options{DSN: asUserOf(t, admin, dsn, shop), Orders: shop.Mapping})

	must.Do(t, s.Migrated(t.Context()))
	must.Do(t, s.CheckMapping(t.Context()))
	must.Do(t, s.Writable(t.Context()))
	must.Do(t, s.Probe(t.Context()))
	exec(t, admin.DB(), "INSERT INTO t_order (id, state, create_time, pay_deadline) VALUES (2, 'WAIT_PAY', '2026-01-01', '2036-01-01')")
	waiting := must.Get(s.DueBetween(t.Context(), time.Now(), time.Now().Add(20*365*24*time.Hour), orderclose.Order{}, 10))(t)
	late, _, err := s.Remind(t.Context(), []store.Reminder{{Order: waiting[0], Deadline: waiting[0].Due, Before: time.Hour}})
	if must.Do(t, err); len(late) != 1 {
		t.Errorf("%d reminders", len(late))
	}
	must.Do(t, s.ForgetReminders(t.Context(), time.Now()))
	out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "1"}}))(t)
	expect.That(t, out[0].Verdict == orderclose.Closed, "%+v", out)
	n, err := s.Dispatch(t.Context(), wire.EventOutbox, 0, 10, publishAll)
	if must.Do(t, err); n != 2 {
		t.Errorf("%d events", n)
	}
	must.Get(s.Dispatch(t.Context(), wire.ScheduleOutbox, 0, 10, publishAll))(t)
	tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
	recorded, err := s.RecordPayment(t.Context(), orderclose.SQL(tx), store.LatePayment{OrderID: "1", PaymentID: "p"})
	must.Do(t, errors.Join(err, tx.Commit()))
	expect.That(t, recorded == store.RecordedLate, "payment after the close: %s", recorded)
	must.Do(t, s.EndSweep(t.Context(), "p", time.Now().Truncate(time.Hour), "finished", 0))
	must.Get(s.AuditParts(t.Context()))(t)
}

// asUserOf creates a user with the privileges of docs/data/access.yaml, and returns its DSN.
func asUserOf(t *testing.T, admin *store.Store, dsn string, shop storetest.Shop) string {
	t.Helper()
	return asUserWith(t, admin, dsn, shop, must.Get(rights.Core("../.."))(t))
}

func asUserWith(t *testing.T, admin *store.Store, dsn string, shop storetest.Shop, rows rights.Rows) string {
	t.Helper()
	cfg := must.Get(mysql.ParseDSN(dsn))(t)
	user := "oc_" + strings.ToLower(rand.Text()[:16])
	exec(t, admin.DB(), "CREATE USER "+user+"@'%'")
	t.Cleanup(func() { _, _ = admin.DB().Exec("DROP USER " + user + "@'%'") })
	names := map[string]string{"orders": shop.Mapping.Orders, "order_items": shop.Mapping.Items.Table, "stock": shop.Mapping.Stock[0].Table}
	for _, g := range rows.Grants() {
		exec(t, admin.DB(), "GRANT "+strings.Join(g.Privileges, ", ")+" ON "+cfg.DBName+"."+cmp.Or(names[g.Table], g.Table)+" TO "+user+"@'%'")
	}
	cfg.User, cfg.Passwd = user, ""
	return cfg.FormatDSN()
}

// A user who may write only the columns that a close changes can close orders.
func TestMySQL_UpdateOnTheWrittenColumnsSuffices(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		admin := openMigrated(t, store.Options{})
		overdue(t, admin, "order")
		var name string
		must.Do(t, admin.DB().QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
		cfg := must.Get(mysql.ParseDSN(realDSN(t)))(t)
		cfg.DBName, cfg.User, cfg.Passwd = name, "oc_"+strings.ToLower(rand.Text()[:16]), ""
		exec(t, admin.DB(), "CREATE USER "+cfg.User+"@'%'")
		defer exec(t, admin.DB(), "DROP USER "+cfg.User+"@'%'")
		for table, privileges := range map[string]string{
			"orders": "SELECT, UPDATE (status, closed_at, version)", "stock": "SELECT, UPDATE (available, reserved)",
			"order_items": "SELECT, UPDATE (line_no)", "receipts": "INSERT", "outbox_events": "INSERT", "pauses": "SELECT",
		} {
			exec(t, admin.DB(), "GRANT "+privileges+" ON "+name+"."+table+" TO "+cfg.User+"@'%'")
		}
		s := open(t, store.Options{DSN: cfg.FormatDSN()})
		must.Do(t, s.Writable(t.Context()))
		out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "order"}})
		if must.Do(t, err); out[0].Verdict != orderclose.Closed {
			t.Errorf("%+v", out)
		}
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

// If available is NULL, a close would remove stock from reserved and lose it.
func TestMySQL_StockIsNotAddedToNULL(t *testing.T) { eachServer(t, stockIsNotAddedToNULL) }

func stockIsNotAddedToNULL(t *testing.T) {
	shop := examples(t)[0]
	s := openShop(t, ownDatabase(t), shop, "ALTER TABLE t_goods_stock MODIFY free INT NULL",
		"INSERT INTO t_order (id, state, create_time, pay_deadline) VALUES (1, 'WAIT_PAY', '2026-01-01', '2026-01-01')",
		"INSERT INTO t_order_line (order_id, goods_id, num) VALUES (1, 10, 2)", "INSERT INTO t_goods_stock VALUES (10, NULL, 5)")
	_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "1"}})
	expect.That(t, err != nil && strings.Contains(err.Error(), "NULL"), "the order was closed, or nothing says why not: %v", err)
	exec(t, s.DB(), "UPDATE t_goods_stock SET free = 1")
	if _, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "1"}}); err != nil {
		t.Error(err)
	}
}
