package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/topics"
)

func newTopics(c *common) *cobra.Command {
	var wait time.Duration
	check := &cobra.Command{
		Use:     "check",
		Short:   "Show how the topics differ from topics.yaml, and which of it topics apply fixes; exits 3 if they do",
		Example: "  orderclose topics check",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.topicsCheck(cmd.Context(), wait) },
	}
	topics := group("topics", "Compare the topics with topics.yaml, or change them to match it", check, newTopicsApply(c, &wait))
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

func (c *common) topicsCheck(ctx context.Context, wait time.Duration) error {
	var p ops.TopicsPlan
	err := c.repeat(ctx, wait, "compare the topics", kafka.Passes, func(ctx context.Context) error {
		return with(c.openKafka(ctx))(func(s *session) (err error) {
			p, err = s.pipeline().TopicsPlan(ctx)
			return err
		})
	})
	n := len(p.Would) + len(p.Left)
	return c.answer(p, err, func(w io.Writer) { printTopicsPlan(w, p) },
		exitIf(n > 0, Findings, "differences: %d; orderclose topics apply fixes those that it can", n))
}

func printTopicsPlan(w io.Writer, p ops.TopicsPlan) {
	if len(p.Would)+len(p.Left) == 0 {
		fmt.Fprintf(w, "all %d topics match topics.yaml: %s\n", p.Topics, p.Durability)
	}
	printFindings(w, "topics apply fixes\t", p.Would)
	printFindings(w, "left to you\t", p.Left)
}

func (c *common) topicsApply(ctx context.Context, wait time.Duration, change []string) error {
	var fixed, left []kafka.Finding
	err := c.repeat(ctx, wait, "topics apply", kafka.Passes, func(ctx context.Context) error {
		return with(c.openKafka(ctx))(func(s *session) error {
			specs, err := specsNamed(topics.Specs(s.cfg), change)
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
	return cmp.Or(exitIf(err != nil && len(fixed) > 0, Partly, "%w", err), err, c.print(result, func(w io.Writer) {
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
		fmt.Fprintf(w, "%s%s\t%s\t%s\n", prefix, line(f.Topic), line(f.What), line(f.Fix))
	}
}
