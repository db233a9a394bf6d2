package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/text"
)

type replayFlags struct {
	againFlags
	orders  []string
	letters bool
}

func newReplay(c *common) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay [--dead-letters] --from TIME [--to TIME] [--order ID]... [--yes]",
		Short: "Send a window of the close topic, or of dead letters, again",
		Long: `Send the records that reached the close topic in a window of time again, so that
their orders are closed if they were not: all of them, or those of some orders. Closing
twice changes nothing: paid and closed orders stay as they are, and a replay that was
interrupted may be run again. The copies go to the end of the close topic, at most --rate
a second, which leaves closers time for orders that become due meanwhile. They have a
mark, by which later replays and audits skip them.

With --dead-letters it sends the dead letters of the window again, after their cause was
fixed. Each starts with all its attempts in the delay topic of its due time, from which
relays take what is due at once. It lists those that cannot be sent: events, which
orderclose events again writes again, and records that were cut or are invalid.

A time is RFC 3339, or how long ago: 90m, or now. Without --yes the plan is shown and
nothing is sent. How many orders would close: orderclose compensate --dry-run.

Exits 4 if orders were named and none has a record in the window, 6 if only a part was
sent, or if some cannot be sent, such as too large ones: it lists
them and sends all others.`,
		Example: "  orderclose replay --from 2h --to 30m\n  orderclose replay --from 2026-11-20T12:00:00Z --to 2026-11-20T12:30:00Z --order order-17 --yes\n" +
			"  orderclose replay --dead-letters --from 2h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, to, err := f.window(time.Now())
			if err != nil {
				return Exit(Usage, err)
			}
			return with(c.openKafka(cmd.Context()))(func(s *session) error { return c.replay(cmd.Context(), s, from, to, f) })
		},
	}
	f.add(cmd, ops.ReplayRate, "records to send")
	cmd.Flags().BoolVar(&f.letters, "dead-letters", false, "send dead letters again, by the time when they were appended")
	cmd.Flags().StringArrayVar(&f.orders, "order", nil, "only the records of this order; may be repeated")
	return cmd
}

// window checks the flags, and returns the window.
func (f *replayFlags) window(now time.Time) (from, to time.Time, err error) {
	from, to, err = f.againFlags.window(now, "records")
	if to.After(now) {
		to = orderclose.CeilMilli(now) // later records do not exist yet
	}
	errs := []error{err}
	for _, id := range f.orders {
		if err := orderclose.ValidateID(id); err != nil {
			errs = append(errs, fmt.Errorf("--order: %w", err))
		}
	}
	return from, to, errors.Join(errs...)
}

// command returns the command that carries a plan out.
func (f *replayFlags) command(p ops.ReplayPlan) string {
	var b strings.Builder
	b.WriteString("orderclose replay")
	if f.letters {
		b.WriteString(" --dead-letters")
	}
	fmt.Fprintf(&b, " --from %s --to %s", text.Stamp(p.From), text.Stamp(p.To))
	for _, id := range p.Orders {
		fmt.Fprintf(&b, " --order %s", text.ShellQuote(id))
	}
	if f.rate != ops.ReplayRate {
		fmt.Fprintf(&b, " --rate %d", f.rate)
	}
	return b.String() + " --yes"
}

// replay shows the plan of a replay, or carries it out, with the clients of the session.
func (c *common) replay(ctx context.Context, s *session, from, to time.Time, f replayFlags) error {
	plan, err := s.pipeline().PlanReplay(ctx, ops.ReplayRequest{From: from, To: to, Orders: f.orders, DeadLetters: f.letters})
	if err != nil {
		return err
	}
	command := f.command(plan) + c.same
	if !f.yes {
		return c.print(plan, func(w io.Writer) { printReplayPlan(w, plan, f.rate, command) })
	}
	progress := c.progress("replayed")
	result, err := ops.Replay(ctx, reads.Log{Cluster: s.Kafka}, plan, f.rate, func(done int64) { progress.Show(done, plan.Records) })
	err = interrupted(ctx, err)
	err = cmp.Or(err, c.print(result, func(w io.Writer) { printReplayed(w, result) }))
	switch {
	case errors.Is(err, ops.ErrReplayRefused):
		return Exit(Partly, err)
	case err != nil && result.Sent > 0:
		return Exit(Partly, fmt.Errorf("%w; to begin again, which changes nothing of what was sent: %s", err, command))
	}
	return cmp.Or(err, exitIf(len(f.orders) > 0 && result.Sent+result.Refused == 0, NotFound,
		"no record of the window is of a named order: orderclose order ID shows when its records reached the close topic"))
}

func printReplayPlan(w io.Writer, p ops.ReplayPlan, rate int, command string) {
	fmt.Fprintf(w, "%s, from %s to %s\n", p.Topic, text.Stamp(p.From), text.Stamp(p.To))
	for _, span := range p.Spans {
		fmt.Fprintf(w, "  partition %d\toffsets %d to %d\t%s\n", span.Partition, span.First, span.End-1, text.Plural(span.Len(), "record"))
	}
	switch {
	case p.Records == 0:
		fmt.Fprintln(w, "nothing to send again")
		return
	case len(p.Orders) > 0:
		fmt.Fprintf(w, "would read %s, and send those of %s again, at most %d a second\n",
			text.Plural(p.Records, "record"), text.Plural(len(p.Orders), "order"), rate)
	default:
		fmt.Fprintf(w, "would send %s again, at most %d a second\n",
			text.Plural(p.Records, "record"), rate)
	}
	fmt.Fprintf(w, "To do it:\n  %s\n", command)
}

func printReplayed(w io.Writer, r ops.ReplayResult) {
	fmt.Fprintf(w, "sent again\t%d\n", r.Sent)
	fmt.Fprintf(w, "skipped\t%d were copies, invalid, or of other orders\n", r.Skipped)
	text.PrintAny(w, r.Refused, "refused\t%d")
	for _, refused := range r.Refusals {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", refused.At, text.OneLine(refused.Key, orderclose.MaxIDBytes), text.OneLine(refused.Why, 200))
	}
}
