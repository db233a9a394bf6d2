package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// lockedShop is a table of orders whose column touched has a type; %s is the type.
const lockedShop = "CREATE TABLE shop_order (id BIGINT PRIMARY KEY, status INT NOT NULL, pay_by BIGINT NULL, end_time BIGINT NULL, gone_at %[2]s NULL, " +
	"touched %[1]s NULL, rev INT NOT NULL DEFAULT 1, payment VARCHAR(64) NULL)"

// The type of a column in MySQL and in PostgreSQL, and how it is mapped.
var lockTypes = []struct {
	mysql, postgres string
	column          mapping.TimeColumn
}{
	{"DATETIME", "timestamp(0)", mapping.TimeColumn{Type: mapping.DateTime, Zone: "+08:00", Precision: mapping.Seconds}},
	{"DATETIME(3)", "timestamp(3)", mapping.TimeColumn{Type: mapping.DateTime, Zone: "Europe/Berlin", Precision: mapping.Millis}},
	{"DATETIME(6)", "timestamp(6)", mapping.TimeColumn{Type: mapping.DateTime, Zone: "UTC", Precision: mapping.Micros}},
	{"TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", "timestamptz(0)", mapping.TimeColumn{Type: mapping.Timestamp, Precision: mapping.Seconds}},
	{"TIMESTAMP(6)", "timestamptz(6)", mapping.TimeColumn{Type: mapping.Timestamp, Precision: mapping.Micros}},
	{"INT", "bigint", mapping.TimeColumn{Type: mapping.UnixSeconds}},
	{"BIGINT", "bigint", mapping.TimeColumn{Type: mapping.UnixMillis}},
}

func TestLocks_EachChangeOfAnOrderChangesThem(t *testing.T) { eachDatabase(t, eachChangeChangesLocks) }

// Closes and payments of orders whose rows the shop wrote in the same second, in the second before, or with a clock that is a minute ahead.
func eachChangeChangesLocks(t *testing.T) {
	for _, c := range lockTypes {
		t.Run(c.mysql, func(t *testing.T) {
			dsn := ownDatabase(t)
			lock, gone := c.column, c.column
			kind, nullable := c.mysql, strings.Fields(c.mysql)[0]
			if isPostgres(t) {
				if kind, nullable = c.postgres, c.postgres; lock.Type == mapping.Timestamp {
					lock.Type, gone.Type = mapping.TimestampTZ, mapping.TimestampTZ
				}
			}
			lock.Column, gone.Column = "touched", "gone_at"
			m := &mapping.Mapping{
				Orders: "shop_order", ID: mapping.Key{Column: "id", Type: mapping.Integer},
				Status: mapping.Status{Column: "status", From: mapping.OneOf{mapping.IntValue(101)},
					To: mapping.IntValue(103), Paid: []mapping.Value{mapping.IntValue(201)},
					Closed: []mapping.Value{mapping.IntValue(102)}},
				Due:      mapping.TimeColumn{Column: "pay_by", Type: mapping.UnixMillis},
				ClosedAt: []*mapping.TimeColumn{{Column: "end_time", Type: mapping.UnixMillis}, &gone},
				Lock:     &lock, Version: "rev", PaymentID: "payment",
			}
			s := open(t, store.Options{DSN: dsn, Orders: m})
			exec(t, s.DB(), fmt.Sprintf(lockedShop, kind, nullable))
			exec(t, s.DB(), "CREATE INDEX status_due ON shop_order (status, pay_by, id)")
			must.Do(t, s.Migrate(t.Context()))
			must.Do(t, s.CheckMapping(t.Context()))
			must.Do(t, s.Writable(t.Context()))
			codec := must.Get(lock.Codec())(t)
			now := must.Get(s.Now(t.Context()))(t)
			due := now.Add(-time.Minute).Truncate(time.Second)
			for id := 1; id <= 20; id++ {
				touched := []any{codec.Arg(now), codec.Arg(now.Add(-time.Second)), codec.Arg(now.Add(time.Minute)), nil}[id%4]
				exec(t, s.DB(), fmt.Sprintf("INSERT INTO shop_order (id, status, pay_by, touched) VALUES (%d, 101, %d, %s)", id, due.UnixMilli(), literal(touched)))
			}
			exec(t, s.DB(), "CREATE TABLE was AS SELECT id, touched, rev FROM shop_order")
			var ids []string
			for id := 1; id <= 12; id++ {
				ids = append(ids, fmt.Sprint(id))
			}
			verdicts := must.Get(closeOrders(t, s, ids...))(t)
			for _, v := range verdicts {
				expect.That(t, v == orderclose.Closed, "verdicts %v", verdicts)
			}
			for id := 13; id <= 16; id++ {
				must.Get(s.PayOrders(t.Context(), []orderclose.CloseRequest{{OrderID: fmt.Sprint(id)}}))(t)
			}
			for id := 17; id <= 20; id++ {
				tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
				must.Get(callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx), store.LatePayment{OrderID: fmt.Sprint(id), PaymentID: "p"}))(t)
				must.Do(t, tx.Commit())
			}
			stale := func(what string, rows int) {
				t.Helper()
				var n, same, closed int
				must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM was JOIN shop_order AS o ON o.id = was.id WHERE o.touched = was.touched OR "+
					"o.touched IS NULL").Scan(&n))
				must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM was JOIN shop_order AS o ON o.id = was.id WHERE o.rev <> was.rev + 1").Scan(&same))
				expect.That(t, n == 0 && same == 0, "%s: %d stale writes of a time and %d of a number would succeed", what, n, same)
				must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM shop_order WHERE end_time IS NOT NULL AND gone_at IS NOT NULL").Scan(&closed))
				expect.That(t, closed == rows, "%s: %d orders have all times of the close, want %d", what, closed, rows)
			}
			stale("first changes", 12)
			// The provider's callback of an order that is marked as paid already writes the payment only.
			exec(t, s.DB(), "DROP TABLE was")
			exec(t, s.DB(), "CREATE TABLE was AS SELECT id, touched, rev FROM shop_order WHERE id IN (13, 14, 15, 16)")
			for id := 13; id <= 16; id++ {
				tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
				must.Get(callback.RecordPayment(t.Context(), s.Payments, orderclose.SQL(tx), store.LatePayment{OrderID: fmt.Sprint(id), PaymentID: "p"}))(t)
				must.Do(t, tx.Commit())
			}
			stale("payments of paid orders", 12)
		})
	}
}

// literal writes an argument of a codec in a statement.
func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return "'" + v + "'"
	}
	return fmt.Sprint(v)
}
