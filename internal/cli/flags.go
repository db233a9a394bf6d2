package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/retry"
)

// parseTime parses the value of a flag: a time, or how long ago.
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

// parseDuration parses the value of a flag. example is shown to a person who wrote something else.
func parseDuration(flag, s, example string) (time.Duration, error) {
	d, err := config.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: write a number and a unit, such as %s", flag, err, example)
	}
	return d, nil
}

// dueFlags are the flags of commands that compare the orders that were due in a window of time.
type dueFlags struct {
	from, to string
	limit    int // of what is shown
}

// add adds the flags. shown says what the limit counts.
func (f *dueFlags) add(cmd *cobra.Command, limit int, shown string) {
	cmd.Flags().StringVar(&f.from, "from", "", "the beginning of the window of due times")
	cmd.Flags().StringVar(&f.to, "to", "now", "the end of the window")
	cmd.Flags().IntVar(&f.limit, "limit", limit, "how many "+shown+" to show, 0 for all; all are counted")
}

// parse checks the flags, and returns the window.
func (f dueFlags) parse(now time.Time) (from, to time.Time, err error) {
	from, err1 := parseTime("--from", f.from, now)
	to, err2 := parseTime("--to", f.to, now)
	err = errors.Join(err1, err2)
	if err == nil && !from.Before(to) {
		err = fmt.Errorf("--from %s is not before --to %s", stamp(from), stamp(to))
	}
	if f.limit < 0 {
		err = errors.Join(err, fmt.Errorf("--limit is %d, want 0 or more", f.limit))
	}
	return from, to, err
}

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

// checkCategories refuses an unknown category of the flag --category.
func (c *common) checkCategories(ctx context.Context, s *session, categories ...string) error {
	if unknown := (ops.Pipeline{Config: s.cfg, Store: s.Store}).UnknownCategory(ctx, categories...); unknown != "" {
		return Exit(NotFound, fmt.Errorf("--category %s: %s", oneLine(unknown, 100), ops.NoSuchCategory))
	}
	return nil
}
