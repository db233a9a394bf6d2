package propose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

// write writes topics.yaml.
func (p *Proposal) write() string {
	var b strings.Builder
	line := func(text, why string) {
		b.WriteString(text)
		if why != "" {
			b.WriteString(" # " + strings.Join(strings.Fields(why), " "))
		}
		b.WriteString("\n")
	}
	t, delay := p.table, config.FormatDuration(p.delay)
	line("# orderclose on the table "+t.Name+". Behind each choice is its evidence; docs/mapping.md has every key.", "")
	if p.due.of != nil {
		p.why["delay"] += "; only " + p.due.Column + " decides when an order closes"
	}
	line("delays: {default: "+delay+"}", p.why["delay"])
	if p.a.Kafka {
		line("buckets: "+buckets(p.delay), "the topics in which records wait")
	}
	line("orders:", "")
	line("  table: "+quoted(cmp.Or(t.Pattern, t.Name)), p.why["table"])
	line("  id: "+p.id.asKey(), p.why["id"])
	line("  status: "+flow("column", quoted(p.from.Name), "from", p.from.String(), "to", p.to.String(), "paid", p.values(p.paid), "closed", p.values(p.closed)),
		p.why["status"])
	if p.due.of != nil {
		line("  due: "+p.due.flow("column"), p.due.why)
		line("  created: "+p.created.flow("column"), p.created.why)
	} else {
		line("  due: "+p.created.flow("from"), p.created.Column+" + "+delay+"; "+p.created.why)
	}
	if p.shut.of != nil {
		line("  closed_at: "+p.shut.flow("column"), p.shut.why)
	}
	for _, list := range []struct {
		key        string
		conditions []condition
	}{{"where", p.where}, {"set", p.set}} {
		var pairs, why []string
		for _, c := range list.conditions {
			pairs, why = append(pairs, quoted(c.Name), c.String()), append(why, c.Name+": "+c.why)
		}
		if len(pairs) > 0 {
			line("  "+list.key+": "+flow(pairs...), strings.Join(why, "; "))
		}
	}
	if p.category != nil {
		line("  category: "+quoted(p.category.Name), p.why["category"])
	}
	if p.lock != nil {
		line("  lock: "+quoted(p.lock.Name), "its name: code that locks optimistically sees each close")
	}
	if p.items == nil {
		line("  items: none", "no table of lines with a SKU and whole quantities")
	} else {
		i := p.items
		line("  items: "+flow("table", quoted(cmp.Or(i.table.Pattern, i.table.Name)), "order", quoted(i.order.Name), "sku", quoted(i.sku.Name),
			"quantity", quoted(i.quantity.Name)), i.why)
	}
	if len(p.stock) == 0 {
		line("  stock: none", p.why["stock"])
	} else {
		line("  stock:", "")
	}
	for _, s := range p.stock {
		text := []string{"table", quoted(s.table.Name), "sku", s.key.asKey()}
		if s.line != p.items.sku {
			text = append(text, "line", quoted(s.line.Name))
		}
		if s.available != nil {
			text = append(text, "available", quoted(s.available.Name))
		}
		if s.reserved != nil {
			text = append(text, "reserved", quoted(s.reserved.Name))
		}
		line("    - "+flow(text...), s.why)
	}
	if t.Pattern != "" {
		zone := cmp.Or(p.created.Zone, "UTC")
		line(fmt.Sprintf("  shards: {on: created, zone: %q}", zone), fmt.Sprintf("%d tables, one for each month", t.Months))
	}
	return b.String()
}

// buckets returns the lengths of buckets for a delay.
func buckets(delay time.Duration) string {
	var all []string
	for _, d := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 12 * time.Hour} {
		if d <= max(delay, time.Minute) {
			all = append(all, config.FormatDuration(d))
		}
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// flow writes pairs of a key and its value; those without a value are left out.
func flow(pairs ...string) string {
	var all []string
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			all = append(all, pair[0]+": "+pair[1])
		}
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// plain are names that YAML reads as text.
var plain = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_.$]*$`)

// quoted writes a name, in quotes if YAML would read something else.
func quoted(name string) string {
	if name == "" || plain.MatchString(name) && !slices.Contains(words("y n yes no on off true false null"), strings.ToLower(name)) {
		return name
	}
	return fmt.Sprintf("%q", name)
}

func (t *timeChoice) flow(of string) string {
	zone := t.Zone
	if zone != "" {
		zone = fmt.Sprintf("%q", zone)
	}
	return flow(of, quoted(t.Column), "type", string(t.Type), "zone", zone, "precision", string(t.Precision))
}

// values writes values of the status.
func (p *Proposal) values(of []string) string {
	var all []string
	for _, v := range of {
		all = append(all, condition{column: p.from.column, value: v}.String())
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}
