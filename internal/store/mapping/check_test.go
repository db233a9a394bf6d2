package mapping

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// shop returns a mapping without a problem.
func shop() *Mapping {
	return &Mapping{
		Orders: "shop_orders_{yyyyMM}",
		ID:     Key{Column: "id", Type: Integer},
		Status: Status{Column: "state", From: OneOf{TextValue("WAIT_PAY")}, To: TextValue("CLOSED"), Closed: []Value{TextValue("CANCELLED")}},
		Due:    TimeColumn{Column: "pay_deadline", Type: DateTime, Zone: "+08:00", Precision: Seconds},
		Items:  &Items{Table: "shop_lines_{yyyyMM}", Order: "order_id", SKU: "sku", Quantity: "num"},
		Stock:  []*Stock{{Table: "shop_stock", SKU: Key{Column: "sku"}, Available: "free", Reserved: "held"}},
		Shards: &Shards{On: OnCreated, Zone: "Asia/Shanghai"},
	}
}

func TestCheck_ReportsEachMistake(t *testing.T) {
	for _, m := range []*Mapping{shop(), Reference()} {
		err := Err(m.Check())
		expect.That(t, err == nil, "a good mapping: %v", err)
	}
	for _, c := range []struct {
		change func(m *Mapping)
		want   string // path: a part of Problem.What
	}{
		{func(m *Mapping) { m.Orders = "" }, "table: has no placeholder for the month"},
		{func(m *Mapping) { m.Shards, m.Items = nil, nil; m.Stock = nil }, "table: no shards are mapped"},
		{func(m *Mapping) { m.Orders = "o`; DROP TABLE x_{yyyyMM}" }, "table: orderclose supports letters"},
		{func(m *Mapping) { m.ID.Column = "" }, "id.column: missing"},
		{func(m *Mapping) { m.ID.Type = "guid" }, `id.type: "guid" is not a type`},
		{func(m *Mapping) { m.Status.To = TextValue("WAIT_PAY") }, "status.to: also the status before the close"},
		{func(m *Mapping) { m.Status.To = IntValue(2) }, "status: of different kinds"},
		{func(m *Mapping) { m.Status.From = nil }, "status.from: missing"},
		{func(m *Mapping) { m.Status.Paid = []Value{TextValue("CANCELLED")} }, "status: listed with two meanings"},
		{func(m *Mapping) { m.Due.Zone = "" }, "due.zone: no time zone is given"},
		{func(m *Mapping) { m.Due.Type = Timestamp }, "due.zone: has no zone"},
		{func(m *Mapping) { m.Due.Precision = "" }, "due.precision: is not a precision"},
		{func(m *Mapping) { m.Due.Type, m.Due.Zone = UnixMillis, "" }, "due.precision: has a fixed precision"},
		{func(m *Mapping) { m.Due.Type = "date" }, `due.type: "date" is not a type`},
		{func(m *Mapping) { m.Items = nil }, "stock: no items"},
		{func(m *Mapping) { m.Stock[0].Available, m.Stock[0].Reserved = "", "" }, "stock: neither available nor reserved"},
		{func(m *Mapping) { m.Set = []ColumnValue{{"a`b", IntValue(1)}} }, "set.a`b: "},
		{func(m *Mapping) { m.Set = []ColumnValue{{"STATE", IntValue(1)}} }, "set.STATE: mapped as the order's status"},
		{func(m *Mapping) { m.Status.Paid, m.SetPaid = nil, []ColumnValue{{"channel", IntValue(1)}} }, "set_paid: no paid status"},
		{func(m *Mapping) { m.Where = []Condition{Is("state", TextValue("WAIT_PAY"))} }, "where.state: mapped as the order's status"},
		{func(m *Mapping) { m.Where = []Condition{Is("a b", IntValue(0))} }, "where.a b: "},
		{func(m *Mapping) { m.NotBefore = time.Unix(1, 1) }, "not_before: has a fraction of a second"},
		{func(m *Mapping) { m.OnClose = []string{"UPDATE t SET a = 1 WHERE id = 1"} }, "on_close[0]: must contain IN ({ids}) once"},
		{func(m *Mapping) { m.OnClose = []string{"SELECT a FROM t WHERE id IN ({ids}) FOR UPDATE"} }, "on_close[0]: does not begin with UPDATE"},
		{func(m *Mapping) { m.OnClose = []string{"DELETE FROM receipts WHERE order_id IN ({ids})"} }, "on_close[0]: writes to the table receipts"},
		{func(m *Mapping) { m.EventColumns = []string{"a", "a"} }, `event.columns[1]: "a" is listed twice`},
		{func(m *Mapping) { m.Shards.On = "paid" }, `shards.on: "paid"`},
		{func(m *Mapping) { m.Shards.Zone = "Mars" }, `shards.zone: "Mars"`},
		{func(m *Mapping) { m.Shards.Months = 2 }, "shards.months: reading 2 months"},
		{func(m *Mapping) { m.Shards.Months, m.Shards.On = 1, OnDue }, "shards.months: reading 1 months"},
		{func(m *Mapping) { m.Shards.Months = 61 }, "shards.months: 61 is out of range"},
		{func(m *Mapping) { m.Event = "Order Closed" }, "event.type: cannot be the type"},
		{func(m *Mapping) { m.Event = "order.paid" }, "event.type: order.paid is the type of other events"},
		{func(m *Mapping) { m.Version = "state" }, "lock: mapped as the order's status and as the order's version"},
		{func(m *Mapping) { m.Version = "ID" }, "lock: mapped as the order's id"},
		{func(m *Mapping) { m.Status.Column = "id" }, "status.column: mapped as the order's id"},
		{func(m *Mapping) { m.ClosedAt = []*TimeColumn{&m.Due} }, "closed_at.column: mapped as when the order is due"},
		{func(m *Mapping) { m.Created = &m.Due }, "due.column: mapped as when the order was created and as when the order is due"},
		{func(m *Mapping) {
			m.Created = &TimeColumn{Column: "made", Type: UnixMillis}
			m.ClosedAt = []*TimeColumn{m.Created}
		}, "closed_at.column: mapped as when the order was created"},
		{func(m *Mapping) { m.Category = "state" }, "category: mapped as the order's status"},
		{func(m *Mapping) { m.Items.Quantity = "order_id" }, "items.quantity: mapped as the order of a line"},
		{func(m *Mapping) { m.Items.Quantity = "sku" }, "items.quantity: mapped as the SKU of a line"},
		{func(m *Mapping) { m.Stock[0].Available = "sku" }, "stock.available: mapped as the SKU"},
		{func(m *Mapping) { m.Stock[0].Reserved = "FREE" }, "stock.reserved: mapped as the quantity of a SKU that can be sold"},
		{func(m *Mapping) { m.Shards, m.Orders, m.Items.Table = nil, "o", "o"; m.Items.Quantity = "state" }, "items.quantity: mapped as the order's status"},
		{func(m *Mapping) { m.Shards, m.Orders, m.Items.Table, m.Stock[0].Table = nil, "o", "l", "o" }, "stock.table: mapped as the stock and as orders"},
		{func(m *Mapping) { m.Shards, m.Orders, m.Items.Table, m.Stock[0].Table = nil, "o", "l", "l" }, "stock.table: mapped as the stock and as lines"},
		{func(m *Mapping) { m.Stock[0].Table = "stock_ledger" }, "stock.table: table stock_ledger is one of orderclose's own tables"},
		{func(m *Mapping) { m.Shards, m.Orders, m.Items.Table = nil, "receipts", "l" }, "table: of orderclose's own tables"},
	} {
		m := shop()
		c.change(m)
		wantOne(t, m.Check(), c.want)
	}
}

