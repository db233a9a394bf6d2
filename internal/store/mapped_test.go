package store_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// examples returns the examples of testdata/shops.txt, of which two are public shops.
func examples(t *testing.T) []storetest.Shop {
	t.Helper()
	_, text, _ := strings.Cut(string(must.Get(os.ReadFile("testdata/shops.txt"))(t)), "## Example: ")
	var shops []storetest.Shop
	for _, example := range strings.Split(text, "## Example: ") {
		title, _, _ := strings.Cut(example, "\n")
		var shop storetest.Shop
		shop.Title = strings.ReplaceAll(title, " ", "_")
		for ddl := range strings.SplitSeq(block(t, example, "sql"), ";\n") {
			if strings.TrimSpace(ddl) != "" {
				shop.DDL = append(shop.DDL, ddl)
			}
		}
		cfg := must.Get(config.Parse("testdata/shops.txt", []byte("buckets: [1m]\n"+block(t, example, "yaml"))))(t)
		shop.Mapping = cfg.Orders
		shops = append(shops, shop)
	}
	must.That(t, len(shops) == 5, "testdata/shops.txt has %d examples", len(shops))
	shops[0].ID, shops[0].SKUs, shops[0].Paid = strconv.Itoa, [2]string{"10", "20"}, mapping.TextValue("PAID")
	number := func(n int) string { return fmt.Sprintf("NO%06d", n) }
	shops[1].ID, shops[1].SKUs, shops[1].Paid, shops[1].Month = number, [2]string{"ink", "pen"}, mapping.IntValue(20), "202611"
	shops[2].ID, shops[2].Paid, shops[2].DueFrom, shops[2].DueAt = number, mapping.TextValue("packed"), "shipped_at", 10*24*time.Hour
	shops[3].ID, shops[3].SKUs, shops[3].Paid = strconv.Itoa, [2]string{"10", "20"}, mapping.IntValue(1)
	shops[3].DueFrom, shops[3].DueAt = "create_time", time.Hour
	shops[4].ID, shops[4].SKUs, shops[4].Paid = strconv.Itoa, [2]string{"10", "20"}, mapping.IntValue(201)
	shops[4].DueFrom, shops[4].DueAt = "add_time", 30*time.Minute
	return shops
}

// withConstants returns the shop with further columns that a close and a payment set, with conditions
// that exclude orders, and with stock figures that include what is reserved.
func withConstants(shop storetest.Shop) storetest.Shop {
	m, stock := *shop.Mapping, *shop.Mapping.Stock[0]
	stock.Available, m.Stock, shop.Mapping = "", []*mapping.Stock{&stock}, &m
	m.Status.Paid = []mapping.Value{shop.Paid}
	m.Set = []mapping.ColumnValue{{Column: "closed_by", Value: mapping.TextValue("timeout")}, {Column: "reason", Value: mapping.IntValue(3)}}
	m.SetPaid = []mapping.ColumnValue{{Column: "reason", Value: mapping.IntValue(7)}}
	m.Where = []mapping.Condition{{Column: "deleted", Values: mapping.Values{Any: []mapping.Value{mapping.IntValue(0), {}}}},
		{Column: "hidden", Values: mapping.Values{Any: []mapping.Value{mapping.IntValue(77), mapping.IntValue(78)}, Not: true}}}
	m.OnClose = []string{
		"UPDATE coupons SET used = 0 WHERE order_id IN ({ids}) AND used = 1",
		"INSERT INTO close_log (order_id, buyer) SELECT id, user_id FROM t_order WHERE id IN ({ids})",
	}
	m.EventColumns = []string{"user_id", "amount", "note", "create_time", "hidden"}
	m.Attributes = []mapping.Attribute{{Name: "buyer", Column: "user_id"}, {Name: "amount", Column: "amount"}, {Name: "nothing", Column: "hidden"},
		{Name: "note", Column: "note"}}
	m.NotBefore = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	shop.Title = "A_shop_with_constants_and_without_available"
	for i, ddl := range shop.DDL {
		ddl = strings.Replace(ddl, "  free     INT NOT NULL,\n", "", 1)
		shop.DDL[i] = strings.Replace(ddl, "  finish_time ", "  closed_by VARCHAR(10) NULL,\n  reason TINYINT NOT NULL DEFAULT 0,\n"+
			"  deleted TINYINT NULL DEFAULT 0,\n  hidden TINYINT NULL,\n  amount DECIMAL(10,2) NOT NULL DEFAULT 12.30,\n"+
			"  note VARCHAR(20) NULL DEFAULT '50 % off',\n  finish_time ", 1)
	}
	shop.DDL = append(shop.DDL,
		"CREATE TABLE coupons (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, order_id BIGINT UNSIGNED NOT NULL, used TINYINT NOT NULL, KEY (order_id)) ENGINE = InnoDB",
		"CREATE TABLE close_log (order_id BIGINT UNSIGNED NOT NULL PRIMARY KEY, buyer BIGINT NOT NULL) ENGINE = InnoDB")
	return shop
}

