package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// mapping reads the section that maps the user's own tables. If the section is missing
// or empty, the orders are in the reference schema.
func (s *settings) mapping(r *reader, path string, n *yaml.Node) {
	if isNull(resolveAlias(n)) {
		return
	}
	m := &mapping.Mapping{}
	section(Fields{
		"table":      Text(&m.Orders),
		"id":         key(&m.ID),
		"status":     status(&m.Status),
		"due":        moment(&m.Due, Fields{"index": Text(&m.DueIndex), "from": dueFrom(m)}),
		"created":    optional(func() parser { m.Created = new(mapping.TimeColumn); return moment(m.Created, nil) }),
		"closed_at":  closedAt(m),
		"category":   Text(&m.Category),
		"version":    Dropped("write lock: and the column"),
		"lock":       locks(&m.Version, &m.Lock),
		"set":        constants(&m.Set, false),
		"set_paid":   constants(&m.SetPaid, false),
		"payment_id": Text(&m.PaymentID),
		"attributes": entries(func(r *reader, path, name string, n *yaml.Node) {
			a := mapping.Attribute{Name: name}
			if Text(&a.Column)(r, path, n); !r.bad[path] {
				m.Attributes = append(m.Attributes, a)
			}
		}),
		"where":      constants(&m.Where, true),
		"not_before": instant(&m.NotBefore),
		"on_close":   texts(`["UPDATE coupons SET used = 0 WHERE order_id IN ({ids})"]`, &m.OnClose),
		"items": orNone(func() parser {
			m.Items = new(mapping.Items)
			return section(Fields{
				"table": Text(&m.Items.Table), "order": Text(&m.Items.Order),
				"sku": Text(&m.Items.SKU), "quantity": Text(&m.Items.Quantity),
				"location": Text(&m.Items.Location), "where": constants(&m.Items.Where, true),
			})
		}),
		"stock": orNone(func() parser { return stocks(m) }),
		"shards": optional(func() parser {
			m.Shards = new(mapping.Shards)
			return section(Fields{
				"by": Dropped("leave it out: there is a table for each month"), "on": Text(&m.Shards.On), "zone": Text(&m.Shards.Zone),
				"months": integer(&m.Shards.Months, 1, mapping.MaxMonths),
			})
		}),
		"event": wordOr(Text(&m.Event), section(Fields{
			"type": Text(&m.Event), "columns": texts("[member_id, total_amount]", &m.EventColumns),
		})),
	})(r, path, n)
	likeDue(m)
	if m.ByRule && m.Created == nil {
		m.Created = new(m.Due)
	}
	s.Orders, s.OrdersAt = m, &Source{r.file, r.at}
}

// checkMapping reports mistakes in the mapping, each at its position.
func (r *reader) checkMapping(m *mapping.Mapping, maxDelay time.Duration) {
	const path = "orders"
	if m == nil || r.bad[path] {
		return
	}
	for _, must := range []string{"items", "stock"} {
		if r.at[path+"."+must] == nil && !r.bad[path+"."+must] {
			r.add(r.at[path], path, must+" is missing", fmt.Sprintf("describe it, or write %s: none", must))
		}
	}
	problems := m.Check()
	if m.Shards != nil && m.Shards.Months != 0 && !r.bad["delays.max"] {
		problems = append(m.Shards.CheckMonths(maxDelay), problems...) // first, because it is stricter, and only the first problem of a value is reported
	}
	for _, p := range problems {
		wanted := path + "." + p.Path
		if found := nearestIn(r.at, wanted); !r.anyBad(found) {
			r.refuse(wanted, r.at[found], strings.TrimSpace(p.Reason()), p.How())
		}
	}
}

// key reads the name of a column, or {column: id, type: integer, index: PRIMARY}.
func key(to *mapping.Key) parser {
	return wordOr(Text(&to.Column), section(Fields{"column": Text(&to.Column), "type": Text(&to.Type), "index": Text(&to.Index)}))
}

