package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/pipeline"
)

func newCompensate(c *common) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "compensate [--dry-run]",
		Short: "Close all overdue unpaid orders now",
		Long: `Try once to close each order in the database that is overdue and unpaid, and print a
report. Compensators do so all the time; this pass is by hand. It takes no lock, so they may
work beside it, and it also tries the orders that rest because a compensator could not close
them. With --dry-run it only counts. If Kafka is set, orders that have been due for less than
5 s are left to the pipeline. Exit 3: the orders' tables do not fit the mapping in
topics.yaml, or with --dry-run, the due times or the statuses of the orders do not fit it;
6: some orders could not be closed, or the pass was cut off.`,
		Example: "  orderclose compensate --dry-run",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.compensate(cmd.Context(), dryRun) },
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "find, but change nothing")
	return cmd
}

// openSweep opens a session, and a pipeline on it that can close orders in this process. The database fits the statuses of the orders.
func (c *common) openSweep(ctx context.Context) (*session, *pipeline.App, error) {
	s, err := c.openFor(func(cfg *config.Config) []string { return c.requiredVariables(cfg, pipeline.Sweeper) })
	if err != nil {
		return nil, nil, err
	}
	c.attachKafka(s)
	o := s.options()
	o.SweepsAlone = s.Kafka == nil
	a, err := pipeline.New(o)
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
	if !dryRun {
		if err := s.refuseFirst(ctx); err != nil {
			return err
		}
	}
	comp, err := a.Compensator()
	if err != nil {
		return err
	}
	r, err := comp.Sweep(ctx, dryRun)
	var counts *orderCounts
	if err == nil && dryRun {
		counts, err = s.countOrders(ctx)
	}
	shown := struct {
		compensator.Report
		Orders *orderCounts `json:"orders,omitempty"`
	}{r, counts}
	err = cmp.Or(err, c.print(shown, func(w io.Writer) { printReport(w, r, s.cfg, s.grace()); counts.print(w) }))
	if err == nil && counts != nil && counts.Doubt != "" {
		return Exit(Findings, errors.New(counts.Doubt+"; "+counts.Fix))
	}
	return sweptError(ctx, r, err)
}

// grace returns how long after its due time an order is left to the pipeline: without Kafka there is none.
func (s *session) grace() time.Duration {
	if s.Kafka == nil {
		return 0
	}
	return compensator.Grace
}

func printReport(w io.Writer, r compensator.Report, cfg *config.Config, grace time.Duration) {
	fmt.Fprintf(w, "found\t%d overdue and unpaid\n", r.Found)
	if !r.OldestDue.IsZero() {
		fmt.Fprintf(w, "oldest due\t%s\n", r.OldestDue.UTC().Format("2006-01-02 15:04:05.000Z"))
	}
	if r.DryRun {
		left := ""
		if grace > 0 {
			left = fmt.Sprintf("; orders due less than %v ago are left to the pipeline", grace)
		}
		fmt.Fprintf(w, "dry run\tnothing was changed%s\n", left)
		if cfg.Closer.AsksPayment() {
			fmt.Fprintf(w, "\tthe payment provider was not asked: an order that it has no answer on stays open\n")
		}
		return
	}
	fmt.Fprintf(w, "closed\t%d\n", r.Closed)
	fmt.Fprintf(w, "paid meanwhile\t%d\n", r.AlreadyPaid)
	fmt.Fprintf(w, "closed meanwhile\t%d\n", r.AlreadyClosed)
	text.PrintAny(w, r.Excluded, "excluded meanwhile\t%d")
	text.PrintAny(w, r.Paused, "paused\t%d")
	text.PrintAny(w, r.PaymentPending, "payment pending\t%d\tthe payment provider has no answer on them: orderclose runbook the-payment-provider-does-not-answer")
	fmt.Fprintf(w, "failed\t%d\n", r.Failed)
	for _, f := range r.Failures {
		fmt.Fprintf(w, "  %s\t%s\n", text.OneLine(f.OrderID, orderclose.MaxIDBytes), text.OneLine(f.Error, 300))
	}
	fmt.Fprintf(w, "took\t%v\n", time.Duration(r.TookMillis)*time.Millisecond)
}

// sweptError returns the error of a pass that has ended, or was cut off by err, with its exit code.
func sweptError(ctx context.Context, r compensator.Report, err error) error {
	err = interrupted(ctx, err)
	return cmp.Or(exitIf(err != nil && r.Closed > 0, Partly, "%w; run the same again", err), err,
		exitIf(r.Failed > 0, Partly, "%d orders could not be closed", r.Failed))
}
