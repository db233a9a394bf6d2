package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/text"
)

func newSweeps(c *common) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "sweeps [--limit 24]",
		Short: "Show the compensations of the last week",
		Long: `Show the compensations of the last week, newest first: the rows of the table sweeps. Each row
is about one hour (compensator.period). Without a database, or if a Store of a program closes
the orders, the records in the control topic are shown, whose counts end with the pass.

  missed         closed orders that the pipeline had missed
  after pause    closed orders of a pause that has ended
  after failure  closed orders that could not be closed before
  not closed     orders that were tried for the first time, and could not be closed
  state          finished: a pass over all overdue orders that began in the hour has ended;
                 unfinished: none had when half of the hour was over; -: none has yet
  took           how long the pass took`,
		Example: "  orderclose sweeps --limit 0 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return Exit(Usage, fmt.Errorf("--limit is %d, want 0 or more", limit))
			}
			return c.readAny(func(s *session) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
				defer cancel()
				h, err := s.pipeline().Hours(ctx)
				if limit > 0 {
					h.Hours = h.Hours[:min(limit, len(h.Hours))]
				}
				return c.answer(h, err, func(w io.Writer) { printHours(w, h) })
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 24, "how many to show; 0 for all, at most 500")
	return cmd
}

func printHours(w io.Writer, h ops.Hours) {
	if len(h.Hours) == 0 {
		fmt.Fprintln(w, "no compensation of the last week is known")
		return
	}
	fmt.Fprintln(w, "began\tmissed\tafter pause\tafter failure\tnot closed\tstate\ttook")
	for _, one := range h.Hours {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%v\n", text.Stamp(one.Begin), one.Missed, one.AfterPause, one.AfterFailure, one.NotClosed,
			cmp.Or(line(one.State), "-"), time.Duration(one.TookMillis)*time.Millisecond)
	}
}
