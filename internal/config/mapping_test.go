package config_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// mapped is a mapping with every key.
const mapped = `buckets: [1m]
orders:
  table: shop.orders_{yyyyMM}
  id: {column: no, type: integer, index: uk_no}
  status: {column: state, from: 1, to: 9, paid: [2, 3], closed: [8]}
  due: {column: deadline, type: datetime, zone: "+08:00", precision: s, index: by_deadline}
  created: {column: made, type: timestamp, precision: ms}
  closed_at: {column: shut, type: unix_s}
  category: kind
  lock: rev
  items: {table: "lines_{yyyyMM}", order: no, sku: sku, quantity: n}
  stock: {table: goods, sku: {column: id, type: integer, index: uk}, available: free, reserved: held}
  shards: {on: due, zone: Asia/Shanghai, months: 24}
  event: {type: order.gone, columns: [buyer, total]}
  set: {reason: 3, closed_by: timeout}
  set_paid: {reason: 7}
  where: {hidden: 0, deleted_at: null}
  on_close:
    - UPDATE coupons SET used = 0 WHERE order_no IN ({ids})
  not_before: 2026-11-20T08:00:00+08:00
  attributes: {payment_method: pay_type, shop no: shop}
  payment_id: paid_by
`

func TestOrders_ReadsEveryKey(t *testing.T) {
	want := &mapping.Mapping{
		Orders: "shop.orders_{yyyyMM}",
		ID:     mapping.Key{Column: "no", Type: mapping.Integer, Index: "uk_no"},
		Status: mapping.Status{
			Column: "state", From: mapping.OneOf{mapping.IntValue(1)}, To: mapping.IntValue(9), Paid: []mapping.Value{mapping.IntValue(2), mapping.IntValue(3)},
			Closed: []mapping.Value{mapping.IntValue(8)},
		},
		Due:          mapping.TimeColumn{Column: "deadline", Type: mapping.DateTime, Zone: "+08:00", Precision: mapping.Seconds},
		DueIndex:     "by_deadline",
		Created:      &mapping.TimeColumn{Column: "made", Type: mapping.Timestamp, Precision: mapping.Millis},
		ClosedAt:     []*mapping.TimeColumn{{Column: "shut", Type: mapping.UnixSeconds}},
		Category:     "kind",
		Attributes:   []mapping.Attribute{{Name: "payment_method", Column: "pay_type"}, {Name: "shop no", Column: "shop"}},
		Version:      "rev",
		PaymentID:    "paid_by",
		Items:        &mapping.Items{Table: "lines_{yyyyMM}", Order: "no", SKU: "sku", Quantity: "n"},
		Stock:        []*mapping.Stock{{Table: "goods", SKU: mapping.Key{Column: "id", Type: mapping.Integer, Index: "uk"}, Available: "free", Reserved: "held"}},
		Shards:       &mapping.Shards{On: mapping.OnDue, Zone: "Asia/Shanghai", Months: 24},
		Event:        "order.gone",
		Set:          []mapping.ColumnValue{{Column: "reason", Value: mapping.IntValue(3)}, {Column: "closed_by", Value: mapping.TextValue("timeout")}},
		SetPaid:      []mapping.ColumnValue{{Column: "reason", Value: mapping.IntValue(7)}},
		Where:        []mapping.Condition{mapping.Is("hidden", mapping.IntValue(0)), mapping.Is("deleted_at", mapping.Value{})},
		OnClose:      []string{"UPDATE coupons SET used = 0 WHERE order_no IN ({ids})"},
		EventColumns: []string{"buyer", "total"},
		NotBefore:    time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC),
	}
	expect.Same(t, parse(t, mapped).Orders, want, "orders")
}

func TestOrders_EmptySectionIsTheReferenceSchema(t *testing.T) {
	for _, file := range []string{"buckets: [1m]\n", "buckets: [1m]\norders:\n"} {
		m := parse(t, file).Orders
		expect.That(t, m == nil, "%q maps %+v", file, m)
	}
}

