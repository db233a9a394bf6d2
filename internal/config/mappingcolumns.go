package config

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// listOrOne reads a value, or a list of values.
func listOrOne(example string, read parser) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.isAny(path, read, list(example, read)) {
			return
		}
		if resolveAlias(n).Kind == yaml.SequenceNode {
			list(example, read)(r, path, n)
			return
		}
		read(r, path, n)
	}
}

// column reads the name of a column, or a time column with its type.
func column(to *mapping.TimeColumn) parser {
	return wordOr(Text(&to.Column), moment(to, nil))
}

// closedAt reads the columns to which a close writes its time. An empty section counts as missing.
func closedAt(m *mapping.Mapping) parser {
	return listOrOne("[end_time, {column: update_time, type: timestamp, precision: s}]", func(r *reader, path string, n *yaml.Node) {
		var t mapping.TimeColumn
		path = strings.TrimSuffix(path, "[0]")
		if r.at[path] = n; isNull(resolveAlias(n)) {
			return
		}
		column(&t)(r, path, n)
		m.ClosedAt = append(m.ClosedAt, &t)
	})
}

// dueFrom reads the column of the time of creation, from which due times are computed.
func dueFrom(m *mapping.Mapping) parser {
	return func(r *reader, path string, n *yaml.Node) {
		m.ByRule = true
		Text(&m.Due.Column)(r, path, n)
	}
}

// likeDue gives each column for the time of the close that has only a name the type and zone of the due time.
func likeDue(m *mapping.Mapping) {
	for _, t := range m.TimeColumns() {
		if strings.HasPrefix(t.Path, "closed_at") && t.Type == "" && t.Zone == "" && t.Precision == "" {
			t.Type, t.Zone, t.Precision = m.Due.Type, m.Due.Zone, m.Due.Precision
		}
	}
}

// locks reads the columns by which the shop's code locks a row optimistically. One without a type is a number, which
// is the version.
func locks(version *string, at **mapping.TimeColumn) parser {
	return listOrOne("[version, {column: update_time, type: timestamp, precision: s}]", func(r *reader, path string, n *yaml.Node) {
		var t mapping.TimeColumn
		path = strings.TrimSuffix(strings.TrimSuffix(path, "[0]"), "[1]")
		column(&t)(r, path, n)
		isTime := t != mapping.TimeColumn{Column: t.Column}
		switch {
		case isTime && *at != nil || !isTime && *version != "":
			r.refuse(path, n, "is a second lock of the same kind", "map one number and one time at most")
		case isTime:
			*at = &t
		default:
			*version = t.Column
		}
	})
}

// stocks reads the tables of stock: one, or a list of them.
func stocks(m *mapping.Mapping) parser {
	return listOrOne("[{table: sku_stock, sku: id, available: stock}, {table: product, sku: id, line: product_id, available: stock}]",
		func(r *reader, path string, n *yaml.Node) {
			var s mapping.Stock
			path = strings.TrimSuffix(path, "[0]") // as mapping.StockPath
			section(Fields{
				"table": Text(&s.Table), "sku": key(&s.SKU), "location": key(&s.Location), "line": Text(&s.Line),
				"available": Text(&s.Available), "reserved": Text(&s.Reserved), "lock": locks(&s.Version, &s.Lock),
			})(r, path, n)
			m.Stock = append(m.Stock, &s)
		})
}