// block returns the first code block of a language.
func block(t *testing.T, text, language string) string {
	t.Helper()
	_, code, found := strings.Cut(text, "```"+language+"\n")
	code, _, closed := strings.Cut(code, "```")
	must.That(t, found && closed, "no block of %s in %q", language, text)
	return code
}

// ownShops returns shops with tables of their own, for the server of the test.
func ownShops(t *testing.T) []storetest.Shop {
	if isPostgres(t) {
		return postgresShops(t)
	}
	return append(examples(t), withConstants(examples(t)[0]))
}

func TestSuite_OwnTables(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		for _, shop := range ownShops(t) {
			storetest.RunMapped(t, shop, server(t))
		}
	})
}

func TestSuite_OwnTablesByRule(t *testing.T) {
	eachDatabase(t, func(t *testing.T) {
		for _, shop := range shopsByRule(t) {
			if shop.Mapping.Category != "" {
				storetest.RunByRule(t, shop, server(t))
			} else {
				storetest.RunMapped(t, shop, server(t))
			}
		}
	})
}

// shopsByRule returns examples without due times: a DATETIME in a zone, unix time in tables of months, and
// a TIMESTAMP with microseconds.
func shopsByRule(t *testing.T) []storetest.Shop {
	if isPostgres(t) {
		return postgresShopsByRule(t)
	}
	datetime := storetest.ByRule(examples(t)[0], "(state, pay_deadline)", "(state, create_time)", "create_time  DATETIME        NOT NULL",
		"create_time DATETIME NULL")
	stamp := examples(t)[0]
	m := *stamp.Mapping
	m.Created = &mapping.TimeColumn{Column: "create_time", Type: mapping.Timestamp, Precision: mapping.Micros}
	stamp.Mapping, stamp.Title = &m, "A_timestamp"
	return []storetest.Shop{datetime,
		storetest.ByRule(stamp, "(state, pay_deadline)", "(state, create_time)", "create_time  DATETIME        NOT NULL", "create_time TIMESTAMP(6) NULL"),
		storetest.ByRule(examples(t)[1], "(status, expire_ms, order_no)", "(status, created_ms, order_no)", "expire_ms  BIGINT      NOT NULL",
			"expire_ms BIGINT NULL"),
	}
}

func TestCheckMapping_TheReferenceSchemaFits(t *testing.T) { eachDatabase(t, referenceSchemaFits) }

func referenceSchemaFits(t *testing.T) {
	s := openMigrated(t, store.Options{})
	must.Do(t, s.CheckMapping(t.Context()))
}

// Nobody takes the receipts of a table for those of another one because a mapping is missing.
func TestMySQL_RemovingTheMappingIsRefused(t *testing.T) {
	eachServer(t, withoutTheMapping)
}

