package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/text"
)

func newDelaysExplain(c *common) *cobra.Command {
	var categories, attributes []string
	var at string
	var delay time.Duration
	cmd := &cobra.Command{
		Use:   "explain [--category CATEGORY]... [--attribute NAME=VALUE]... [--at TIME] | --delay DELAY",
		Short: "Show when an order closes, what its customer sees, and which rule decides",
		Long: `Show when an order with these categories and attributes closes, the deadline that its
customer sees, when reminders come, and which rule of topics.yaml decides. The command
reads topics.yaml only, and asks no server.

A checkout in another language than Go can run it with -o json, and write due_at with the
order and its record. If never is true, the order has no record, and its due time is
due_at or NULL.

With --delay, show which buckets a record of that delay passes through before it reaches the
close topic, if nothing is late.`,
		Example: "  orderclose delays explain --category virtual --attribute payment_method=bank_transfer\n" +
			"  orderclose delays explain --category physical --at 2026-11-20T12:00:00Z -o json\n  orderclose delays explain --delay 26h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts := orderclose.Facts{CreatedAt: time.Now(), Categories: categories, Attributes: map[string]any{}}
			for _, a := range attributes {
				name, value, ok := strings.Cut(a, "=")
				if _, again := facts.Attributes[name]; !ok || name == "" || again {
					return Exit(Usage, fmt.Errorf("--attribute is %q: want NAME=VALUE, each name once", a))
				}
				facts.Attributes[name] = value
			}
			if at != "" {
				var err error
				if facts.CreatedAt, err = time.Parse(time.RFC3339, at); err != nil {
					return Exit(Usage, fmt.Errorf("--at is %q: want a time such as %s", at, text.Stamp(time.Now())))
				}
			}
			cfg, err := c.load()
			if err != nil {
				return Exit(Usage, err)
			}
			if delay > 0 {
				return c.explainPath(cfg, delay)
			}
			answer := ops.ExplainDelay(cfg.Delays, facts)
			return c.print(answer, func(w io.Writer) { printDelay(w, answer) })
		},
	}
	cmd.Flags().StringArrayVar(&categories, "category", nil, "a category of the order; may be repeated")
	cmd.Flags().StringArrayVar(&attributes, "attribute", nil, "an attribute of the order, NAME=VALUE; may be repeated")
	durationFlag(cmd, &delay, "delay", "a delay such as 26h or 30d")
	cmd.Flags().StringVar(&at, "at", "", "when the order is created, RFC 3339; default: now")
	for _, other := range []string{"category", "attribute", "at"} {
		cmd.MarkFlagsMutuallyExclusive("delay", other)
	}
	return cmd
}

func printDelay(w io.Writer, a ops.DelayAnswer) {
	fmt.Fprintf(w, "rule\t%s\n", cmp.Or(a.Rule, "none matches"))
	if a.Rule != "" {
		fmt.Fprintf(w, "\tline %d: %s\n", a.Line, a.Says)
	}
	fmt.Fprintf(w, "category\t%s\n", cmp.Or(a.Category, "none"))
	for _, c := range a.Unknown {
		fmt.Fprintf(w, "\t%s is not in delays.categories\n", c)
	}
	if fmt.Fprintf(w, "created\t%s\n", text.Stamp(a.CreatedAt)); a.Never {
		fmt.Fprintf(w, "closes\tnever: send no record, and write NULL or %s as its due time\n", text.Stamp(a.Due))
		return
	}
	fmt.Fprintf(w, "customer sees\t%s\n", text.Stamp(a.Deadline))
	for _, r := range a.Reminders {
		fmt.Fprintf(w, "reminder\t%s\n", text.Stamp(r))
	}
	fmt.Fprintf(w, "closes\t%s, after %s (%s)\n", text.Stamp(a.Due), a.Delay, a.DelayOf)
}

// explainPath prints which buckets a record of a delay passes through, if nothing is late.
func (c *common) explainPath(cfg *config.Config, delay time.Duration) error {
	if delay > cfg.MaxDelay {
		return Exit(Usage, fmt.Errorf("--delay %s is longer than delays.max in %s, %s: such an order is refused",
			config.FormatDuration(delay), c.config, config.FormatDuration(cfg.MaxDelay)))
	}
	p := ops.NewDelayPlan(cfg.Buckets, cfg.Topics.Close, delay)
	return c.print(p, func(w io.Writer) { printDelayPlan(w, p) })
}

func printDelayPlan(w io.Writer, p ops.DelayPlan) {
	way := make([]string, len(p.Hops))
	for i, h := range p.Hops {
		way[i] = h.Bucket
		if h.Times > 1 {
			way[i] += fmt.Sprintf(" x%d", h.Times)
		}
	}
	fmt.Fprintf(w, "%s goes through %s\n\n", p.Delay, strings.Join(way, ", "))
	fmt.Fprintln(w, "topic\tappends")
	for _, h := range p.Hops {
		fmt.Fprintf(w, "%s\t%d\n", h.Topic, h.Times)
	}
	fmt.Fprintf(w, "%s\t1\n", p.Close)
	fmt.Fprintf(w, "all\t%d, the one to the close topic included\n", p.Appends)
}
