package tables

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// shop is a mapping that nothing is wrong with.
func shop() *Mapping {
	return &Mapping{
		Orders: "shop_orders_{yyyyMM}",
		ID:     Key{Column: "id", Type: Integer},
		Status: Status{Column: "state", From: Word("WAIT_PAY"), To: Word("CLOSED"), Closed: []Value{Word("CANCELLED")}},
		Due:    Moment{Column: "pay_deadline", Type: DateTime, Zone: "+08:00", Precision: Seconds},
		Items:  &Items{Table: "shop_lines_{yyyyMM}", Order: "order_id", SKU: "sku", Quantity: "num"},
		Stock:  &Stock{Table: "shop_stock", SKU: Key{Column: "sku"}, Available: "free", Reserved: "held"},
		Shards: &Shards{By: ByMonth, On: OnCreated, Zone: "Asia/Shanghai"},
	}
}

func TestCheck_SaysWhatIsWrong(t *testing.T) {
	for _, m := range []*Mapping{shop(), Reference()} {
		if err := Err(m.Check()); err != nil {
			t.Errorf("a good mapping: %v", err)
		}
	}
	for _, c := range []struct {
		change func(m *Mapping)
		want   string // path: a part of what is said
	}{
		{func(m *Mapping) { m.Orders = "" }, "table: has no place for the month"},
		{func(m *Mapping) { m.Shards, m.Items = nil, nil; m.Stock = nil }, "table: there are no shards"},
		{func(m *Mapping) { m.Orders = "o`; DROP TABLE x_{yyyyMM}" }, "table: names have letters"},
		{func(m *Mapping) { m.ID.Column = "" }, "id.column: missing"},
		{func(m *Mapping) { m.ID.Type = "uuid" }, `id.type: "uuid" is no type`},
		{func(m *Mapping) { m.Status.To = Word("WAIT_PAY") }, "status.to: before the close too"},
		{func(m *Mapping) { m.Status.To = Int(2) }, "status: of two kinds"},
		{func(m *Mapping) { m.Status.From = Value{} }, "status.from: missing"},
		{func(m *Mapping) { m.Status.Paid = []Value{Word("CANCELLED")} }, "status: listed as two things"},
		{func(m *Mapping) { m.Due.Zone = "" }, "due.zone: no zone is given"},
		{func(m *Mapping) { m.Due.Type = Timestamp }, "due.zone: has no zone"},
		{func(m *Mapping) { m.Due.Precision = "" }, "due.precision: is no precision"},
		{func(m *Mapping) { m.Due.Type, m.Due.Zone = UnixMillis, "" }, "due.precision: has one of its own"},
		{func(m *Mapping) { m.Due.Type = "date" }, `due.type: "date" is no type`},
		{func(m *Mapping) { m.Items = nil }, "stock: no items"},
		{func(m *Mapping) { m.Shards.By = "day" }, `shards.by: "day"`},
		{func(m *Mapping) { m.Shards.On = "paid" }, `shards.on: "paid"`},
		{func(m *Mapping) { m.Shards.Zone = "Mars" }, `shards.zone: "Mars"`},
		{func(m *Mapping) { m.Shards.Back = 2 }, "shards.back: looking at 2 months"},
		{func(m *Mapping) { m.Shards.Back, m.Shards.On = 1, OnDue }, "shards.back: looking at 1 months"},
		{func(m *Mapping) { m.Shards.Back = 61 }, "shards.back: 61 is out of range"},
		{func(m *Mapping) { m.Event = "Order Closed" }, "event: cannot be the type"},
	} {
		m := shop()
		c.change(m)
		wantOne(t, m.Check(), c.want)
	}
}

// Whatever the day and the delay, an order's month is looked at when it is due and in
// all of the month after.
func TestLeastBack_MissesNoOrder(t *testing.T) {
	for _, longest := range []time.Duration{time.Hour, 28 * 24 * time.Hour, 28*24*time.Hour + 1, 30 * 24 * time.Hour} {
		least := (&Shards{On: OnCreated}).LeastBack(longest)
		for day := range 4 * 366 {
			created := time.Date(2026, 1, 1+day, 23, 59, 59, 0, time.UTC)
			last := MonthOf(created.Add(longest), time.UTC) + 1
			if MonthOf(created, time.UTC) <= last-Month(least) {
				t.Fatalf("%v after %v, the last %d months leave out its table", longest, created, least)
			}
		}
	}
}

// wantOne wants one problem: its path, and after a colon a part of what it says.
func wantOne(t *testing.T, got []Problem, want string) {
	t.Helper()
	path, what, _ := strings.Cut(want, ": ")
	if len(got) != 1 || got[0].Path != path || !strings.Contains(got[0].What, what) || got[0].Do == "" {
		t.Errorf("got %v; want one that says %q", got, want)
	}
}

