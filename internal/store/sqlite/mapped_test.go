package sqlite_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// shops are examples of ../testdata/shops.txt with times as numbers.
var shops = []storetest.Shop{
	{
		Title: "OwnTables",
		Mapping: &mapping.Mapping{
			Orders: "t_order",
			ID:     mapping.Key{Column: "id", Type: mapping.Integer},
			Status: mapping.Status{Column: "state", From: mapping.OneOf{mapping.TextValue("WAIT_PAY"), mapping.TextValue("WAIT_BANK")},
				To: mapping.TextValue("CLOSED")},
			Due:      mapping.TimeColumn{Column: "pay_deadline", Type: mapping.UnixSeconds},
			Created:  &mapping.TimeColumn{Column: "create_time", Type: mapping.UnixSeconds},
			ClosedAt: []*mapping.TimeColumn{{Column: "finish_time", Type: mapping.UnixSeconds}},
			Category: "kind",
			Where: []mapping.Condition{{Column: "deleted", Values: mapping.Values{Any: []mapping.Value{mapping.IntValue(77), {}}, Not: true}},
				mapping.Is("hidden", mapping.Value{})},
			NotBefore:    time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC),
			OnClose:      []string{"INSERT INTO close_log (order_id) SELECT id FROM t_order WHERE id IN ({ids})"},
			EventColumns: []string{"state", "hidden"},
			Attributes:   []mapping.Attribute{{Name: "kind of goods", Column: "kind"}, {Name: "nothing", Column: "hidden"}, {Name: "deleted", Column: "deleted"}},
			Items:        &mapping.Items{Table: "t_order_line", Order: "order_id", SKU: "goods_id", Quantity: "num"},
			Stock:        []*mapping.Stock{{Table: "t_goods_stock", SKU: mapping.Key{Column: "goods_id", Type: mapping.Integer}, Available: "free", Reserved: "held"}},
		},
		DDL: []string{
			"CREATE TABLE t_order (id INTEGER PRIMARY KEY, state TEXT NOT NULL, kind TEXT, create_time INTEGER, pay_deadline INTEGER, finish_time INTEGER, deleted " +
				"INTEGER NOT NULL DEFAULT 0, hidden INTEGER)",
			"CREATE TABLE close_log (order_id INTEGER PRIMARY KEY)",
			"CREATE INDEX state_deadline ON t_order (state, pay_deadline, id)",
			"CREATE TABLE t_order_line (order_id INTEGER, goods_id INTEGER, num INTEGER)",
			"CREATE TABLE t_goods_stock (goods_id INTEGER PRIMARY KEY, free INTEGER, held INTEGER)",
		},
		Paid: mapping.TextValue("PAID"), SKUs: [2]string{"10", "20"}, ID: strconv.Itoa,
	},
	{
		Title: "Months",
		Mapping: &mapping.Mapping{
			Orders: "orders_{yyyyMM}",
			ID:     mapping.Key{Column: "order_no"},
			Status: mapping.Status{Column: "status", From: mapping.OneOf{mapping.IntValue(10), mapping.IntValue(11)},
				To: mapping.IntValue(90), Paid: []mapping.Value{mapping.IntValue(20)}},
			Due:     mapping.TimeColumn{Column: "expire_ms", Type: mapping.UnixMillis},
			Created: &mapping.TimeColumn{Column: "created_ms", Type: mapping.UnixMillis},
			Version: "revision",
			Items:   &mapping.Items{Table: "order_lines_{yyyyMM}", Order: "order_no", SKU: "sku", Quantity: "quantity"},
			Stock:   []*mapping.Stock{{Table: "sku_stock", SKU: mapping.Key{Column: "sku"}, Available: "available"}},
			Shards:  &mapping.Shards{On: mapping.OnCreated, Zone: "+08:00"},
		},
		DDL: []string{
			"CREATE TABLE orders_202611 (order_no TEXT PRIMARY KEY, status INTEGER, created_ms INTEGER, expire_ms INTEGER, revision INTEGER NOT NULL DEFAULT 1)",
			"CREATE TABLE order_lines_202611 (order_no TEXT, sku TEXT, quantity INTEGER)",
			"CREATE TABLE sku_stock (sku TEXT PRIMARY KEY, available INTEGER)",
		},
		Month: "202611",
		Paid:  mapping.IntValue(20), SKUs: [2]string{"ink", "pen"}, ID: func(n int) string { return fmt.Sprintf("NO%06d", n) },
	},
	{
		Title: "ConfirmReceipt",
		Mapping: &mapping.Mapping{
			Orders:  "shipments",
			ID:      mapping.Key{Column: "id"},
			Status:  mapping.Status{Column: "status", From: mapping.OneOf{mapping.TextValue("shipped")}, To: mapping.TextValue("confirmed")},
			Due:     mapping.TimeColumn{Column: "confirm_by", Type: mapping.UnixMillis},
			Version: "version",
			Event:   "order.receipt_confirmed",
		},
		DDL: []string{
			"CREATE TABLE shipments (id TEXT PRIMARY KEY, status TEXT, shipped_at INTEGER, version INTEGER DEFAULT 1," +
				" confirm_by INTEGER GENERATED ALWAYS AS (CASE WHEN shipped_at > 0 THEN shipped_at + 864000000 END) STORED)",
		},
		DueFrom: "shipped_at", DueAt: 10 * 24 * time.Hour,
		Paid: mapping.TextValue("complaint"), ID: func(n int) string { return fmt.Sprintf("s%06d", n) },
	},
}

