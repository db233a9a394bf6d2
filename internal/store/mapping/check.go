package mapping

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
)

// Problem is one mistake in a mapping, or in the tables that the mapping names.
type Problem struct {
	At   string // position of the key, as file:line:column; empty: not known
	Path string // the key under orders in topics.yaml, such as due.zone
	What string // what is wrong, and in which table and column
	Why  string // what harm it would do; empty: What says so
	Fix  string // how to fix it
	// Accept is the name under which topics.yaml can accept the problem; empty: it cannot.
	Accept string
}

func (p Problem) Error() string {
	at := ""
	if p.At != "" {
		at = p.At + ": "
	}
	return at + "orders." + p.Path + ": " + p.Reason() + "; " + p.How()
}

// How returns how to fix the problem, and how to accept it if that is possible.
func (p Problem) How() string { return OrAccept(p.Fix, p.Accept) }

// Reason returns what is wrong, and what harm it would do.
func (p Problem) Reason() string {
	if p.Why == "" {
		return p.What
	}
	return p.What + ": " + p.Why
}

// Err returns an error with a line for each problem, or nil if there is none.
func Err(problems []Problem) error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// Check returns the problems of a mapping that can be found without a database.
func (m *Mapping) Check() []Problem {
	var c checker
	c.table("table", m.Orders, m.Shards != nil)
	c.key("id", m.ID)
	c.status(m.Status)
	for _, t := range m.TimeColumns() {
		c.timeColumn(t.Path, t.TimeColumn)
	}
	c.optional("due.index", m.DueIndex)
	c.optional("category", m.Category)
	c.optional("lock", m.Version)
	c.optional("payment_id", m.PaymentID)
	c.constants(m)
	c.itemsAndStock(m)
	c.distinct(m)
	c.onClose(m)
	if m.Shards != nil {
		c.shards(m.Shards)
	}
	if m.ByRule {
		c.byRule(m)
	}
	for i, name := range m.EventColumns {
		path := fmt.Sprintf("event.columns[%d]", i)
		if c.name(path, name); slices.Contains(m.EventColumns[:i], name) {
			c.report(path, fmt.Sprintf("%q is listed twice", name), "list it once")
		}
	}
	for _, a := range m.Attributes {
		c.name("attributes."+a.Name, a.Column)
	}
	if slices.Contains([]string{orderclose.EventOrderPaid, orderclose.EventOrderPaidLate, orderclose.EventOrderReminder}, m.Event) {
		c.report("event.type", m.Event+" is the type of other events", "choose another, such as order.receipt_confirmed")
	}
	if len(m.Event) > 64 || strings.ContainsFunc(m.Event, notEventType) {
		c.report("event.type", fmt.Sprintf("%q cannot be the type of an event", m.Event), "use a-z, 0-9, dot and underscore, such as order.receipt_confirmed")
	}
	return m.Unaccepted(c.problems)
}

func notEventType(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_')
}

// checker collects the problems that its methods find. path is the key under orders in topics.yaml.
type checker struct{ problems []Problem }

func (c *checker) report(path, what, do string) {
	c.reportHarm(path, what, "", do)
}

// reportHarm is like report, and also says why: the harm that the mistake would do.
func (c *checker) reportHarm(path, what, why, do string) {
	c.problems = append(c.problems, Problem{Path: path, What: what, Why: why, Fix: do})
}

// reportAcceptable is like reportHarm, for a problem that topics.yaml may accept by name.
func (c *checker) reportAcceptable(name, path, what, why, do string) {
	c.problems = append(c.problems, Problem{Path: path, What: what, Why: why, Fix: do, Accept: name})
}

func (c *checker) name(path, name string) {
	if err := checkName(name); err != nil {
		c.report(path, err.Error(), "write the name of the column or index as the database has it, or rename it there")
	}
}

func (c *checker) optional(path, name string) {
	if name != "" {
		c.name(path, name)
	}
}

