package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/retry"
)

func parseTime(flag, s string, now time.Time) (time.Time, error) {
	return ops.ParseTime(flag, s, now)
}

func parseDuration(flag, s, example string) (time.Duration, error) {
	return ops.ParseDuration(flag, s, example)
}

func stamp(t time.Time) string { return ops.Stamp(t) }

// waitFlag adds the flag --wait to a command and its subcommands. The default is enough for a broker
// that starts on a busy machine.
func waitFlag(cmd *cobra.Command, wait *time.Duration) {
	cmd.PersistentFlags().DurationVar(wait, "wait", time.Minute, "how long to repeat what a server that starts or is slow does not do")
}

// repeat calls do, and again while its error may pass, for as long as wait says. The context of do ends
// then too. The error after that time names the flag, and has the exit code TimedOut.
func (c *common) repeat(ctx context.Context, wait time.Duration, what string, passes func(error) bool, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var err, last error // last is an error of do that the end of limited did not cause
	done := retry.Do(limited, c.logger(), what, func(context.Context) error {
		if err = do(limited); err != nil && limited.Err() == nil {
			last = err
		}
		if coded := (*exitError)(nil); errors.As(err, &coded) || !passes(err) {
			return nil
		}
		return err
	})
	switch {
	case done:
		return err
	case ctx.Err() != nil:
		return errInterrupted
	case last == nil:
		last = limited.Err()
	}
	return Exit(TimedOut, fmt.Errorf("gave up after %v (--wait): %w", wait, last))
}

// noteCategories says which categories of the flag --category topics.yaml does not list: one of them may be a typo.
func (c *common) noteCategories(s *session, categories ...string) {
	for _, category := range categories {
		if _, listed := s.cfg.Delays.ByCategory[category]; category != "" && !listed {
			fmt.Fprintf(c.env.Stderr, "note: topics.yaml (delays.categories) does not list the category %s\n", oneLine(category, 100))
		}
	}
}
