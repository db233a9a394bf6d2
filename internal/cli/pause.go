package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

type pauseFlags struct {
	path, category, lasting, reason, via string
	replace                              bool
}

// Values of the flag --via.
const (
	viaDatabase = "database"
	viaKafka    = "kafka"
)

func (f *pauseFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&f.path, "path", "all", what+" these closes: pipeline, sweep, on-read, or all")
	cmd.Flags().StringVar(&f.category, "category", "", what+" orders of one category only")
	cmd.Flags().StringVar(&f.via, "via", "", "where the pauses are: database or kafka; default: kafka if a service closes the orders, else database")
}

func newPause(c *common) *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "pause --for DURATION --reason TEXT [--path PATH] [--category CATEGORY] [--replace]",
		Short: "Close no orders for a while",
		Long: `Close no orders for a while, at most a day. Every closer, sweep and program that
closes on read obeys within 2 s; a transaction that has begun may finish. Nothing is lost: records
wait in the close topic, orders stay unpaid and can be paid. The pause ends by itself, or by
orderclose resume. Then the backlog is closed as fast as the database allows.

With --category only orders of that category wait. It needs a column (orders.category in
topics.yaml). Each closer keeps as many of their records in memory as the limit allows. The others
go back into the delay topics. They return after as long as they have been overdue: 1 to 17 minutes.

Where the pause is kept: in the database if orders are closed there, which each close reads in its
transaction; otherwise in the control topic. A program that closes with a Store of its own obeys the
control topic: --via kafka.

Exits 4 if neither topics.yaml nor an unpaid order has the category.

A second pause of the same path and category replaces the first. If the first ends later, the
command names it, changes nothing and exits 5: another operator may rely on it. --replace ends it
earlier on purpose. orderclose status shows what is paused.`,
		Example: `  orderclose pause --for 30m --reason "payment provider is down, INC-1234"
  orderclose pause --path sweep --for 2h --reason "migration of the orders' table"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			lasting, err := ops.ParsePause(f.lasting)
			return c.changePauses(ctx, f, func(s *session, paths []orderclose.Path) (ended []wire.Pause, err error) {
				if err := c.checkCategories(ctx, s, f.category); err != nil {
					return nil, err
				}
				shortened, err := s.pauses().Pause(ctx, paths, f.category, lasting, f.reason, f.replace)
				if errors.Is(err, store.ErrNoCategory) || errors.Is(err, wire.ErrEndsLater) {
					err = Exit(Refused, err)
				}
				return shortened, err
			}, err, ops.CheckReason(f.reason))
		},
	}
	f.add(cmd, "pause")
	cmd.Flags().StringVar(&f.lasting, "for", "", "how long, at most 24h")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the others on call; up to 500 characters")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "also replace a pause that ends later")
	return cmd
}

func newResume(c *common) *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "resume [--path PATH] [--category CATEGORY]",
		Short: "End a pause",
		Long: `End the pauses of all orders and of all categories, or with --category of one
category. Exits 4 if nothing was paused.`,
		Example: "  orderclose resume\n  orderclose resume --category virtual",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.changePauses(cmd.Context(), f, func(s *session, paths []orderclose.Path) ([]wire.Pause, error) {
				ended, err := s.pauses().Resume(cmd.Context(), paths, f.category)
				return ended, cmp.Or(err, exitIf(len(ended) == 0, NotFound, "nothing was paused"))
			})
		},
	}
	f.add(cmd, "resume")
	return cmd
}

// openPauses opens what the pauses are kept in. It returns a session with the database, or with
// Kafka.
func (c *common) openPauses(ctx context.Context, f pauseFlags) (*session, error) {
	if f.via != "" && f.via != viaDatabase && f.via != viaKafka {
		return nil, Exit(Usage, fmt.Errorf("--via is %q, want %s or %s", f.via, viaDatabase, viaKafka))
	}
	s, err := c.openFor(func(cfg *config.Config) []string {
		if f.via == viaKafka || f.via == "" && cfg.Closer.Kind == config.KindHTTP {
			return []string{config.EnvBrokers}
		}
		return []string{config.EnvDSN}
	})
	return answering(ctx, s, err)
}

// pauses returns what the pauses are kept in, of a session that openPauses returned.
func (s *session) pauses() ops.Pauser {
	if s.Kafka == nil {
		return s.Store
	}
	return s.pipeline().Control
}

// changePauses changes pauses, and prints those that change has ended, and what is paused now. wrong are errors of flags, which begin
// with the name of the flag, or nil.
func (c *common) changePauses(ctx context.Context, f pauseFlags,
	change func(*session, []orderclose.Path) (ended []wire.Pause, err error), wrong ...error) error {
	paths, err := ops.ParsePaths(f.path)
	var errs []error
	for _, err := range append([]error{err}, wrong...) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%w", err))
		}
	}
	if len(errs) > 0 {
		return Exit(Usage, errors.Join(errs...))
	}
	return with(c.openPauses(ctx, f))(func(s *session) error {
		ended, err := change(s, paths)
		if err != nil {
			return err
		}
		on, err := s.pauses().Pauses(ctx)
		if err != nil {
			return err
		}
		return c.print(struct {
			Pauses []wire.Pause `json:"pauses"`
			Ended  []wire.Pause `json:"ended,omitempty"`
		}{append([]wire.Pause{}, on...), ended}, func(w io.Writer) {
			printPauses(w, "ended", ended)
			printPauses(w, "paused", on)
		})
	})
}

// printPauses prints a line for each pause, which begins with a word.
func printPauses(w io.Writer, word string, pauses []wire.Pause) {
	for _, p := range pauses {
		what := "all orders"
		if p.Category != "" {
			what = "orders of " + oneLine(p.Category, 60)
		}
		fmt.Fprintf(w, "%s: closes by %s of %s until %s: %s\n", word, wire.PathName(p.Path), what, stamp(p.Until), oneLine(p.Reason, 500))
	}
}
