package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/wire"
)

func newDLQ(c *common) *cobra.Command {
	dlq := group("dlq", "List dead letters, send them again, or discard them", newDLQList(c), newDLQShow(c), newDLQRedrive(c), newDLQDiscard(c))
	dlq.Long = `List dead letters, send them again, or discard them.

A dead letter is pending until it is redriven or discarded; a mark in the dead-letter
topic records that. These commands delete nothing: retention deletes dead letters after
90 days.`
	return dlq
}

// withDeadLetters calls run with the topic of the dead letters.
func (c *common) withDeadLetters(ctx context.Context, run func(*session, *deadletters.Topic) error) error {
	return with(c.openKafka(ctx))(func(s *session) error {
		return run(s, &deadletters.Topic{Log: s.Kafka, Name: s.cfg.Topics.DeadLetter})
	})
}

// pendingLine describes the numbers of pending dead letters.
func pendingLine(counts deadletters.Counts) string {
	if counts.Total() == 0 {
		return "none pending"
	}
	return fmt.Sprintf("%d pending: %s", counts.Total(), counts.Text())
}

func from(s deadletters.Source) string {
	return fmt.Sprintf("%s/%d/%d", s.Topic, s.Partition, s.Offset)
}

func newDLQList(c *common) *cobra.Command {
	var sel selection
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use:     "ls [--cause CAUSE] [--stage STAGE] [--order ID] [--since TIME] [--all] [--limit N]",
		Short:   "List the pending dead letters, oldest first",
		Example: "  orderclose dlq ls --cause not_found --since 2h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := sel.filter(nil)
			err = cmp.Or(err, exitIf(limit < 0, Usage, "--limit is %d, want 0, for all, or more", limit))
			if err != nil {
				return err
			}
			return c.withDeadLetters(cmd.Context(), func(_ *session, topic *deadletters.Topic) error {
				index, err := topic.List(cmd.Context(), f, all)
				if err != nil {
					return err
				}
				l := listed{topic.Name, index.Pending(), index.Letters(deadletters.Filter{}), index.Unlisted() > 0}
				if limit > 0 && len(l.Letters) > limit {
					l.Letters, l.More = l.Letters[:limit], true
				}
				return c.print(l, func(w io.Writer) { printLetters(w, l) })
			})
		},
	}
	sel.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "include those that were redriven or discarded")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many to list; 0: all")
	return cmd
}

// listed is the output of dlq ls.
type listed struct {
	Topic   string               `json:"topic"`
	Pending deadletters.Counts   `json:"pending"` // of the filter, by cause
	Letters []deadletters.Letter `json:"letters"`
	More    bool                 `json:"more"` // there are others that are not in the list
}

func printLetters(w io.Writer, l listed) {
	if len(l.Letters) > 0 {
		fmt.Fprintln(w, "at\tappended\tcause\tstage\torder\tfrom\tdetail")
	}
	for _, d := range l.Letters {
		cause := d.Cause
		if d.Resolution != "" {
			cause += ", " + string(d.Resolution)
		}
		fmt.Fprintf(w, "%v\t%s\t%s\t%s\t%s\t%s\t%s\n",
			d.At, text.Stamp(d.AppendedAt), line(cause), line(d.Stage), text.OneLine(d.Key, 40), line(from(d.Source)), text.OneLine(d.Detail, 80))
	}
	fmt.Fprintln(w, pendingLine(l.Pending))
	if l.More {
		fmt.Fprintf(w, "only the first %d are shown; --limit 0 shows up to 100000, --cause and --since select others\n", len(l.Letters))
	}
}

func newDLQShow(c *common) *cobra.Command {
	return &cobra.Command{
		Use:     "show PARTITION/OFFSET",
		Short:   "Show one dead letter with its record; exits 4 if it does not exist",
		Example: "  orderclose dlq show 0/17",
		Args:    oneArg("PARTITION/OFFSET as dlq ls shows it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := deadletters.ParsePartitionOffset(args[0])
			if err != nil {
				return Exit(Usage, err)
			}
			return c.withDeadLetters(cmd.Context(), func(_ *session, topic *deadletters.Topic) error {
				l, err := topic.Find(cmd.Context(), at)
				if err != nil {
					return err
				}
				if l == nil {
					return Exit(NotFound, fmt.Errorf("%s has no dead letter at %v; orderclose dlq ls --all lists all", topic.Name, at))
				}
				d := l.Whole()
				return c.print(d, func(w io.Writer) { printLetter(w, d) })
			})
		},
	}
}

func printLetter(w io.Writer, d deadletters.Whole) {
	row := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, value) }
	free := func(name, value string) { row(name, line(value)) }
	row("at", d.At.String())
	free("state", cmp.Or(string(d.Resolution), "pending"))
	row("appended", text.Stamp(d.AppendedAt))
	free("cause", cmp.Or(d.Cause, "without a cause"))
	row("detail", text.OneLine(d.Detail, wire.MaxDeadHeader))
	free("given up by", d.Stage)
	free("from", from(d.Source))
	row("key", text.OneLine(d.Key, wire.MaxDeadKey))
	if d.OrderProblem != "" {
		row("order problem", text.OneLine(d.OrderProblem, wire.MaxDeadHeader))
	}
	for _, h := range d.Headers {
		row("header "+text.OneLine(h.Key, 40), text.OneLine(h.Value, wire.MaxDeadHeader))
	}
	if len(d.Record.Value) > 0 {
		row("value", text.OneLine(string(d.Record.Value), wire.MaxDeadValue))
	}
}
