package wire

import (
	"encoding/json"
	"time"

	"github.com/orderclose/orderclose"
)

// schedule is the payload of a row of ScheduleOutbox: the value of the record to
// publish, and the headers that do not follow from the value.
type schedule struct {
	payload
	Traceparent string `json:"traceparent,omitempty"`
}

// SchedulePayload returns the JSON payload of a row of ScheduleOutbox. It uses only
// Order and Traceparent of r. It fails as Encode does.
func (r Record) SchedulePayload() ([]byte, error) {
	p, err := payloadOf(r.Order)
	if err != nil {
		return nil, err
	}
	return inJSON(r.Order, schedule{p, r.Traceparent})
}

// Schedule decodes a row of ScheduleOutbox. It returns the record that the producer
// would have sent for the order, and its due time. The error is a *RecordError.
func (row OutboxRow) Schedule() (m Message, due time.Time, err error) {
	var s schedule
	if err := json.Unmarshal(row.Payload, &s); err != nil {
		return Message{}, time.Time{}, jsonProblem(row.Payload, err)
	}
	o, err := s.order(row.OrderID)
	if err != nil {
		return Message{}, time.Time{}, err
	}
	o.Attributes = s.Attributes
	r := Record{Order: o, Release: o.Due, Traceparent: s.Traceparent}
	if r.Traceparent != "" {
		if m, err = r.Encode(); err != nil {
			return Message{}, time.Time{}, &RecordError{ErrBadValue, err.Error()}
		}
		return m, orderclose.CeilMilli(o.Due), nil
	}
	m = Message{Key: []byte(o.ID), Value: row.Payload} // the payload is exactly the value
	m.addDue(r.Release)
	return m, orderclose.CeilMilli(o.Due), nil
}
