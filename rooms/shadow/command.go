package shadow

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/room"
)

// commands returns orderclose shadow report.
func commands() []room.Command {
	return []room.Command{{
		Use: "shadow", Short: "Compare a shadow run with the job that closes the orders today",
		Commands: []room.Command{{
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
			Example:   "  orderclose shadow report --from 24h\n  orderclose shadow report --from 7d --tolerance 5m -o json",
			Variables: []string{config.EnvBrokers, config.EnvDSN}, Progress: "compared",
			New: newReport,
		}},
	}}
}

func newReport(flags *flag.FlagSet) func() (room.Run, error) {
	var w ops.Window
	var apart string
	w.Add(flags, 10, "orders of each class")
	flags.StringVar(&apart, "tolerance", "1m", "how far two times of a close may be apart and count as the same")
	return func() (room.Run, error) {
		from, to, err1 := w.Parse(time.Now())
		tolerance, err2 := ops.ParseDuration("--tolerance", apart, "1m")
		return func(ctx context.Context, h room.Host, progress func(done, total int64, step string)) (room.Result, error) {
			return reportIn(ctx, h, w.Limit, ReportOptions{From: from, To: to, Tolerance: tolerance, Progress: progress})
		}, errors.Join(err1, err2)
	}
}

// reportIn reports with the clients of a host, and shows up to limit orders of each class; 0: all.
func reportIn(ctx context.Context, h room.Host, limit int, o ReportOptions) (room.Result, error) {
	o.Store, o.Log, o.Topic = h.Store, h.Kafka, topic(h.Config)
	switch there, err := h.Kafka.Exists(ctx, o.Topic); {
	case err != nil:
		return room.Result{}, err
	case !there:
		return room.Result{}, fmt.Errorf("the topic %s does not exist: orderclose run shadow creates it", o.Topic)
	}
	out := output{Differences: []Difference{}}
	shown := map[Class]int{}
	o.OnDifference = func(d Difference) error {
		if shown[d.Class]++; limit == 0 || shown[d.Class] <= limit {
			out.Differences = append(out.Differences, d)
		}
		return nil
	}
	var err error
	if out.Summary, err = Report(ctx, o); err != nil {
		return room.Result{}, err
	}
	result := room.Result{JSON: out, Table: out.table}
	if n := out.Summary.Different; n > 0 {
		result.Findings = fmt.Sprintf("%d of %s differ", n, ops.Plural(out.Summary.Orders, "order"))
	}
	return result, nil
}

// output is the output of shadow report.
type output struct {
	Differences []Difference `json:"differences"`
	Summary     Summary      `json:"summary"`
}

// classes lists the classes in the order in which they are printed, with their meaning.
var classes = []struct {
	class   Class
	meaning string
}{
	{Same, "both close them, at the same time within TOLERANCE"},
	{Earlier, "both close them, we more than TOLERANCE earlier"},
	{Later, "both close them, we more than TOLERANCE later"},
	{OnlyWe, "we would have closed them, they have not"},
	{OnlyThey, "they closed them, our records would not have"},
	{Neither, "nobody closes them"},
	{Recent, "not compared: due less than TOLERANCE ago, and one side is missing"},
}

func (o output) table(w io.Writer) {
	s := o.Summary
	for _, c := range classes {
		left := s.Classes[c.class]
		for _, d := range o.Differences {
			if d.Class == c.class {
				left--
				fmt.Fprintf(w, "%s: order %s, due %s: %s\n", d.Class, ops.OneLine(d.Order, orderclose.MaxIDBytes), ops.Stamp(d.Due), ops.OneLine(d.What, 300))
			}
		}
		if left > 0 && left < s.Classes[c.class] {
			fmt.Fprintf(w, "%s: and %d more: --limit 0 shows all\n", c.class, left)
		}
	}
	fmt.Fprintf(w, "%s due from %s to %s:\n", ops.Plural(s.Orders, "order"), ops.Stamp(s.From), ops.Stamp(s.To))
	for _, c := range classes {
		fmt.Fprintf(w, "%s\t%d\t%s\n", c.class, s.Classes[c.class], strings.ReplaceAll(c.meaning, "TOLERANCE", s.Tolerance))
		counts := map[Class]map[string]int{OnlyWe: s.OnlyWe, OnlyThey: s.OnlyThey}[c.class]
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(w, "  %s\t%d\t\n", ops.OneLine(what, 40), counts[what])
		}
	}
	if s.Verdicts == 0 {
		fmt.Fprintln(w, "verdicts\t0\tis orderclose run shadow running, and a relay?")
	} else {
		fmt.Fprintf(w, "verdicts\t%d\tfrom %s to %s\n", s.Verdicts, ops.Stamp(s.First), ops.Stamp(s.Last))
	}
	ops.PrintAny(w, s.Unreadable, "other records\t%d\tin the topic of the verdicts, and skipped")
	if !s.TimesCompared {
		fmt.Fprintln(w, "times\tnot compared\torders.closed_at is not mapped")
	}
	ops.PrintAny(w, s.Untimed, "without a time\t%d\tclosed, and orders.closed_at is empty: counted as the same")
}
