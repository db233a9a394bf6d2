package orderclose

import (
	"encoding/json"
	"time"
)

// schedule is the payload of a row of ScheduleOutbox: the value of the record that
// is to be made of it, and the headers that cannot be made of the value.
type schedule struct {
	payload
	Traceparent string `json:"traceparent,omitempty"`
}

// SchedulePayload returns what a row of ScheduleOutbox holds of an order, in JSON.
// Of Record it takes Order and Traceparent. It fails as Encode does.
func (r Record) SchedulePayload() ([]byte, error) {
	p, err := payloadOf(r.Order)
	if err != nil {
		return nil, err
	}
	return inJSON(r.Order, schedule{p, r.Traceparent})
}

// Schedule reads a row of ScheduleOutbox: the record that the producer would have
// sent for its order, and when that is due. The error is a *RecordError.
func (row OutboxRow) Schedule() (m Message, due time.Time, err error) {
	var s schedule
	if err := json.Unmarshal(row.Payload, &s); err != nil {
		return Message{}, time.Time{}, &RecordError{ErrBadValue, err.Error()}
	}
	o, err := s.order(row.OrderID)
	if err != nil {
		return Message{}, time.Time{}, err
	}
	r := Record{Order: o, Release: o.Due, Traceparent: s.Traceparent}
	if r.Traceparent != "" {
		if m, err = r.Encode(); err != nil {
			return Message{}, time.Time{}, &RecordError{ErrBadValue, err.Error()}
		}
		return m, CeilMilli(o.Due), nil
	}
	m = Message{Key: []byte(o.ID), Value: row.Payload} // which is the value as it is
	m.addDue(r.Release)
	return m, CeilMilli(o.Due), nil
}

// TopicAt returns the topic to which a record that is due then belongs now: the
// close topic if it is due already, else a bucket. It is decided anew whenever a
// record is produced. There must be a bucket.
func (bs Buckets) TopicAt(now, due time.Time, closeTopic string) string {
	if remaining := due.Sub(now); remaining > 0 {
		return bs.Pick(remaining).Topic
	}
	return closeTopic
}
