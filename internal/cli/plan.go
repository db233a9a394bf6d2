package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
)

func newTopicsPlan(c *common) *cobra.Command {
	var delay string
	cmd := &cobra.Command{
		Use:   "plan [--delay DELAY]",
		Short: "Show what topics apply would do, or with --delay which buckets a record passes through",
		Long: `Show how the topics differ from topics.yaml, and what topics apply would do about it.
Nothing is changed.

With --delay, show which buckets a record of that delay passes through before it
reaches the close topic, if nothing is late. No server is asked.`,
		Example: "  orderclose topics plan\n  orderclose topics plan --delay 26h",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("delay") {
				return c.planDelay(delay)
			}
			return c.planTopics(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&delay, "delay", "", "a delay such as 26h or 30d")
	return cmd
}

// topicsPlan is the output of topics plan.
type topicsPlan struct {
	Topics   int             `json:"topics"`
	Would    []kafka.Finding `json:"would_mend"`
	Left     []kafka.Finding `json:"left"`
	MaxDelay string          `json:"max_delay"`
	// AppendsAtMost is the largest number of appends of a record with a delay up to
	// MaxDelay, including the append to the close topic.
	AppendsAtMost int `json:"appends_at_most"`
}

// planFor divides the findings into those that apply would fix and those for a person.
func planFor(cfg *config.Config, topics int, findings []kafka.Finding) topicsPlan {
	p := topicsPlan{
		Topics: topics, Would: []kafka.Finding{}, Left: []kafka.Finding{},
		MaxDelay: config.FormatDuration(cfg.MaxDelay), AppendsAtMost: cfg.Buckets.MostHops(cfg.MaxDelay) + 1,
	}
	for _, f := range findings {
		if f.By == (kafka.Change{}) {
			p.Left = append(p.Left, f)
		} else {
			p.Would = append(p.Would, f)
		}
	}
	return p
}

func (c *common) planTopics(ctx context.Context) error {
	cfg, topics, findings, err := c.compareTopics(ctx)
	if err != nil {
		return err
	}
	p := planFor(cfg, topics, findings)
	if err := c.print(p, func(w io.Writer) { printTopicsPlan(w, p) }); err != nil {
		return err
	}
	if n := p.unlisted(cfg); n > 0 {
		return Exit(Findings, fmt.Errorf("%d delay topics are in use and have no bucket in topics.yaml", n))
	}
	return nil
}

// unlisted counts the delay topics in use that have no bucket in the configuration.
func (p topicsPlan) unlisted(cfg *config.Config) (n int) {
	for _, f := range p.Left {
		_, delay := cfg.Topics.BucketOf(f.Topic)
		if delay && !slices.ContainsFunc(cfg.Buckets, func(b orderclose.Bucket) bool { return b.Topic == f.Topic }) {
			n++
		}
	}
	return n
}

func printTopicsPlan(w io.Writer, p topicsPlan) {
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

// delayPlan is the path of a record with a given delay.
type delayPlan struct {
	Delay   string    `json:"delay"`
	Hops    []planHop `json:"hops"` // in order
	Close   string    `json:"close_topic"`
	Buckets int       `json:"bucket_appends"` // to delay topics
	// Appends includes the append to the close topic.
	Appends int `json:"appends"`
}

// planHop is a number of consecutive appends to the same bucket.
type planHop struct {
	Bucket string `json:"bucket"`
	Topic  string `json:"topic"`
	Times  int    `json:"times"`
}

// planDelayOf returns the path through the buckets, with consecutive equal buckets merged.
func planDelayOf(buckets orderclose.Buckets, closeTopic string, delay time.Duration) delayPlan {
	walk := buckets.Walk(delay)
	p := delayPlan{Delay: config.FormatDuration(delay), Hops: []planHop{}, Close: closeTopic, Buckets: len(walk), Appends: len(walk) + 1}
	for _, b := range walk {
		if n := len(p.Hops); n > 0 && p.Hops[n-1].Topic == b.Topic {
			p.Hops[n-1].Times++
			continue
		}
		p.Hops = append(p.Hops, planHop{orderclose.ShortDuration(b.Length), b.Topic, 1})
	}
	return p
}

func (c *common) planDelay(delay string) error {
	d, err := config.ParseDuration(delay)
	if err != nil {
		return Exit(Usage, fmt.Errorf("--delay: %w: write a number and a unit, such as 26h or 30d", err))
	}
	cfg, err := config.Load(c.config)
	if err != nil {
		return Exit(Usage, err)
	}
	if d > cfg.MaxDelay {
		return Exit(Usage, fmt.Errorf("--delay %s is longer than delays.max in %s, %s: such an order is refused",
			delay, c.config, config.FormatDuration(cfg.MaxDelay)))
	}
	p := planDelayOf(cfg.Buckets, cfg.Topics.Close, d)
	return c.print(p, func(w io.Writer) { printDelayPlan(w, p) })
}

func printDelayPlan(w io.Writer, p delayPlan) {
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
