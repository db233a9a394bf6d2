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
		Short: "Show the sweeps of the last week, and which records were lost",
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
order. Below the sweeps are the notices of lost records of the same week, each of which
started a sweep.`,
		Example: "  orderclose sweeps --limit 0 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return Exit(Usage, fmt.Errorf("--limit is %d, want 0 or more", limit))
			}
			return c.readKafka(cmd.Context(), func(ctx context.Context, s *session) error {
				read, err := s.pipeline().Sweeps(ctx, limit)
				return c.answer(read, err, sweepsOutput{read, limit}.table)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 24, "how many sweeps to show, and how many losses; 0 for all, at most 500")
	return cmd
}

// sweepsOutput is the output of sweeps.
type sweepsOutput struct {
	ops.Sweeps
	limit int // how many losses the table shows; 0: all
}

// table prints a line for each sweep, the causes, and a line for each loss.
func (o sweepsOutput) table(w io.Writer) {
	if len(o.Sweeps.Sweeps) == 0 {
		fmt.Fprintln(w, "no sweep of the last week has a record: no compensator with Kafka has finished one")
	} else {
		fmt.Fprintln(w, "started\twhy\tfound\tclosed\tmeanwhile\tleft\tfailed\toldest due\ttook\tlock\tby")
	}
	for _, s := range o.Sweeps.Sweeps {
		left := s.Paused + s.Excluded + s.NotDue + s.PaymentPending
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%v\t%s\t%s\n", stamp(s.StartedAt), oneLine(string(s.Why), 20), tally(s.Found), tally(s.Closed), tally(s.AlreadyPaid+s.AlreadyClosed),
			tally(left), tally(s.Failed), timeOrDash(s.OldestDue), time.Duration(s.TookMillis)*time.Millisecond, oneLine(s.Lock, 20), oneLine(s.Holder, 60))
	}
	o.printErrors(w)
	o.printMisses(w)
	o.printLosses(w)
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

// printLosses prints a line for each loss with offsets, and one line for each reason of the others,
// because a first start reports every partition.
func (o sweepsOutput) printLosses(w io.Writer) {
	heading, shown, more := "\nlost records\ttopic\tpartition\twaited\toffsets\treason\n", 0, 0
	for _, l := range o.Losses {
		switch {
		case l.Offsets == 0:
		case o.limit > 0 && shown == o.limit:
			more++
		default:
			fmt.Fprintf(w, "%s%s\t%s\t%d\t%d\t%d to %d\t%s\n", heading, stamp(l.At), oneLine(l.Topic, 100), l.Partition, l.Offsets, l.First, l.Last, oneLine(l.Reason, 300))
			heading = ""
			shown++
		}
	}
	printAny(w, more, "and %d more: --limit 0 shows all")
	reasons := map[string]bool{}
	heading = "\n"
	for i, last := range o.Losses {
		if last.Offsets > 0 || reasons[last.Reason] {
			continue
		}
		reasons[last.Reason] = true
		n, first := 0, last
		for _, l := range o.Losses[i:] {
			if l.Offsets == 0 && l.Reason == last.Reason {
				n, first = n+1, l
			}
		}
		fmt.Fprintf(w, "%s%s without known offsets, from %s to %s: %s\n", heading, plural(n, "notice"), stamp(first.At), stamp(last.At), oneLine(last.Reason, 300))
		heading = ""
	}
	if heading == "" {
		fmt.Fprintln(w, "after the first start of a pipeline such notices are normal: nothing was lost, and a second sweep ran to be safe")
	}
}
