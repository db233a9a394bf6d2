package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/propose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// dueSlack is how much farther than the longest delay an order may be due: the clocks of shop and
// database may differ.
const dueSlack = time.Minute

// orderCounts are the numbers of the shop's own tables, and what they say about the mapping.
type orderCounts struct {
	store.OrderCounts
	store.Evidence
	propose.Exceptions
	status  mapping.Status
	longest time.Duration // the longest delay of topics.yaml
	// Doubt says why the mapping is probably wrong, and Fix what to do. Both empty: it may be right.
	Doubt string `json:"doubt,omitempty"`
	Fix   string `json:"fix,omitempty"`
	// wrong says that migrate refuses the mapping: the doubt is about a status, most orders are never due, or the database has closed no order
	// yet. Any other doubt may end by itself, such as after an outage.
	wrong bool
}

// countOrders counts the orders of the shop's own tables. It returns nil in the reference schema.
func (s *session) countOrders(ctx context.Context) (*orderCounts, error) {
	if s.cfg.Orders == nil {
		return nil, nil
	}
	found, err := s.Store.CountOrders(ctx)
	if err != nil {
		return nil, err
	}
	evidence, err := s.Store.Evidence(ctx)
	if found.Cut = found.Cut || store.IsSlow(err); err != nil && !found.Cut {
		return nil, err
	}
	c := &orderCounts{OrderCounts: found, Evidence: evidence, status: s.cfg.Orders.Status, longest: s.cfg.Delays.Longest()}
	c.Doubt, c.Fix = doubtStatus(evidence, s.cfg)
	if c.Doubt == "" {
		c.Doubt, c.Fix = doubtNever(found, s.cfg)
	}
	c.wrong = c.Doubt != ""
	if c.Doubt == "" {
		c.Doubt, c.Fix, c.wrong = doubtFilled(evidence, s.cfg)
	}
	if c.Doubt == "" {
		c.Doubt, c.Fix = doubtOdd(found, evidence, s.cfg)
	}
	if c.Doubt == "" {
		c.readExceptions(ctx, s)
	}
	if c.Doubt == "" {
		var failure *compensator.Failure
		if found.Overdue > 0 && found.Waiting == 0 {
			overdue, _ := s.pipeline().OverdueExplained(ctx) // without it the doubt says less
			if len(overdue.Failures) > 0 {
				failure = &overdue.Failures[0]
			}
		}
		c.Doubt, c.Fix = doubt(found, s.grace(), failure, s.cfg)
	}
	c.wrong = c.wrong || c.Doubt != "" && s.hasClosedNothing(ctx)
	return c, nil
}

// readExceptions looks for unpaid orders that may have to stay open, as init does. What it cannot read it leaves out.
func (c *orderCounts) readExceptions(ctx context.Context, s *session) {
	facts, err := propose.Read(ctx, s.Store, s.cfg.Orders.Orders, "")
	if err != nil {
		return
	}
	c.Exceptions = facts.Exceptions(s.cfg.Orders, s.cfg.Delays.Default)
	if len(c.Money) > 0 && !s.cfg.Accepts(mapping.PaidOrders) {
		c.Doubt = strings.Join(c.Money, "; ")
		c.Fix = mapping.OrAccept("leave out by orders.where what must stay open", mapping.PaidOrders)
	}
}

// hasClosedNothing reports whether orders are closed in the database, and none has been closed yet.
func (s *session) hasClosedNothing(ctx context.Context) bool {
	if !s.pipeline().ClosesInDatabase() {
		return false
	}
	closed, err := s.Store.HasClosed(ctx)
	return err == nil && !closed
}

// refuseFirst returns a doubt about the mapping before the first close: with a wrong zone it would close all orders at once. Counting takes
// seconds, so it counts only then.
func (s *session) refuseFirst(ctx context.Context) error {
	if !s.hasClosedNothing(ctx) {
		return nil
	}
	c, err := s.countOrders(ctx)
	if err != nil || c == nil || c.Doubt == "" {
		return nil
	}
	return Exit(Findings, errors.New(c.Doubt+"; "+c.Fix+"; nothing was closed"))
}

