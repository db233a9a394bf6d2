package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/text"
)

// missBound bounds how long an order may stay open that the pipeline missed. A compensator closes it within half a minute, or later after
// a fault that many orders met.
const missBound = 3 * time.Minute

func newAudit(c *common) *cobra.Command {
	var from, to string
	var limit int // of what is shown
	o := ops.AuditOptions{Bound: missBound, Tolerance: time.Minute}
	cmd := &cobra.Command{
		Use:   "audit --from TIME [--to TIME]",
		Short: "Prove that due orders were closed once, with their stock and event",
		Long: `Compare, for the orders that were due in a window of time, the database's row
of each order with its receipt, the stock that moved, its event and Kafka. The command changes
nothing and locks nothing. It reads page by page. Its memory does not grow with the table:
it keeps 8 bytes for each event since the beginning of the window.

  still_open       due, unpaid, and open for longer than a missed order may be
  no_receipt       closed, without the rows that a close writes
  stray_receipt    the receipt of a close, and the order is not closed
  overwritten      closed, and another program wrote another closed status over it
  paid_but_closed  both paid and closed
  closed_early     closed before it was due
  ledger_missing   closed, and its stock was never released
  ledger_double    its stock was released more than once
  ledger_wrong     its stock was released in another quantity, or without a close

It also counts states that are no fault of the close: closed by the sweep, with a late
payment, and closed orders about which the payment provider should have been asked again
(closer.payment.recheck).

Of orders that others closed it says how many were early, on time and late against
--tolerance, and names the newest five that were early or late. This works before orderclose closes anything, with a user who may only read the
orders: docs/mapping.md says how to compare your old job before you switch.

Kafka is not asked: a close writes its event in its own transaction, and orderclose events
again writes those of a time again. In tables of the shop's own, a closed order without a receipt is counted and is no fault,
since the shop may have closed it, and what came back is compared if there are lines. An order whose status is not in
orders.status is judged as a close would treat it: as paid, unless orders.status lists only
paid statuses. The output lists these statuses. Unpaid orders that orders.where or
orders.not_before excludes are counted and are no fault. Deleted orders are not checked:
a query finds the stock that they left reserved: orderclose runbook is-everything-well.

A time is RFC 3339, or how long ago: 90m, or now. Exits 3 with differences, 6
without differences if something could not be checked.`,
		Example:     "  orderclose audit --from 24h\n  orderclose audit --from 2026-11-20T00:00:00Z --to 2026-11-21T00:00:00Z -o jsonl --limit 0",
		Annotations: map[string]string{"jsonl": "yes"}, // allows -o jsonl
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			o.From, o.To, err = parseWindow(from, to, time.Now())
			err = errors.Join(err, exitIf(limit < 0, Usage, "--limit is %d, want 0 or more", limit),
				exitIf(limit == 0 && c.output == "json", Usage, "-o json keeps all findings in memory: give a --limit, or -o jsonl"))
			if err != nil {
				return Exit(Usage, err)
			}
			return with(c.open(environ.EnvDSN))(func(s *session) error { return c.auditIn(cmd.Context(), s, limit, o) })
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the beginning of the window of due times")
	cmd.Flags().StringVar(&to, "to", "now", "the end of the window")
	cmd.Flags().IntVar(&limit, "limit", 1000, "how many findings to show, 0 for all; all are counted")
	durationFlag(cmd, &o.Bound, "bound", "how long an order that is due may be open; default: 3m")
	durationFlag(cmd, &o.Tolerance, "tolerance", "how far from its due time a close by others is on time; default: 1m")
	return cmd
}

// auditIn runs the audit with the clients of the session.
func (c *common) auditIn(ctx context.Context, s *session, limit int, o ops.AuditOptions) error {
	o.Store, o.Config = s.Store, s.cfg
	if s.cfg.Closer.Kind == config.KindHTTP && !c.quiet {
		c.note("orders are closed by a service: their receipts and stock are not checked")
	}
	o.Progress = c.progress("audited").Say
	out := &auditOutput{c: c, limit: limit, orders: s.cfg.Orders, Findings: []ops.Finding{}}
	o.OnFinding = out.found
	sum, err := ops.Audit(ctx, o)
	if err != nil {
		return err
	}
	return cmp.Or(out.end(sum), exitIf(sum.FindingCount > 0, Findings, "differences: %d, in %d orders", sum.FindingCount, sum.Orders),
		exitIf(len(sum.NotRead) > 0, Partly, "some parts could not be checked; they are listed above"))
}

// auditOutput prints findings at once, except with -o json, which prints one object at the end.
type auditOutput struct {
	c     *common
	limit int
	shown int
	// orders is the mapping, whose statuses are printed with their meanings; nil: the reference schema.
	orders *mapping.Mapping

	Findings []ops.Finding    `json:"findings"`
	Summary  ops.AuditSummary `json:"summary"`
}

// found prints or keeps one finding. Findings beyond the limit are only counted.
func (o *auditOutput) found(f ops.Finding) error {
	if o.limit > 0 && o.shown == o.limit {
		return nil
	}
	o.shown++
	w := o.c.env.Stdout
	switch o.c.output {
	case "json":
		o.Findings = append(o.Findings, f)
		return nil
	case "jsonl":
		return o.c.encode(map[string]ops.Finding{"finding": f})
	}
	_, err := fmt.Fprintf(w, "%s: order %s, due %s: %s\n    -> %s\n",
		f.Kind, text.OneLine(f.Order, orderclose.MaxIDBytes), text.Stamp(f.Due), text.OneLine(f.What, 300), text.OneLine(f.Fix, 300))
	return err
}

func (o *auditOutput) end(sum ops.AuditSummary) error {
	o.Summary = sum
	if o.c.output == "jsonl" {
		return o.c.encode(map[string]ops.AuditSummary{"summary": sum})
	}
	return o.c.print(o, func(w io.Writer) { printAudit(w, sum, o.shown, o.orders) })
}

// newest lists orders behind their number.
func newest(orders []ops.OrderDue) (list string) {
	for i, o := range orders {
		list += [...]string{": ", ", "}[min(i, 1)] + line(o.Order)
	}
	return list
}

func printAudit(w io.Writer, s ops.AuditSummary, shown int, orders *mapping.Mapping) {
	text.PrintAny(w, s.FindingCount-shown, "and %d more: --limit 0 shows all")
	fmt.Fprintf(w, "due from %s to %s\t%d orders\n", text.Stamp(s.From), text.Stamp(s.To), s.Orders)
	for _, status := range slices.Sorted(maps.Keys(s.Statuses)) {
		meaning := ""
		if orders != nil {
			meaning = orders.Status.Meaning(status)
		}
		fmt.Fprintf(w, "  %s\t%d\n", inWords(status, meaning), s.Statuses[status])
	}
	for _, status := range slices.Sorted(maps.Keys(s.Unlisted)) {
		fmt.Fprintf(w, "orders.status does not name %s\tit counts as %s\n", text.OneLine(status, 40), s.Unlisted[status])
	}
	for _, path := range slices.Sorted(maps.Keys(s.ClosedBy)) {
		fmt.Fprintf(w, "closed by %s\t%d\n", path, s.ClosedBy[path])
	}
	text.PrintAny(w, s.ClosedElsewhere, "closed in this time, and due at another time now\t%d")
	if s.ClosedYoung > 0 {
		fmt.Fprintf(w, "closed young\t%d at less than half of their delay%s -> orderclose runbook a-checkout-has-a-wrong-clock\n", s.ClosedYoung,
			newest(s.ClosedYoungNewest))
	}
	if o := s.ClosedByOthers; o.Orders > 0 {
		fmt.Fprintf(w, "closed by others\t%d\n  early\t%d%s\n  on time\t%d\n  late\t%d%s\n",
			o.Orders, o.Early, newest(o.EarlyNewest), o.OnTime, o.Late, newest(o.LateNewest))
		text.PrintAny(w, o.Untimed, "  at an unknown time\t%d")
		text.PrintAny(w, int(o.Latest), "  the latest of them\t%d s late")
	}
	text.PrintAny(w, s.OpenWithinBound, "open, and within the bound of "+s.Bound+"\t%d")
	text.PrintAny(w, s.Excluded, "unpaid, and excluded by orders.where or orders.not_before\t%d")
	text.PrintAny(w, s.LatePayments, "with a late payment\t%d")
	text.PrintAny(w, s.LateUnresolved, "with a late payment that nobody has resolved\t%d")
	text.PrintAny(w, s.NotRechecked, "closed, and the payment provider was not asked again in time\t%d")
	for _, what := range s.NotRead {
		fmt.Fprintf(w, "not checked\t%s\n", text.OneLine(what, 300))
	}
	if s.FindingCount == 0 {
		fmt.Fprintln(w, "differences\tnone")
		return
	}
	fmt.Fprintf(w, "differences\t%d\n", s.FindingCount)
	for _, k := range slices.Sorted(maps.Keys(s.Findings)) {
		fmt.Fprintf(w, "  %s\t%d\n", k, s.Findings[k])
	}
}