// For any day and delay, the month of an order is read in the month of its due time and in all of the next month.
func TestMinMonths_MissesNoOrder(t *testing.T) {
	for _, longest := range []time.Duration{time.Hour, 28 * 24 * time.Hour, 28*24*time.Hour + 1, 30 * 24 * time.Hour} {
		least := (&Shards{On: OnCreated}).MinMonths(longest)
		for day := range 4 * 366 {
			created := time.Date(2026, 1, 1+day, 23, 59, 59, 0, time.UTC)
			last := MonthOf(created.Add(longest), time.UTC) + 1
			must.That(t, MonthOf(created, time.UTC) > last-Month(least), "%v after %v, the last %d months leave out its table", longest, created, least)
		}
	}
}

// A line may be in the row of its order, and a category may be a column with another purpose.
func TestCheck_AColumnMayHaveTwoPurposesThatOnlyRead(t *testing.T) {
	m := shop()
	m.Shards, m.Orders, m.Items.Table = nil, "tickets", "tickets"
	m.Items.Order, m.Category = "id", "sku"
	expect.NoError(t, Err(m.Check()))
}

// The problem of a harmful mapping names the harm.
func TestCheck_NamesWhatACloseWouldDestroy(t *testing.T) {
	m := shop()
	m.Version = "state"
	want := "orders.lock: column shop_orders_{yyyyMM}.state is mapped as the order's status and as the order's version: " +
		"a close adds one to it, which destroys the order's status; map the column that holds the order's version, or remove lock"
	got := Err(m.Check())
	expect.That(t, got != nil && got.Error() == want, "got  %v\nwant %s", got, want)
}

// wantOne checks for exactly one problem. want is its path and, after a colon, a part of Problem.What.
func wantOne(t *testing.T, got []Problem, want string) {
	t.Helper()
	path, what, _ := strings.Cut(want, ": ")
	expect.That(t, len(got) == 1 && got[0].Path == path && strings.Contains(got[0].What, what) && got[0].Fix != "",
		"got %v; want one that says %q", got, want)
}

