package ops

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

// ParseTime parses the value of a flag: a time, or how long ago.
func ParseTime(flag, s string, now time.Time) (time.Time, error) {
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

// CheckWindow returns the errors of ParseTime for --from and --to. If there are none, it checks that from is before to.
func CheckWindow(from, to time.Time, errs ...error) error {
	err := errors.Join(errs...)
	if err == nil && !from.Before(to) {
		err = fmt.Errorf("--from %s is not before --to %s", stamp(from), stamp(to))
	}
	return err
}

// ParseDuration parses the value of a flag. example is shown to a person who wrote something else.
func ParseDuration(flag, s, example string) (time.Duration, error) {
	d, err := config.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: write a number and a unit, such as %s", flag, err, example)
	}
	return d, nil
}

// Window has the flags of commands that compare the orders that were due in a window of time.
type Window struct {
	From, To string
	Limit    int // of what is shown
}

// Add adds the flags. shown says what the limit counts.
func (w *Window) Add(flags *flag.FlagSet, limit int, shown string) {
	flags.StringVar(&w.From, "from", "", "the beginning of the window of due times")
	flags.StringVar(&w.To, "to", "now", "the end of the window")
	flags.IntVar(&w.Limit, "limit", limit, "how many "+shown+" to show, 0 for all; all are counted")
}

// Parse checks the flags, and returns the window.
func (w Window) Parse(now time.Time) (from, to time.Time, err error) {
	from, err1 := ParseTime("--from", w.From, now)
	to, err2 := ParseTime("--to", w.To, now)
	err = CheckWindow(from, to, err1, err2)
	if w.Limit < 0 {
		err = errors.Join(err, fmt.Errorf("--limit is %d, want 0 or more", w.Limit))
	}
	return from, to, err
}
