package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

// maxLateness is the largest window of lateness: how long Kafka keeps the records.
const maxLateness = 7 * 24 * time.Hour

func newLateness(c *common) *cobra.Command {
	var within string
	cmd := &cobra.Command{
		Use:   "lateness [--within 1h]",
		Short: "Show how late records and orders were in the last hour, by stage",
		Long: `Show how late the stages were, by the records that they appended to Kafka in the
last hour. Metrics tell the same of one process each; this is all of them together.

  relay   from a record's release time to its append to the close topic, by the brokers'
          clock. A record that was published when it was due already counts as late. Retries
          do not count.
  closer  from an order's due time to its close by the pipeline, by the database's clock.
          Sweeps do not count, see orderclose sweeps. Orders that were closed through a
          service have no event, and do not count.

The command makes at most 64 fetches, so its cost does not depend on the number of
records. If the window has more records, they are samples, spread evenly over
partitions and time. It changes nothing. Exits 6 if something could not be read.`,
		Example: "  orderclose lateness --within 10m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			back, err := parseDuration("--within", within, "10m")
			switch {
			case err != nil:
				return Exit(Usage, err)
			case back <= 0 || back > maxLateness:
				return Exit(Usage, fmt.Errorf("--within is %s, want more than 0 and at most %s, which is how long Kafka keeps the records", within, config.FormatDuration(maxLateness)))
			}
			return c.readKafka(cmd.Context(), func(ctx context.Context, s *session) error {
				l, err := s.pipeline().Lateness(ctx, back)
				return c.answer(l, err, func(w io.Writer) { printLateness(w, l) },
					exitIf(l.Problems() > 0, Partly, "%s could not be checked completely, shown above", plural(l.Problems(), "stage")))
			})
		},
	}
	cmd.Flags().StringVar(&within, "within", "1h", "how far to look back")
	return cmd
}

func printLateness(w io.Writer, l ops.Lateness) {
	fmt.Fprintf(w, "records of %s to %s\n\n", stamp(l.From), stamp(l.To))
	fmt.Fprintln(w, "stage\ttopic\t50 %\t99 %\tmax seen\tearly\trecords")
	for _, s := range l.Stages {
		ms := func(n int64) string {
			if s.Records == 0 {
				return "-"
			}
			return (time.Duration(n) * time.Millisecond).String()
		}
		records := fmt.Sprintf("%d, a sample of %d", s.Records, s.Appended)
		switch {
		case s.Complete:
			records = fmt.Sprintf("%d, all", s.Records)
		case s.Records == 0 && s.Problem != "":
			records = "unknown"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Stage, s.Topic, ms(s.P50), ms(s.P99), ms(s.Max), tally(s.Early), records)
	}
	heading := "\n"
	for _, s := range l.Stages {
		if s.Problem != "" {
			fmt.Fprintf(w, "%s%s: not all could be read: %s\n", heading, s.Topic, oneLine(s.Problem, 300))
			heading = ""
		}
	}
}