// fittingSchema returns tables of November that fit the mapping of shop.
func fittingSchema() Schema {
	return Schema{
		"shop_orders_202611": {
			Engine: "InnoDB",
			Columns: map[string]Column{
				"id": {Type: "bigint", Definition: "bigint(20) unsigned"}, "state": {Type: "enum", Definition: "enum('WAIT_PAY','CLOSED')"},
				"pay_deadline": {Type: "datetime", Definition: "datetime"},
			},
			Indexes: []Index{{Name: "PRIMARY", Unique: true, Columns: []string{"id"}}, {Name: "due", Unique: false, Columns: []string{"state", "pay_deadline"}}},
		},
		"shop_lines_202611": {
			Engine: "InnoDB",
			Columns: map[string]Column{
				"order_id": {Type: "bigint", Definition: "bigint"}, "sku": {Type: "varchar", Definition: "varchar(32)"}, "num": {Type: "int", Definition: "int"},
			},
			Indexes: []Index{{Name: "order_id", Unique: false, Columns: []string{"order_id", "sku"}}},
		},
		"shop_stock": {
			Engine:  "InnoDB",
			Columns: map[string]Column{"sku": {Type: "varchar", Definition: "varchar(32)"}, "free": {Type: "int"}, "held": {Type: "int"}},
			Indexes: []Index{{Name: "PRIMARY", Unique: true, Columns: []string{"sku"}}},
		},
	}
}

