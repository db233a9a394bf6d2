package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"orderclose/internal/app"
	"orderclose/internal/config"
	"orderclose/internal/kafka"
)

// topicsTimeout bounds looking at, or making, a few dozen topics.
const topicsTimeout = time.Minute

func newTopics(c *common) *cobra.Command {
	topics := &cobra.Command{
		Use:   "topics",
		Short: "Compare the topics with topics.yaml, or make them so",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	topics.AddCommand(newTopicsPlan(c), &cobra.Command{
		Use:   "check",
		Short: "Say how the topics differ from what topics.yaml wants; exits 3 if they do",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.topicsCheck(cmd.Context()) },
	}, &cobra.Command{
		Use:   "apply",
		Short: "Create missing topics, add partitions, mend settings; deletes nothing",
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.topicsApply(cmd.Context()) },
	})
	return topics
}

// compareTopics compares the topics of the configuration with those of the
// cluster, and says of how many topics the findings are.
func (c *common) compareTopics(ctx context.Context) (cfg *config.Config, topics int, findings []kafka.Finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
	defer cancel()
	s, err := c.openKafka(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	defer s.Close()
	specs := app.TopicSpecs(s.cfg)
	if findings, err = s.Kafka.Check(ctx, specs); err != nil {
		return nil, 0, nil, err
	}
	unlisted, err := app.Unlisted(ctx, s.Kafka, s.cfg, time.Now())
	return s.cfg, len(specs), append(findings, unlisted...), err
}

func (c *common) topicsCheck(ctx context.Context) error {
	_, topics, findings, err := c.compareTopics(ctx)
	if err != nil {
		return err
	}
	result := struct {
		Topics   int             `json:"topics"`
		Findings []kafka.Finding `json:"findings"`
	}{topics, append([]kafka.Finding{}, findings...)}
	if err := c.print(result, func(w io.Writer) {
		if len(findings) == 0 {
			fmt.Fprintf(w, "all %d topics are as they should be\n", topics)
		}
		printFindings(w, "", findings)
	}); err != nil {
		return err
	}
	if len(findings) > 0 {
		return Exit(Findings, fmt.Errorf("%d differences; orderclose topics apply mends what it can", len(findings)))
	}
	return nil
}

func (c *common) topicsApply(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
	defer cancel()
	s, err := c.openKafka(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	unlisted, err := app.Unlisted(ctx, s.Kafka, s.cfg, time.Now())
	if err != nil {
		return err
	}
	mended, left, err := s.Kafka.Apply(ctx, app.TopicSpecs(s.cfg))
	left = append(left, unlisted...)
	result := struct {
		Mended []kafka.Finding `json:"mended"`
		Left   []kafka.Finding `json:"left"`
	}{append([]kafka.Finding{}, mended...), append([]kafka.Finding{}, left...)}
	if printed := c.print(result, func(w io.Writer) {
		if len(mended)+len(left) == 0 && err == nil {
			fmt.Fprintln(w, "nothing to do")
		}
		printFindings(w, "mended\t", mended)
		printFindings(w, "left to you\t", left)
	}); err == nil {
		err = printed
	}
	if err != nil {
		return err
	}
	if len(unlisted) > 0 {
		return Exit(Findings, fmt.Errorf("%d delay topics are in use and no bucket's; running relays serve them", len(unlisted)))
	}
	if len(left) > 0 {
		return Exit(Partly, fmt.Errorf("%d differences need a person", len(left)))
	}
	return nil
}

func printFindings(w io.Writer, prefix string, findings []kafka.Finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%s%s\t%s\t%s\n", prefix, f.Topic, f.What, f.Mend)
	}
}
