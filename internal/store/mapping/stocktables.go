package mapping

import (
	"fmt"
	"strings"
)

// atSign is between SKU and location in LocatedSKU. No location contains it, so each text has one reading.
const atSign = "@"

// LocatedSKU returns the text that stands for a SKU at a location: in the receipt, and in the event of a close.
func LocatedSKU(sku, location string) string { return sku + atSign + location }

// SplitSKU splits a text that LocatedSKU has returned.
func SplitSKU(located string) (sku, location string) {
	i := strings.LastIndex(located, atSign)
	if i < 0 {
		return located, ""
	}
	return located[:i], located[i+1:]
}

// IsLocation reports whether LocatedSKU can contain a location.
func IsLocation(text string) bool { return text != "" && !strings.Contains(text, atSign) }

// StockPath returns the key under orders in topics.yaml of the i-th of Mapping.Stock.
func StockPath(i int) string { return ListPath("stock", i) }

// ListPath returns the path of the i-th value of a key that has one value or a list.
func ListPath(key string, i int) string {
	if i == 0 {
		return key
	}
	return fmt.Sprintf("%s[%d]", key, i)
}

// LineKey returns the column of lines that holds the key of a table of stock.
func (m *Mapping) LineKey(s *Stock) string {
	if s.Line != "" {
		return s.Line
	}
	return m.Items.SKU
}

// linePath returns the key under orders in topics.yaml of LineKey.
func (m *Mapping) linePath(i int) string {
	if m.Stock[i].Line != "" {
		return StockPath(i) + ".line"
	}
	return "items.sku"
}

// stock checks one of Mapping.Stock.
func (c *checker) stock(m *Mapping, path string, s *Stock) {
	c.table(path+".table", s.Table, false)
	c.key(path+".sku", s.SKU)
	c.optional(path+".available", s.Available)
	c.optional(path+".reserved", s.Reserved)
	c.optional(path+".line", s.Line)
	c.optional(path+".lock", s.Version)
	if s.Lock != nil {
		c.timeColumn(path+".lock", s.Lock)
	}
	if s.Location.Column != "" {
		c.key(path+".location", s.Location)
	}
	if s.Available == "" && s.Reserved == "" {
		c.report(path, "neither available nor reserved is named", "name the columns to which a close returns the stock: available, reserved, or both")
	}
	if s.Location.Column != "" && m.Items != nil && m.Items.Location == "" {
		c.report(path+".location", "the stock is kept by location, but no column of the lines says which", "map it as items.location")
	}
	if path == "stock" && s.Line != "" {
		c.report(path+".line", "the first table of stock has the key items.sku, which the receipts use", "map that column as items.sku, and remove line")
	}
	for i, o := range m.Stock {
		if StockPath(i) != path && strings.EqualFold(o.Table, s.Table) && i > 0 {
			c.report(StockPath(i)+".table", "table "+s.Table+" is listed twice", "list each table of stock once")
		}
	}
}

// lineKeys checks the columns of lines that name rows of the stock.
func (d *databaseChecker) lineKeys(m *Mapping) {
	read := func(path, column string, t KeyType) {
		if t.binary() {
			d.key(path, column, t)
		} else if c, ok := d.column(path, column); ok {
			d.readable(path, column, c)
		}
	}
	if len(m.Stock) == 0 {
		read("items.sku", m.Items.SKU, Text)
	}
	for i, s := range m.Stock {
		read(m.linePath(i), m.LineKey(s), s.SKU.Type)
	}
	if m.Items.Location != "" {
		read("items.location", m.Items.Location, Text)
	}
}

// stockLocks checks the optimistic locks of a table of stock.
func (d *databaseChecker) stockLocks(path string, s *Stock) {
	if c, ok := d.optional(path+".lock", s.Version); ok && d.writable(path+".lock", s.Version, s.SKU.Column, "lock") {
		d.counter(path+".lock", s.Version, c)
	}
	if s.Lock != nil {
		d.timeColumn(path+".lock", s.Lock)
		d.writable(path+".lock.column", s.Lock.Column, s.SKU.Column, "lock")
	}
}

// keyTypesKnown lists all types of keys.
var keyTypesKnown = []KeyType{Text, Integer, UUID, UUIDBinary, UUIDSwapped}

// exactDigits is the length of the longest text that every database compares exactly with a decimal number: some
// convert both to floating point.
const exactDigits = 15

// holdsDecimal reports whether a column of decimals can hold a number, and be compared with it exactly.
func (c Column) holdsDecimal(v Value) bool {
	if !decimal.MatchString(v.Text) || !v.Number && len(v.Text) > exactDigits {
		return false
	}
	var precision, scale int
	open := strings.IndexByte(c.Definition, '(')
	if open < 0 { // of PostgreSQL, without a limit
		return true
	}
	if n, _ := fmt.Sscanf(c.Definition[open:], "(%d,%d)", &precision, &scale); n < 2 {
		return false
	}
	whole, fraction, _ := strings.Cut(strings.TrimLeft(v.Text, "-"), ".")
	return len(strings.TrimRight(fraction, "0")) <= scale && len(strings.TrimLeft(whole, "0")) <= precision-scale
}
