package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/ops"
)

func newSweeps(c *common) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "sweeps [--limit 24]",
		Short: "Show the sweeps of the last week",
		Long: `Show the sweeps of the last week, newest first: what each found and closed, and why
the pipeline had missed these orders. Each compensator with Kafka, and each orderclose
compensate --once, appends a record to the control topic after its sweep. The command
reads that topic, which keeps its records for a week, and changes nothing.

  why        period: the sweep was due; overdue: a series of sweeps, because orders were overdue; once: a person asked for
             it; losses: an older program's sweep after a loss of records
  meanwhile  orders that were paid or closed between the search and the close
  left       orders that are still open: paused, excluded, not due any more, or the payment
             provider cannot say whether they are paid
  lock       held; unavailable: its server gave none; stuck; none: no Redis is configured
  by         host and process

A sweep that was killed has no record. Nor has one that a pause ended before it closed an
order.`,
		Example: "  orderclose sweeps --limit 0 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return Exit(Usage, fmt.Errorf("--limit is %d, want 0 or more", limit))
			}
			return c.readKafka(cmd.Context(), func(ctx context.Context, s *session) error {
				read, err := s.pipeline().Sweeps(ctx, limit)
				return c.answer(read, err, sweepsOutput{read}.table)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 24, "how many sweeps to show; 0 for all, at most 500")
	return cmd
}

// sweepsOutput is the output of sweeps.
type sweepsOutput struct {
	ops.Sweeps
}

// table prints a line for each sweep, and the causes.
func (o sweepsOutput) table(w io.Writer) {
	if len(o.Sweeps.Sweeps) == 0 {
		fmt.Fprintln(w, "no sweep of the last week has a record: no compensator with Kafka has finished one")
	} else {
		fmt.Fprintln(w, "started\twhy\tfound\tclosed\tmeanwhile\tleft\tfailed\toldest due\ttook\tlock\tby")
	}
	for _, s := range o.Sweeps.Sweeps {
		left := s.Paused + s.Excluded + s.NotDue + s.PaymentPending
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%v\t%s\t%s\n", stamp(s.StartedAt), oneLine(string(s.Why), 20), tally(s.Found), tally(s.Closed),
			tally(s.AlreadyPaid+s.AlreadyClosed),
			tally(left), tally(s.Failed), timeOrDash(s.OldestDue), time.Duration(s.TookMillis)*time.Millisecond, oneLine(s.Lock, 20), oneLine(s.Holder, 60))
	}
	o.printErrors(w)
	o.printMisses(w)
}

func (o sweepsOutput) printErrors(w io.Writer) {
	heading := "\n"
	for _, s := range o.Sweeps.Sweeps {
		if s.Error != "" {
			fmt.Fprintf(w, "%sthe sweep of %s did not finish: %s\n", heading, stamp(s.StartedAt), oneLine(s.Error, 500))
			heading = ""
		}
	}
}

// printMisses prints why the pipeline had missed the orders that the sweeps closed.
func (o sweepsOutput) printMisses(w io.Writer) {
	heading := "\nmissed orders by cause\n"
	for _, cause := range slices.Sorted(maps.Keys(o.Causes)) { // also those of earlier versions
		fmt.Fprintf(w, "%s  %s\t%d\t%s\n", heading, oneLine(cause, 20), o.Causes[cause], ops.FixCommand(compensator.Cause(cause)))
		heading = ""
	}
}
