package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/text"
)

func newEventsAgain(c *common) *cobra.Command {
	var f againFlags
	cmd := &cobra.Command{
		Use:   "again --from TIME [--to TIME] [--rate N] [--yes]",
		Short: "Write the events of a window of time again, after their topic has lost them",
		Long: `Write the events that were first written in a window of time into the outbox again,
for example after the topic of events has lost records, or was deleted. A dispatcher
publishes them. Each has the id that it had, so readers recognize those that they know.

  order.closed     from the receipt; category, version and columns are those of the
                   order's row now
  order.paid       orders that were marked as paid since migrate has created paid_receipts
  order.paid_late  late payments that nobody has resolved

The events of one order are written in their old order. A time is RFC 3339, or how long
ago: 90m, or now. Without --yes the plan is shown and nothing is written. If the command
is interrupted, run it again.

Exits 5 if a service closes the orders: it has their events.`,
		Example: "  orderclose events again --from 2h --to 90m\n  orderclose events again --from 2026-11-20T12:00:00Z --to 2026-11-20T12:30:00Z --rate 500 --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, to, err := f.window(time.Now(), "events")
			if err != nil {
				return Exit(Usage, err)
			}
			return with(c.open(environ.EnvDSN))(func(s *session) error { return c.eventsAgain(cmd.Context(), s, from, to, f) })
		},
	}
	f.add(cmd, ops.EventsRate, "events to write")
	return cmd
}

func (c *common) eventsAgain(ctx context.Context, s *session, from, to time.Time, f againFlags) error {
	if s.cfg.Closer.Kind != config.KindSQL {
		return Exit(Refused, errors.New("closer.http.url is set: the service that closes orders has their events; let it write them again"))
	}
	if err := s.Store.Migrated(ctx); err != nil {
		return err
	}
	plan, err := ops.PlanEventsAgain(ctx, s.Store, from, to)
	if err != nil {
		return err
	}
	command := fmt.Sprintf("orderclose events again --from %s --to %s --rate %d --yes", text.Stamp(from), text.Stamp(to), f.rate) + c.same
	if !f.yes {
		return c.print(plan, func(w io.Writer) { printEventsAgain(w, plan, f.rate, command) })
	}
	progress := c.progress("written")
	done, err := ops.WriteEventsAgain(ctx, s.Store, from, to, f.rate, func(done int64) { progress.Show(done, plan.All()) })
	err = interrupted(ctx, err)
	if err != nil && done.All() > 0 {
		err = Exit(Partly, fmt.Errorf("%w; %s written; repeats are harmless: %s", err, text.Plural(done.All(), "event"), command))
	}
	return cmp.Or(err, c.print(done, func(w io.Writer) { printEvents(w, done) }))
}

func printEvents(w io.Writer, e ops.EventsAgain) {
	fmt.Fprintf(w, "events that were first written from %s to %s\n", text.Stamp(e.From), text.Stamp(e.To))
	text.PrintAny(w, e.Closed, "  %d\torder.closed")
	text.PrintAny(w, e.Paid, "  %d\torder.paid")
	text.PrintAny(w, e.PaidLate, "  %d\torder.paid_late, not resolved")
}

func printEventsAgain(w io.Writer, e ops.EventsAgain, rate int, command string) {
	printEvents(w, e)
	if e.All() == 0 {
		fmt.Fprintln(w, "nothing to write again")
		return
	}
	fmt.Fprintf(w, "would write %s into the outbox again, at most %d a second, in %s\n", text.Plural(e.All(), "event"), rate,
		(time.Duration(e.All()) * time.Second / time.Duration(rate)).Round(time.Second))
	fmt.Fprintf(w, "To do it:\n  %s\n", command)
}