func TestJudge_ReportsEachMismatch(t *testing.T) {
	const orders = "shop_orders_202611"
	check := func(m *Mapping, f Schema) []Problem {
		return m.WithDefaults().CheckDatabase(f, []string{orders}, []string{"shop_lines_202611"})
	}
	got := check(shop(), fittingSchema())
	expect.That(t, len(got) == 0, "tables that fit: %v", got)
	change := func(table string, change func(t *Table)) func(*Mapping, Schema) {
		return func(_ *Mapping, f Schema) {
			t := f[table]
			change(&t)
			f[table] = t
		}
	}
	column := func(name string, c Column) func(*Mapping, Schema) {
		return change(orders, func(t *Table) { t.Columns[name] = c })
	}
	mapped := func(also func(*Mapping), name string, c Column) func(*Mapping, Schema) {
		return func(m *Mapping, f Schema) { also(m); column(name, c)(m, f) }
	}
	version := func(m *Mapping) { m.Version = "rev" }
	closedAt := func(m *Mapping) {
		m.ClosedAt = []*TimeColumn{{Column: "shut", Type: DateTime, Zone: "UTC", Precision: Seconds}}
	}
	set := func(column string, v Value) func(*Mapping) {
		return func(m *Mapping) { m.Set = []ColumnValue{{column, v}} }
	}
	where := func(v Values) func(*Mapping) {
		return func(m *Mapping) { m.Where = []Condition{{"why", v}} }
	}
	for _, c := range []struct {
		change func(m *Mapping, f Schema)
		want   string
	}{
		{func(_ *Mapping, f Schema) { delete(f, orders) }, "table: table shop_orders_202611 does not exist"},
		{change(orders, func(t *Table) { t.Engine = "MyISAM" }), "table: which has no transactions"},
		{change(orders, func(t *Table) { delete(t.Columns, "state") }), "status.column: there is no column shop_orders_202611.state"},
		{column("id", Column{Type: "varchar", Definition: "varchar(64)"}), "id.column: varchar(64), and is mapped as integer"},
		{column("state", Column{Type: "tinyint", Definition: "tinyint"}), "status: its values are text"},
		{func(m *Mapping, _ Schema) {
			m.Status = Status{Column: "state", From: OneOf{IntValue(0)}, To: IntValue(2)}
		}, "status: its values are numbers"},
		{func(m *Mapping, _ Schema) { m.Status.To = TextValue("SHUT") }, `status.to: has no "SHUT"`},
		{column("pay_deadline", Column{Type: "timestamp", Definition: "timestamp"}), "due.type: timestamp, and is mapped as datetime"},
		{column("pay_deadline", Column{Type: "datetime", Definition: "datetime(3)", Digits: 3}), "due.precision: datetime(3)"},
		{change(orders, func(t *Table) { t.Indexes = t.Indexes[1:] }), "id.index: no unique index PRIMARY on id"},
		{change(orders, func(t *Table) { t.Indexes = t.Indexes[:1] }), "due.index: no index on state, pay_deadline and id"},
		{func(m *Mapping, _ Schema) { m.DueIndex = "gone" }, "due.index: no index gone"},
		{change("shop_lines_202611", func(t *Table) { t.Indexes = nil }), "items.order: no index that begins with order_id"},
		{change("shop_lines_202611", func(t *Table) {
			t.Columns["num"] = Column{Type: "decimal", Definition: "decimal(10,2)"}
		}), "items.quantity: decimal(10,2), which can hold values that are not whole numbers"},
		{column("id", Column{Type: "binary", Definition: "binary(16)"}), "id.column: binary(16), and an id or SKU has to be text"},
		{change("shop_lines_202611", func(t *Table) {
			t.Columns["order_id"] = Column{Type: "varbinary", Definition: "varbinary(16)"}
		}), "items.order: varbinary(16), and an id"},
		{change("shop_lines_202611", func(t *Table) { t.Columns["sku"] = Column{Type: "blob", Definition: "blob"} }), "items.sku: blob, and an id or SKU"},
		{change("shop_lines_202611", func(t *Table) { delete(t.Columns, "sku") }), "items.sku: there is no column"},
		{change("shop_stock", func(t *Table) {
			t.Columns["sku"] = Column{Type: "binary", Definition: "binary(4)"}
		}), "stock.sku.column: binary(4), and an id or SKU"},
		{change("shop_stock", func(t *Table) { t.Indexes = nil }), "stock.sku.index: no unique index PRIMARY on sku"},
		{change("shop_stock", func(t *Table) { delete(t.Columns, "held") }), "stock.reserved: there is no column shop_stock.held"},

		{change(orders, func(t *Table) { t.View, t.Engine = true, "" }), "table: is a view"},
		{column("state", Column{Type: "varchar", Definition: "varchar(7)", Length: 7}), "status.from: varchar(7), which has no"},
		{column("state", Column{Type: "enum", Definition: "enum('Wait_Pay','CLOSED')", Collation: "utf8mb4_bin"}), "status.from: which has no"},
		{column("state", Column{Type: "varchar", Definition: "varchar(9)", Length: 9, Generated: true}), "status.column: generated column"},
		{column("id", Column{Type: "decimal", Definition: "decimal(20,0)"}), "id.column: has to be text or a whole number"},
		{mapped(func(m *Mapping) {
			m.Status.Closed = []Value{TextValue("wait_pay")}
		}, "state", Column{Type: "varchar", Length: 20, Collation: "utf8mb4_general_ci"}), "status.closed[0]: are the same"},
		{column("pay_deadline", Column{Type: "datetime", Definition: "datetime", OnUpdate: true}), "due.column: with each UPDATE"},
		{column("pay_deadline", Column{Type: "datetime", Definition: "datetime", DefaultNow: true, Default: true}), "due.column: the present moment as its default"},
		{mapped(closedAt, "shut", Column{Type: "datetime", Definition: "datetime"}), "closed_at.column: has a value from when the row is inserted"},
		{mapped(closedAt, "shut", Column{Type: "datetime", Definition: "datetime", Nullable: true, Default: true, DefaultNow: true}),
			"closed_at.column: has a value from when"},
		{mapped(closedAt, "shut", Column{Type: "datetime", Definition: "datetime", Nullable: true, Generated: true}), "closed_at.column: generated column"},
		{mapped(closedAt, "shut", Column{Type: "datetime", Definition: "datetime", Nullable: true, OnUpdate: true}), "closed_at.column: with each UPDATE"},
		{mapped(version, "rev", Column{Type: "varchar", Definition: "varchar(9)"}), "lock: is varchar(9)"},
		{mapped(version, "rev", Column{Type: "tinyint", Definition: "tinyint(1)"}), "lock: is tinyint(1), which is a flag"},
		{mapped(func(m *Mapping) {
			m.Created = &TimeColumn{Column: "made", Type: UnixSeconds}
		}, "made", Column{Type: "tinyint", Definition: "tinyint"}), "created.type: tinyint, and is mapped as unix_s"},
		{mapped(version, "rev", Column{Type: "int", Definition: "int", RefersTo: "users"}), "lock: refers to table users"},
		{mapped(func(m *Mapping) { m.PaymentID = "pay_no" }, "pay_no", Column{Type: "bigint", Definition: "bigint"}), "payment_id: is bigint"},
		{func(m *Mapping, f Schema) {
			mapped(version, "rev", Column{Type: "int"})(m, f)
			change(orders, func(t *Table) {
				t.Indexes = append(t.Indexes, Index{Name: "by_user", Unique: false, Columns: []string{"rev"}})
			})(m, f)
		}, "lock: leads the index by_user"},
		{change("shop_lines_202611", func(t *Table) { t.Columns["num"] = Column{Type: "bigint", Numbered: true} }), "items.quantity: numbers its rows"},
		{change("shop_lines_202611", func(t *Table) { t.Columns["num"] = Column{Type: "bigint", RefersTo: "goods"} }), "items.quantity: refers to table goods"},
		{change("shop_lines_202611", func(t *Table) {
			t.Indexes = append(t.Indexes, Index{Name: "PRIMARY", Unique: true, Columns: []string{"num"}})
		}), "items.quantity: has a unique index"},
		{change("shop_lines_202611", func(t *Table) {
			t.Indexes = append(t.Indexes, Index{Name: "by_num", Unique: false, Columns: []string{"num"}})
		}), "items.quantity: leads the index by_num"},
		{change("shop_lines_202611", func(t *Table) { t.Columns["order_id"] = Column{Type: "bigint", Numbered: true} }), "items.order: numbers its rows"},
		{change("shop_lines_202611", func(t *Table) { t.Columns["sku"] = Column{Type: "bigint", Numbered: true} }), "items.sku: numbers its rows"},
		{change("shop_stock", func(t *Table) {
			t.Indexes = append(t.Indexes, Index{Name: "by_goods", Unique: false, Columns: []string{"free", "x"}})
		}), "stock.available: leads the index by_goods"},
		{change("shop_stock", func(t *Table) {
			t.Indexes = append(t.Indexes, Index{Name: "by_goods", Unique: false, Columns: []string{"held"}})
		}), "stock.reserved: leads the index by_goods"},
		{func(m *Mapping, f Schema) {
			m.Version = "user_id"
			column("user_id", Column{Type: "bigint"})(m, f)
		}, "lock: has the name of an id"},
		{func(m *Mapping, f Schema) {
			mapped(closedAt, "shut", Column{Type: "datetime", Definition: "datetime", Nullable: true})(m, f)
			column("pay_deadline", Column{Type: "datetime", Generated: true, Expression: "`shut` + interval 30 minute"})(m, f)
		}, "closed_at.column: shop_orders_202611.pay_deadline is generated from shut"},
		{mapped(set("ended", TextValue("now()")), "ended", Column{Type: "datetime", Definition: "datetime"}), `set.ended: datetime, which cannot hold "now()"`},
		{mapped(set("ended", TextValue("2026-13-01")), "ended", Column{Type: "date", Definition: "date"}), "set.ended: date, which cannot hold"},
		{mapped(set("price", TextValue("free")), "price", Column{Type: "decimal", Definition: "decimal(9,2)"}), "set.price: decimal(9,2), which cannot hold"},
		{mapped(set("why", TextValue("timeout")), "why", Column{Type: "int", Definition: "int"}), "set.why: int, which cannot hold"},
		{mapped(set("why", IntValue(12345)), "why", Column{Type: "varchar", Definition: "varchar(4)", Length: 4}), "set.why: varchar(4), which cannot hold"},
		{mapped(set("why", IntValue(1)), "why", Column{Type: "enum", Definition: "enum('0','1')", Collation: "ascii_bin"}), "set.why: which cannot hold"},
		{mapped(set("why", IntValue(1)), "why", Column{Type: "boolean", Definition: "boolean"}), "set.why: boolean, which cannot hold 1"},
		{mapped(func(m *Mapping) { m.Where = []Condition{Is("why", IntValue(0))} }, "why", Column{Type: "boolean", Definition: "boolean"}),
			"where.why: boolean, and is compared with 0"},
		{mapped(where(Values{Any: []Value{IntValue(0), TextValue("a")}}), "why", Column{Type: "int", Definition: "int"}), `where.why: int, and is compared with "a"`},
		{mapped(where(Values{Any: []Value{{}}}), "why", Column{Type: "int", Definition: "int"}), "where.why: int, which is never NULL"},
		{mapped(where(Values{Any: []Value{IntValue(2)}}), "why", Column{Type: "bit", Definition: "bit(1)"}), "where.why: bit(1), which cannot hold 2"},
		{change("shop_stock", func(t *Table) {
			t.Indexes = append(t.Indexes, Index{Name: "uk", Unique: true, Columns: []string{"free", "x"}})
		}), "stock.available: a part of the unique index uk"},
		{change("shop_stock", func(t *Table) { t.Columns["free"] = Column{Type: "int", Generated: true} }), "stock.available: generated column"},
		{change("shop_stock", func(t *Table) {
			t.Columns["free"] = Column{Type: "decimal", Definition: "decimal(10,2)"}
		}), "stock.available: values that are not whole numbers"},
		{change("shop_stock", func(t *Table) { t.Columns["held"] = Column{Type: "int", Numbered: true} }), "stock.reserved: AUTO_INCREMENT"},
		{change("shop_stock", func(t *Table) { t.Schema, t.Name, t.Home = "shop", "stock_ledger", true }), "stock.table: of orderclose's own tables"},
		{func(m *Mapping, f Schema) {
			for _, name := range []string{orders, "shop_stock"} {
				change(name, func(t *Table) { t.Schema, t.Name = "shop", "o" })(m, f)
			}
		}, "stock.table: table shop.o is mapped as the stock and as orders"},
		{func(m *Mapping, f Schema) {
			m.Items.Quantity = "version"
			change("shop_lines_202611", func(t *Table) { t.Columns["version"] = Column{Type: "int"}; t.Schema, t.Name = "shop", "o" })(m, f)
			mapped(version, "version", Column{Type: "int"})(m, f)
			m.Version = "version"
			change(orders, func(t *Table) { t.Schema, t.Name = "shop", "o" })(m, f)
		}, "lock: mapped as the quantity of a line and as the order's version"},
	} {
		m, f := shop(), fittingSchema()
		c.change(m, f)
		wantOne(t, check(m, f), c.want)
	}
}

