package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/producer"
)

// sent is the output of send.
type sent struct {
	ID    string    `json:"order_id"`
	DueAt time.Time `json:"due_at"`
	Topic string    `json:"topic"` // "": the order is never closed, and nothing was sent
}

func newSend(c *common) *cobra.Command {
	var id, category, due string
	cmd := &cobra.Command{
		Use:   "send --id ID [--category CATEGORY] [--due TIME]",
		Short: "Publish the record of an order, as checkout does",
		Long: `Publish the record of an order, as checkout does. The order must be in the
database already, with the same due time: otherwise the close does not find it.

Without --due the order is due after the delay of its category, from now on, or as a
rule of topics.yaml says. A time is RFC 3339.`,
		Example: "  orderclose send --id order-17 --category virtual",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if id == "" {
				return Exit(Usage, errors.New("--id is missing"))
			}
			var at time.Time
			if due != "" {
				var err error
				if at, err = time.Parse(time.RFC3339, due); err != nil {
					return Exit(Usage, fmt.Errorf("--due is %q: want a time such as %s", due, text.Stamp(time.Now())))
				}
			}
			return with(c.open(environ.EnvBrokers))(func(s *session) error { return c.send(cmd.Context(), s, id, category, at) })
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "the order's id")
	cmd.Flags().StringVar(&category, "category", "", "its category")
	cmd.Flags().StringVar(&due, "due", "", "when it is due, RFC 3339; default: after its category's delay")
	return cmd
}

func (c *common) send(ctx context.Context, s *session, id, category string, due time.Time) error {
	p, err := producer.New(producer.Options{
		Appender: s.Kafka.Appender, Buckets: s.cfg.Buckets, CloseTopic: s.cfg.Topics.Close, Delays: s.cfg.Delays, MaxDelay: s.cfg.MaxDelay,
		OnUnknownCategory: func(category string) {
			s.logger.Warn("category is not in topics.yaml, using the default delay", "category", category)
		},
	})
	if err != nil {
		return err
	}
	var categories []string
	if category != "" {
		categories = []string{category}
	}
	o := p.OrderWith(id, orderclose.Facts{CreatedAt: time.Now(), Categories: categories})
	o.Category = category
	if !due.IsZero() {
		o.Due, o.Deadline = due, time.Time{}
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
		fmt.Fprintf(w, "%s\tdue %s\t%s\n", o.ID, text.Stamp(o.Due), topic)
	})
}