func moment(to *mapping.TimeColumn, more Fields) parser {
	known := Fields{"column": Text(&to.Column), "type": Text(&to.Type), "zone": Text(&to.Zone), "precision": Text(&to.Precision)}
	maps.Copy(known, more)
	read := section(known)
	return func(r *reader, path string, n *yaml.Node) {
		read(r, path, n)
		if to.Type == mapping.TimestampTZ {
			to.Precision = cmp.Or(to.Precision, mapping.Micros)
		}
	}
}

func status(to *mapping.Status) parser {
	several := func(to *[]mapping.Value) parser {
		return list("[1, 3] or [PAID, SHIPPED]", func(r *reader, path string, n *yaml.Node) {
			var v mapping.Value
			if statusValue(&v)(r, path, n); !r.bad[path] {
				*to = append(*to, v)
			}
		})
	}
	return section(Fields{
		"column": Text(&to.Column), "from": statusValue(&to.From), "to": statusValue(&to.To),
		"paid": several(&to.Paid), "closed": several(&to.Closed),
	})
}

// constants reads columns and the constants that are written to them, or that they are compared with;
// nullable: also null.
func constants(to *[]mapping.ColumnValue, nullable bool) parser {
	return entries(func(r *reader, path, name string, n *yaml.Node) {
		var v mapping.Value
		if r.at[path] = n; !nullable || !isNull(resolveAlias(n)) {
			constant(&v, "a constant", nullable)(r, path, n)
		}
		if nullable && r.is(schema{"type": []string{"string", "number", "null"}}) {
			return
		}
		if !r.bad[path] {
			*to = append(*to, mapping.ColumnValue{Column: name, Value: v})
		}
	})
}

// instant reads a moment with a time zone.
func instant(to *time.Time) parser {
	const hint = "write a moment with its time zone, such as 2026-11-20T00:00:00+08:00"
	return value("a moment", hint, schema{"type": "string"}, func(raw *yaml.Node) string {
		at, err := time.Parse(time.RFC3339, raw.Value)
		if err != nil {
			return quote(raw.Value) + " is not a moment with a time zone"
		}
		*to = at
		return ""
	})
}

// statusValue reads a status.
func statusValue(to *mapping.Value) parser { return constant(to, "a status", false) }

// constant reads a whole number, with fractions any decimal number, or a text. what says what it is.
func constant(to *mapping.Value, what string, fractions bool) parser {
	const hint = "write a whole number, or text in quotes"
	kinds := []string{"string", "integer"}
	if fractions {
		kinds = append(kinds, "number")
	}
	return value(what, hint, schema{"type": kinds}, func(raw *yaml.Node) string {
		var i int64
		switch tag := raw.ShortTag(); {
		case tag == "!!str" && raw.Value != "":
			*to = mapping.TextValue(raw.Value)
		case tag == "!!int" && raw.Decode(&i) == nil:
			*to = mapping.IntValue(i)
		case tag == "!!float" && fractions && mapping.IsDecimal(raw.Value):
			*to = mapping.Value{Text: raw.Value, Number: true}
		default:
			return quote(raw.Value) + " is not " + what
		}
		return ""
	})
}

// optional reads a section. An empty section counts as missing.
func optional(begin func() parser) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.schema != nil {
			r.isAny(path, begin(), nothing)
			return
		}
		r.at[path] = n
		if !isNull(resolveAlias(n)) {
			begin()(r, path, n)
		}
	}
}

// orNone reads a section, or the word none.
func orNone(begin func() parser) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if r.schema != nil {
			r.isAny(path, begin(), word("none"), word("no"))
			return
		}
		switch v := resolveAlias(n); {
		case v.Kind == yaml.ScalarNode && slices.Contains([]string{"none", "no"}, v.Value):
			r.at[path] = n
		case isNull(v):
			r.at[path] = n
			r.refuse(path, n, "has no value", "describe it, or write none")
		default:
			begin()(r, path, n)
		}
	}
}