// Lines name SKUs in the collation of the stock, and orders in that of the orders.
func TestCheckDatabase_RefusesOtherCollations(t *testing.T) {
	for _, c := range []struct {
		lines, stock Column
		fix          string // empty: accepted
	}{
		{Column{Collation: "utf8mb4_bin", Kept: " DEFAULT '' COMMENT 'a'"}, Column{Collation: "utf8mb4_general_ci"},
			"ALTER TABLE `shop_lines_202611` MODIFY `sku` varchar(9) COLLATE utf8mb4_general_ci NOT NULL DEFAULT '' COMMENT 'a'"},
		{Column{Collation: "utf8mb4_0900_ai_ci", Nullable: true}, Column{Collation: "utf8mb4_bin"},
			"ALTER TABLE `shop_lines_202611` MODIFY `sku` varchar(9) COLLATE utf8mb4_bin NULL"},
		{Column{Collation: "utf8mb4_general_ci", Generated: true}, Column{Collation: "ascii_bin"}, "generate the column with COLLATE ascii_bin"},
		{Column{Collation: "utf8mb4_general_ci"}, Column{Collation: "utf8mb4_general_ci"}, ""},
		// counts trailing spaces
		{Column{Collation: "utf8mb4_bin"}, Column{Collation: "utf8mb4_0900_bin"},
			"ALTER TABLE `shop_lines_202611` MODIFY `sku` varchar(9) COLLATE utf8mb4_0900_bin NOT NULL"},
		{Column{Collation: "ascii_bin"}, Column{Collation: "utf8mb4_bin"}, ""},
		{Column{Collation: "utf8mb4_general_ci"}, Column{}, ""}, // a UUID of MariaDB
	} {
		c.lines.Type, c.lines.Definition, c.stock.Type = "varchar", "varchar(9)", "varchar"
		f := fittingSchema()
		f["shop_lines_202611"].Columns["sku"], f["shop_stock"].Columns["sku"] = c.lines, c.stock
		got := shop().WithDefaults().CheckDatabase(f, []string{"shop_orders_202611"}, []string{"shop_lines_202611"})
		expect.That(t, (len(got) > 0) == (c.fix != "") && (len(got) <= 0 || got[0].Path == "items.sku" && strings.HasPrefix(got[0].Fix, c.fix)),
			"%+v and %+v: %v; want %q", c.lines, c.stock, got, c.fix)
	}
}

