package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/text"
)

func newPause(c *common) *cobra.Command {
	var category, duration, reason string
	var replace bool
	cmd := &cobra.Command{
		Use:   "pause --for DURATION --reason TEXT [--category CATEGORY] [--replace]",
		Short: "Close no orders for a while",
		Long: `Close no orders for a while, at most a day. Every closer, sweep and program that closes on read
obeys; a close that has begun may finish. Nothing is lost: records wait in the close topic,
orders stay unpaid and can be paid. The pause ends by itself, or by orderclose resume. Then the
backlog is closed as fast as the database allows.

With --category only orders of that category wait. It needs a column (orders.category in
topics.yaml). Closers settle their records, and the compensator closes the orders within 20 s after
the end, at compensator.rate. If it cannot find them, as those of a Store without Overdue, closers
try each record again after a minute, and keep it in memory or in a delay topic.

The pause is a row of the database, which each close reads. If a service closes the orders
(closer.http.url), or a Store of your own, closers and compensators obey the pause if
` + environ.EnvDSN + ` is set for them. Without a database the command exits 5: let the service answer
paused or 503, or stop the closers and compensators.

A category that topics.yaml does not list is noted: it may be a typo.
A second pause of the same category replaces the first. If the first ends later, the command names
it, changes nothing and exits 5: another operator may rely on it. --replace ends it earlier on
purpose. orderclose status shows what is paused.`,
		Example: `  orderclose pause --for 30m --reason "payment provider is down, INC-1234"
  orderclose pause --category virtual --for 2h --reason "a wrong delay, INC-1235"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			lasting, err := ops.ParsePause(duration)
			return c.changePauses(ctx, func(s *session) (ended []pausing.Pause, err error) {
				if _, listed := s.cfg.Delays.ByCategory[category]; category != "" && !listed { // it may be a typo
					c.note("note: topics.yaml (delays.categories) does not list the category", text.OneLine(category, 100))
				}
				shortened, err := s.Store.Pause(ctx, category, lasting, reason, replace)
				if errors.Is(err, store.ErrNoCategory) || errors.Is(err, pausing.ErrEndsLater) {
					err = Exit(Refused, err)
				}
				return shortened, err
			}, err, ops.CheckReason(reason))
		},
	}
	cmd.Flags().StringVar(&category, "category", "", "pause orders of one category only")
	cmd.Flags().StringVar(&duration, "for", "", "how long, at most 24h")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the others on call; up to 500 characters")
	cmd.Flags().BoolVar(&replace, "replace", false, "also replace a pause that ends later")
	return cmd
}

func newResume(c *common) *cobra.Command {
	var category string
	cmd := &cobra.Command{
		Use:   "resume [--category CATEGORY]",
		Short: "End a pause",
		Long: `End the pause of all orders, or with --category that of one category. Pauses of others stay,
and are printed. Exits 4 if no such pause is on.`,
		Example: "  orderclose resume\n  orderclose resume --category virtual",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.changePauses(cmd.Context(), func(s *session) ([]pausing.Pause, error) {
				ended, err := s.Store.Resume(cmd.Context(), category)
				if err != nil || len(ended) > 0 {
					return ended, err
				}
				on, err := s.Store.Pauses(cmd.Context())
				return nil, cmp.Or(err, exitIf(len(on) == 0, NotFound, "nothing was paused"),
					Exit(NotFound, fmt.Errorf("no such pause is on; --category X ends that of a category: %q", on)))
			})
		},
	}
	cmd.Flags().StringVar(&category, "category", "", "end the pause of this category")
	return cmd
}

// changePauses calls change. Then it prints the pauses that change has ended, and those that are on. An error in wrong begins with the name of its flag.
func (c *common) changePauses(ctx context.Context, change func(*session) (ended []pausing.Pause, err error), wrong ...error) error {
	var errs []error
	for _, err := range wrong {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%w", err))
		}
	}
	if len(errs) > 0 {
		return Exit(Usage, errors.Join(errs...))
	}
	return with(c.openFor(func(*config.Config) []string { return nil }, environ.EnvDSN))(func(s *session) error {
		if s.Store == nil {
			return Exit(Refused, ops.ErrNoPauses)
		}
		ended, err := change(s)
		if err != nil {
			return err
		}
		on, err := s.Store.Pauses(ctx)
		if err != nil {
			return err
		}
		return c.print(struct {
			Pauses []pausing.Pause `json:"pauses"`
			Ended  []pausing.Pause `json:"ended,omitempty"`
		}{append([]pausing.Pause{}, on...), ended}, func(w io.Writer) {
			printPauses(w, "ended", ended)
			printPauses(w, "paused", on)
		})
	})
}

// printPauses prints a line for each pause, which begins with a word.
func printPauses(w io.Writer, word string, pauses []pausing.Pause) {
	for _, p := range pauses {
		fmt.Fprintf(w, "%s: %v\n", word, p)
	}
}
