package config

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// orders is the section of the user's own tables: a Mapping, and the keys that a Mapping has in another form.
type orders struct {
	mapping.Mapping
	From  string               `yaml:"due.from"` // the column of the time of creation, from which due times are computed
	Lock  []mapping.TimeColumn `yaml:"lock" one:""`
	Stock []stock              `yaml:"stock" one:"" none:""`
}

// stock is a table of stock.
type stock struct {
	mapping.Stock
	Lock []mapping.TimeColumn `yaml:"lock" one:""`
}

// mapping returns the Mapping of the section.
func (o *orders) mapping(r *reader) *mapping.Mapping {
	const path = "orders."
	m := &o.Mapping
	if o.From != "" {
		m.ByRule, m.Due.Column = true, o.From
	}
	m.Version, m.Lock = r.locks(path+"lock", o.Lock)
	for i, s := range o.Stock {
		s.Version, s.Stock.Lock = r.locks(path+mapping.StockPath(i)+".lock", s.Lock)
		m.Stock = append(m.Stock, &s.Stock)
	}
	for i, statement := range m.OnClose {
		m.OnClose[i] = strings.TrimSpace(statement)
	}
	for _, t := range m.TimeColumns() {
		precise(t.TimeColumn)
	}
	for _, t := range m.ClosedAt { // one that has only a name is like the due time
		if *t == (mapping.TimeColumn{Column: t.Column}) {
			t.Type, t.Zone, t.Precision = m.Due.Type, m.Due.Zone, m.Due.Precision
		}
	}
	if m.ByRule && m.Created == nil {
		m.Created = new(m.Due)
	}
	return m
}

// precise gives a timestamptz without a precision that of PostgreSQL.
func precise(t *mapping.TimeColumn) {
	if t.Type == mapping.TimestampTZ {
		t.Precision = cmp.Or(t.Precision, mapping.Micros)
	}
}

// locks returns the columns by which the shop's code locks a row optimistically. One without a type is a number, which
// is the version.
func (r *reader) locks(path string, all []mapping.TimeColumn) (version string, at *mapping.TimeColumn) {
	for i, t := range all {
		n, isTime := r.at[mapping.ListPath(path, i)], t != mapping.TimeColumn{Column: t.Column}
		switch {
		case isTime && at != nil || !isTime && version != "":
			r.refuse(path, n, "is a second lock of the same kind", "map one number and one time at most")
		case isTime:
			at = &t
			precise(at)
			r.at[path] = n // for problems of a key that it does not have
		default:
			version = t.Column
		}
	}
	return version, at
}

// checkMapping reports mistakes in the mapping, each at its position.
func (r *reader) checkMapping(m *mapping.Mapping, maxDelay time.Duration) {
	const path = "orders"
	if m == nil {
		return
	}
	for _, must := range []string{"items", "stock"} {
		if r.at[path+"."+must] == nil {
			r.add(r.at[path], path, must+" is missing", fmt.Sprintf("describe it, or write %s: none", must))
		}
	}
	problems := m.Check()
	if m.Shards != nil && m.Shards.Months != 0 {
		problems = append(m.Shards.CheckMonths(maxDelay), problems...) // first, because it is stricter, and only the first problem of a value is reported
	}
	for _, p := range problems {
		wanted := path + "." + p.Path
		if found := nearestIn(r.at, wanted); !r.anyBad(found) {
			r.refuse(wanted, r.at[found], strings.TrimSpace(p.Reason()), p.How())
		}
	}
}