// Each month has its own tables, and only those of one month must agree.
func TestCheckDatabase_ComparesTheCollationsOfOneMonth(t *testing.T) {
	var orders, lines []string
	f := fittingSchema()
	for month, collation := range map[string]string{"202611": "utf8mb4_bin", "202612": "utf8mb4_general_ci"} {
		m := fittingSchema()
		o, l := m["shop_orders_202611"], m["shop_lines_202611"]
		o.Columns["id"] = Column{Type: "varchar", Collation: collation}
		l.Columns["order_id"] = Column{Type: "varchar", Collation: collation}
		f["shop_orders_"+month], f["shop_lines_"+month] = o, l
		orders, lines = append(orders, "shop_orders_"+month), append(lines, "shop_lines_"+month)
	}
	m := shop().WithDefaults()
	m.ID.Type = Text
	got := m.CheckDatabase(f, orders, lines)
	expect.That(t, len(got) <= 0, "%v", got)
	slices.Reverse(lines)
	got = m.CheckDatabase(f, orders, lines)
	expect.That(t, len(got) == 2 && got[0].Path == "items.order", "lines of another collation than their orders: %v", got)
}

// A constant of the column's type is accepted.
func TestColumn_TakesConstantsOfItsType(t *testing.T) {
	for _, c := range []struct {
		column Column
		value  Value
	}{
		{Column{Type: "datetime"}, TextValue("2026-11-20 10:00:00")}, {Column{Type: "datetime"}, TextValue("2026-11-20 10:00:00.123")},
		{Column{Type: "timestamp"}, TextValue("2026-11-20")}, {Column{Type: "date"}, TextValue("2026-11-20")}, {Column{Type: "time"}, TextValue("10:00:00")},
		{Column{Type: "decimal"}, TextValue("0.50")}, {Column{Type: "double"}, IntValue(1)}, {Column{Type: "year"}, IntValue(2026)},
		{Column{Type: "int"}, TextValue("5")}, {Column{Type: "varchar", Length: 5}, IntValue(12345)},
		{Column{Type: "enum", Definition: "enum('a','b')"}, TextValue("b")},
	} {
		expect.That(t, c.column.takes(c.value), "%s refuses %v", c.column.Type, c.value)
	}
}