func (c *checker) table(path, name string, sharded bool) {
	switch {
	case IsPattern(name) && !sharded:
		c.report(path, fmt.Sprintf("%q is a pattern, but no shards are mapped", name), `add shards: {"on": created, zone: UTC}, or name one table`)
	case IsPattern(name):
		if _, err := ParsePattern(name); err != nil {
			c.report(path, err.Error(), "write it as orders_{yyyyMM}")
		}
	case sharded && path == "table":
		c.report(path, fmt.Sprintf("%q has no placeholder for the month", name), "write it as "+name+"_{yyyyMM}, or remove shards")
	default:
		if err := checkTable(name); err != nil {
			c.report(path, err.Error(), "write the name of the table as the database has it, as table or database.table, or rename it there")
		}
	}
}

func (c *checker) key(path string, k Key) {
	c.name(path+".column", k.Column)
	c.optional(path+".index", k.Index)
	if k.Type != "" && !slices.Contains(keyTypesKnown, k.Type) {
		c.report(path+".type", fmt.Sprintf("%q is not a type of an id", string(k.Type)), "write text, integer, uuid, uuid_binary or uuid_binary_swapped")
	}
}

func (c *checker) status(s Status) {
	c.name("status.column", s.Column)
	for path, missing := range map[string]bool{"status.from": len(s.From) == 0, "status.to": s.To == Value{}} {
		if missing {
			c.report(path, "the value is missing", "write the status before and after the close, such as from: 0 and to: 2")
		}
	}
	if slices.Contains(s.From, s.To) {
		c.report("status.to", fmt.Sprintf("%v is also the status before the close", s.To), "write the status that a closed order has")
	}
	all := slices.Concat(s.From, []Value{s.To}, s.Paid, s.Closed)
	for i, v := range all {
		if v.Number != all[0].Number && v != (Value{}) {
			c.report("status", fmt.Sprintf("%v and %v are of different kinds", all[0], v),
				"put all values in quotes if the column holds text, and none if it holds numbers")
			return
		}
		if i > len(s.From) && slices.Contains(s.From, v) || slices.Contains(s.Paid, v) && (v == s.To || slices.Contains(s.Closed, v)) {
			c.report("status", fmt.Sprintf("%v is listed with two meanings", v), "list each value once")
			return
		}
	}
}

func (c *checker) timeColumn(path string, m *TimeColumn) {
	c.name(path+".column", m.Column)
	if !slices.Contains(TimeTypes(), m.Type) {
		c.report(path+".type", fmt.Sprintf("%q is not a type of a time", string(m.Type)), "write datetime, timestamp, timestamptz, unix_s or unix_ms")
		return
	}
	dated := m.Type == DateTime || m.Type == Timestamp || m.Type == TimestampTZ
	switch _, err := ParseZone(m.Zone); {
	case m.Type == DateTime && err != nil:
		c.report(path+".zone", err.Error(), "say in which zone the column is written: UTC, an offset such as \"+08:00\", or a name such as Asia/Shanghai")
	case m.Type != DateTime && m.Zone != "":
		c.report(path+".zone", fmt.Sprintf("a column of type %s has no zone", m.Type), "remove it")
	}
	switch {
	case dated && !slices.Contains(Precisions(), m.Precision):
		c.report(path+".precision", fmt.Sprintf("%q is not a precision", string(m.Precision)), "write s for DATETIME, ms for DATETIME(3), us for DATETIME(6)")
	case !dated && m.Precision != "":
		c.report(path+".precision", fmt.Sprintf("the type %s has a fixed precision", m.Type), "remove it")
	}
}

func (c *checker) constants(m *Mapping) {
	for i, columns := range [][]ColumnValue{m.Set, m.SetPaid} {
		for _, v := range columns {
			c.name([]string{"set.", "set_paid."}[i]+v.Column, v.Column)
		}
	}
	for _, w := range m.Where {
		c.name("where."+w.Column, w.Column)
	}
	if m.Items != nil {
		for _, w := range m.Items.Where {
			c.name("items.where."+w.Column, w.Column)
		}
	}
	if m.NotBefore.Nanosecond() != 0 {
		c.report("not_before", m.NotBefore.Format(time.RFC3339Nano)+" has a fraction of a second", "write whole seconds")
	}
	if _, ok := m.Status.Pay(); len(m.SetPaid) > 0 && !ok {
		c.report("set_paid", "no paid status is mapped, so no order is ever marked as paid", "list the paid status in status.paid, or remove set_paid")
	}
}

