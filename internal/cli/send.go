package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/producer"
)

// sent is the output of send for one order.
type sent struct {
	ID    string    `json:"order_id"`
	DueAt time.Time `json:"due_at"`
	Topic string    `json:"topic"` // "": the order is never closed, and nothing was sent
}

func newSend(c *common) *cobra.Command {
	var id, category, due string
	cmd := &cobra.Command{
		Use:   "send (--id ID [--category CATEGORY] [--due TIME] | -)",
		Short: "Publish the record of an order, as checkout does",
		Long: `Publish the record of an order, as checkout does. The order must be in the
database already, with the same due time: otherwise the close does not find it.

Without --due the order is due after the delay of its category, from now on, or as a
rule of topics.yaml says. With
- it reads one JSON object per line from stdin: order_id, category, created_at,
due_at, attributes; created_at defaults to now. Any other key is refused. Times are
RFC 3339.`,
		Example: "  orderclose send --id order-17 --category virtual\n  orderclose send - < orders.jsonl",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && args[0] == "-" && id == "":
				return c.send(cmd.Context(), each(c.env.Stdin, parseLine))
			case len(args) == 0 && id != "":
				l := line{ID: id, Category: category}
				var err error
				if due != "" {
					if l.DueAt, err = time.Parse(time.RFC3339, due); err != nil {
						return Exit(Usage, fmt.Errorf("--due is %q: want a time such as %s", due, stamp(time.Now())))
					}
				}
				return c.send(cmd.Context(), func(yield func(line, error) bool) { yield(l, nil) })
			}
			return Exit(Usage, errors.New("give --id, or - to read orders from stdin"))
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "the order's id")
	cmd.Flags().StringVar(&category, "category", "", "its category")
	cmd.Flags().StringVar(&due, "due", "", "when it is due, RFC 3339; default: after its category's delay")
	return cmd
}

func (c *common) send(ctx context.Context, orders iter.Seq2[line, error]) error {
	s, err := c.open(config.EnvBrokers)
	if err != nil {
		return err
	}
	defer s.Close()
	coalescer := kafka.NewCoalescer(s.Kafka)
	defer coalescer.Close()
	p, err := producer.New(producer.Options{
		Appender: coalescer, Buckets: s.cfg.Buckets, CloseTopic: s.cfg.Topics.Close, Delays: s.cfg.Delays, MaxDelay: s.cfg.MaxDelay,
		OnUnknownCategory: func(category string) {
			s.logger.Warn("category is not in topics.yaml, using the default delay", "category", category)
		},
	})
	if err != nil {
		return err
	}
	n := 0
	for l, err := range orders {
		if err != nil {
			return partly(n, Exit(Usage, err))
		}
		if err := c.sendOne(ctx, p, l); err != nil {
			return partly(n, fmt.Errorf("order %d: %w", n+1, err))
		}
		n++
	}
	return nil
}

func (c *common) sendOne(ctx context.Context, p *producer.Producer, l line) error {
	if l.CreatedAt.IsZero() {
		l.CreatedAt = time.Now()
	}
	var categories []string
	if l.Category != "" {
		categories = []string{l.Category}
	}
	o := p.OrderWith(l.ID, orderclose.Facts{CreatedAt: l.CreatedAt, Categories: categories, Attributes: l.Attributes})
	o.Category = l.Category
	if !l.DueAt.IsZero() {
		o.Due, o.Deadline = l.DueAt, time.Time{}
	}
	topic := p.Topic(o.Due)
	if orderclose.IsNever(o.Due) {
		topic = "" // Schedule only checks the id
	}
	if err := p.Schedule(ctx, o); err != nil {
		if refused := (*orderclose.OrderError)(nil); errors.As(err, &refused) {
			return Exit(Refused, err)
		}
		return err
	}
	return c.print(sent{o.ID, o.Due.UTC(), topic}, func(w io.Writer) {
		if topic == "" {
			fmt.Fprintf(w, "%s\tis never closed\tnot sent\n", o.ID)
			return
		}
		fmt.Fprintf(w, "%s\tdue %s\t%s\n", o.ID, stamp(o.Due), topic)
	})
}

// partly gives an error the exit code Partly if orders were sent before it.
func partly(sent int, err error) error {
	if sent == 0 {
		return err
	}
	return Exit(Partly, fmt.Errorf("%w; %s sent, sending again is harmless", err, counted(sent, "order before it was", "orders before it were")))
}

type line struct {
	ID         string
	Category   string
	CreatedAt  time.Time
	DueAt      time.Time
	Attributes map[string]any
}

var lineFields = []string{"order_id", "category", "created_at", "due_at", "attributes"}

// each yields the JSON objects of r, as parse reads them. An error names the line in which the object begins, and is the last.
func each[T any](r io.Reader, parse func(raw json.RawMessage, line int) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var read bytes.Buffer // what dec has read from the offset at on, which is in line
		at, line := int64(0), 1
		dec := json.NewDecoder(io.TeeReader(r, &read))
		for {
			dec.More() // skips white space
			start := dec.InputOffset()
			var raw json.RawMessage
			err := dec.Decode(&raw)
			if errors.Is(err, io.EOF) {
				return
			}
			line += bytes.Count(read.Next(int(start-at)), []byte("\n"))
			at = start
			var v T
			if broken := (*json.SyntaxError)(nil); errors.As(err, &broken) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("not a JSON object of an order: %w", err)
			} else if err != nil {
				err = fmt.Errorf("read the input: %w", err)
			} else {
				v, err = parse(raw, line)
			}
			if err != nil {
				err = fmt.Errorf("line %d: %w", line, err)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// parseLine decodes each field separately, so that an error names the field.
func parseLine(raw json.RawMessage, _ int) (line, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return line{}, fmt.Errorf("%s is not a JSON object of an order: want keys with values, of %s", compactJSON(raw), strings.Join(lineFields, ", "))
	}
	var l line
	moment := "a time such as " + stamp(time.Now())
	fields := map[string]struct {
		to   any
		want string
	}{
		"order_id": {&l.ID, "text"}, "category": {&l.Category, "text"}, "created_at": {&l.CreatedAt, moment}, "due_at": {&l.DueAt, moment},
		"attributes": {&l.Attributes, "an object"},
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		field, known := fields[key]
		if !known {
			return line{}, fmt.Errorf("unknown field %q; the fields are %s", key, strings.Join(lineFields, ", "))
		}
		if json.Unmarshal(given[key], field.to) != nil {
			return line{}, fmt.Errorf("%s is %s: want %s", key, compactJSON(given[key]), field.want)
		}
	}
	return l, nil
}

// compactJSON returns the JSON on one line, cut to 60 characters.
func compactJSON(raw json.RawMessage) string {
	var compact bytes.Buffer
	_ = json.Compact(&compact, raw) // raw is valid: it was decoded before
	const most = 60
	if s := []rune(compact.String()); len(s) > most {
		return string(s[:most]) + "…"
	}
	return compact.String()
}
