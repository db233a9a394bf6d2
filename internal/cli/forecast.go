package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

func newForecast(c *common) *cobra.Command {
	var within string
	cmd := &cobra.Command{
		Use:   "forecast [--within 24h]",
		Short: "Show how many records leave each bucket in the next hours",
		Long: `Show how many records leave each bucket, in at most 24 steps of time. Consecutive
steps without records share a row: "to 18:00" stands for all of them up to then. The
command asks only for offsets by time and reads no record, so its cost does not depend on
the number of waiting records.

A record counts at its latest release: when it has been in its bucket for the
bucket's length, by the clock of this machine. It may then go to another bucket,
and counts there once it has arrived. Records above the commit count as waiting,
also if they are done already.`,
		Example: "  orderclose forecast --within 2h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var ahead time.Duration
			if cmd.Flags().Changed("within") {
				var err error
				if ahead, err = parseDuration("--within", within, "30m or 24h"); err != nil {
					return Exit(Usage, err)
				}
			}
			return c.readKafka(cmd.Context(), func(ctx context.Context, s *session) error {
				if ahead == 0 {
					ahead = ops.ForecastWithin(s.cfg.Buckets)
				}
				f, err := s.pipeline().Forecast(ctx, ops.ForecastEdges(ahead))
				return c.answer(f, err, func(w io.Writer) { printForecast(w, f) },
					exitIf(f.Problems() > 0, Partly, "%s could not be checked, shown above", plural(f.Problems(), "bucket")))
			})
		},
	}
	cmd.Flags().StringVar(&within, "within", "", "how far to look ahead (default 24h, or the largest bucket if that is less)")
	return cmd
}

// printForecast prints a row for each step, with a column for each bucket and one for their sum. Steps without a record
// share a row.
func printForecast(w io.Writer, f ops.Forecast) {
	steps := f.Buckets[0].Steps
	length := steps[0].To.Sub(steps[0].From)
	fmt.Fprintf(w, "records by their latest release from their bucket; from %s on, in steps of %s\n\nby (UTC)", stamp(f.At), config.FormatDuration(length))
	for _, b := range f.Buckets {
		fmt.Fprint(w, "\t"+b.Length)
	}
	fmt.Fprintln(w, "\tall")
	waiting := int64(0)
	row := func(label string, of func(ops.BucketForecast) int64) {
		fmt.Fprint(w, label)
		sum := int64(0)
		for _, b := range f.Buckets {
			sum += of(b)
			fmt.Fprint(w, "\t"+tally(of(b)))
		}
		fmt.Fprintln(w, "\t"+tally(sum))
		waiting += sum
	}
	row("overdue", func(b ops.BucketForecast) int64 { return b.Overdue })
	layout := timeLayout(length, steps)
	empty := func(i int) bool {
		return i < len(steps) && !slices.ContainsFunc(f.Buckets, func(b ops.BucketForecast) bool { return b.Steps[i].Records > 0 })
	}
	to := "" // before the time of a row that stands for several steps
	for i, step := range steps {
		if empty(i) && empty(i+1) {
			to = "to "
			continue
		}
		row(to+step.To.Format(layout), func(b ops.BucketForecast) int64 { return b.Steps[i].Records })
		to = ""
	}
	row("later", func(b ops.BucketForecast) int64 { return b.Later })
	fmt.Fprintf(w, "\n%s\n", counted(waiting, "record waits", "records wait"))
	for _, b := range f.Buckets {
		if b.Problem != "" {
			fmt.Fprintf(w, "%s unknown: %s\n", b.Topic, b.Problem)
		}
	}
}

// timeLayout returns the layout for the times of a forecast: as precise as its steps, and with
// the date if it covers more than a day.
func timeLayout(step time.Duration, steps []ops.ForecastStep) string {
	layout := "15:04"
	if step < time.Minute {
		layout = "15:04:05"
	}
	if steps[len(steps)-1].To.Sub(steps[0].From) > 24*time.Hour {
		layout = "01-02 " + layout
	}
	return layout
}

// tally formats a count. Zero is a dash, so that other counts stand out.
func tally[N int | int64](n N) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
