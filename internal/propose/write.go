package propose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

func (p *Proposal) write() string {
	var b strings.Builder
	add := func(text, why string) {
		b.WriteString(text)
		if why != "" {
			b.WriteString(" # " + strings.Join(strings.Fields(why), " "))
		}
		b.WriteString("\n")
	}
	t, delay := p.table, config.FormatDuration(p.delay)
	add("# orderclose on the table "+t.Name+". Behind each choice is its evidence; docs/mapping.md has every key.", "")
	if p.due.of != nil {
		p.why["delay"] += "; only " + p.due.Column + " decides when an order closes"
	}
	add("delays: {default: "+delay+"}", p.why["delay"])
	if p.a.Kafka {
		add("buckets: "+buckets(p.delay), "the topics in which records wait")
	}
	if len(p.accept) > 0 {
		add("accept: ["+strings.Join(p.accept, ", ")+"]", "by --keep none")
	}
	add("orders:", "")
	add("  table: "+quoted(cmp.Or(t.Pattern, t.Name)), p.why["table"])
	add("  id: "+p.id.asKey(), p.why["id"])
	add("  status: "+flow("column", p.from.yaml(), "from", p.from.String(), "to", p.to.String(), "paid", p.values(p.paid), "closed", p.values(p.closed)),
		p.why["status"])
	if p.due.of != nil {
		add("  due: "+p.due.flow("column"), p.due.why)
		add("  created: "+p.created.flow("column"), p.created.why)
	} else {
		add("  due: "+p.created.flow("from"), p.created.Column+" + "+delay+"; "+p.created.why)
	}
	if p.shut.of != nil {
		add("  closed_at: "+p.shut.flow("column"), p.shut.why)
	}
	var pairs, reasons []string
	addPairs := func(key string) {
		if len(pairs) > 0 {
			add(key+flow(pairs...), strings.Join(reasons, "; "))
		}
		pairs, reasons = nil, nil
	}
	for _, f := range p.where {
		pairs, reasons = append(pairs, f.yaml(), f.String()), append(reasons, f.Name+": "+f.why)
	}
	addPairs("  where: ")
	if !p.notBefore.IsZero() {
		add("  not_before: "+p.notBefore.Format(time.RFC3339), "what is due before then stays open, by --keep unknown")
	}
	for _, c := range p.set {
		pairs, reasons = append(pairs, c.yaml(), c.String()), append(reasons, c.Name+": "+c.why)
	}
	addPairs("  set: ")
	if p.lock != nil {
		add("  lock: "+p.lock.yaml(), "its name: code that locks optimistically sees each close")
	}
	items, why := "none", "no table of lines with a SKU and whole quantities"
	if i := p.items; i != nil {
		items, why = flow("table", quoted(cmp.Or(i.table.Pattern, i.table.Name)), "order", i.order.yaml(), "sku", i.sku.yaml(), "quantity", i.quantity.yaml()), i.why
	}
	add("  items: "+items, why)
	add("  stock:"+map[bool]string{true: " none"}[len(p.stock) == 0], p.why["stock"])
	for _, s := range p.stock {
		line := s.line
		if line == p.items.sku {
			line = nil
		}
		add("    - "+flow("table", quoted(s.table.Name), "sku", s.key.asKey(), "line", line.yaml(), "available", s.available.yaml(),
			"reserved", s.reserved.yaml()), s.why)
	}
	if t.Pattern != "" {
		zone := cmp.Or(p.created.Zone, "UTC")
		add(fmt.Sprintf("  shards: {\"on\": created, zone: %q}", zone), fmt.Sprintf("%d tables, one for each month", t.Months))
	}
	return b.String()
}

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

// yaml writes the name of a column; "" for none.
func (c *column) yaml() string {
	if c == nil {
		return ""
	}
	return quoted(c.Name)
}

func (t *timeChoice) flow(of string) string {
	return flow(of, quoted(t.Column), "type", string(t.Type), "zone", strings.TrimPrefix(fmt.Sprintf("%q", t.Zone), `""`), "precision", string(t.Precision))
}

func (p *Proposal) values(of []string) (list string) {
	for _, v := range of {
		list += ", " + condition{column: p.from.column, value: v}.String()
	}
	if list == "" {
		return ""
	}
	return "[" + list[2:] + "]"
}

// Preview counts the unpaid orders that would close now, within a day, later, or never.
type Preview struct {
	When     string   `json:"when"`
	Orders   int      `json:"orders"`
	Oldest   string   `json:"oldest,omitempty"` // how long the oldest is overdue
	Examples []string `json:"examples,omitempty"`
}

// Preview says what the first sweep would do with the unpaid orders of a proposal, at most 20,000, and adds what is improbable to its doubts.
func (f *Facts) Preview(ctx context.Context, p *Proposal) ([]Preview, error) {
	due, add := p.due, time.Duration(0)
	if due.of == nil {
		due, add = p.created, p.delay
	}
	columns := []*column{p.id, due.of}
	for _, c := range p.where {
		columns = append(columns, c.column)
	}
	query := fmt.Sprintf("%s WHERE %s IN ? LIMIT %d", selecting(columns...), mapping.Quote(p.from.Name), maxRows)
	found, err := f.query(ctx, query, append([]string{p.from.value}, p.from.also...))
	switch {
	case errors.Is(err, overdue.ErrSlow):
		p.doubt("the database did not return the unpaid orders within 2 s, so the list of what the first sweep closes is missing")
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the unpaid orders: %w", err)
	}
	all := len(found) < maxRows
	found = slices.DeleteFunc(found, func(row []any) bool {
		for i, c := range p.where {
			if !c.accepts(row[i+2]) {
				return true
			}
		}
		return false
	})
	rows, oldest, read := []Preview{{When: "now"}, {When: "within a day"}, {When: "later"}, {When: "never"}}, time.Duration(0), column{}
	for _, row := range found {
		read.rows = append(read.rows, row[1])
	}
	due.of = &read
	due.decode()
	for i, at := range due.at {
		when, late := 2, f.Now.Sub(at.Add(add))
		switch {
		case at.IsZero() || orderclose.IsNever(at) || at.Add(add).Before(p.notBefore):
			when = 3
		case late >= 0:
			when, oldest = 0, max(oldest, late)
			rows[0].Oldest = short(oldest)
		case late > -24*time.Hour:
			when = 1
		}
		if rows[when].Orders++; len(rows[when].Examples) < 3 {
			rows[when].Examples = append(rows[when].Examples, fmt.Sprintf("%s: %s = %s", text(found[i][0]), due.Column, text(found[i][1])))
		}
	}
	switch now, n := rows[0].Orders, len(found); {
	case n == 0:
		p.doubt("no order is unpaid now, so nothing shows that the status is right")
	case now == n:
		p.doubt("all %d unpaid orders would close in the first sweep, and none is waiting: the time or the status may be wrong, or nobody has closed orders yet", n)
	case now*5 > n:
		p.doubt("%d of %d unpaid orders would close in the first sweep, the oldest is overdue by %s: if they must stay open, write not_before", now, n,
			rows[0].Oldest)
	}
	if !all {
		p.doubt("the table below counts %d of the unpaid orders: there are more", len(found))
	}
	return rows, nil
}