// A problem that topics.yaml accepts by name is none.
func TestUnaccepted_LeavesOutWhatIsAccepted(t *testing.T) {
	m, f := shop(), fittingSchema()
	stock := f["shop_stock"]
	stock.Indexes = append(stock.Indexes, Index{Name: "by_free", Unique: false, Columns: []string{"free"}})
	f["shop_stock"] = stock
	check := func() []Problem {
		return m.WithDefaults().CheckDatabase(f, []string{"shop_orders_202611"}, []string{"shop_lines_202611"})
	}
	got := check()
	expect.That(t, len(got) == 1 && strings.HasSuffix(got[0].Error(), "; map the column of the quantity, or add indexed_quantity to accept"), "%v", got)
	m.Accept = []string{IndexedQuantity}
	expect.That(t, len(check()) == 0, "an accepted problem is reported")
}

func TestStatus_MeaningIsThatOfAClose(t *testing.T) {
	number := func(numbers ...int64) (values []Value) {
		for _, n := range numbers {
			values = append(values, IntValue(n))
		}
		return values
	}
	for _, c := range []struct {
		paid, closed []Value
		status, want string
	}{
		{nil, nil, "101", "unpaid"}, {nil, nil, "103", "closed"}, {nil, number(102), "102", "closed"}, {number(201), nil, "201", "paid"},
		{nil, nil, "7", "counts as paid"}, {number(201), number(102), "7", "counts as paid"}, {number(201), nil, "7", "counts as closed"},
	} {
		s := Status{From: OneOf{IntValue(101)}, To: IntValue(103), Paid: c.paid, Closed: c.closed}
		expect.Equal(t, s.Meaning(c.status), c.want, "%+v: %s", s, c.status)
	}
}

func TestErr_HasALineForEachProblem(t *testing.T) {
	problems := []Problem{{Path: "due.zone", What: "none is given", Fix: "write one"},
		{Path: "table", What: "it is gone", Why: "no order is found", Fix: "look for it"}}
	lines := strings.Split(fmt.Sprint(Err(problems)), "\n")
	want := []string{"orders.due.zone: none is given; write one", "orders.table: it is gone: no order is found; look for it"}
	expect.That(t, slices.Equal(lines, want) && Err(nil) == nil, "%q", lines)
}

// A column that looks like an optimistic lock is named unless each close changes it for certain.
func TestUnchangedLocks_NamesWhatACloseMayLeaveAsItIs(t *testing.T) {
	m := shop()
	m.Version, m.Lock = "rev", &TimeColumn{Column: "modified"}
	m.ClosedAt = append(m.ClosedAt, []*TimeColumn{{Column: "gmt_modified"}, {Column: "updated_at"}}...)
	m.Stock[0].Version = "lock_version"
	got := m.UnchangedLocks(Table{Columns: map[string]Column{
		"rev": {}, "modified": {}, "gmt_modified": {Type: "datetime"}, "updated_at": {Type: "datetime", Digits: 3}, "lock_version": {},
		"last_update_time": {OnUpdate: true},
		"update_date":      {OnUpdate: true, Digits: 6}, "opt_lock": {Generated: true}, "updater": {}, "write_date": {},
	}})
	want := []string{"gmt_modified", "last_update_time (which the database sets with each UPDATE, in whole seconds)", "lock_version", "write_date"}
	expect.That(t, slices.Equal(got, want), "%q, want %q", got, want)
}

// The same UUID in both binary forms, as MySQL's UUID_TO_BIN writes them.
func TestKey_ABinaryUUIDHasOneText(t *testing.T) {
	const id = "6ccd780c-baba-1026-9564-5b8c656024db"
	for k, want := range map[KeyType]string{UUIDBinary: "6ccd780cbaba102695645b8c656024db", UUIDSwapped: "1026baba6ccd780c95645b8c656024db"} {
		arg, ok := Key{Type: k}.Arg(id)
		got := fmt.Sprintf("%x", arg)
		expect.That(t, ok && got == want, "%s: %s, want %s", k, got, want)
		_, ok = Key{Type: k}.Arg(strings.ToUpper(id))
		expect.That(t, !ok, "%s takes a second text of the id", k)
	}
	a, b := "00000000-0000-1002-8000-000000000000", "00000001-0000-1001-8000-000000000000"
	expect.That(t, (Key{Type: UUIDBinary}).Compare(a, b) < 0 && (Key{Type: UUIDSwapped}).Compare(a, b) > 0, "ids are not compared as their bytes")
}

func TestSplitSKU_ReadsWhatLocatedSKUWrites(t *testing.T) {
	for _, c := range [][2]string{{"a", "1"}, {"a@b", "1"}, {"@", "1"}, {"", "west"}} {
		sku, location := SplitSKU(LocatedSKU(c[0], c[1]))
		expect.That(t, sku == c[0] && location == c[1], "%q: %q, %q", c, sku, location)
	}
	expect.That(t, !IsLocation("a@b") && !IsLocation("") && IsLocation("1"), "locations with an @ have two readings")
}

