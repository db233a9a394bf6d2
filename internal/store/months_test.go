package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// threeMonths opens a shop with tables of the last month, of this one and of the next, with an overdue order in each: last, this and next.
func threeMonths(t *testing.T, dsn string) (s *store.Store, shop storetest.Shop, months []string, reqs []orderclose.CloseRequest) {
	t.Helper()
	for _, of := range ownShops(t) {
		if of.Month != "" {
			shop = of
		}
	}
	s = open(t, store.Options{DSN: dsn, Orders: shop.Mapping})
	must.Do(t, s.Migrate(t.Context()))
	now := must.Get(s.Now(t.Context()))(t)
	this := time.Date(now.Year(), now.Month(), 15, 12, 0, 0, 0, time.UTC)
	for i, id := range []string{"last", "this", "next"} {
		created := this.AddDate(0, i-1, 0)
		months = append(months, created.Format("200601"))
		for _, ddl := range shop.DDL {
			if strings.Contains(ddl, shop.Month) || i == 0 {
				exec(t, s.DB(), strings.ReplaceAll(ddl, shop.Month, months[i]))
			}
		}
		putInMonth(t, s, months[i], id)
		reqs = append(reqs, orderclose.CloseRequest{OrderID: id, CreatedAt: created})
	}
	return s, shop, months, reqs
}

func putInMonth(t *testing.T, s *store.Store, month, id string) {
	t.Helper()
	exec(t, s.DB(), "INSERT INTO orders_"+month+" (order_no, status, created_ms, expire_ms) VALUES ('"+id+"', 10, 1000, 2000)")
}

// verdictsOf closes orders, and returns the verdicts, and the causes of those that failed.
func verdictsOf(t *testing.T, s *store.Store, reqs ...orderclose.CloseRequest) (all string) {
	t.Helper()
	for _, o := range must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, reqs))(t) {
		all += " " + o.OrderID + " " + string(o.Verdict)
		if o.Verdict == orderclose.Failed {
			all += " " + string(o.Cause)
		}
	}
	return strings.TrimSpace(all)
}

// A month that this user may only read is left out if others may be written. To a user who may only read, all of them are as good.
func TestMonths_AMissingPrivilegeStopsItsMonthOnly(t *testing.T) {
	eachServer(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		admin, shop, months, reqs := threeMonths(t, dsn)
		grant := func(privileges string, of ...string) *store.Store {
			own, change := newUser(t, admin, dsn)
			change("GRANT", "SELECT ON *")
			for _, month := range of {
				change("GRANT", privileges+" ON orders_"+month, privileges+" ON order_lines_"+month)
			}
			for _, table := range []string{"receipts", "outbox_events", "sku_stock"} {
				change("GRANT", "INSERT, UPDATE ON "+table)
			}
			return open(t, store.Options{DSN: own, Orders: shop.Mapping})
		}
		reader := grant("SELECT", months...)
		page := must.Get(reader.Overdue(t.Context(), time.Now(), orderclose.Order{}, 10))(t)
		expect.That(t, len(page) == 3 && reader.SetAside(true) == nil, "a reader: %+v, %v", page, reader.SetAside(true))
		s := grant("UPDATE", months[1:]...)
		expect.Equal(t, verdictsOf(t, s, reqs...), "last failed table_unfit this closed next closed", "without UPDATE on one month")
		expect.Says(t, s.SetAside(false), "orders_"+months[0]+" cannot be used", "what is left out")
	})
}

// If no table fits, the mapping is wrong, and is refused.
func TestMonths_AMappingThatFitsNoMonthIsRefused(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		s, _, months, reqs := threeMonths(t, ownDatabase(t))
		for _, month := range months {
			exec(t, s.DB(), "ALTER TABLE orders_"+month+" RENAME COLUMN revision TO gone")
		}
		expect.Says(t, s.CheckMapping(t.Context()), "orders_"+months[2]+".revision", "the mapping")
		expect.NoError(t, s.SetAside(true))
		_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, reqs)
		expect.Is(t, err, orderclose.ErrNoOrderAtFault, "a close")
		exec(t, s.DB(), "ALTER TABLE orders_"+months[1]+" RENAME COLUMN gone TO revision")
		must.Do(t, s.CheckMapping(t.Context()))
		expect.Equal(t, verdictsOf(t, s, reqs...), "last failed table_unfit this closed next failed table_unfit", "with one month that fits")
	})
}

// An order of which two months have a row closes once. The other row stays open, and says where both are.
func TestMonths_AnOrderInTwoMonthsNamesBoth(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		s, _, months, reqs := threeMonths(t, ownDatabase(t))
		putInMonth(t, s, months[0], "this")
		expect.Equal(t, verdictsOf(t, s, reqs...), "last closed this closed next closed", "the first row")
		putInMonth(t, s, months[1], "beside")
		again := []orderclose.CloseRequest{{OrderID: "this", CreatedAt: reqs[0].CreatedAt}, {OrderID: "beside", CreatedAt: reqs[1].CreatedAt}}
		out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, again))(t)
		_, why := out[0].Why()
		expect.That(t, out[0].Verdict == orderclose.Failed && out[0].Cause == orderclose.InTwoTables && strings.Contains(why, "orders_"+months[0]) &&
			strings.Contains(why, "orders_"+months[1]), "the second row: %+v", out[0])
		expect.That(t, out[1].Verdict == orderclose.Closed, "beside it: %+v", out[1])
		alone := must.Get(s.WhyOpen(t.Context(), again[0], false))(t)
		expect.That(t, alone.Cause == orderclose.InTwoTables, "why it is open: %+v", alone)
	})
}

// A table and one that inherits from it may have one order twice.
func TestPostgres_AnOrderInATableAndItsHeirNamesBoth(t *testing.T) {
	onPostgres(t, func(t *testing.T) {
		s := openMigrated(t, store.Options{})
		overdue(t, s, "twice", "once")
		exec(t, s.DB(), "CREATE TABLE orders_old () INHERITS (orders)")
		exec(t, s.DB(), "INSERT INTO orders_old SELECT * FROM orders WHERE id = 'twice'")
		out := must.Get(s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "twice"}, {OrderID: "once"}}))(t)
		_, why := out[0].Why()
		expect.That(t, out[0].Verdict == orderclose.Failed && out[0].Cause == orderclose.InTwoTables && strings.Contains(why, "orders") &&
			strings.Contains(why, "orders_old"), "the order: %+v", out[0])
		expect.That(t, out[1].Verdict == orderclose.Closed, "beside it: %+v", out[1])
		paid := must.Get(s.PayOrders(t.Context(), []orderclose.CloseRequest{{OrderID: "twice"}}))(t)
		expect.That(t, paid[0].Cause == orderclose.InTwoTables, "its payment: %+v", paid[0])
	})
}
