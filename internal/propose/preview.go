package propose

import (
	"cmp"
	"context"
	"fmt"
	"io"
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

	late time.Duration // of the oldest
}

// Preview reads the unpaid orders of a proposal, at most 20,000.
func (f *Facts) Preview(ctx context.Context, p *Proposal) (*Preview, error) {
	due, add := p.due, time.Duration(0)
	if due.of == nil {
		due, add = p.created, p.delay
	}
	var where []string
	var args []any
	for _, c := range p.conditions() {
		switch name := mapping.Quote(c.Name); {
		case c.null:
			where = append(where, name+" IS NULL")
		case isInteger(c.column):
			where, args = append(where, name+" = ?"), append(args, int64(number(c.value)))
		default:
			where, args = append(where, name+" = ?"), append(args, c.value)
		}
	}
	query := fmt.Sprintf("%s WHERE %s LIMIT %d", selecting(p.id, due.of), strings.Join(where, " AND "), maxRows)
	found, err := f.query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the unpaid orders: %w", err)
	}
	v := &Preview{Rows: []PreviewRow{{When: "now"}, {When: "within a day"}, {When: "later"}, {When: "never"}}}
	if len(found) == maxRows {
		v.First = maxRows
	}
	read := column{} // the unpaid orders only
	for _, row := range found {
		read.rows = append(read.rows, row[1])
	}
	due.of = &read
	due.decode()
	for i, at := range due.at {
		row, late := &v.Rows[3], f.Now.Sub(at.Add(add))
		switch {
		case at.IsZero() || at.Year() >= 9999:
		case late >= 0:
			row = &v.Rows[0]
			row.late = max(row.late, late)
			row.Oldest = short(row.late)
		case late > -24*time.Hour:
			row = &v.Rows[1]
		default:
			row = &v.Rows[2]
		}
		if row.Orders++; len(row.Examples) < 3 {
			row.Examples = append(row.Examples, fmt.Sprintf("%s: %s = %s", text(found[i][0]), due.Column, text(found[i][1])))
		}
	}
	return v, nil
}

// Print prints the preview as a table.
func (v *Preview) Print(w io.Writer) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "WOULD CLOSE\tORDERS\tOLDEST OVERDUE\tEXAMPLES")
	for _, r := range v.Rows {
		fmt.Fprintf(tab, "%s\t%d\t%s\t%s\n", r.When, r.Orders, cmp.Or(r.Oldest, "-"), strings.Join(r.Examples, "; "))
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
	case now == n && n > 0:
		all = append(all, fmt.Sprintf("all %d unpaid orders would close in the first sweep, and none is waiting: the time or the status may be wrong, "+
			"or nobody has closed orders yet", n))
	case now*5 > n:
		all = append(all, fmt.Sprintf("%d of %d unpaid orders would close in the first sweep, the oldest is overdue by %s: if they must stay open, "+
			"write not_before", now, n, v.Rows[0].Oldest))
	case n == 0:
		all = append(all, "no order is unpaid now, so nothing shows that the status is right")
	case n > 0 && never*2 > n:
		all = append(all, fmt.Sprintf("%d of %d unpaid orders would never close: they have no time", never, n))
	}
	return all
}
