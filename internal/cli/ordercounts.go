package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// dueSlack is how much farther than the longest delay an order may be due: the clocks of shop and
// database may differ.
const dueSlack = time.Minute

// orderCounts are the numbers of the shop's own tables, and what they say about the mapping.
type orderCounts struct {
	store.OrderCounts
	status mapping.Status
	// Doubt says why the mapping is probably wrong, and Fix what to do. Both empty: it may be right.
	Doubt string `json:"doubt,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// countOrders counts the orders of the shop's own tables. It returns nil in the reference schema.
func (s *session) countOrders(ctx context.Context) (*orderCounts, error) {
	if s.cfg.Orders == nil {
		return nil, nil
	}
	found, err := s.Store.CountOrders(ctx, s.cfg.Compensator.Grace)
	if err != nil {
		return nil, err
	}
	c := &orderCounts{OrderCounts: found, status: s.cfg.Orders.Status}
	c.Doubt, c.Fix = doubt(found, s.cfg)
	return c, nil
}

// doubt says what is improbable about the due times of orders, and what to do. Pure.
func doubt(c store.OrderCounts, cfg *config.Config) (what, fix string) {
	longest := cfg.Delays.Longest()
	ahead := c.Farthest.Sub(c.At)
	switch {
	case c.Excluded > 0 && c.Overdue+c.Waiting == 0:
		return fmt.Sprintf("orders.where or orders.not_before excludes all %d unpaid orders: none is ever closed", c.Excluded), "correct the values"
	case c.Overdue > 0 && c.Waiting == 0 && !cfg.Accepts(mapping.NothingDueLater):
		return fmt.Sprintf("%d unpaid orders are overdue, and none is due in the future: orders.due may name a creation time, or its zone may be wrong", c.Overdue),
			mapping.OrAccept("correct orders.due; if no order is waiting now, check again when one is", mapping.NothingDueLater)
	case c.Waiting > 0 && ahead > longest+dueSlack && !cfg.Accepts(mapping.FarDue):
		return fmt.Sprintf("an unpaid order is due in %v, but the longest delay in topics.yaml is %s: the zone of orders.due may be wrong, and every order would be closed late",
			ahead.Round(time.Second), config.FormatDuration(longest)), mapping.OrAccept("correct the zone, or the delays", mapping.FarDue)
	}
	return "", ""
}

// print prints the numbers. A nil c prints nothing.
func (c *orderCounts) print(w io.Writer) {
	if c == nil {
		return
	}
	fmt.Fprintf(w, "unpaid, status %v\t%d: %d overdue, %d not due yet", c.status.From, c.From, c.Overdue, c.Waiting)
	if c.Waiting > 0 {
		fmt.Fprintf(w, ", the farthest in %v", c.Farthest.Sub(c.At).Round(time.Second))
	}
	fmt.Fprintf(w, ", %d excluded\nclosed, status %v\t%d", c.Excluded, c.status.To, c.To)
	if c.To >= store.CountLimit {
		fmt.Fprint(w, " or more")
	}
	fmt.Fprintln(w)
	if c.Doubt != "" {
		fmt.Fprintf(w, "FOUND\t%s\n", c.Doubt)
	}
}

// checkOrders counts the orders of the shop's own tables and doubts improbable numbers.
func (s *session) checkOrders(ctx context.Context, check string) checkup {
	c, err := s.countOrders(ctx)
	switch {
	case err != nil:
		return skipped(check, "the orders could not be counted: "+err.Error())
	case c.Doubt != "" && !s.found.Unknown("delays"):
		return finding(check, c.Doubt, c.Fix)
	}
	var numbers strings.Builder
	c.print(&numbers)
	return passed(check, "%s", strings.NewReplacer("\t", ": ", "\n", "; ").Replace(strings.TrimSpace(numbers.String())))
}
