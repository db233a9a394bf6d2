package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"orderclose/compensator"
)

func newCompensate(c *common) *cobra.Command {
	var once, dryRun bool
	cmd := &cobra.Command{
		Use:   "compensate --once",
		Short: "Sweep the database for overdue unpaid orders now",
		Long: `Sweep the database for overdue unpaid orders now, under the same lock as the
hourly sweeps, and print a report. With --dry-run it only counts. Exit 5: another
process is sweeping; 6: some orders could not be closed.`,
		Args: usageArgs(cobra.NoArgs),
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

func (c *common) compensate(ctx context.Context, dryRun bool) error {
	s, err := c.openFor(sweepNeeds)
	if err != nil {
		return err
	}
	defer s.Close()
	a, err := s.app()
	if err != nil {
		return err
	}
	bar, progress := c.sweepProgress(ctx, s)
	comp, err := a.Compensator(progress)
	if err != nil {
		return err
	}
	r, err := comp.Sweep(ctx, dryRun)
	bar.End()
	if errors.Is(err, compensator.ErrHeld) {
		return Exit(Refused, fmt.Errorf("%w; wait for it, or see which process it is in the logs", err))
	}
	if printed := c.print(r, func(w io.Writer) { printReport(w, r) }); err == nil {
		err = printed
	}
	switch {
	case err != nil:
		return err
	case r.Failed > 0:
		return Exit(Partly, fmt.Errorf("%d orders could not be closed", r.Failed))
	}
	return nil
}

// sweepProgress is a bar on a terminal, whose length is what is overdue when it
// begins; elsewhere nothing, as the log says every 10 s how far a sweep is.
func (c *common) sweepProgress(ctx context.Context, s *session) (*Progress, func(compensator.Report)) {
	if c.quiet || !isTerminal(c.env.Stderr) {
		return nil, nil
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, nil // the sweep will say so
	}
	total, err := s.Store.CountOverdue(ctx, now.Add(-s.cfg.Compensator.Grace))
	if err != nil {
		return nil, nil
	}
	bar := c.progress("swept")
	return bar, func(r compensator.Report) {
		bar.Show(int64(r.Found), max(total, int64(r.Found)), fmt.Sprintf("%d closed, %d failed", r.Closed, r.Failed))
	}
}

func printReport(w io.Writer, r compensator.Report) {
	fmt.Fprintf(w, "found\t%d overdue and unpaid\n", r.Found)
	if r.OldestDue != nil {
		fmt.Fprintf(w, "oldest due\t%s\n", r.OldestDue.UTC().Format("2006-01-02 15:04:05.000Z"))
	}
	if r.DryRun {
		fmt.Fprintln(w, "dry run\tnothing was changed")
		return
	}
	fmt.Fprintf(w, "closed\t%d\n", r.Closed)
	fmt.Fprintf(w, "paid meanwhile\t%d\n", r.AlreadyPaid)
	fmt.Fprintf(w, "closed meanwhile\t%d\n", r.AlreadyClosed)
	if r.PaymentPending > 0 {
		fmt.Fprintf(w, "payment pending\t%d\n", r.PaymentPending)
	}
	fmt.Fprintf(w, "failed\t%d\n", r.Failed)
	for _, f := range r.Failures {
		fmt.Fprintf(w, "  %s\t%s\n", f.OrderID, f.Error)
	}
	for _, cause := range slices.Sorted(maps.Keys(r.Causes)) {
		fmt.Fprintf(w, "missed: %s\t%d\n", strings.ReplaceAll(cause, "_", " "), r.Causes[cause])
	}
	for _, m := range r.Misses {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", m.Order.ID, m.Cause, m.Where, m.Mend)
	}
	fmt.Fprintf(w, "lock\t%s\n", r.Lock)
	fmt.Fprintf(w, "took\t%v\n", r.Took())
}
