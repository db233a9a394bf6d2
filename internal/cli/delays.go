package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
)

func newDelaysExplain(c *common) *cobra.Command {
	var categories, attributes []string
	var at string
	cmd := &cobra.Command{
		Use:   "explain [--category CATEGORY]... [--attribute NAME=VALUE]... [--at TIME]",
		Short: "Show when an order closes, what its customer sees, and which rule decides",
		Long: `Show when an order with these categories and attributes closes, the deadline that its
customer sees, when reminders come, and which rule of topics.yaml decides. The command
reads topics.yaml only, and asks no server.

A checkout in another language than Go can run it with -o json, and write due_at with the
order and its record. If never is true, the order has no record, and its due time is
due_at or NULL.`,
		Example: "  orderclose delays explain --category virtual --attribute payment_method=bank_transfer\n" +
			"  orderclose delays explain --category physical --at 2026-11-20T12:00:00Z -o json",
		RunE: func(*cobra.Command, []string) error {
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
					return Exit(Usage, fmt.Errorf("--at is %q: want a time such as %s", at, stamp(time.Now())))
				}
			}
			cfg, err := c.load()
			if err != nil {
				return Exit(Usage, err)
			}
			answer := ops.ExplainDelay(cfg.Delays, facts)
			return c.print(answer, func(w io.Writer) { printDelay(w, answer) })
		},
	}
	cmd.Flags().StringArrayVar(&categories, "category", nil, "a category of the order; may be repeated")
	cmd.Flags().StringArrayVar(&attributes, "attribute", nil, "an attribute of the order, NAME=VALUE; may be repeated")
	cmd.Flags().StringVar(&at, "at", "", "when the order is created, RFC 3339; default: now")
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
	if fmt.Fprintf(w, "created\t%s\n", stamp(a.CreatedAt)); a.Never {
		fmt.Fprintf(w, "closes\tnever: send no record, and write NULL or %s as its due time\n", stamp(a.Due))
		return
	}
	fmt.Fprintf(w, "customer sees\t%s\n", stamp(a.Deadline))
	for _, r := range a.Reminders {
		fmt.Fprintf(w, "reminder\t%s\n", stamp(r))
	}
	fmt.Fprintf(w, "closes\t%s, after %s (%s)\n", stamp(a.Due), a.Delay, a.DelayOf)
}