// facts are those of tables that fit the mapping of shop, in November.
func facts() Facts {
	return Facts{
		"shop_orders_202611": {
			Engine: "InnoDB",
			Columns: map[string]Column{
				"id": {Type: "bigint", Definition: "bigint(20) unsigned"}, "state": {Type: "enum", Definition: "enum('WAIT_PAY','CLOSED')"},
				"pay_deadline": {Type: "datetime", Definition: "datetime"},
			},
			Indexes: []Index{{"PRIMARY", true, []string{"id"}}, {"due", false, []string{"state", "pay_deadline"}}},
		},
		"shop_lines_202611": {
			Engine: "InnoDB",
			Columns: map[string]Column{
				"order_id": {Type: "bigint", Definition: "bigint"}, "sku": {Type: "varchar", Definition: "varchar(32)"}, "num": {Type: "int", Definition: "int"},
			},
			Indexes: []Index{{"order_id", false, []string{"order_id", "sku"}}},
		},
		"shop_stock": {
			Engine:  "InnoDB",
			Columns: map[string]Column{"sku": {Type: "varchar", Definition: "varchar(32)"}, "free": {Type: "int"}, "held": {Type: "int"}},
			Indexes: []Index{{"PRIMARY", true, []string{"sku"}}},
		},
	}
}

func TestJudge_SaysWhatDoesNotFit(t *testing.T) {
	const orders = "shop_orders_202611"
	judged := func(m *Mapping, f Facts) []Problem {
		return m.WithDefaults().Judge(f, []string{orders}, []string{"shop_lines_202611"})
	}
	if got := judged(shop(), facts()); len(got) != 0 {
		t.Errorf("tables that fit: %v", got)
	}
	change := func(table string, change func(t *Table)) func(*Mapping, Facts) {
		return func(_ *Mapping, f Facts) {
			t := f[table]
			change(&t)
			f[table] = t
		}
	}
	column := func(name string, c Column) func(*Mapping, Facts) {
		return change(orders, func(t *Table) { t.Columns[name] = c })
	}
	for _, c := range []struct {
		change func(m *Mapping, f Facts)
		want   string
	}{
		{func(_ *Mapping, f Facts) { delete(f, orders) }, "table: there is no table shop_orders_202611"},
		{change(orders, func(t *Table) { t.Engine = "MyISAM" }), "table: which has no transactions"},
		{change(orders, func(t *Table) { delete(t.Columns, "state") }), "status.column: there is no column shop_orders_202611.state"},
		{column("id", Column{Type: "varchar", Definition: "varchar(64)"}), "id.column: varchar(64), and is mapped as integer"},
		{column("state", Column{Type: "tinyint", Definition: "tinyint"}), "status: its values are text"},
		{func(m *Mapping, _ Facts) { m.Status = Status{Column: "state", From: Int(0), To: Int(2)} }, "status: its values are numbers"},
		{func(m *Mapping, _ Facts) { m.Status.To = Word("SHUT") }, `status.to: has no "SHUT"`},
		{column("pay_deadline", Column{Type: "timestamp", Definition: "timestamp"}), "due.type: timestamp, and is mapped as datetime"},
		{column("pay_deadline", Column{Type: "datetime", Definition: "datetime(3)", Digits: 3}), "due.precision: datetime(3)"},
		{change(orders, func(t *Table) { t.Indexes = t.Indexes[1:] }), "id.index: no unique index PRIMARY on id"},
		{change(orders, func(t *Table) { t.Indexes = t.Indexes[:1] }), "due.index: would read all of it"},
		{func(m *Mapping, _ Facts) { m.DueIndex = "gone" }, "due.index: no index gone"},
		{change("shop_lines_202611", func(t *Table) { t.Indexes = nil }), "items.order: no index that begins with order_id"},
		{change("shop_lines_202611", func(t *Table) { t.Columns["num"] = Column{Type: "decimal", Definition: "decimal(10,2)"} }), "items.quantity: decimal(10,2), which may hold other than whole numbers"},
		{column("id", Column{Type: "binary", Definition: "binary(16)"}), "id.column: binary(16), and an id or SKU has to be text"},
		{change("shop_lines_202611", func(t *Table) { t.Columns["order_id"] = Column{Type: "varbinary", Definition: "varbinary(16)"} }), "items.order: varbinary(16), and an id"},
		{change("shop_lines_202611", func(t *Table) { t.Columns["sku"] = Column{Type: "blob", Definition: "blob"} }), "items.sku: blob, and an id or SKU"},
		{change("shop_lines_202611", func(t *Table) { delete(t.Columns, "sku") }), "items.sku: there is no column"},
		{change("shop_stock", func(t *Table) { t.Columns["sku"] = Column{Type: "binary", Definition: "binary(4)"} }), "stock.sku.column: binary(4), and an id or SKU"},
		{change("shop_stock", func(t *Table) { t.Indexes = nil }), "stock.sku.index: no unique index PRIMARY on sku"},
		{change("shop_stock", func(t *Table) { delete(t.Columns, "held") }), "stock.reserved: there is no column shop_stock.held"},
	} {
		m, f := shop(), facts()
		c.change(m, f)
		wantOne(t, judged(m, f), c.want)
	}
}

func TestErr_HasALineForEach(t *testing.T) {
	problems := []Problem{{"due.zone", "none is given", "write one"}, {"table", "it is gone", "look for it"}}
	lines := strings.Split(fmt.Sprint(Err(problems)), "\n")
	if !slices.Equal(lines, []string{"orders.due.zone: none is given; write one", "orders.table: it is gone; look for it"}) || Err(nil) != nil {
		t.Errorf("%q", lines)
	}
}
