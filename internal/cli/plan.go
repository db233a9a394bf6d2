package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

func newTopicsPlan(c *common, wait *time.Duration) *cobra.Command {
	var delay string
	cmd := &cobra.Command{
		Use:   "plan [--delay DELAY]",
		Short: "Show what topics apply would do, or with --delay which buckets a record passes through",
		Long: `Show how the topics differ from topics.yaml, and what topics apply would do about it.
Nothing is changed.

With --delay, show which buckets a record of that delay passes through before it
reaches the close topic, if nothing is late. No server is asked.`,
		Example: "  orderclose topics plan\n  orderclose topics plan --delay 26h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("delay") {
				return c.planDelay(delay)
			}
			return c.planTopics(cmd.Context(), *wait)
		},
	}
	cmd.Flags().StringVar(&delay, "delay", "", "a delay such as 26h or 30d")
	return cmd
}

func (c *common) planTopics(ctx context.Context, wait time.Duration) error {
	cfg, p, err := c.compareTopics(ctx, wait)
	if err != nil {
		return err
	}
	n := p.Unlisted(cfg)
	return cmp.Or(c.print(p, func(w io.Writer) { printTopicsPlan(w, p) }),
		exitIf(n > 0, Findings, "%d delay topics are in use and have no bucket in topics.yaml", n))
}

func printTopicsPlan(w io.Writer, p ops.TopicsPlan) {
	if len(p.Would)+len(p.Left) == 0 {
		fmt.Fprintf(w, "all %d topics match topics.yaml: topics apply has nothing to do\n", p.Topics)
	}
	printFindings(w, "would fix\t", p.Would)
	printFindings(w, "left to you\t", p.Left)
	fmt.Fprintf(w, "a record of a delay up to %s is appended at most %d times, the last time to the close topic\n", p.MaxDelay, p.AppendsAtMost)
	if len(p.Would) > 0 {
		fmt.Fprintln(w, "nothing was changed. To do it: orderclose topics apply")
	}
}

func (c *common) planDelay(delay string) error {
	d, err := parseDuration("--delay", delay, "26h or 30d")
	if err != nil {
		return Exit(Usage, err)
	}
	cfg, err := config.Load(c.config)
	if err != nil {
		return Exit(Usage, err)
	}
	if d > cfg.MaxDelay {
		return Exit(Usage, fmt.Errorf("--delay %s is longer than delays.max in %s, %s: such an order is refused",
			delay, c.config, config.FormatDuration(cfg.MaxDelay)))
	}
	p := ops.NewDelayPlan(cfg.Buckets, cfg.Topics.Close, d)
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
