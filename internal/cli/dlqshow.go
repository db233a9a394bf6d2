package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

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

// shown is the output of dlq show.
type shown struct {
	deadletters.Letter
	Headers []shownHeader `json:"headers"`
	// Value is the record's value: JSON if it is valid JSON, or else text. Base64 has the
	// value if it is neither.
	Value  any    `json:"value,omitempty"`
	Base64 []byte `json:"value_base64,omitempty"`
	Order  string `json:"order_problem,omitempty"` // why it is not a valid record of an order
}

type shownHeader struct {
	Key   string `json:"key"`
	Value string `json:"value"`
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
	d := show(*l)
	return c.print(d, func(w io.Writer) { printLetter(w, d) })
}

func show(l deadletters.Letter) shown {
	d := shown{Letter: l, Headers: []shownHeader{}}
	for _, h := range l.Record.Headers {
		d.Headers = append(d.Headers, shownHeader{h.Key, string(h.Value)})
	}
	switch value := l.Record.Value; {
	case json.Valid(value):
		d.Value = json.RawMessage(value)
	case utf8.Valid(value):
		d.Value = string(value)
	default:
		d.Base64 = value
	}
	if _, err := l.Record.Decode(); err != nil {
		d.Order = err.Error()
	}
	return d
}

func printLetter(w io.Writer, d shown) {
	row := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, value) }
	state := "pending"
	if d.Resolution != "" {
		state = string(d.Resolution)
	}
	row("at", d.At.String())
	row("state", state)
	row("appended", stamp(d.AppendedAt))
	row("cause", causeName(d.Cause))
	row("detail", oneLine(d.Detail, wire.MaxDeadHeader))
	row("given up by", d.Stage)
	row("from", from(d.Source))
	row("key", oneLine(d.Key, wire.MaxDeadKey))
	if d.Order != "" {
		row("order problem", oneLine(d.Order, wire.MaxDeadHeader))
	}
	for _, h := range d.Headers {
		row("header "+oneLine(h.Key, 40), oneLine(h.Value, wire.MaxDeadHeader))
	}
	if len(d.Record.Value) > 0 {
		row("value", oneLine(string(d.Record.Value), wire.MaxDeadValue))
	}
}
