package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
)

func newTopics(c *common) *cobra.Command {
	var wait time.Duration
	topics := &cobra.Command{
		Use:   "topics",
		Short: "Compare the topics with topics.yaml, or change them to match it",
	}
	waitFlag(topics, &wait)
	topics.AddCommand(newTopicsPlan(c, &wait), &cobra.Command{
		Use:   "check",
		Short: "Show how the topics differ from topics.yaml; exits 3 if they do",
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.topicsCheck(cmd.Context(), wait) },
	}, newTopicsApply(c, &wait))
	return topics
}

func newTopicsApply(c *common, wait *time.Duration) *cobra.Command {
	var change []string
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Create missing topics, add partitions, fix settings; deletes nothing",
		Long: `Create missing topics, add partitions, and fix settings. No topic is deleted.

A topic with records that are not orderclose's is left to you, because its name in
topics.yaml may be a mistake. To change it nevertheless, name it with --change.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.topicsApply(cmd.Context(), *wait, change) },
	}
	cmd.Flags().StringArrayVar(&change, "change", nil, "change this topic of topics.yaml even if its records are not orderclose's; may be repeated")
	return cmd
}

// specsNamed returns the specs of the topics. Those of the topics in change are Named.
func specsNamed(cfg *config.Config, change []string) ([]kafka.TopicSpec, error) {
	specs := ops.TopicSpecs(cfg)
	for _, name := range change {
		i := slices.IndexFunc(specs, func(s kafka.TopicSpec) bool { return s.Name == name })
		if i < 0 {
			return nil, Exit(Usage, fmt.Errorf("--change %s: topics.yaml has no topic of that name", name))
		}
		specs[i].Named = true
	}
	return specs, nil
}

// compareTopics compares the topics of the cluster with the configuration.
func (c *common) compareTopics(ctx context.Context, wait time.Duration) (cfg *config.Config, p ops.TopicsPlan, err error) {
	err = c.repeat(ctx, wait, "compare the topics", kafka.Passes, func(ctx context.Context) error {
		s, err := c.openKafka(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		cfg = s.cfg
		p, err = s.pipeline().TopicsPlan(ctx)
		return err
	})
	return cfg, p, err
}

func (c *common) topicsCheck(ctx context.Context, wait time.Duration) error {
	_, p, err := c.compareTopics(ctx, wait)
	if err != nil {
		return err
	}
	result := struct {
		Topics   int             `json:"topics"`
		Findings []kafka.Finding `json:"findings"`
	}{p.Topics, append(p.Would, p.Left...)}
	n := len(result.Findings)
	return cmp.Or(c.print(result, func(w io.Writer) {
		if n == 0 {
			fmt.Fprintf(w, "all %d topics match topics.yaml\n", p.Topics)
		}
		printFindings(w, "", result.Findings)
	}), exitIf(n > 0, Findings, "%d differences; orderclose topics apply fixes those that it can", n))
}

func (c *common) topicsApply(ctx context.Context, wait time.Duration, change []string) error {
	var fixed, left, unlisted []kafka.Finding
	err := c.repeat(ctx, wait, "topics apply", kafka.Passes, func(ctx context.Context) error {
		s, err := c.openKafka(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		specs, err := specsNamed(s.cfg, change)
		if err != nil {
			return err
		}
		if unlisted, err = ops.Unlisted(ctx, s.Kafka, s.cfg, time.Now()); err != nil {
			return err
		}
		var now []kafka.Finding
		now, left, err = s.Kafka.Apply(ctx, specs)
		fixed = append(fixed, now...)
		return err
	})
	left = append(left, unlisted...)
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
		exitIf(len(unlisted) > 0, Findings, "%d delay topics are in use and have no bucket in topics.yaml; running relays serve them", len(unlisted)),
		exitIf(len(left) > 0, Partly, "%d differences must be fixed by a person", len(left)))
}

func printFindings(w io.Writer, prefix string, findings []kafka.Finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%s%s\t%s\t%s\n", prefix, f.Topic, f.What, f.Fix)
	}
}