// Each change of the mapping above, with the expected error after "t:".
func TestOrders_ReportsMistakesAtTheirPosition(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"table: shop.orders_{yyyyMM}", "table: orders", `3:10: orders.table: "orders" has no placeholder for the month; write it as ` +
			`orders_{yyyyMM}, or remove shards`},
		{"zone: \"+08:00\", ", "", `6:8: orders.due.zone: no time zone is given, and the zone of the machine is not used; say in which zone the column is written: ` +
			`UTC, an offset such as "+08:00", or a name such as Asia/Shanghai`},
		{"+08:00", "+99:00", `6:49: orders.due.zone: "+99:00" is not an offset of any time zone; say in which zone the column is written: UTC, an offset such as ` +
			`"+08:00", or a name such as Asia/Shanghai`},
		{"type: timestamp, precision: ms", "type: time, precision: ms",
			`7:33: orders.created.type: "time" is not a type of a time; write datetime, timestamp, timestamptz, unix_s or unix_ms`},
		{"type: unix_s", "type: unix_s, precision: s", `8:54: orders.closed_at.precision: the type unix_s has a fixed precision; remove it`},
		{"reason: 3", "reason: 3.5", `15:17: orders.set.reason: "3.5" is not a constant; write a whole number, or text in quotes`},
		{"reason: 3", "state: 3", `15:16: orders.set.state: column shop.orders_{yyyyMM}.state is mapped as the order's status and as a constant of a closed order: ` +
			`a close writes a constant to it, which destroys the order's status; map the column that holds a constant of a closed order, or remove set.state`},
		{"hidden: 0", "hidden: []", `17:19: orders.where.hidden: the list is empty; list the values, or remove the key`},
		{"hidden: 0", "hidden: [0, [1]]", `17:23: orders.where.hidden: want a constant, found a list; write a whole number, or text in quotes`},
		{"hidden: 0", "hidden: {only: 0}", `17:19: orders.where.hidden: want a constant, found keys with values; write a whole number, or text in quotes`},
		{"hidden: 0", "reason: 0", `15:17: orders.set.reason: column shop.orders_{yyyyMM}.reason is mapped as a condition of a close and as a constant of a closed ` +
			`order: a close writes a constant to it, which destroys a condition of a close; map the column that holds a constant of a closed ` +
			`order, or remove set.reason`},
		{"T08:00:00+08:00", "T08:00:00", `20:15: orders.not_before: "2026-11-20T08:00:00" is not a moment with a time zone; write a moment with its time zone, ` +
			`such as 2026-11-20T00:00:00+08:00`},
		{"T08:00:00+08:00", "T08:00:00.5Z", `20:15: orders.not_before: 2026-11-20T08:00:00.5Z has a fraction of a second; write whole seconds`},
		{"from: 1", "from: yes", `5:11: orders.status: "yes" and 9 are of different kinds; put all values in quotes if the column holds text, and ` +
			`none if it holds numbers`},
		{"from: 1", "from: 1.5", `5:33: orders.status.from: "1.5" is not a status; write a whole number, or text in quotes`},
		{"from: 1", "from: 010", `5:33: orders.status.from: "010" is not a status; write a whole number, or text in quotes`},
		{"paid: [2, 3]", "paid: [2, 9]", `5:11: orders.status: 9 is listed with two meanings; list each value once`},
		{"column: no", "colum: no", `4:8: orders.id: unknown key "colum"; did you mean column?`},
		{"  event: {type: order.gone, columns: [buyer, total]}\n", "  event: Gone!\n",
			`14:10: orders.event.type: "Gone!" cannot be the type of an event; use a-z, 0-9, dot and underscore, such as order.receipt_confirmed`},
		{"quantity: n", "quantity: n-1", `11:67: orders.items.quantity: "n-1" contains '-': orderclose supports letters, digits, _ and $ in names; write the ` +
			`name of the column or index as the database has it, or rename it there`},
		{"  stock: {table: goods, sku: {column: id, type: integer, index: uk}, available: free, reserved: held}\n", "",
			`3:3: orders: stock is missing; describe it, or write stock: none`},
		{"stock: {table: goods, sku: {column: id, type: integer, index: uk}, available: free, reserved: held}", "stock:",
			`12:9: orders.stock: has no value; describe it, or write none`},
		{"items: {table: \"lines_{yyyyMM}\", order: no, sku: sku, quantity: n}", "items: none",
			`12:10: orders.stock: stock is mapped, but no items that say how much to release; describe items, or write stock: none`},
		{"months: 24", "months: 1", `13:50: orders.shards.months: reading 1 months, the current one included, misses orders that are due after the end of a month; ` +
			`write 2 or more, at most 60, or remove it: then it is 13`},
		{"on: due, zone: Asia/Shanghai, months: 24", "on: created, zone: Asia/Shanghai, months: 3",
			`13:54: orders.shards.months: reading 3 months, the current one included, misses orders that are due after the end of a month; write 4 or more, at most ` +
				`60, or remove it: then it is 13`},
		{"months: 24", "months: 0", `13:50: orders.shards.months: 0 is out of range; write one from 1 to 60`},
	} {
		file := strings.Replace(mapped, c.from, c.to, 1)
		_, err := config.Parse("t", []byte(file))
		if file == mapped || err == nil {
			t.Errorf("%q for %q: %v", c.to, c.from, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		expect.That(t, slices.Contains(lines, "t:"+c.want), "%q for %q:\n got %s\nwant t:%s", c.to, c.from, err, c.want)
	}
}

// The longest delay decides how many months must be searched.
func TestOrders_BackDependsOnTheLongestDelay(t *testing.T) {
	for _, c := range []struct {
		on, max string
		least   int
	}{{"due", "720h", 2}, {"created", "720h", 4}, {"created", "672h", 3}, {"created", "1h", 3}} {
		for back := 1; back <= 5; back++ {
			file := strings.Replace(mapped, "on: due, zone: Asia/Shanghai, months: 24", fmt.Sprintf("on: %s, zone: Asia/Shanghai, months: %d", c.on, back), 1)
			file += "delays: {default: 30m, max: " + c.max + "}\n"
			_, err := config.Parse("t", []byte(file))
			if want := fmt.Sprintf("write %d or more", c.least); back >= c.least && err != nil || back < c.least &&
				(err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("on %s, max %s, back %d: %v; want %d or more", c.on, c.max, back, err, c.least)
			}
			expect.That(t, err == nil || !strings.Contains(err.Error(), "\n"), "the problem is reported more than once: %v", err)
		}
	}
}

// The commented example of a mapping in the shipped file, with the comment marks removed.
func TestOrders_TheShippedExampleIsValid(t *testing.T) {
	data := must.Get(os.ReadFile(shipped))(t)
	_, example, found := strings.Cut(string(data), "\n# orders:\n")
	m := parse(t, "buckets: [1m]\norders:\n"+strings.ReplaceAll("\n"+example, "\n# ", "\n")).Orders
	expect.That(t, found && m != nil && len(m.Stock) != 0 && m.Due.Zone == "+08:00", "the example is read as %+v", m)
}

// Keys that take one column or table, or several of them.
func TestOrders_ReadsListsOfColumnsAndTables(t *testing.T) {
	const base = `buckets: [1m]
orders:
  table: o
  id: {column: id, type: uuid_binary}
  status: {column: state, from: 1, to: 9}
  due: {column: deadline, type: datetime, zone: "+08:00", precision: s}
`
	const rest = `  items: {table: l, order: o, sku: s, quantity: n, location: shed, where: {deleted: [0, null], price: 0.10, gone: null, kind: {not: [gift, 3]}}}
  stock:
    - {table: st, sku: {column: sku, type: uuid_binary}, location: {column: shed, type: integer}, available: free, lock: [rev, {column: at, type: unix_s}]}
    - {table: p, sku: id, line: product, available: total}
`
	due := mapping.TimeColumn{Column: "deadline", Type: mapping.DateTime, Zone: "+08:00", Precision: mapping.Seconds}
	end, millis := due, mapping.TimeColumn{Column: "gone_ms", Type: mapping.UnixMillis}
	end.Column = "end_time"
	for lines, change := range map[string]func(m *mapping.Mapping){
		"":                                     func(*mapping.Mapping) {},
		"  closed_at:\n":                       func(*mapping.Mapping) {},
		"  closed_at: end_time\n  lock: rev\n": func(m *mapping.Mapping) { m.ClosedAt, m.Version = []*mapping.TimeColumn{&end}, "rev" },
		"  closed_at: [end_time]\n  lock: [rev]\n":                    func(m *mapping.Mapping) { m.ClosedAt, m.Version = []*mapping.TimeColumn{&end}, "rev" },
		"  lock: {column: gone_ms, type: unix_ms}\n":                  func(m *mapping.Mapping) { m.Lock = &millis },
		"  lock: [{column: rev}, {column: gone_ms, type: unix_ms}]\n": func(m *mapping.Mapping) { m.Lock, m.Version = &millis, "rev" },
		"  closed_at: [{column: gone_ms, type: unix_ms}, end_time]\n": func(m *mapping.Mapping) { m.ClosedAt = []*mapping.TimeColumn{&millis, &end} },
	} {
		binary := mapping.Key{Column: "sku", Type: mapping.UUIDBinary}
		want := &mapping.Mapping{
			Orders: "o", ID: mapping.Key{Column: "id", Type: mapping.UUIDBinary}, Status: mapping.Status{Column: "state", From: mapping.OneOf{mapping.IntValue(1)},
				To: mapping.IntValue(9)}, Due: due,
			Items: &mapping.Items{Table: "l", Order: "o", SKU: "s", Quantity: "n", Location: "shed",
				Where: []mapping.Condition{{Column: "deleted", Values: mapping.Values{Any: []mapping.Value{mapping.IntValue(0), {}}}},
					mapping.Is("price", mapping.Value{Text: "0.10", Number: true}), mapping.Is("gone", mapping.Value{}),
					{Column: "kind", Values: mapping.Values{Any: []mapping.Value{mapping.TextValue("gift"), mapping.IntValue(3)}, Not: true}}}},
			Stock: []*mapping.Stock{{Table: "st", SKU: binary, Location: mapping.Key{Column: "shed", Type: mapping.Integer}, Available: "free",
				Version: "rev", Lock: &mapping.TimeColumn{Column: "at", Type: mapping.UnixSeconds}},
				{Table: "p", SKU: mapping.Key{Column: "id"}, Line: "product", Available: "total"}},
		}
		change(want)
		expect.Same(t, parse(t, base+lines+rest).Orders, want, "%q", lines)
	}
	for lines, want := range map[string]string{
		"  lock: [a, b]\n":                          `t:7:13: orders.lock: is a second lock of the same kind; map one number and one time at most`,
		"  lock: state\n":                           `t:7:9: orders.lock: column o.state is mapped as the order's status and as the order's version`,
		"  lock: {column: a, type: datetime}\n":     `t:7:9: orders.lock.zone: no time zone is given`,
		"  closed_at: [end_time, deadline]\n":       `t:7:25: orders.closed_at[1].column: column o.deadline is mapped as when the order is due`,
		"  closed_at: [end_time, {column: x}, 7]\n": `t:7:38: orders.closed_at[2]: 7 is read as a value other than text`,
		"  closed_at: [~]\n":                        `t:7:15: orders.closed_at.column: the name is missing`,
		"  closed_at: [{column: x, type: date}]\n":  `t:7:33: orders.closed_at.type: "date" is not a type of a time`,
	} {
		_, err := config.Parse("t", []byte(base+lines+rest))
		expect.That(t, err != nil && strings.Contains(err.Error(), want), "%q: got %v\nwant %s", lines, err, want)
	}
	for from, want := range map[string]string{
		"table: p, ":         `orders.stock[1].table: the name is missing`,
		"table: p":           `orders.stock[1].table: table st is listed twice`,
		"location: shed, ":   `orders.stock.location: the stock is kept by location, but no column of the lines says which`,
		"line: product":      `orders.stock[1].line: "a b" contains ' '`,
		", available: total": `orders.stock[1]: neither available nor reserved is named`,
	} {
		to := map[string]string{"table: p": "table: st", "line: product": "line: a b"}[from]
		_, err := config.Parse("t", []byte(base+strings.Replace(rest, from, to, 1)))
		expect.That(t, err != nil && strings.Contains(err.Error(), want), "%q: got %v\nwant %s", from, err, want)
	}
}

func TestMapping_ATimestampTZNeedsNoPrecision(t *testing.T) {
	const lines = `buckets: [1m]
orders:
  table: o
  id: id
  status: {column: state, from: 1, to: 9}
  due: {column: deadline, type: timestamptz}
  created: {column: made, type: timestamptz, precision: ms}
  closed_at: [gone, {column: seen, type: timestamptz}]
  items: none
  stock: none
`
	column := func(name string, p mapping.Precision) mapping.TimeColumn {
		return mapping.TimeColumn{Column: name, Type: mapping.TimestampTZ, Precision: p}
	}
	made, gone, seen := column("made", mapping.Millis), column("gone", mapping.Micros), column("seen", mapping.Micros)
	m := parse(t, lines).Orders
	expect.Same(t, m.Due, column("deadline", mapping.Micros), "due")
	expect.Same(t, append([]*mapping.TimeColumn{m.Created}, m.ClosedAt...), []*mapping.TimeColumn{&made, &gone, &seen}, "created and closed_at")
	for _, other := range []string{"timestamp}", "datetime, zone: UTC}"} {
		_, err := config.Parse("t", []byte(strings.Replace(lines, "timestamptz}", other, 1)))
		expect.That(t, err != nil && strings.Contains(err.Error(), `orders.due.precision: "" is not a precision`), "%s: %v", other, err)
	}
}
