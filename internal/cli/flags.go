package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/text"
)

// parseTime parses the value of a flag: a time, or how long ago.
func parseTime(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, fmt.Errorf("%s is missing: give a time such as %s, or how long ago, such as 90m", flag, text.Stamp(now))
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
	return time.Time{}, fmt.Errorf("%s is %q: want a time such as %s, or how long ago, such as 90m", flag, s, text.Stamp(now))
}

// parseWindow parses the values of --from and --to. The window is in whole milliseconds, as printed commands have it.
func parseWindow(from, to string, now time.Time) (begin, end time.Time, err error) {
	begin, err1 := parseTime("--from", from, now)
	end, err2 := parseTime("--to", to, now)
	if err = errors.Join(err1, err2); err == nil && !begin.Before(end) {
		err = fmt.Errorf("--from %s is not before --to %s", text.Stamp(begin), text.Stamp(end))
	}
	return begin.Truncate(time.Millisecond), orderclose.CeilMilli(end), err
}

// againFlags are those of commands that do what was done in a window of time again.
type againFlags struct {
	from, to string
	rate     int
	yes      bool
}

// add adds the flags to a command. do says what rate counts, such as records to send.
func (f *againFlags) add(cmd *cobra.Command, rate int, do string) {
	cmd.Flags().StringVar(&f.from, "from", "", "the beginning of the window")
	cmd.Flags().StringVar(&f.to, "to", "now", "the end of the window")
	cmd.Flags().IntVar(&f.rate, "rate", rate, "how many "+do+" a second at most")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do it")
}

// window checks the flags, and returns the window.
func (f *againFlags) window(now time.Time, things string) (from, to time.Time, err error) {
	from, to, err = parseWindow(f.from, f.to, now)
	if f.rate < 1 {
		err = errors.Join(err, fmt.Errorf("--rate is %d, want 1 or more %s a second", f.rate, things))
	}
	return from, to, err
}

// durationFlag adds a flag whose value is a duration as topics.yaml has it, such as 90m or 1d.
func durationFlag(cmd *cobra.Command, d *time.Duration, name, usage string) {
	cmd.Flags().Func(name, usage, func(s string) (err error) {
		*d, err = config.ParseDuration(s)
		return err
	})
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
