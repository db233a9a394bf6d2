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
	"github.com/orderclose/orderclose/internal/wire"
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

// sendTimeout bounds an append: a person waits for the command.
const sendTimeout = 15 * time.Second

func (c *common) send(ctx context.Context, s *session, id, category string, due time.Time) error {
	facts := orderclose.Facts{CreatedAt: time.Now()}
	if category != "" {
		facts.Categories = []string{category}
	}
	f := s.cfg.Delays.For(facts)
	for _, unknown := range f.Unknown {
		s.logger.Warn("category is not in topics.yaml, using the default delay", "category", unknown)
	}
	o := orderclose.Order{ID: id, Category: category, CreatedAt: facts.CreatedAt, Due: f.Due, Deadline: f.Shown}
	if !due.IsZero() {
		o.Due, o.Deadline = due, time.Time{}
	}
	if orderclose.IsNever(o.Due) { // it has no record
		return c.printSent(sent{ID: o.ID, DueAt: o.Due.UTC()}, orderclose.ValidateID(o.ID))
	}
	err := o.Validate(o.CreatedAt, s.cfg.MaxDelay)
	topic := s.cfg.Buckets.TopicAt(o.CreatedAt, o.Due, s.cfg.Topics.Close)
	if err == nil {
		var m wire.Message
		if m, err = (wire.Record{Order: o, Release: o.Due}).Encode(); err == nil {
			ctx, cancel := context.WithTimeout(ctx, sendTimeout)
			defer cancel()
			err = s.Kafka.Appender.Append(ctx, topic, m)
		}
	}
	return c.printSent(sent{o.ID, o.Due.UTC(), topic}, err)
}

func (c *common) printSent(s sent, err error) error {
	if _, refused := errors.AsType[*orderclose.OrderError](err); refused {
		return Exit(Refused, err)
	}
	return c.answer(s, err, func(w io.Writer) {
		if s.Topic == "" {
			fmt.Fprintf(w, "%s\tis never closed\tnot sent\n", s.ID)
			return
		}
		fmt.Fprintf(w, "%s\tdue %s\t%s\n", s.ID, text.Stamp(s.DueAt), s.Topic)
	})
}
