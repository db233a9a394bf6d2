package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
)

// attemptTimeout is how long one attempt may stay unanswered before the topic is
// picked again, since another bucket may suit by then. The attempt may still succeed
// later; the duplicate is harmless.
const attemptTimeout = 5 * time.Second

// Appender appends a record to the partition for its key, and returns when all
// in-sync replicas have it. An error that wraps ErrRefused is final.
type Appender interface {
	Append(ctx context.Context, topic string, m Message) error
}

// Publisher appends the records of orders that are to be closed.
type Publisher struct {
	Appender Appender
	// Topic returns the topic for a record with this due time now. It is called for
	// each attempt.
	Topic func(due time.Time) string
}

// Publish appends the order's record and returns when all in-sync replicas have it.
// After a failure it retries until ctx ends. The error then wraps the cause and the
// last failure, and the record may have been written nevertheless. A record that is
// refused is not retried; the error wraps ErrRefused. An order that cannot be encoded
// is not sent. The caller must validate the order.
func (p Publisher) Publish(ctx context.Context, o orderclose.Order) error {
	m, err := Record{Order: o, Release: o.Due}.Encode()
	if err != nil {
		return err
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 20*time.Millisecond, time.Second
	pauses.Reset()
	for {
		topic := p.Topic(o.Due)
		err := p.try(ctx, topic, m)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrRefused) {
			return fmt.Errorf("schedule order %q: %w", o.ID, err)
		}
		if !retry.Sleep(ctx, pauses.NextBackOff()) {
			return fmt.Errorf("schedule order %q: %w; last attempt: %w", o.ID, context.Cause(ctx), err)
		}
	}
}

// try makes one attempt to append the record.
func (p Publisher) try(ctx context.Context, topic string, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return p.Appender.Append(ctx, topic, m)
}
