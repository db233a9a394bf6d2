package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/wire"
)

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
			return c.dlqShow(cmd.Context(), at)
		},
	}
}

func (c *common) dlqShow(ctx context.Context, at deadletters.Position) error {
	s, topic, err := c.deadLetters(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := topic.Find(ctx, at)
	if err != nil {
		return err
	}
	if l == nil {
		return Exit(NotFound, fmt.Errorf("%s has no dead letter at %v; orderclose dlq ls --all lists all", topic.Name, at))
	}
	d := l.Whole()
	return c.print(d, func(w io.Writer) { printLetter(w, d) })
}

func printLetter(w io.Writer, d deadletters.Whole) {
	row := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, value) }
	row("at", d.At.String())
	row("state", cmp.Or(string(d.Resolution), "pending"))
	row("appended", stamp(d.AppendedAt))
	row("cause", causeName(d.Cause))
	row("detail", oneLine(d.Detail, wire.MaxDeadHeader))
	row("given up by", d.Stage)
	row("from", from(d.Source))
	row("key", oneLine(d.Key, wire.MaxDeadKey))
	if d.OrderProblem != "" {
		row("order problem", oneLine(d.OrderProblem, wire.MaxDeadHeader))
	}
	for _, h := range d.Headers {
		row("header "+oneLine(h.Key, 40), oneLine(h.Value, wire.MaxDeadHeader))
	}
	if len(d.Record.Value) > 0 {
		row("value", oneLine(string(d.Record.Value), wire.MaxDeadValue))
	}
}
