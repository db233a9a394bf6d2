package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

func newReplay(c *common) *cobra.Command {
	var from, to string
	var yes bool
	cmd := &cobra.Command{
		Use:   "replay --from TIME [--to TIME] [--yes]",
		Short: "Send a window of the close topic again",
		Long: `Send the records that reached the close topic in a window of time again, so that
their orders are closed if they were not. Closing twice changes nothing: paid and
closed orders stay as they are. The records go to the replay topic and do not delay
orders that become due now.

A time is RFC 3339, or how long ago: 90m, or now. Without --yes the plan is shown and
nothing is sent.`,
		Example: "  orderclose replay --from 2h --to 30m\n  orderclose replay --from 2026-11-20T12:00:00Z --to 2026-11-20T12:30:00Z --yes",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			f, err1 := parseTime("--from", from, now)
			t, err2 := parseTime("--to", to, now)
			if err := errors.Join(err1, err2); err != nil {
				return Exit(Usage, err)
			}
			if t.After(now) {
				t = now // later records do not exist yet
			}
			if !f.Before(t) {
				return Exit(Usage, fmt.Errorf("--from %s is not before --to %s", stamp(f), stamp(t)))
			}
			return c.replay(cmd.Context(), f, t, yes)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the beginning of the window")
	cmd.Flags().StringVar(&to, "to", "now", "the end of the window")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func (c *common) replay(ctx context.Context, from, to time.Time, yes bool) error {
	s, err := c.openKafka(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	plan, err := ops.NewReplayPlan(ctx, s.Kafka, ops.ReplayWindow{Topic: s.cfg.Topics.Close, Into: s.cfg.Topics.Replay, From: from, To: to})
	if err != nil {
		return err
	}
	if !yes {
		return c.print(plan, func(w io.Writer) { printPlan(w, plan) })
	}
	bar := c.progress("replayed")
	result, err := ops.Replay(ctx, s.Kafka, plan, func(done int64) { bar.Show(done, plan.Records, "") })
	bar.End()
	if printed := c.print(result, func(w io.Writer) {
		fmt.Fprintf(w, "sent again\t%d\n", result.Sent)
		fmt.Fprintf(w, "skipped\t%d were replays themselves, or invalid\n", result.Skipped)
	}); err == nil {
		err = printed
	}
	if err != nil && result.Sent > 0 {
		return Exit(Partly, fmt.Errorf("%w; run the same replay again, repeats are harmless", err))
	}
	return err
}

func printPlan(w io.Writer, p ops.ReplayPlan) {
	fmt.Fprintf(w, "%s, from %s to %s\n", p.Topic, stamp(p.From), stamp(p.To))
	for _, span := range p.Spans {
		fmt.Fprintf(w, "  partition %d\toffsets %d to %d\t%s\n", span.Partition, span.First, span.End-1, plural(span.Len(), "record"))
	}
	if p.Records == 0 {
		fmt.Fprintln(w, "nothing to send again")
		return
	}
	fmt.Fprintf(w, "would send %s again, to %s. To do it:\n", plural(p.Records, "record"), p.Into)
	fmt.Fprintf(w, "  orderclose replay --from %s --to %s --yes\n", stamp(p.From), stamp(p.To))
}

// parseTime parses a time that a person wrote.
func parseTime(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, fmt.Errorf("%s is missing: give a time such as %s, or how long ago, such as 90m", flag, stamp(now))
	}
	if s == "now" {
		return now, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if d, err := config.ParseDuration(strings.TrimPrefix(s, "-")); err == nil {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%s is %q: want a time such as %s, or how long ago, such as 90m", flag, s, stamp(now))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
