package propose

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Preview is what the first sweep would do with the unpaid orders.
type Preview struct {
	Rows  []PreviewRow `json:"rows"`
	First int          `json:"first,omitempty"` // only so many of the unpaid orders were read
}

// PreviewRow counts the orders that would close now, within a day, later, or never.
type PreviewRow struct {
	When     string   `json:"when"`
	Orders   int      `json:"orders"`
	Oldest   string   `json:"oldest,omitempty"` // how long the oldest is overdue
	Examples []string `json:"examples,omitempty"`

	due []time.Duration // since an order is due
}

// Preview reads the unpaid orders of a proposal, at most 20,000.
func (f *Facts) Preview(ctx context.Context, p *Proposal) (*Preview, error) {
	t, due, add := p.table, p.due.TimeColumn, time.Duration(0)
	if due.Column == "" {
		due, add = p.created.TimeColumn, p.delay
	}
	columns := []string{t.real(p.id.column), p.status.column, due.Column}
	args := []any{p.status.from}
	where := mapping.Quote(p.status.column) + " = ?"
	if p.status.number {
		args[0] = int64(number(p.status.from))
	}
	for _, c := range p.where {
		if c.value == "null" {
			where += " AND " + mapping.Quote(c.column) + " IS NULL"
			continue
		}
		where += " AND " + mapping.Quote(c.column) + " = ?"
		if v := strings.Trim(c.value, `"`); v == c.value {
			args = append(args, int64(number(v)))
		} else {
			args = append(args, v)
		}
	}
	for i, c := range columns {
		columns[i] = mapping.Quote(c)
	}
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s LIMIT %d", strings.Join(columns, ", "), mapping.Quote(t.Name), where, maxRows)
	found, err := f.reader.query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the unpaid orders: %w", err)
	}
	v := &Preview{Rows: []PreviewRow{{When: "now"}, {When: "within a day"}, {When: "later"}, {When: "never"}}}
	if len(found) == maxRows {
		v.First = maxRows
	}
	values := make([]any, len(found))
	for i, row := range found {
		values[i] = row[2]
	}
	for i, at := range instants(due, values) {
		row, late := &v.Rows[3], f.Now.Sub(at.Add(add))
		switch {
		case at.IsZero() || at.Year() >= 9999:
		case late >= 0:
			row = &v.Rows[0]
		case late > -24*time.Hour:
			row = &v.Rows[1]
		default:
			row = &v.Rows[2]
		}
		row.Orders++
		row.due = append(row.due, late)
		if len(row.Examples) < 3 {
			row.Examples = append(row.Examples, fmt.Sprintf("%s: %s = %s", text(found[i][0]), due.Column, text(found[i][2])))
		}
	}
	if row := &v.Rows[0]; row.Orders > 0 {
		row.Oldest = short(slices.Max(row.due))
	}
	return v, nil
}

// Print prints the preview as a table.
func (v *Preview) Print(w io.Writer) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "WOULD CLOSE\tORDERS\tOLDEST OVERDUE\tEXAMPLES")
	for _, r := range v.Rows {
		oldest := r.Oldest
		if oldest == "" {
			oldest = "-"
		}
		fmt.Fprintf(tab, "%s\t%d\t%s\t%s\n", r.When, r.Orders, oldest, strings.Join(r.Examples, "; "))
	}
	_ = tab.Flush()
	if v.First > 0 {
		fmt.Fprintf(w, "Only %d of the unpaid orders were read.\n", v.First)
	}
}

// Doubts says what is improbable about the preview.
func (v *Preview) Doubts() (all []string) {
	n := 0
	for _, r := range v.Rows {
		n += r.Orders
	}
	switch now, never := v.Rows[0].Orders, v.Rows[3].Orders; {
	case n > 20 && now == n:
		all = append(all, fmt.Sprintf("all %d unpaid orders would close in the first sweep, and none is waiting: the time or the status may be wrong, "+
			"or nobody has closed orders yet", n))
	case n > 0 && never*2 > n:
		all = append(all, fmt.Sprintf("%d of %d unpaid orders would never close: they have no time", never, n))
	}
	return all
}
