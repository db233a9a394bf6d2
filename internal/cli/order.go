package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/text"
)

func newOrder(c *common) *cobra.Command {
	var budget int64
	within := ops.HistoryTimeout
	cmd := &cobra.Command{
		Use:   "order ID",
		Short: "Show the history of one order",
		Long: `Show the history of one order: its rows in the database, its receipt, its stock, its
records in all topics, failed attempts, dead letters and events, as a timeline. The
command changes nothing, and no part of the pipeline needs to be running.

Its records are searched in all partitions. Of a topic with more than --budget
records so many are read, from an hour before its creation on, or from the first waiting
record if that is later. The output says how many were skipped.

The command also works without the database, or without Kafka, and says what it did not
check. Exits 4 if the order is unknown, 6 if something could not be checked.`,
		Example: "  orderclose order order-17\n  orderclose order order-17 --budget 1000000 --within 2m -o json",
		Args:    oneArg("the order's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wrong := errors.Join(orderclose.ValidateID(args[0]), exitIf(budget < 1, Usage, "--budget is %d, want 1 or more", budget))
			if wrong != nil {
				return Exit(Usage, wrong)
			}
			return with(c.openAnySet([]string{environ.EnvBrokers, environ.EnvDSN}))(func(s *session) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), within)
				defer cancel()
				found, unset := s.pipeline().History(ctx, args[0], budget), s.unset()
				return cmp.Or(c.print(found, func(w io.Writer) { printHistory(w, found, unset) }), historyError(found, len(unset) == 0))
			})
		},
	}
	cmd.Flags().Int64Var(&budget, "budget", ops.HistoryRecords, "how many records of each topic to read")
	durationFlag(cmd, &within, "within", "how long to search; default: 20s")
	return cmd
}

func (s *session) unset() (names []string) {
	if s.Store == nil {
		names = append(names, environ.EnvDSN)
	}
	if s.Kafka == nil {
		names = append(names, environ.EnvBrokers)
	}
	return names
}

func historyError(s ops.History, all bool) error {
	return cmp.Or(exitIf(len(s.NotRead) > 0, Partly, "some parts could not be checked; they are listed above"),
		exitIf(!s.Known() && s.Skipped() > 0, NotFound, "order %q was not found; not checked: %s; search more with --budget",
			s.ID, text.Plural(s.Skipped(), "record")),
		exitIf(!s.Known() && !all, NotFound, "order %q was not found in what was searched: set %s and %s to search everything", s.ID,
			environ.EnvBrokers, environ.EnvDSN),
		exitIf(!s.Known(), NotFound, "order %q is unknown", s.ID))
}

// inWords returns a status of the shop with its meaning, such as 101 (unpaid).
func inWords(status, meaning string) string {
	return mapping.InWords(text.OneLine(status, 40), meaning)
}

// printHistory prints the history. unset are the variables whose servers were not asked.
func printHistory(w io.Writer, s ops.History, unset []string) {
	fmt.Fprintf(w, "order %s: %s\n", text.OneLine(s.ID, orderclose.MaxIDBytes), text.OneLine(s.Now.String(), 400))
	if s.Database != nil && s.Database.Order != nil {
		o := s.Database.Order
		fmt.Fprint(w, inWords(o.State, o.Meaning))
		if o.Version > 0 { // 0: the table has no such column
			fmt.Fprintf(w, ", version %d", o.Version)
		}
		fmt.Fprintf(w, ", %s\n", text.Plural(len(s.Database.Items), "line"))
		for _, i := range s.Database.Items {
			fmt.Fprintf(w, "  quantity %d\tof SKU %s\n", i.Quantity, text.OneLine(i.SKU, orderclose.MaxIDBytes))
		}
	}
	if len(s.Timeline) > 0 {
		fmt.Fprintln(w)
	}
	for _, e := range s.Timeline {
		fmt.Fprintf(w, "%s\t%s\t%s\n", text.Stamp(e.At), e.Where, text.OneLine(e.What.String(), 400))
	}
	var looked int64
	for _, p := range s.Topics {
		looked += p.Looked
		if p.Skipped > 0 {
			fmt.Fprintf(w, "not checked\t%s\t%s\n", p.Topic, text.Plural(p.Skipped, "record"))
		}
	}
	for _, what := range s.NotRead {
		fmt.Fprintf(w, "not checked\t%s\n", text.OneLine(what, 400))
	}
	for _, name := range unset {
		fmt.Fprintf(w, "%s was not asked: %s is not set\n", map[string]string{environ.EnvDSN: "the database", environ.EnvBrokers: "Kafka"}[name], name)
	}
	if len(s.Topics) > 0 {
		fmt.Fprintf(w, "read %s of %s\n", text.Plural(looked, "record"), text.Plural(len(s.Topics), "topic"))
	}
}
