package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/internal/wire"
)

func newDLQ(c *common) *cobra.Command {
	dlq := group("dlq", "List and show dead letters", newDLQList(c), newDLQShow(c))
	dlq.Long = `List and show dead letters: records that could not be processed.

A dead letter is open while its order is unpaid. If its order is not known, because it is
an event, has no id, or no database has the orders, it is open for 24 hours. Nothing has
to be done with the others. orderclose replay --dead-letters sends those of orders again.
Retention deletes dead letters after 90 days.`
	return dlq
}

// withDeadLetters calls run with the topic of the dead letters.
func (c *common) withDeadLetters(ctx context.Context, run func(topic deadletters.Topic) error) error {
	return with(c.openKafka(ctx, environ.EnvDSN))(func(s *session) error {
		return run(s.pipeline().DeadLetters())
	})
}

// openLine describes the numbers of open dead letters.
func openLine(counts deadletters.Counts) string {
	if counts.Total() == 0 {
		return "none open"
	}
	return fmt.Sprintf("%d open: %s", counts.Total(), counts.Text())
}

func from(s deadletters.Source) string {
	return fmt.Sprintf("%s/%d/%d", s.Topic, s.Partition, s.Offset)
}

func newDLQList(c *common) *cobra.Command {
	var f deadletters.Filter
	var since string
	var limit int
	cmd := &cobra.Command{
		Use:     "ls [--open] [--cause CAUSE] [--stage STAGE] [--order ID] [--since TIME] [--limit N]",
		Short:   "List dead letters, newest first",
		Example: "  orderclose dlq ls --open --cause not_found --since 2h",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if since != "" {
				f.Since, err = parseTime("--since", since, time.Now())
			}
			err = errors.Join(err, exitIf(limit < 0, Usage, "--limit is %d, want 0, for all, or more", limit))
			if err != nil {
				return Exit(Usage, err)
			}
			if limit == 0 || limit > deadletters.MaxLetters {
				limit = deadletters.MaxLetters
			}
			return c.withDeadLetters(cmd.Context(), func(topic deadletters.Topic) error {
				list, err := topic.List(cmd.Context(), f, limit)
				if err != nil {
					return err
				}
				l := listed{topic.Name, list}
				return c.print(l, func(w io.Writer) { printLetters(w, l) })
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.Open, "open", false, "only those that are open")
	flags.StringVar(&f.Cause, "cause", "", "only those with this cause")
	flags.StringVar(&f.Stage, "stage", "", "only those written by this stage")
	flags.StringVar(&f.Order, "order", "", "only those of this order")
	flags.StringVar(&since, "since", "", "only those appended then or later: a time, or how long ago, such as 2h")
	flags.IntVar(&limit, "limit", 100, "how many to list; 0: all")
	return cmd
}

// listed is the output of dlq ls.
type listed struct {
	Topic string `json:"topic"`
	deadletters.List
}

func printLetters(w io.Writer, l listed) {
	if len(l.Letters) > 0 {
		fmt.Fprintln(w, "at\tappended\tcause\tstage\torder\tit is\tfrom\tdetail")
	}
	for _, d := range l.Letters {
		fmt.Fprintf(w, "%v\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.At, text.Stamp(d.AppendedAt), line(d.Cause), line(d.Stage), text.OneLine(d.Key, 40),
			orderState(d), line(from(d.Source)), text.OneLine(d.Detail, 80))
	}
	fmt.Fprintln(w, openLine(l.Open))
	if l.More {
		fmt.Fprintf(w, "only the newest %d are shown; --limit 0 shows up to 100000, --cause and --since select others\n", len(l.Letters))
	}
}

// orderState returns what the database says of the order of a dead letter.
func orderState(d deadletters.Letter) string { return line(string(cmp.Or(d.Order, "not known"))) }

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
			return c.withDeadLetters(cmd.Context(), func(topic deadletters.Topic) error {
				l, err := topic.Find(cmd.Context(), at)
				if err != nil {
					return err
				}
				if l == nil {
					return Exit(NotFound, fmt.Errorf("%s has no dead letter at %v; orderclose dlq ls lists them", topic.Name, at))
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
	row("order", orderState(d.Letter))
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