// doubtStatus says which status of the mapping is improbable, and what to do. Pure.
func doubtStatus(e store.Evidence, cfg *config.Config) (what, fix string) {
	st := cfg.Orders.Status
	switch {
	case len(e.Unnamed) > 0 && !cfg.Accepts(mapping.UnnamedStatus):
		return fmt.Sprintf("orders have statuses that orders.status does not name: %s; they count as %s", strings.Join(e.Unnamed, ", "), e.UnnamedAs),
			mapping.OrAccept("list them in status.paid or status.closed, or correct status.from", mapping.UnnamedStatus)
	case cfg.Accepts(mapping.PaidOrders):
	case e.FromSample.Mostly():
		return fmt.Sprintf("%d of %d orders with the status %v (orders.status.from) have a %s: paid orders would be closed", e.FromSample.Paid,
				e.FromSample.Orders, st.From, e.PaidColumn),
			mapping.OrAccept("write the status of unpaid orders", mapping.PaidOrders)
	case e.ToSample.Mostly():
		return fmt.Sprintf("%d of %d orders with the status %v (orders.status.to) have a %s: a close would mark unpaid orders as paid", e.ToSample.Paid,
				e.ToSample.Orders, st.To, e.PaidColumn),
			mapping.OrAccept("write the status of closed orders", mapping.PaidOrders)
	}
	return "", ""
}

// doubtNever doubts due times if most unpaid orders are never due. Pure.
func doubtNever(c store.OrderCounts, cfg *config.Config) (what, fix string) {
	if c.Never <= c.From/2 || cfg.Accepts(mapping.NeverDue) {
		return "", ""
	}
	return fmt.Sprintf("%d of %d unpaid orders are never due: their value in orders.due is NULL, 0, or too large for the type", c.Never, c.From),
		mapping.OrAccept("name the column and the type of its values: unix_ms, unix_s and datetime differ", mapping.NeverDue)
}

// doubtFilled doubts a column that only orderclose writes if unpaid orders hold a value in it. If most do, it is wrong. Pure.
func doubtFilled(e store.Evidence, cfg *config.Config) (what, fix string, wrong bool) {
	for _, f := range e.Filled {
		if p := f.Problem(); !cfg.Accepts(p.Accept) && (what == "" || !wrong && f.Mostly()) {
			what, fix, wrong = fmt.Sprintf("%s (orders.%s): %s", p.What, p.Path, p.Why), mapping.OrAccept(p.Fix, p.Accept), f.Mostly()
		}
	}
	return what, fix, wrong
}

// doubtOdd doubts due times and numbers of the stock that may mean that there is none, or no limit. Pure.
func doubtOdd(c store.OrderCounts, e store.Evidence, cfg *config.Config) (what, fix string) {
	switch {
	case c.Before2000 > 0 && !cfg.Accepts(mapping.DueBefore2000):
		return moreThan(c.Before2000) + " unpaid orders are due before the year 2000, and would be closed at once: such a time may mean that the order has no limit",
			mapping.OrAccept("write NULL or a time that means never, or leave these orders out with where", mapping.DueBefore2000)
	case c.BeforeCreated > 0 && !cfg.Accepts(mapping.DueBeforeMade):
		return moreThan(c.BeforeCreated) + " unpaid orders are due before they were created, and would be closed at once: such a time may " +
				"mean that the order has no limit, or a program writes local time into a column of UTC",
			mapping.OrAccept("correct these times, or the zone of orders.due or orders.created", mapping.DueBeforeMade)
	}
	for _, b := range e.BelowZero {
		if !cfg.Accepts(mapping.StockBelowZero) {
			return fmt.Sprintf("%s rows of %s have a %s below zero: if that means \"no limit\", a close makes 1 of -1, and then there is one",
					moreThan(b.Rows), b.Table, b.Column),
				mapping.OrAccept("return the stock with a condition, by on_close (docs/mapping.md); if these goods are oversold, correct the numbers",
					mapping.StockBelowZero)
		}
	}
	return "", ""
}

