package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
)

// selection are the flags that select dead letters.
type selection struct {
	cause, stage, order, since string
	through                    []string
}

func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.cause, "cause", "", "only those with this cause")
	f.StringVar(&s.stage, "stage", "", "only those written by this stage")
	f.StringVar(&s.order, "order", "", "only those of this order")
	f.StringVar(&s.since, "since", "", "only those appended then or later: a time, or how long ago, such as 2h")
}

// restricts reports whether a flag or argument restricts the selection.
func (s *selection) restricts(args []string) bool {
	return len(args) > 0 || s.cause != "" || s.stage != "" || s.order != "" || s.since != ""
}

// filter parses the flags and positions.
func (s *selection) filter(args []string) (deadletters.Filter, error) {
	f := deadletters.Filter{Cause: s.cause, Stage: s.stage, Order: s.order}
	var errs []error
	if s.since != "" {
		var err error
		f.Since, err = parseTime("--since", s.since, time.Now())
		errs = append(errs, err)
	}
	for _, arg := range args {
		at, err := deadletters.ParsePartitionOffset(arg)
		f.Positions = append(f.Positions, at)
		errs = append(errs, err)
	}
	for _, through := range s.through {
		at, err := deadletters.ParsePartitionOffset(through)
		if err != nil {
			errs = append(errs, fmt.Errorf("--through: %w", err))
			continue
		}
		if f.Through == nil {
			f.Through = map[int]int64{}
		}
		f.Through[at.Partition] = at.Offset
	}
	if err := errors.Join(errs...); err != nil {
		return f, Exit(Usage, err)
	}
	return f, nil
}

// arguments returns the flags and positions for a command that a person copies.
func (s *selection) arguments(args []string, f deadletters.Filter, through []deadletters.Position) string {
	var b strings.Builder
	for _, flag := range []struct{ name, value string }{{"cause", s.cause}, {"stage", s.stage}, {"order", s.order}} {
		if flag.value != "" {
			fmt.Fprintf(&b, " --%s %s", flag.name, ops.ShellQuote(flag.value))
		}
	}
	if s.since != "" {
		fmt.Fprintf(&b, " --since %s", stamp(f.Since))
	}
	for _, at := range through {
		fmt.Fprintf(&b, " --through %v", at)
	}
	for _, arg := range args {
		fmt.Fprintf(&b, " %s", arg)
	}
	return b.String()
}
