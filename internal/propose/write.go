package propose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// write writes topics.yaml.
func (p *Proposal) write(a Answers) string {
	var b strings.Builder
	line := func(text, why string) {
		b.WriteString(text)
		if why != "" {
			b.WriteString(" # " + strings.Join(strings.Fields(why), " "))
		}
		b.WriteString("\n")
	}
	t := p.table
	line("# orderclose on the table "+t.Name+". Behind each choice is its evidence; docs/mapping.md has every key.", "")
	if p.due.Column == "" {
		line("delays: {default: "+config.FormatDuration(p.delay)+"}", p.why["delay"])
	} else {
		line("delays: {default: "+config.FormatDuration(p.delay)+"}", p.why["delay"]+"; only "+p.due.Column+" decides when an order closes")
	}
	if a.Kafka {
		line("buckets: "+buckets(p.delay), "the topics in which records wait")
	}
	line("orders:", "")
	line("  table: "+name(p.pattern), p.why["table"])
	line("  id: "+key(t.real(p.id.column), p.idType, p.id.index), p.why["id"])
	status := fmt.Sprintf("  status: {column: %s, from: %s, to: %s", name(p.status.column), p.value(p.status.from), p.value(p.status.to))
	for _, list := range []struct {
		key    string
		values []string
	}{{"paid", p.status.paid}, {"closed", p.status.closed}} {
		if len(list.values) > 0 {
			var all []string
			for _, v := range list.values {
				all = append(all, p.value(v))
			}
			status += ", " + list.key + ": [" + strings.Join(all, ", ") + "]"
		}
	}
	line(status+"}", p.why["status"])
	if p.due.Column != "" {
		line("  due: "+column("column", p.due.TimeColumn), p.due.why)
		if p.created.Column != "" {
			line("  created: "+column("column", p.created.TimeColumn), p.created.why)
		}
	} else {
		line("  due: "+column("from", p.created.TimeColumn), p.created.Column+" + "+config.FormatDuration(p.delay)+"; "+p.created.why)
	}
	if p.closed.Column != "" {
		line("  closed_at: "+column("column", p.closed.TimeColumn), "set in no unpaid order")
	}
	for key, list := range map[string][]condition{"where": p.where, "set": p.set} {
		var all, why []string
		for _, c := range list {
			all, why = append(all, name(c.column)+": "+c.value), append(why, c.column+": "+c.why)
		}
		if len(list) > 0 {
			line("  "+key+": {"+strings.Join(all, ", ")+"}", strings.Join(why, "; "))
		}
	}
	for _, k := range []string{"category", "lock"} {
		if c := p.columns[k]; c != "" {
			line("  "+k+": "+name(c), p.why[k])
		}
	}
	p.writeStock(line)
	if p.table.Pattern != "" {
		zone := cmp.Or(p.created.Zone, "UTC")
		line(fmt.Sprintf("  shards: {on: created, zone: %q}", zone), fmt.Sprintf("%d tables, one for each month", p.table.Months))
	}
	return b.String()
}

func (p *Proposal) writeStock(line func(text, why string)) {
	if p.items == nil {
		line("  items: none", "no table of lines with a SKU and whole quantities")
		line("  stock: none", "")
		return
	}
	t := p.items.table
	line(fmt.Sprintf("  items: {table: %s, order: %s, sku: %s, quantity: %s}", name(cmp.Or(t.Pattern, t.Name)), name(t.real(p.items.order)),
		name(t.real(p.items.sku)), name(t.real(p.items.quantity))), p.items.why)
	if len(p.stock) == 0 {
		line("  stock: none", cmp.Or(p.why["stock"], "no table with the stock was found; the event of a close lists what to release"))
		return
	}
	line("  stock:", "")
	for _, s := range p.stock {
		text := fmt.Sprintf("    - {table: %s, sku: %s", name(s.table.Name), key(s.table.real(s.key), keyType(s.table.Columns[s.key]), s.index))
		if s.line != p.items.sku {
			text += ", line: " + name(t.real(s.line))
		}
		if s.available != "" {
			text += ", available: " + name(s.table.real(s.available))
		}
		if s.reserved != "" {
			text += ", reserved: " + name(s.table.real(s.reserved))
		}
		line(text+"}", s.why)
	}
}

// buckets returns the lengths of buckets for a delay.
func buckets(delay time.Duration) string {
	all := []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 12 * time.Hour}
	all = slices.DeleteFunc(all, func(d time.Duration) bool { return d > max(delay, time.Minute) })
	var texts []string
	for _, d := range all {
		texts = append(texts, config.FormatDuration(d))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func keyType(c mapping.Column) mapping.KeyType {
	switch {
	case isInteger(c):
		return mapping.Integer
	case c.Type == "uuid":
		return mapping.UUID
	}
	return mapping.Text
}

// plain are names that YAML reads as text.
var plain = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_.$]*$`)

// name writes a name, in quotes if YAML would read something else.
func name(s string) string {
	if plain.MatchString(s) && !slices.Contains(words("y n yes no on off true false null"), strings.ToLower(s)) {
		return s
	}
	return fmt.Sprintf("%q", s)
}

func key(column string, t mapping.KeyType, index string) string {
	text := "{column: " + name(column) + ", type: " + string(t)
	if index != "" {
		text += ", index: " + name(index)
	}
	return text + "}"
}

func column(of string, t mapping.TimeColumn) string {
	text := "{" + of + ": " + name(t.Column) + ", type: " + string(t.Type)
	if t.Zone != "" {
		text += fmt.Sprintf(", zone: %q", t.Zone)
	}
	if t.Precision != "" {
		text += ", precision: " + string(t.Precision)
	}
	return text + "}"
}

func (p *Proposal) value(v string) string {
	return literal(v, p.table.Columns[strings.ToLower(p.status.column)])
}