// A number that a column of decimals cannot hold would exclude each order.
func TestColumn_HoldsDecimals(t *testing.T) {
	number := func(text string) Value { return Value{text, true} }
	for _, c := range []struct {
		definition string
		value      Value
		want       bool
	}{
		{"decimal(10,2)", IntValue(0), true}, {"decimal(10,2)", number("-0.10"), true}, {"decimal(10,2)", number("0.500"), true},
		{"decimal(10,2)", TextValue("99999999.99"), true},
		{"decimal(10,2)", number("0.001"), false}, {"decimal(10,2)", IntValue(123456789), false}, {"decimal(10,2)", TextValue("free"), false},
		{"decimal(38,0)", number("12345678901234567890.0"), true}, {"decimal(38,0)", TextValue("12345678901234567890"), false}, {"numeric", number("0.001"), true},
	} {
		expect.Equal(t, (Column{Type: "decimal", Definition: c.definition}).holdsDecimal(c.value), c.want, "%s, %v", c.definition, c.value)
	}
}

func TestAddDueIndex_ByRuleHasTheCategory(t *testing.T) {
	for _, c := range []struct {
		byRule bool
		kind   Column
		want   string
	}{
		{true, Column{Type: "varchar", Length: 20}, "(`state`, `created`, `id`, `kind`)"},
		{true, Column{Type: "varchar", Length: 2000}, "(`state`, `created`, `id`)"},
		{true, Column{Type: "text", Length: 255}, "(`state`, `created`, `id`)"},
		{false, Column{Type: "varchar", Length: 20}, "(`state`, `created`, `id`)"},
	} {
		m := &Mapping{ByRule: c.byRule, Category: "kind", Status: Status{Column: "state"}, Due: TimeColumn{Column: "created"}, ID: Key{Column: "id"}}
		got := m.AddDueIndex("orders", Table{Columns: map[string]Column{"kind": c.kind}})
		want := "CREATE INDEX `orderclose_overdue` ON `orders` " + c.want + " ALGORITHM=INPLACE LOCK=NONE"
		expect.That(t, got == want, "got %s, want %s", got, want)
	}
}

// The condition of a partial index is as PostgreSQL writes it. Behind an index that leaves out open orders each page would read the whole table.
func TestAddDueIndex_APartialIndexHasAllOpenOrders(t *testing.T) {
	for i, condition := range []string{"(state = 1)", "(state = '1'::smallint)", "((state)::text = '1'::text)", `(state = '1'::shop."OrderState")`,
		`(state = '1'::"Shop"."OrderState")`, "(state = '1'::shop2.order_state)", "(state = ANY ('{0,1}'::integer[]))",
		"(state = ANY (ARRAY[0, 1]))", "((state)::text = ANY ((ARRAY['0'::character varying, '1'::character varying(9)])::text[]))",
		"((gone IS NULL) AND (state = 1) AND (hidden = 0))", "(state = 10)", "(state <> 1)",
		"((state = 1) AND (due > '2026-01-01 00:00:00'::timestamp without time zone))", "((state = ANY (ARRAY[0, 1])) AND (hidden = 1))",
		"((state = 0) AND (hidden = ANY (ARRAY[0, 1])))", "(substate = 1)", "(due IS NOT NULL)"} {
		m := &Mapping{Status: Status{Column: "state", From: OneOf{IntValue(1)}}, Due: TimeColumn{Column: "due"}, ID: Key{Column: "id"},
			Where: []Condition{Is("hidden", IntValue(0)), Is("gone", Value{})}}
		table := Table{Postgres: true, Indexes: []Index{{Where: condition, Columns: []string{"due", "id"}}}}
		expect.Equal(t, m.AddDueIndex("orders", table) == "", i < 10, "it has all open orders: %s", condition)
	}
}

// Each value of a condition is compared with the column's type. Beside others NULL may be one that the column never has.
func TestCheckDatabase_TakesListsOfValues(t *testing.T) {
	zero := []Value{IntValue(0), {}}
	for _, c := range []struct {
		values Values
		Column
	}{
		{Values{Any: zero}, Column{Type: "int", Definition: "int"}},
		{Values{Any: zero, Not: true}, Column{Type: "int", Definition: "int", Nullable: true}},
		{Values{Any: zero}, Column{Type: "decimal", Definition: "decimal(10,2)"}},
		{Values{Any: []Value{IntValue(3), IntValue(4)}, Not: true}, Column{Type: "tinyint", Definition: "tinyint"}},
		{Values{Any: zero}, Column{Type: "bit", Definition: "bit(1)"}},
		{Values{Any: []Value{{}}, Not: true}, Column{Type: "datetime", Definition: "datetime", Nullable: true}},
	} {
		f, m := fittingSchema(), shop().WithDefaults()
		f["shop_orders_202611"].Columns["why"] = c.Column
		m.Where = []Condition{{"why", c.values}}
		got := m.CheckDatabase(f, []string{"shop_orders_202611"}, []string{"shop_lines_202611"})
		expect.That(t, len(got) == 0, "%v of %s: %v", c.values, c.Definition, got)
	}
}
