package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

func newShadowReport(c *common) *cobra.Command {
	var f dueFlags
	var apart string
	cmd := &cobra.Command{
		Use:   "report --from TIME [--to TIME]",
		Short: "Compare what we would have closed with what the old job closed",
		Long: `Compare, for the orders that were due in a window of time, what the shadow run would
have done (orderclose run shadow) with what the job did that closes the orders today: with
their status, and with the time of the close if orders.closed_at is mapped. The command
changes nothing. It keeps 24 bytes of memory for each verdict of the window.

  same       both close the order, at times within the tolerance
  earlier    both close it, we earlier
  later      both close it, we later
  only_we    we would have closed it, and it is open, or was paid or cancelled meanwhile
  only_they  they closed it, and its record would not have closed it, or there is none
  neither    nobody closes it
  recent     not compared: due less than the tolerance ago, and one side is missing

docs/mapping.md says what each difference usually means. A time is RFC 3339, or how long
ago: 90m, or now. Exits 3 with differences.`,
		Example: "  orderclose shadow report --from 24h\n  orderclose shadow report --from 7d --tolerance 5m -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, to, err1 := f.parse(time.Now())
			tolerance, err2 := parseDuration("--tolerance", apart, "1m")
			if err := errors.Join(err1, err2); err != nil {
				return Exit(Usage, err)
			}
			return with(c.open(config.EnvBrokers, config.EnvDSN))(func(s *session) error {
				return c.shadowReportIn(cmd.Context(), s, f.limit, ops.ShadowOptions{From: from, To: to, Tolerance: tolerance})
			})
		},
	}
	f.add(cmd, 10, "orders of each class")
	cmd.Flags().StringVar(&apart, "tolerance", "1m", "how far two times of a close may be apart and count as the same")
	return cmd
}

func (c *common) shadowReportIn(ctx context.Context, s *session, limit int, o ops.ShadowOptions) error {
	o.Store, o.Log, o.Topic = s.Store, s.Kafka, s.cfg.Topics.Shadow
	switch there, err := s.Kafka.Exists(ctx, o.Topic); {
	case err != nil:
		return err
	case !there:
		return fmt.Errorf("the topic %s does not exist: orderclose run shadow creates it", o.Topic)
	}
	bar := c.bar("compared")
	o.Progress = bar.Show
	out := shadowOutput{Differences: []ops.ShadowDifference{}}
	shown := map[ops.ShadowClass]int{}
	o.OnDifference = func(d ops.ShadowDifference) error {
		if shown[d.Class]++; limit == 0 || shown[d.Class] <= limit {
			out.Differences = append(out.Differences, d)
		}
		return nil
	}
	var err error
	out.Summary, err = ops.ReportShadow(ctx, o)
	bar.End()
	n := out.Summary.Different
	return c.answer(out, err, out.table, exitIf(n > 0, Findings, "%d of %s differ", n, plural(out.Summary.Orders, "order")))
}

// shadowOutput is the output of shadow report.
type shadowOutput struct {
	Differences []ops.ShadowDifference `json:"differences"`
	Summary     ops.ShadowSummary      `json:"summary"`
}

// shadowClasses lists the classes in the order in which they are printed, with their meaning.
var shadowClasses = []struct {
	class   ops.ShadowClass
	meaning string
}{
	{ops.ShadowSame, "both close them, at the same time within TOLERANCE"},
	{ops.ShadowEarlier, "both close them, we more than TOLERANCE earlier"},
	{ops.ShadowLater, "both close them, we more than TOLERANCE later"},
	{ops.ShadowOnlyWe, "we would have closed them, they have not"},
	{ops.ShadowOnlyThey, "they closed them, our records would not have"},
	{ops.ShadowNeither, "nobody closes them"},
	{ops.ShadowRecent, "not compared: due less than TOLERANCE ago, and one side is missing"},
}

func (o shadowOutput) table(w io.Writer) {
	s := o.Summary
	for _, c := range shadowClasses {
		left := s.Classes[c.class]
		for _, d := range o.Differences {
			if d.Class == c.class {
				left--
				fmt.Fprintf(w, "%s: order %s, due %s: %s\n", d.Class, oneLine(d.Order, orderclose.MaxIDBytes), stamp(d.Due), oneLine(d.What, 300))
			}
		}
		if left > 0 && left < s.Classes[c.class] {
			fmt.Fprintf(w, "%s: and %d more: --limit 0 shows all\n", c.class, left)
		}
	}
	fmt.Fprintf(w, "%s due from %s to %s:\n", plural(s.Orders, "order"), stamp(s.From), stamp(s.To))
	for _, c := range shadowClasses {
		fmt.Fprintf(w, "%s\t%d\t%s\n", c.class, s.Classes[c.class], strings.ReplaceAll(c.meaning, "TOLERANCE", s.Tolerance))
		counts := map[ops.ShadowClass]map[string]int{ops.ShadowOnlyWe: s.OnlyWe, ops.ShadowOnlyThey: s.OnlyThey}[c.class]
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(w, "  %s\t%d\t\n", oneLine(what, 40), counts[what])
		}
	}
	if s.Verdicts == 0 {
		fmt.Fprintln(w, "verdicts\t0\tis orderclose run shadow running, and a relay?")
	} else {
		fmt.Fprintf(w, "verdicts\t%d\tfrom %s to %s\n", s.Verdicts, stamp(s.First), stamp(s.Last))
	}
	printAny(w, s.Unreadable, "other records\t%d\tin the topic of the verdicts, and skipped")
	if !s.TimesCompared {
		fmt.Fprintln(w, "times\tnot compared\torders.closed_at is not mapped")
	}
	printAny(w, s.Untimed, "without a time\t%d\tclosed, and orders.closed_at is empty: counted as the same")
}
