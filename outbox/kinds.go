package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/tracing"
	"github.com/orderclose/orderclose/internal/wire"
)

// Kind is a kind of outbox rows, and how to make their records. Events and Schedules return
// the two kinds.
type Kind struct {
	// outbox is the table of the rows.
	outbox wire.Outbox
	// span is the name of the span of a row.
	span string
	// keyed: the records of an order keep their order, in the partition of its id.
	keyed bool
	// route returns the record of a row and its topic. It is called for each attempt
	// to publish, from several goroutines. A row for which it returns an error
	// becomes a dead letter.
	route func(row wire.OutboxRow, to send.Sender) (topic string, m wire.Message, err error)
}

// Events returns the kind of the rows for closed orders. The payload is the value of
// the record, and the order's id is its key.
func Events(topic string) Kind {
	return Kind{outbox: wire.EventOutbox, span: tracing.Event, keyed: true, route: func(row wire.OutboxRow, _ send.Sender) (string, wire.Message, error) {
		headers := []wire.Header{{Key: orderclose.HeaderContentType, Value: []byte(orderclose.EventContentType)}}
		if row.Traceparent != "" {
			headers = append(headers, wire.Header{Key: wire.HeaderTraceparent, Value: []byte(row.Traceparent)})
		}
		return topic, wire.Message{Key: []byte(row.OrderID), Value: row.Payload, Headers: headers}, nil
	}}
}

// Scheduling holds what Schedules needs to make the records of orders.
type Scheduling struct {
	Buckets    orderclose.Buckets // shortest first
	CloseTopic string             // for orders that are due already
	// Now is the clock that selects the bucket. Default: time.Now. A wrong clock
	// costs the same as a producer's: more hops or a late close, never an early one.
	Now func() time.Time
}

// errDueTooFar is a cause of dead letters.
var errDueTooFar = errors.New(partition.CauseDueTooFar)

// Schedules returns the kind of the rows that producer.Outbox adds. Each row becomes
// the record that the producer would have sent. The bucket is picked for each attempt
// to publish, so that it suits the remaining time even after an hour without Kafka.
// Schedules calls current for each attempt; its result may change. The maximum delay
// was checked when the row was written, and is not checked again. A row becomes a dead
// letter only if it cannot be decoded, if its due time is more than ten years ahead, or
// if Kafka rejects its record for good.
func Schedules(current func() Scheduling) Kind {
	return Kind{outbox: wire.ScheduleOutbox, span: tracing.Schedule, route: func(row wire.OutboxRow, to send.Sender) (string, wire.Message, error) {
		m, due, err := row.Schedule()
		if err != nil {
			return "", m, err
		}
		s := current()
		now := time.Now()
		if s.Now != nil {
			now = s.Now()
		}
		if ahead := due.Sub(now); wire.BeyondLimit(ahead) {
			return "", m, &wire.RecordError{Reason: errDueTooFar, Detail: fmt.Sprintf(
				"the order is due in %v, the limit is %v", ahead.Round(time.Second), wire.MaxDelayLimit)}
		}
		return send.Accepting(to, s.Buckets, s.Buckets.TopicAt(now, due, s.CloseTopic)), m, nil
	}}
}
