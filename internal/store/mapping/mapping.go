// Package mapping describes where a shop keeps its orders, their lines and the stock: which
// tables and columns, and how to read them. A Mapping is plain data, so a configuration can
// be compared and checked before a database is asked.
//
// Build a Mapping. Check returns the mistakes in the mapping itself. CheckDatabase returns what
// keeps the mapping from working on the tables of a database.
//
// The schema that orderclose migrate creates is the mapping Reference. The store reaches
// every table through a Mapping.
package mapping

import (
	"cmp"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
)

// Mapping describes where orders are and what closing an order changes. The tags are keys of topics.yaml: package config reads them.
type Mapping struct {
	// Orders is the table of orders, as "table" or "database.table". With Shards it is a
	// pattern, such as orders_{yyyyMM} or orders_{yyyy_MM}.
	Orders string `yaml:"table"`
	ID     Key    `yaml:"id"`
	Status Status `yaml:"status"`
	// Due is when an order is closed if its status is still Status.From. NULL, 0 and the
	// zero date are not due times: such an order is never closed.
	Due TimeColumn `yaml:"due"`
	// ByRule says that Due is when an order is created, as Created is too. The order is due when the delay that was in
	// force then is over.
	ByRule bool `yaml:"due.from"`
	// DueIndex names the index on status, due and id, which the queries for pages of orders force.
	// Empty: the database chooses an index.
	DueIndex string        `yaml:"due.index"`
	Created  *TimeColumn   `yaml:"created"`          // nil: there is no such column
	ClosedAt []*TimeColumn `yaml:"closed_at" one:""` // a close sets them to its time; only the first is read
	PaidAt   *TimeColumn   // PayOrders sets it to the time of the payment; only Reference has it
	// PaymentID is a text column for the provider's id of the payment that paid the order, which RecordPayment
	// writes; NULL or empty: none. Without it a second payment of an order is not known from a repeated one.
	PaymentID string `yaml:"payment_id"`
	Category  string `yaml:"category"`     // a column; empty: orders have no category
	Version   string `yaml:"lock.version"` // a column that grows by one with each change; empty: there is no such column
	// Lock is a time that each change of an order sets to the present, or to one step after the time that it
	// has: it never stays the same. The shop's code sees by Version or Lock that a row was changed (an
	// optimistic lock). nil: there is no such column
	Lock *TimeColumn `yaml:"lock"`
	// Set lists further columns of the order that a close sets. SetPaid lists those that are set with
	// the paid status of an order that was paid according to the payment provider.
	Set     []ColumnValue `yaml:"set" keyed:""`
	SetPaid []ColumnValue `yaml:"set_paid" keyed:""`
	// Where lists columns and the values that an order must have to be closed. NotBefore is the earliest due
	// time of an order that is closed, in whole seconds; the zero time: any. All other unpaid orders are excluded: a close leaves them as they are.
	Where     []Condition `yaml:"where" keyed:"conditions"`
	NotBefore time.Time   `yaml:"not_before"`
	// OnClose lists further statements of a close, in the order in which they run. Each is UPDATE t SET …
	// WHERE …, DELETE FROM t WHERE … or INSERT INTO t …, where t is one table that is not mapped, without
	// an alias. Each contains IN (IDs) once, in place of the closed orders' ids.
	OnClose []string `yaml:"on_close" example:"[\"UPDATE coupons SET used = 0 WHERE order_id IN ({ids})\"]"`
	Items   *Items   `yaml:"items" none:""` // nil: orders have no lines
	// Stock lists the tables to which a close returns quantities: first that of the SKUs, whose keys the receipts have,
	// then others, such as the totals of products.
	Stock  []*Stock `yaml:"stock"`
	Shards *Shards  `yaml:"shards"` // nil: one table has all orders
	// Event is the type of the event of a close; empty: orderclose.EventOrderClosed.
	Event string `yaml:"event.type" short:""`
	// EventColumns lists columns of the order that its event contains, as they were before the close.
	EventColumns []string `yaml:"event.columns" example:"[member_id, total_amount]"`
	// Attributes lists the columns that hold attributes of an order, for the rules of deadlines. No close
	// reads them.
	Attributes []Attribute `yaml:"attributes" keyed:""`
	// Accept holds the names of problems that are no problems here; see Acceptable.
	Accept []string
}

