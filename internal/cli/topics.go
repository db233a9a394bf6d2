package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
)

func newTopics(c *common) *cobra.Command {
	var wait time.Duration
	check := &cobra.Command{
		Use:     "check",
		Short:   "Show how the topics differ from topics.yaml; exits 3 if they do",
		Example: "  orderclose topics check",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.topicsCheck(cmd.Context(), wait) },
	}
	topics := group("topics", "Compare the topics with topics.yaml, or change them to match it", newTopicsPlan(c, &wait), check, newTopicsApply(c, &wait))
	waitFlag(topics, &wait)
	return topics
}

func newTopicsApply(c *common, wait *time.Duration) *cobra.Command {
	var change []string
	cmd := &cobra.Command{
		Use:   "apply [--change TOPIC]...",
		Short: "Create missing topics, add partitions, fix settings; deletes nothing",
		Long: `Create missing topics, add partitions, and fix settings. No topic is deleted.

A topic with records in which orderclose's group has committed nothing is left to you,
because its name in topics.yaml may be a mistake. To change it nevertheless, name it with --change.`,
		Example: "  orderclose topics apply --wait 1m",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.topicsApply(cmd.Context(), *wait, change) },
	}
	cmd.Flags().StringArrayVar(&change, "change", nil, "change this topic of topics.yaml even if it may be another's; may be repeated")
	return cmd
}

// specsNamed returns the specs. Those of the topics in change are Named.
func specsNamed(specs []kafka.TopicSpec, change []string) ([]kafka.TopicSpec, error) {
	for _, name := range change {
		i := slices.IndexFunc(specs, func(s kafka.TopicSpec) bool { return s.Name == name })
		if i < 0 {
			return nil, Exit(Usage, fmt.Errorf("--change %s: topics.yaml has no topic of that name", name))
		}
		specs[i].Named = true
	}
	return specs, nil
}

func (c *common) compareTopics(ctx context.Context, wait time.Duration) (p ops.TopicsPlan, err error) {
	err = c.repeat(ctx, wait, "compare the topics", kafka.Passes, func(ctx context.Context) error {
		return with(c.openKafka(ctx))(func(s *session) (err error) {
			p, err = s.pipeline().TopicsPlan(ctx)
			return err
		})
	})
	return p, err
}

func (c *common) topicsCheck(ctx context.Context, wait time.Duration) error {
	p, err := c.compareTopics(ctx, wait)
	result := struct {
		Topics     int             `json:"topics"`
		Findings   []kafka.Finding `json:"findings"`
		Durability string          `json:"durability"` // of topics without findings
	}{p.Topics, append(p.Would, p.Left...), p.Durability}
	n := len(result.Findings)
	return c.answer(result, err, func(w io.Writer) {
		if n == 0 {
			fmt.Fprintf(w, "all %d topics match topics.yaml: %s\n", p.Topics, p.Durability)
		}
		printFindings(w, "", result.Findings)
	}, exitIf(n > 0, Findings, "differences: %d; orderclose topics apply fixes those that it can", n))
}

func (c *common) topicsApply(ctx context.Context, wait time.Duration, change []string) error {
	var fixed, left []kafka.Finding
	err := c.repeat(ctx, wait, "topics apply", kafka.Passes, func(ctx context.Context) error {
		return with(c.openKafka(ctx))(func(s *session) error {
			specs, err := specsNamed(ops.TopicSpecs(s.cfg), change)
			if err != nil {
				return err
			}
			var now []kafka.Finding
			now, left, err = s.Kafka.Apply(ctx, specs)
			fixed = append(fixed, now...)
			return err
		})
	})
	if err != nil && len(fixed)+len(left) == 0 {
		return err
	}
	result := struct {
		Fixed []kafka.Finding `json:"fixed"`
		Left  []kafka.Finding `json:"left"`
	}{append([]kafka.Finding{}, fixed...), append([]kafka.Finding{}, left...)}
	return cmp.Or(err, c.print(result, func(w io.Writer) {
		if len(fixed)+len(left) == 0 && err == nil {
			fmt.Fprintln(w, "nothing to do")
		}
		printFindings(w, "fixed\t", fixed)
		printFindings(w, "left to you\t", left)
	}),
		exitIf(len(left) > 0, Partly, "differences that a person must fix: %d", len(left)))
}

func printFindings(w io.Writer, prefix string, findings []kafka.Finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%s%s\t%s\t%s\n", prefix, f.Topic, f.What, f.Fix)
	}
}

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
	p, err := c.compareTopics(ctx, wait)
	return c.answer(p, err, func(w io.Writer) { printTopicsPlan(w, p) })
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
	cfg, err := c.load()
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