func TestSuite_OwnTables(t *testing.T) {
	for _, shop := range shops {
		storetest.RunMapped(t, shop, inMemory)
	}
}

func TestSuite_OwnTablesByRule(t *testing.T) {
	storetest.RunByRule(t, storetest.ByRule(shops[0], "state, pay_deadline", "state, create_time"), inMemory)
	storetest.RunMapped(t, storetest.ByRule(shops[1]), inMemory)
}

func TestSuite_StockByLocation(t *testing.T) { storetest.RunWarehouses(t, inMemory) }

func TestSuite_OnClose(t *testing.T) { storetest.RunOnClose(t, inMemory) }

// An order of the last day of a month is due in the next month, or with the longest delay in the month after it. Too small a Back is refused, and the
// smallest that is accepted finds the order.
func TestShards_NoOrderIsLostAtTheEndOfAMonth(t *testing.T) {
	zone := time.FixedZone("", 8*3600)
	created := time.Date(2026, 1, 31, 23, 50, 0, 0, zone)
	for _, delay := range []time.Duration{30 * time.Minute, orderclose.DefaultMaxDelay} {
		m, shards := *shops[1].Mapping, *shops[1].Mapping.Shards
		m.Shards = &shards
		due := created.Add(delay)
		o := sqlite.Options{Orders: &m, Now: func() time.Time { return due.Add(time.Hour) }}
		for shards.Months = 1; shards.Months <= 2; shards.Months++ {
			s, err := sqlite.OpenWith(sqlite.Memory, o)
			expect.That(t, err != nil && strings.Contains(err.Error(), "shards.months"), "back %d: %v, %v", shards.Months, s, err)
		}
		shards.Months = shards.MinMonths(delay)
		s := must.Get(sqlite.OpenWith(sqlite.Memory, o))(t)
		defer s.Close()
		must.Do(t, s.Migrate(t.Context()))
		for _, ddl := range shops[1].DDL {
			must.Get(s.DB().ExecContext(t.Context(), strings.ReplaceAll(ddl, shops[1].Month, "202601")))(t)
		}
		must.Get(s.DB().ExecContext(t.Context(), "INSERT INTO orders_202601 (order_no, status, created_ms, expire_ms) VALUES ('o', 10, ?, ?)",
			created.UnixMilli(), due.UnixMilli()))(t)
		page, err := s.Overdue(t.Context(), o.Now(), orderclose.Order{}, 10)
		expect.That(t, err == nil && len(page) == 1, "after %v a sweep finds %+v, %v", delay, page, err)
		out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "o", CreatedAt: created, Due: due}})
		expect.That(t, err == nil && out[0].Verdict == orderclose.Closed, "after %v: %+v, %v", delay, out, err)
	}
}

// A process has known a month's table for long when it is altered. The error of the next read makes the process check all tables again, and after
// they are fixed the next list, a minute later, has all of them.
func TestShards_ATableThatIsAlteredLaterIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(sqlite.OpenWith(sqlite.Memory, sqlite.Options{Orders: shops[1].Mapping}))(t)
		defer s.Close()
		must.Do(t, s.Migrate(t.Context()))
		now := time.Now()
		months := []string{now.AddDate(0, -1, 0).Format("200601"), now.Format("200601")}
		for _, month := range months {
			for _, ddl := range shops[1].DDL {
				must.Get(s.DB().ExecContext(t.Context(), strings.ReplaceAll(strings.Replace(ddl, "TABLE", "TABLE IF NOT EXISTS", 1), shops[1].Month, month)))(t)
			}
			must.Get(s.DB().ExecContext(t.Context(), "INSERT INTO orders_"+month+" (order_no, status, created_ms, expire_ms) VALUES (?, 10, 1000, 2000)", month))(t)
		}
		overdue := func() (n int, err error) {
			page, err := s.Overdue(t.Context(), now, orderclose.Order{}, 10)
			return len(page), err
		}
		wantOverdue := func(want int, when string) {
			t.Helper()
			n, err := overdue()
			expect.That(t, n == want && err == nil, "%s: %d, %v", when, n, err)
		}
		wantOverdue(2, "at first")
		must.Get(s.DB().ExecContext(t.Context(), "ALTER TABLE orders_"+months[0]+" RENAME COLUMN expire_ms TO gone"))(t)
		_, err := overdue()
		expect.That(t, err != nil && s.SetAside(true) == nil, "at once: %v, %v", err, s.SetAside(true))
		time.Sleep(10 * time.Second)
		_, err = overdue()
		expect.That(t, err != nil, "a read of the altered table: %v", err)
		wantOverdue(1, "after the error")
		expect.Says(t, s.SetAside(false), "orders_"+months[0], "what is left out")
		must.Get(s.DB().ExecContext(t.Context(), "ALTER TABLE orders_"+months[0]+" RENAME COLUMN gone TO expire_ms"))(t)
		time.Sleep(time.Minute)
		wantOverdue(2, "after it is fixed")
	})
}
