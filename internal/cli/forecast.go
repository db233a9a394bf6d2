package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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
				return c.answer(f, err, func(w io.Writer) {
					printForecast(w, f, canvas{width: width(c.env.Stdout), blocks: isTerminal(c.env.Stdout)})
				}, exitIf(f.Problems() > 0, Partly, "%s could not be checked, shown above", plural(f.Problems(), "bucket")))
			})
		},
	}
	cmd.Flags().StringVar(&within, "within", "", "how far to look ahead (default 24h, or the largest bucket if that is less)")
	return cmd
}

type canvas struct {
	width  int  // in columns
	blocks bool // with block characters, for a terminal; otherwise with #
}

// printForecast prints a row for each step, with a column for each bucket and a bar for
// their sum. Steps without a record share a row.
func printForecast(w io.Writer, f ops.Forecast, on canvas) {
	steps := f.Buckets[0].Steps
	length := steps[0].To.Sub(steps[0].From)
	fmt.Fprintf(w, "records by their latest release from their bucket; from %s on, in steps of %s\n\n", stamp(f.At), config.FormatDuration(length))
	head := []string{"by (UTC)"}
	for _, b := range f.Buckets {
		head = append(head, b.Length)
	}
	rows, sums := [][]string{append(head, "all")}, []int64{0}
	add := func(label string, of func(ops.BucketForecast) int64) int64 {
		row, sum := []string{label}, int64(0)
		for _, b := range f.Buckets {
			sum += of(b)
			row = append(row, tally(of(b)))
		}
		rows, sums = append(rows, append(row, tally(sum))), append(sums, sum)
		return sum
	}
	waiting := add("overdue", func(b ops.BucketForecast) int64 { return b.Overdue })
	layout := clock(length, steps)
	empty := func(i int) bool {
		return i < len(steps) && !slices.ContainsFunc(f.Buckets, func(b ops.BucketForecast) bool { return b.Steps[i].Records > 0 })
	}
	to := "" // before the time of a row that stands for several steps
	for i, step := range steps {
		if empty(i) && empty(i+1) {
			to = "to "
			continue
		}
		waiting += add(to+step.To.Format(layout), func(b ops.BucketForecast) int64 { return b.Steps[i].Records })
		to = ""
	}
	waiting += add("later", func(b ops.BucketForecast) int64 { return b.Later })
	drawRows(w, rows, sums, on)
	fmt.Fprintf(w, "\n%s\n", counted(waiting, "record waits", "records wait"))
	for _, b := range f.Buckets {
		if b.Problem != "" {
			fmt.Fprintf(w, "%s unknown: %s\n", b.Topic, b.Problem)
		}
	}
}

// clock returns the layout for the times of a forecast: as precise as its steps, and with
// the date if it covers more than a day.
func clock(step time.Duration, steps []ops.ForecastStep) string {
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

// drawRows writes rows in columns, the first aligned to the left and the others to the
// right, and ends each row with a bar for its sum.
func drawRows(w io.Writer, rows [][]string, sums []int64, on canvas) {
	widths := make([]int, len(rows[0]))
	used := 2
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], len(row[i]))
		}
		used += widths[i] + 2
	}
	room := max(10, on.width-used)
	most := slices.Max(sums)
	for i, row := range rows {
		line := fmt.Sprintf("%-*s", widths[0], row[0])
		for j, cell := range row[1:] {
			line += fmt.Sprintf("  %*s", widths[j+1], cell)
		}
		if b := bar(sums[i], most, room, on.blocks); b != "" {
			line += "  " + b
		}
		fmt.Fprintln(w, line)
	}
}

// defaultWidth is the width of a chart if w is not a terminal, or its width is unknown.
const defaultWidth = 80

// width returns how many columns w has: the width of a terminal, or else defaultWidth.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		if n := columns(f); n > 0 {
			return n
		}
	}
	return defaultWidth
}

// bar returns a bar of at most room columns for n of most. A positive n always has at least
// the smallest mark.
func bar(n, most int64, room int, blocks bool) string {
	if n <= 0 || most <= 0 || room <= 0 {
		return ""
	}
	part := float64(n) / float64(most) * float64(room)
	if !blocks {
		return strings.Repeat("#", max(1, int(part+.5)))
	}
	eighths := max(1, int(part*8+.5))
	b := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		b += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return b
}