func (c *checker) itemsAndStock(m *Mapping) {
	if m.Items != nil {
		c.table("items.table", m.Items.Table, m.Shards != nil)
		c.name("items.order", m.Items.Order)
		c.name("items.sku", m.Items.SKU)
		c.name("items.quantity", m.Items.Quantity)
		c.optional("items.location", m.Items.Location)
	}
	for i, s := range m.Stock {
		c.stock(m, StockPath(i), s)
	}
	if m.Items == nil && len(m.Stock) > 0 {
		c.report("stock", "stock is mapped, but no items that say how much to release", "describe items, or write stock: none")
	}
}

// distinct checks that each table and each column has one purpose, as far as their names
// tell.
func (c *checker) distinct(m *Mapping) {
	items, stock := m.tables()
	c.refuseOwnTable("table", m.Orders) //mutant:own-table-mapped
	c.refuseOwnTable("items.table", items)
	for i, s := range m.Stock {
		c.refuseOwnTable(StockPath(i)+".table", s.Table)
		c.stockApart(StockPath(i)+".table", m.Orders, items, s.Table)
	}
	if !slices.ContainsFunc(c.problems, func(p Problem) bool { return strings.HasPrefix(p.Path, "stock") && strings.HasSuffix(p.Path, ".table") }) {
		c.onePurposeEach(m.purposes(m.Orders, items, stock))
	}
}

func (c *checker) shards(s *Shards) {
	if s.On != OnCreated && s.On != OnDue {
		c.report("shards.on", fmt.Sprintf("%q is neither created nor due", s.On), "say which of an order's times decides in which month's table it is")
	}
	if _, err := ParseZone(s.Zone); err != nil {
		c.report("shards.zone", err.Error(), "say where a month begins: UTC, an offset such as \"+08:00\", or a name such as Asia/Shanghai")
	}
	if s.Months != 0 {
		c.problems = append(c.problems, s.CheckMonths(0)...)
	}
}

// MaxMonths bounds the number of tables that one page is read from.
const MaxMonths = 60

// shortestMonth is the length of the shortest month: with a longer delay, a whole month may
// lie between the month of an order and the month of its due time.
const shortestMonth = 28 * 24 * time.Hour

// MinMonths returns the minimum of Months: how many months must be read so that an order with a delay of up to
// maxDelay is seen in the month of its due time and in all of the next month.
func (s *Shards) MinMonths(maxDelay time.Duration) int {
	if s.On == OnDue {
		return 2
	}
	return 2 + max(1, int((maxDelay+shortestMonth-1)/shortestMonth))
}

// CheckMonths returns the problems of Months for orders with a delay of up to maxDelay. With 0
// it checks only against the smallest minimum, as if all delays were short. The sweep and the
// closer miss orders in tables that are not read.
func (s *Shards) CheckMonths(maxDelay time.Duration) []Problem {
	least := s.MinMonths(maxDelay)
	switch {
	case s.Months > MaxMonths || s.Months < 0:
		return []Problem{{Path: "shards.months", What: fmt.Sprintf("%d is out of range", s.Months),
			Fix: fmt.Sprintf("write how many months to read, %d to %d", least, MaxMonths)}}
	case s.Months < least:
		return []Problem{{
			Path: "shards.months", What: fmt.Sprintf("reading %d months, the current one included, misses orders that are due after the end of a month", s.Months),
			Fix: fmt.Sprintf("write %d or more, at most %d, or remove it: then it is %d", least, MaxMonths, DefaultMonths),
		}}
	}
	return nil
}
