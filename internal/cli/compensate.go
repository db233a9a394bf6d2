package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"orderclose/compensator"
)

func newCompensate(c *common) *cobra.Command {
	var once, dryRun bool
	cmd := &cobra.Command{
		Use:   "compensate --once",
		Short: "Sweep the database for overdue unpaid orders now",
		Long: `Sweep the database for overdue unpaid orders now, under the same lock as the
hourly sweeps, and print a report. With --dry-run it only counts.`,
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
	comp, err := a.Compensator()
	if err != nil {
		return err
	}
	r, err := comp.Sweep(ctx, dryRun)
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
	fmt.Fprintf(w, "lock\t%s\n", r.Lock)
	fmt.Fprintf(w, "took\t%v\n", r.Took())
}
