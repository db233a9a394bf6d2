package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	Topic string    `json:"topic"`
}

func newSend(c *common) *cobra.Command {
	var id, category, due string
	var check bool
	cmd := &cobra.Command{
		Use:   "send (--id ID [--category CATEGORY] [--due TIME] | [--check] -)",
		Short: "Publish the record of an order, as checkout does; or check records of a producer",
		Long: `Publish the record of an order, as checkout does. The order must be in the
database already, with the same due time: otherwise the close does not find it.

Without --due the order is due after the delay of its category, from now on. With
- it reads one JSON object per line from stdin: order_id, category, created_at,
due_at, attributes; created_at defaults to now. Any other key is refused. Times are
RFC 3339.

With --check - it sends nothing, and asks no server. It decodes each record on stdin as
relay and closer do, and says what they could not read. A record is a JSON object with
key, headers and value, where headers is an object and value is text or JSON; or the
value alone, as in a row of outbox_schedules; or a line that kcat -J prints. Exits 3 if a
record has a problem.`,
		Example: "  orderclose send --id order-17 --category virtual\n  orderclose send - < orders.jsonl\n" +
			`  echo '{"key": "1", "headers": {"due": "1772366700000", "v": "1"}, "value": {"order_id": 1}}' | orderclose send --check -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case check && (len(args) != 1 || args[0] != "-" || id != ""):
				return Exit(Usage, errors.New("--check reads records from stdin: want send --check -"))
			case check:
				return c.sendCheck(newOrders(c.env.Stdin))
			case len(args) == 1 && args[0] == "-" && id == "":
				return c.send(cmd.Context(), newOrders(c.env.Stdin).next)
			case len(args) == 0 && id != "":
				l := line{ID: id, Category: category}
				var err error
				if due != "" {
					if l.DueAt, err = time.Parse(time.RFC3339, due); err != nil {
						return Exit(Usage, fmt.Errorf("--due is %q: want a time such as %s", due, stamp(time.Now())))
					}
				}
				return c.send(cmd.Context(), oneOrder(l))
			}
			return Exit(Usage, errors.New("give --id, or - to read orders from stdin"))
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "send nothing: say whether relay and closer can read the records on stdin")
	cmd.Flags().StringVar(&id, "id", "", "the order's id")
	cmd.Flags().StringVar(&category, "category", "", "its category")
	cmd.Flags().StringVar(&due, "due", "", "when it is due, RFC 3339; default: after its category's delay")
	return cmd
}

// oneOrder returns a function that returns one order, and then io.EOF.
func oneOrder(l line) func() (line, error) {
	given := false
	return func() (line, error) {
		if given {
			return line{}, io.EOF
		}
		given = true
		return l, nil
	}
}

func (c *common) send(ctx context.Context, next func() (line, error)) error {
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
	for n := 0; ; n++ {
		l, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return partly(n, Exit(Usage, err))
		}
		if err := c.sendOne(ctx, p, l); err != nil {
			return partly(n, fmt.Errorf("order %d: %w", n+1, err))
		}
	}
}

func (c *common) sendOne(ctx context.Context, p *producer.Producer, l line) error {
	if l.CreatedAt.IsZero() {
		l.CreatedAt = time.Now()
	}
	var categories []string
	if l.Category != "" {
		categories = []string{l.Category}
	}
	o := p.Order(l.ID, l.CreatedAt, categories...)
	o.Category, o.Attributes = l.Category, l.Attributes
	if !l.DueAt.IsZero() {
		o.Due = l.DueAt
	}
	topic := p.Topic(o.Due)
	if err := p.Schedule(ctx, o); err != nil {
		if refused := (*orderclose.OrderError)(nil); errors.As(err, &refused) {
			return Exit(Refused, err)
		}
		return err
	}
	return c.print(sent{o.ID, o.Due.UTC(), topic}, func(w io.Writer) {
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