// Attribute is an attribute of an order, as rules name it, and the column that holds it.
type Attribute struct{ Name, Column string }

// ColumnValue is a column of orders and a constant.
type ColumnValue struct {
	Column string
	Value  Value
}

// Condition is a column and the values that a row must have in it.
type Condition struct {
	Column string
	Values
}

// Values are those that a condition accepts. The zero Value stands for NULL.
type Values struct {
	Any []Value // one of them
	Not bool    // none of them; NULL is accepted, unless Any has it
}

// Is returns the condition that a column has one value.
func Is(column string, v Value) Condition { return Condition{column, Values{Any: []Value{v}}} }

// one returns the only value that a condition accepts; false: it accepts several.
func (v Values) one() (Value, bool) {
	if v.Not || len(v.Any) != 1 {
		return Value{}, false
	}
	return v.Any[0], true
}

// Key is a column that identifies a row.
type Key struct {
	Column string  `yaml:"column" short:""`
	Type   KeyType `yaml:"type"` // empty: Text
	// Index is the unique index on the column; rows are found and locked through it.
	// Empty: PRIMARY.
	Index string `yaml:"index"`
}

// KeyType is the type of a key's values.
type KeyType string

const (
	Text    KeyType = "text"
	Integer KeyType = "integer" // 64 bits, signed or unsigned
	UUID    KeyType = "uuid"    // of PostgreSQL, in its notation: lower case with hyphens
	// UUIDBinary is a BINARY(16) of MySQL with a UUID, which records and events have in the notation of UUID. In
	// UUIDSwapped the parts of the time are in the order of UUID_TO_BIN(…, 1).
	UUIDBinary  KeyType = "uuid_binary"
	UUIDSwapped KeyType = "uuid_binary_swapped"
)

// Status is the column that a close changes, and its values.
type Status struct {
	Column string `yaml:"column"`
	From   OneOf  `yaml:"from" one:""` // those of an unpaid order
	To     Value  `yaml:"to"`
	// Paid and Closed list other values: those of an order that was paid, and those of an
	// order that was closed before. To counts as closed. A value in neither list counts as
	// paid, unless only Paid is given: then it counts as closed. The first value of Paid is
	// written to an order that was paid according to the payment provider.
	Paid   []Value `yaml:"paid" example:"[1, 3] or [PAID, SHIPPED]"`
	Closed []Value `yaml:"closed" example:"[1, 3] or [PAID, SHIPPED]"`
}

// Pay returns the status to write to an order that was paid according to the payment
// provider. It returns false if the mapping has no paid status.
func (s Status) Pay() (Value, bool) {
	if len(s.Paid) == 0 {
		return Value{}, false
	}
	return s.Paid[0], true
}

// Items are the lines of orders. With Shards, Table may be a pattern like Orders.
type Items struct {
	Table    string `yaml:"table"`
	Order    string `yaml:"order"` // the column with the order's id, of the type of Mapping.ID
	SKU      string `yaml:"sku"`
	Quantity string `yaml:"quantity"`
	// Location is the column with the warehouse, if the stock of a SKU is in several; empty: it is in one. Receipt
	// and event then have SKUs in the form of LocatedSKU.
	Location string `yaml:"location"`
	// Where lists columns and the values that a line must have to count, as Mapping.Where does for orders.
	Where []Condition `yaml:"where" keyed:"conditions"`
	// Index is the index on Order through which a close locks lines; empty: the database chooses. In a
	// small table it may then read, and wait for, lines of other orders too.
	Index string
}