func withoutTheMapping(t *testing.T) {
	dsn := ownDatabase(t)
	own := open(t, store.Options{DSN: dsn, Orders: examples(t)[0].Mapping})
	must.Do(t, own.Migrate(t.Context()))
	s := open(t, store.Options{DSN: dsn})
	for _, err := range []error{s.Migrated(t.Context()), s.Migrate(t.Context())} {
		must.That(t, err != nil && strings.Contains(err.Error(), "this topics.yaml says (table orders, status 0, event order.closed)"), "%v", err)
	}
}

// A call must not wait for a connection of a pool while it holds the last connection.
func TestMySQL_PaymentsInShardsNeedOneConnection(t *testing.T) { eachServer(t, paymentsInShards) }

func paymentsInShards(t *testing.T) {
	shop := examples(t)[1]
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: shop.Mapping, MaxOpenConns: 1})
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Limit)
	defer cancel()
	out := must.Get(s.PayOrders(ctx, []orderclose.CloseRequest{{OrderID: "NO1", CreatedAt: time.Now()}}))(t)
	expect.That(t, out[0].Verdict == orderclose.NotFound, "%+v", out)
}

// withOneStatus returns the shop as one whose unpaid orders have the first of its statuses alone.
func withOneStatus(shop storetest.Shop) storetest.Shop {
	m := *shop.Mapping
	m.Status.From = m.Status.From[:1]
	shop.Mapping = &m
	return shop
}

// In the first example the due column is a DATETIME in +08:00 with whole seconds, compared with
// a constant. Its pages are merged from two statuses, if it has both. In the second, pages are merged from three months.
func TestMySQL_APageOfOwnTablesReadsOnlyTheRowsItReturns(t *testing.T) {
	eachServer(t, pageOfOwnTables)
}

func pageOfOwnTables(t *testing.T) {
	const limit = 100
	var months []string
	for back := range 3 {
		months = append(months, time.Now().AddDate(0, 0, -31*back).Format("200601"))
	}
	const insert = "INSERT INTO t_order (id, state, create_time, pay_deadline) SELECT seq, IF(seq % 3, 'PAID', 'WAIT_PAY'), UTC_TIMESTAMP()," +
		" UTC_TIMESTAMP() + INTERVAL 8 HOUR - INTERVAL 5000 - seq SECOND FROM "
	for _, c := range []struct {
		shop   storetest.Shop
		insert string // 1,200 overdue orders, and twice as many that were paid
		tables []string
		most   int // rows that reading a page may touch
	}{
		{withOneStatus(examples(t)[0]), insert + numbers(3600), nil, limit + 10},
		// Each status or month returns a page, and the pages are stored, merged and sorted.
		{examples(t)[0], insert + numbers(3600), nil, 5 * limit},
		{examples(t)[1],
			"INSERT INTO orders_%s (order_no, status, created_ms, expire_ms) SELECT CONCAT('%[1]s', seq), IF(seq %% 3, 20, 10), 1, seq * 1000 FROM " + numbers(3600),
			months, 3 * 5 * limit},
	} {
		shop := c.shop
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: shop.Mapping, MaxOpenConns: 1})
		if c.tables == nil {
			exec(t, s.DB(), shop.DDL[0])
			exec(t, s.DB(), c.insert)
		}
		for _, month := range c.tables {
			exec(t, s.DB(), strings.ReplaceAll(shop.DDL[0], shop.Month, month))
			exec(t, s.DB(), fmt.Sprintf(c.insert, month))
		}
		now := must.Get(s.Now(t.Context()))(t)
		var after orderclose.Order
		for page := range 4 {
			var orders []orderclose.Order
			read := rowsRead(t, s, func() { orders = must.Get(s.Overdue(t.Context(), now, after, limit))(t) })
			must.That(t, len(orders) == limit, "%s: page %d has %d orders", shop.Title, page, len(orders))
			expect.That(t, read <= c.most || page == 0, "%s: page %d of %d orders read %d rows", shop.Title, page, limit, read) // the first may list the months
			after = orders[limit-1]
		}
	}
}
