package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/pipeline"
)

func newCompensate(c *common) *cobra.Command {
	var once, dryRun bool
	cmd := &cobra.Command{
		Use:   "compensate --once [--dry-run]",
		Short: "Sweep the database for overdue unpaid orders now",
		Long: `Sweep the database for overdue unpaid orders now, under the same lock as the
hourly sweeps, and print a report. With --dry-run it only counts. If Kafka is set, orders
that have been due for less than compensator.grace are left to the pipeline. Exit 3: the
orders' tables do not fit the mapping in topics.yaml, or with --dry-run, the due times or the
statuses of the orders do not fit it; 5: another process is sweeping; 6: some
orders could not be closed.

The report has the reason why the pipeline missed each order, as far as that is cheap to
know:

  unpublished    its row is still in the schedule outbox: no dispatcher runs, or Kafka is down
  on_its_way     a relay or closer is behind in a partition that the order's record passes
  dead_lettered  its record became a dead letter
  unknown        none of these: orderclose order ID searches for its records`,
		Example: "  orderclose compensate --once --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !once {
				return Exit(Usage, errors.New("add --once for one sweep now; the hourly ones are orderclose run compensator"))
			}
			return c.compensate(cmd.Context(), dryRun)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "sweep once and exit")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "find, but change nothing")
	return cmd
}

// openSweep opens a session, and a pipeline on it that can close orders in this process. The database fits the statuses of the orders.
func (c *common) openSweep(ctx context.Context) (*session, *pipeline.App, error) {
	s, err := c.openFor(func(cfg *config.Config) []string { return c.requiredVariables(cfg, pipeline.Sweeper) }, config.EnvRedis, config.EnvBrokers)
	if err != nil {
		return nil, nil, err
	}
	c.attachKafka(s)
	if s.Kafka == nil { // no pipeline has to close an order first: sweep what a sweeper sweeps
		s.cfg.Compensator.Grace = 0
	}
	a, err := pipeline.New(s.options())
	if err == nil {
		err = findings(a.CheckDatabase(ctx))
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, a, nil
}

func (c *common) compensate(ctx context.Context, dryRun bool) error {
	s, a, err := c.openSweep(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	bar, progress := c.sweepProgress(ctx, s)
	comp, err := a.Compensator(progress)
	if err != nil {
		return err
	}
	r, err := comp.Sweep(ctx, dryRun)
	bar.End()
	if errors.Is(err, compensator.ErrHeld) {
		return Exit(Refused, fmt.Errorf("%w; wait for it, or find the process in the logs", err))
	}
	var counts *orderCounts
	if err == nil && dryRun {
		counts, err = s.countOrders(ctx)
	}
	shown := struct {
		compensator.Report
		Orders *orderCounts `json:"orders,omitempty"`
	}{r, counts}
	err = cmp.Or(err, c.print(shown, func(w io.Writer) { printReport(w, r, s.cfg); counts.print(w) }))
	if err == nil && counts != nil && counts.Doubt != "" {
		return Exit(Findings, errors.New(counts.Doubt+"; "+counts.Fix))
	}
	return cmp.Or(err, exitIf(r.Failed > 0, Partly, "%d orders could not be closed", r.Failed))
}

// sweepProgress returns a bar on a terminal, whose length is the number of orders that are
// overdue at the start. Otherwise it returns nil: the log has a line every 10 s.
func (c *common) sweepProgress(ctx context.Context, s *session) (*Progress, func(compensator.Report)) {
	bar := c.bar("swept")
	if bar == nil {
		return nil, nil
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, nil // the sweep will return the error
	}
	total, err := s.Store.CountOverdue(ctx, now.Add(-s.cfg.Compensator.Grace))
	if err != nil {
		return nil, nil
	}
	return bar, func(r compensator.Report) {
		bar.Show(int64(r.Found), max(total, int64(r.Found)), fmt.Sprintf("%d closed, %d failed", r.Closed, r.Failed))
	}
}

func printReport(w io.Writer, r compensator.Report, cfg *config.Config) {
	fmt.Fprintf(w, "found\t%d overdue and unpaid\n", r.Found)
	if !r.OldestDue.IsZero() {
		fmt.Fprintf(w, "oldest due\t%s\n", r.OldestDue.UTC().Format("2006-01-02 15:04:05.000Z"))
	}
	if r.DryRun {
		left := ""
		if cfg.Compensator.Grace > 0 {
			left = fmt.Sprintf("; orders due less than %v ago are left to the pipeline", cfg.Compensator.Grace)
		}
		fmt.Fprintf(w, "dry run\tnothing was changed%s\n", left)
		if cfg.Closer.AsksPayment() {
			fmt.Fprintf(w, "\tthe payment provider was not asked: an order that it has no answer on stays open\n")
		}
		return
	}
	fmt.Fprintf(w, "closed\t%d\n", r.Closed)
	printCauses(w, r)
	fmt.Fprintf(w, "paid meanwhile\t%d\n", r.AlreadyPaid)
	fmt.Fprintf(w, "closed meanwhile\t%d\n", r.AlreadyClosed)
	printAny(w, r.Excluded, "excluded meanwhile\t%d")
	printAny(w, r.Paused, "paused\t%d")
	printAny(w, r.PaymentPending, "payment pending\t%d\tthe payment provider has no answer on them: orderclose runbook the-payment-provider-does-not-answer")
	fmt.Fprintf(w, "failed\t%d\n", r.Failed)
	for _, f := range r.Failures {
		fmt.Fprintf(w, "  %s\t%s\n", f.OrderID, f.Error)
	}
	fmt.Fprintf(w, "lock\t%s\n", r.Lock)
	fmt.Fprintf(w, "took\t%v\n", r.Took())
}

// printCauses prints the reasons why the pipeline missed the closed orders, each with a fix
// and an example.
func printCauses(w io.Writer, r compensator.Report) {
	for _, why := range compensator.Causes() {
		n := r.Causes[string(why)]
		if n == 0 {
			continue
		}
		fix, example := ops.FixCommand(why), ""
		if i := slices.IndexFunc(r.Misses, func(m compensator.Miss) bool { return m.Cause == why }); i >= 0 {
			m := r.Misses[i]
			if n == 1 {
				fix = m.Fix
			}
			example = fmt.Sprintf("\tsuch as %s %s", oneLine(m.Order.ID, orderclose.MaxIDBytes), oneLine(m.Where, 200))
		}
		fmt.Fprintf(w, "  %s\t%d\t%s%s\n", why, n, fix, example)
	}
}