// Stock has one row for each SKU. A close subtracts a quantity from Reserved and adds it to
// Available. At least one of the two is named.
type Stock struct {
	Table     string `yaml:"table"`
	SKU       Key    `yaml:"sku"`
	Available string `yaml:"available"` // empty: a close changes only Reserved, and the shop's figures include what is reserved
	Reserved  string `yaml:"reserved"`  // empty: a close changes only Available
	// Location is a second part of the key of a row: the warehouse. Without a column, SKU alone is the key.
	Location Key `yaml:"location"`
	// Line is the column of lines that holds the key of this table; empty: Items.SKU.
	Line string `yaml:"line"`
	// Version and Lock are those of Mapping, of the rows of this table.
	Version string      `yaml:"lock.version"`
	Lock    *TimeColumn `yaml:"lock"`
}

// Shards are tables of orders, one for each month.
type Shards struct {
	On   string `yaml:"on"`   // the time that decides the month of an order: "created" or "due"
	Zone string `yaml:"zone"` // the time zone of the month: UTC, +08:00, Asia/Shanghai
	// Months is how many months back are read, the current one included; 0: DefaultMonths.
	// MinMonths returns the minimum, and MaxMonths is the maximum.
	Months int `yaml:"months" min:"1" max:"60"`
}

// DefaultMonths is the current month and the year before it: older tables are archives.
const DefaultMonths = 13

// Values of Shards.On.
const (
	OnCreated = "created"
	OnDue     = "due"
)

// primary is MySQL's name of a table's primary key.
const primary = "PRIMARY"

// Reference returns the mapping of the schema that orderclose migrate creates.
func Reference() *Mapping {
	return (&Mapping{
		Orders: "orders",
		ID:     Key{Column: "id"},
		Status: Status{Column: "status", From: OneOf{IntValue(0)},
			To: IntValue(2), Paid: []Value{IntValue(1), IntValue(4), IntValue(5)}, Closed: []Value{IntValue(3)}},
		Due:       TimeColumn{Column: "expire_at", Type: DateTime, Zone: "UTC", Precision: Millis},
		DueIndex:  "orders_overdue",
		Created:   &TimeColumn{Column: "created_at", Type: DateTime, Zone: "UTC", Precision: Millis},
		ClosedAt:  []*TimeColumn{{Column: "closed_at", Type: DateTime, Zone: "UTC", Precision: Millis}},
		PaidAt:    &TimeColumn{Column: "paid_at", Type: DateTime, Zone: "UTC", Precision: Millis},
		PaymentID: "payment_id",
		Category:  "category",
		Version:   "version",
		Items:     &Items{Table: "order_items", Order: "order_id", SKU: "sku_id", Quantity: "quantity", Index: primary},
		Stock:     []*Stock{{Table: "stock", SKU: Key{Column: "sku_id"}, Available: "available", Reserved: "reserved"}},
	}).WithDefaults()
}

// WithDefaults returns a copy in which every default is filled in.
func (m *Mapping) WithDefaults() *Mapping {
	c := *m
	c.ID = m.ID.withDefaults()
	c.Event = cmp.Or(c.Event, orderclose.EventOrderClosed)
	c.Stock = nil
	for _, s := range m.Stock {
		stock := *s
		stock.SKU, stock.Location = s.SKU.withDefaults(), s.Location.withDefaults()
		c.Stock = append(c.Stock, &stock)
	}
	if m.Shards != nil {
		shards := *m.Shards
		shards.Months = cmp.Or(shards.Months, DefaultMonths)
		c.Shards = &shards
	}
	return &c
}

func (k Key) withDefaults() Key {
	k.Type = cmp.Or(k.Type, Text)
	k.Index = cmp.Or(k.Index, primary)
	return k
}

// KeyedTime is a time column and its key under orders in topics.yaml.
type KeyedTime struct {
	Path string
	*TimeColumn
}

// TimeColumns returns the time columns of orders that the mapping names.
func (m *Mapping) TimeColumns() []KeyedTime {
	all := []KeyedTime{{"due", &m.Due}, {"created", m.Created}, {"paid_at", m.PaidAt}, {"lock", m.Lock}}
	for i, t := range m.ClosedAt {
		all = append(all, KeyedTime{ListPath("closed_at", i), t})
	}
	return slices.DeleteFunc(all, func(t KeyedTime) bool { return t.TimeColumn == nil })
}
