package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/control"
	"github.com/orderclose/orderclose/internal/text"
)

func newSweeps(c *common) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "sweeps [--limit 24]",
		Short: "Show the compensations of the last week",
		Long: `Show the compensations of the last week, newest first, and the passes by hand. A
compensator with Kafka appends a record to the control topic when the first pass of an hour
(compensator.period) over all overdue orders has finished, or half of the hour is over and it
has not. orderclose compensate appends one for its pass. The command reads that topic, which
keeps its records for a week, and changes nothing. The table sweeps in the database counts
also what was closed later in the hour.

  why            period: the compensation of a period; once: a person asked for the pass
  missed         closed orders that the pipeline had missed
  after pause    closed orders of a pause that has ended
  after failure  closed orders that could not be closed before
  meanwhile      orders that were paid or closed between the search and the close
  left           orders that are still open: paused, excluded, not due any more, or the payment
                 provider cannot say whether they are paid
  lock           held; unavailable: its server gave none; stuck; none: there is none
  by             host and process

A pass that was killed has no record.`,
		Example: "  orderclose sweeps --limit 0 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return Exit(Usage, fmt.Errorf("--limit is %d, want 0 or more", limit))
			}
			return with(c.openKafka(cmd.Context()))(func(s *session) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
				defer cancel()
				read, err := s.pipeline().Sweeps(ctx, limit)
				return c.answer(read, err, func(w io.Writer) { printSweeps(w, read.Sweeps) })
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 24, "how many to show; 0 for all, at most 500")
	return cmd
}

// printSweeps prints a line for each record, and why some did not finish.
func printSweeps(w io.Writer, all []control.Sweep) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no compensation of the last week has a record: no compensator with Kafka has finished one")
		return
	}
	fmt.Fprintln(w, "started\twhy\tfound\tclosed\tmissed\tafter pause\tafter failure\tmeanwhile\tleft\tfailed\ttook\tlock\tby")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s", text.Stamp(s.StartedAt), text.OneLine(string(s.Why), 20))
		for _, n := range []int{s.Found, s.Closed, s.Missed, s.AfterPause, s.AfterFailure, s.AlreadyPaid + s.AlreadyClosed,
			s.Paused + s.Excluded + s.NotDue + s.PaymentPending, s.Failed} {
			fmt.Fprint(w, "\t", tally(n))
		}
		fmt.Fprintf(w, "\t%v\t%s\t%s\n", time.Duration(s.TookMillis)*time.Millisecond, text.OneLine(s.Lock, 20), text.OneLine(s.Holder, 60))
	}
	heading := "\n"
	for _, s := range all {
		if s.Error != "" {
			fmt.Fprintf(w, "%sthat of %s did not finish: %s\n", heading, text.Stamp(s.StartedAt), text.OneLine(s.Error, 500))
			heading = ""
		}
	}
}

// tally formats a count. Zero is a dash, so that other counts stand out.
func tally(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