// moreThan writes a number that was counted up to store.OddLimit.
func moreThan(n int64) string {
	if n >= store.OddLimit {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

// doubt says what is improbable about the due times of orders, and what to do. An order that has been due for less than grace is no
// doubt. failure is why the oldest overdue order cannot be closed; nil: that is not known. Pure.
func doubt(c store.OrderCounts, grace time.Duration, failure *compensator.Failure, cfg *config.Config) (what, fix string) {
	longest := cfg.Delays.Longest()
	ahead := c.Farthest.Sub(c.At)
	switch {
	case c.Cut:
	case c.Excluded > 0 && c.Overdue+c.Waiting == 0:
		return fmt.Sprintf("orders.where or orders.not_before excludes all %d unpaid orders: none is ever closed", c.Excluded), "correct the values"
	case c.Overdue > 0 && c.Waiting == 0 && c.At.Sub(c.Oldest) >= grace && !cfg.Accepts(mapping.NothingDueLater):
		what = "orders.due may name a creation time, its zone may be wrong, or orders.status.from may be the status of closed orders"
		fix = mapping.OrAccept("correct them; if no order is waiting now, check again when one is", mapping.NothingDueLater)
		if failure != nil {
			what, fix = failure.String()+"; or "+what, "orderclose runbook an-order-cannot-be-closed; or "+fix
		}
		return fmt.Sprintf("%d unpaid orders are overdue, and none is due in the future: %s", c.Overdue, what), fix
	case c.Waiting > 0 && ahead > longest+dueSlack && !cfg.Accepts(mapping.FarDue):
		fix = "correct the zone, or the delays"
		if cfg.ByRule() {
			fix += "; if the delay was longer when the order was created, wait until it is due"
		}
		return fmt.Sprintf("an unpaid order is due in %v, but the longest delay in topics.yaml is %s: the zone of orders.due may be wrong, and every "+
			"order would be closed late", ahead.Round(time.Second), config.FormatDuration(longest)), mapping.OrAccept(fix, mapping.FarDue)
	}
	return "", ""
}

// print prints the numbers. A nil c prints nothing.
func (c *orderCounts) print(w io.Writer) {
	if c == nil {
		return
	}
	atLeast := func(n int64) string { // that was counted up to store.CountLimit, if the server has not ended a count
		if c.Cut || n >= store.CountLimit {
			return fmt.Sprintf("at least %d", n)
		}
		return fmt.Sprint(n)
	}
	fmt.Fprintf(w, "unpaid, status %v\t%s: %s overdue, %s not due yet", c.status.From, atLeast(c.From), atLeast(c.Overdue), atLeast(c.Waiting))
	if c.Waiting > 0 {
		fmt.Fprintf(w, ", the farthest in %v (the longest delay is %s)", c.Farthest.Sub(c.At).Round(time.Second), config.FormatDuration(c.longest))
	}
	fmt.Fprintf(w, ", %s excluded, %s never due\nclosed, status %v\t%s\n", atLeast(c.Excluded), atLeast(c.Never), c.status.To, atLeast(c.To))
	if c.Cut {
		fmt.Fprintln(w, "not all\tthe server has ended a statement that took 2 s: orders were counted and looked at in part")
	}
	if c.PaidColumn != "" {
		fmt.Fprintf(w, "with a %s\t%d of %d unpaid, %d of %d closed\n", c.PaidColumn, c.Evidence.FromSample.Paid, c.Evidence.FromSample.Orders,
			c.Evidence.ToSample.Paid, c.Evidence.ToSample.Orders)
	}
	if len(c.Unnamed) > 0 {
		fmt.Fprintf(w, "not named\tthe statuses %s count as %s\n", strings.Join(c.Unnamed, ", "), c.UnnamedAs)
	}
	if len(c.Exceptions.Old) > 0 {
		fmt.Fprintf(w, "look at\t%s\n", strings.Join(c.Exceptions.Old, "; "))
	}
	if c.Doubt != "" {
		fmt.Fprintf(w, "FOUND\t%s\n", c.Doubt)
	}
}

// checkOrders counts the orders of the shop's own tables and doubts improbable numbers.
func (s *session) checkOrders(ctx context.Context) (well string, err error) {
	c, err := s.countOrders(ctx)
	if err != nil {
		return "", &skip{fmt.Errorf("the orders could not be counted: %w", err)}
	}
	return c.line(), exitIf(c.Doubt != "", Findings, "%s: %s", c.Doubt, c.Fix)
}

func (c *orderCounts) line() string {
	var numbers strings.Builder
	c.print(&numbers)
	return strings.NewReplacer("\t", ": ", "\n", "; ").Replace(strings.TrimSpace(numbers.String()))
}
