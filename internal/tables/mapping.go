// Package tables describes where a shop keeps what is to be closed: which table,
// which columns, and how to read them. A description is plain data, so that a
// configuration can be compared and checked before any database is asked.
//
// The schema that orderclose migrate makes is one such description, Reference;
// the store knows no other way to a table than a Mapping.
package tables

import "orderclose"

// Mapping says where orders are and what closing one changes. Check tells whether
// it makes sense by itself, Judge whether a database fits it.
type Mapping struct {
	// Orders is the table, as "table" or "database.table". With Shards it is a
	// pattern, such as orders_{yyyyMM} or orders_{yyyy_MM}.
	Orders string
	ID     Key
	Status Status
	// Due is when an order is closed if its status is still Status.From. NULL, 0 and
	// the zero date are no due time: such an order is never closed.
	Due Moment
	// DueIndex names the index on status, due and id; pages are told to use it.
	// Empty: the database picks one.
	DueIndex string
	Created  *Moment // nil: not told
	ClosedAt *Moment // set to the moment of the close; nil: there is no such column
	Category string  // a column; empty: orders have no category
	Version  string  // a column, one more with each change; empty: there is none
	Items    *Items  // nil: orders have no lines
	Stock    *Stock  // nil: the database has no stock to give back
	Shards   *Shards // nil: one table has all orders
	// Event is the type of the event that tells of a close; empty:
	// orderclose.EventOrderClosed.
	Event string
}

// Key is a column that identifies a row.
type Key struct {
	Column string
	Type   KeyType // empty: Text
	// Index is the unique index on the column, through which rows are found and
	// locked; empty: PRIMARY.
	Index string
}

// KeyType is what a key's values are.
type KeyType string

const (
	Text    KeyType = "text"
	Integer KeyType = "integer" // of 64 bits, signed or not
)

// Status is the column that a close changes, and its values.
type Status struct {
	Column   string
	From, To Value
	// Paid and Closed say how to read other values: as an order that was paid, or
	// that was closed before. To is closed. What is in neither list is paid, unless
	// only Paid is given: then it is closed. The first of Paid is what an order becomes
	// that the payment provider says was paid.
	Paid, Closed []Value
}

// Pay is what an order becomes that the payment provider says was paid; false if
// the mapping does not tell.
func (s Status) Pay() (Value, bool) {
	if len(s.Paid) == 0 {
		return Value{}, false
	}
	return s.Paid[0], true
}

// Items are the lines of orders. With Shards, Table may be a pattern like Orders.
type Items struct {
	Table    string
	Order    string // the column with the order's id, of the type of Mapping.ID
	SKU      string
	Quantity string
}

// Stock has one row for each SKU. A close moves a quantity from Reserved to
// Available.
type Stock struct {
	Table     string
	SKU       Key
	Available string
	Reserved  string // empty: only Available grows
}

// Shards are tables of orders, one for each month.
type Shards struct {
	By   string // "month"
	On   string // what the month is of: "created" or "due"
	Zone string // where a month begins: UTC, +08:00, Asia/Shanghai
	// Back is how many months are looked at, this one included; 0: DefaultBack. See
	// LeastBack.
	Back int
}

// DefaultBack is a year and this month: what is older is somebody's archive.
const DefaultBack = 13

// By and On of Shards.
const (
	ByMonth   = "month"
	OnCreated = "created"
	OnDue     = "due"
)

// primary is the name of a table's primary key, to MySQL.
const primary = "PRIMARY"

// Reference is the schema that orderclose migrate makes.
func Reference() *Mapping {
	return (&Mapping{
		Orders:   "orders",
		ID:       Key{Column: "id"},
		Status:   Status{Column: "status", From: Int(0), To: Int(2), Closed: []Value{Int(3)}},
		Due:      Moment{Column: "expire_at", Type: DateTime, Zone: "UTC", Precision: Millis},
		DueIndex: "orders_overdue",
		Created:  &Moment{Column: "created_at", Type: DateTime, Zone: "UTC", Precision: Millis},
		ClosedAt: &Moment{Column: "closed_at", Type: DateTime, Zone: "UTC", Precision: Millis},
		Category: "category",
		Version:  "version",
		Items:    &Items{Table: "order_items", Order: "order_id", SKU: "sku_id", Quantity: "quantity"},
		Stock:    &Stock{Table: "stock", SKU: Key{Column: "sku_id"}, Available: "available", Reserved: "reserved"},
	}).WithDefaults()
}

// WithDefaults returns a copy in which nothing is left to a default.
func (m *Mapping) WithDefaults() *Mapping {
	c := *m
	c.ID = m.ID.withDefaults()
	if c.Event == "" {
		c.Event = orderclose.EventOrderClosed
	}
	if m.Stock != nil {
		stock := *m.Stock
		stock.SKU = stock.SKU.withDefaults()
		c.Stock = &stock
	}
	if m.Shards != nil {
		shards := *m.Shards
		if shards.Back == 0 {
			shards.Back = DefaultBack
		}
		c.Shards = &shards
	}
	return &c
}

func (k Key) withDefaults() Key {
	if k.Type == "" {
		k.Type = Text
	}
	if k.Index == "" {
		k.Index = primary
	}
	return k
}

// Moments are the times of an order that the mapping names.
func (m *Mapping) Moments() []*Moment {
	all := []*Moment{&m.Due}
	for _, t := range []*Moment{m.Created, m.ClosedAt} {
		if t != nil {
			all = append(all, t)
		}
	}
	return all
}
