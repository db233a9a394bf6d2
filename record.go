package orderclose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// WireVersion is the version of the record format that this code writes, and the
// only one it reads. docs/wire.md describes it.
const WireVersion = "1"

// Names of the headers of a record; docs/wire.md says what each means.
const (
	HeaderDue         = "due"
	HeaderVersion     = "v"
	HeaderTraceparent = "traceparent"
	HeaderAttempt     = "attempt"
	HeaderCause       = "cause"
	HeaderNotDue      = "notdue"
	HeaderLane        = "lane"

	HeaderPendingSince    = "pending-since"
	HeaderOriginTopic     = "origin-topic"
	HeaderOriginPartition = "origin-partition"
	HeaderOriginOffset    = "origin-offset"
)

// LaneReplay is the value of the lane header on records that were sent again by
// hand.
const LaneReplay = "replay"

// Record is an order on its way through Kafka.
type Record struct {
	Order Order
	// Release is when this record is to reach the close topic: the order's due
	// time, or the moment of a retry. Milliseconds; rounded up, so that rounding
	// never makes anything early.
	Release     time.Time
	Traceparent string // W3C trace context, "" without
	Attempt     int    // failed tries so far
	Cause       string // why the last one failed
	NotDue      int    // how often it came too soon for the same due
	Lane        string // "" or LaneReplay
	// PendingSince is when closing it was first put off because the payment provider
	// could not say; zero if it never was. Milliseconds.
	PendingSince time.Time
	Origin       Origin // of its record that failed first
}

// Origin is where a record lay. Without a topic it is not known.
type Origin struct {
	Topic     string
	Partition int
	Offset    int64
}

// payload is the record's value: JSON, so that any language can write it.
type payload struct {
	OrderID    string     `json:"order_id"`
	Category   string     `json:"category"`
	CreatedAt  string     `json:"created_at"`
	DueAt      string     `json:"due_at"`
	Attributes attributes `json:"attributes,omitempty"`
}

// attributes keeps numbers as they are written: a retry reads a record and
// writes it again, and a float64 would change the ids of 64 bits in it.
type attributes map[string]any

func (a *attributes) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode((*map[string]any)(a))
}

// rfc3339 writes t in UTC, with milliseconds.
func rfc3339(t time.Time) (string, error) {
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return "", fmt.Errorf("its created_at or due lies in the year %d: milliseconds taken for seconds?", y)
	}
	return t.Format("2006-01-02T15:04:05.000Z07:00"), nil
}

// payloadOf is what a record's value says of an order.
func payloadOf(o Order) (payload, error) {
	created, err1 := rfc3339(o.CreatedAt)
	due, err2 := rfc3339(CeilMilli(o.Due))
	if err := errors.Join(err1, err2); err != nil {
		return payload{}, fmt.Errorf("order %q: %w", o.ID, err)
	}
	return payload{OrderID: o.ID, Category: o.Category, CreatedAt: created, DueAt: due, Attributes: o.Attributes}, nil
}

// inJSON writes a value, or what there is in its place.
func inJSON(o Order, value any) ([]byte, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("order %q: its attributes cannot be written as JSON: %w", o.ID, err)
	}
	return b, nil
}

// Encode returns the key, value and headers of r. It fails if the attributes
// cannot be written as JSON, or a time not as RFC 3339.
func (r Record) Encode() (Message, error) {
	o := r.Order
	p, err := payloadOf(o)
	if err != nil {
		return Message{}, err
	}
	value, err := inJSON(o, p)
	if err != nil {
		return Message{}, err
	}
	m := Message{Key: []byte(o.ID), Value: value}
	m.addDue(r.Release)
	m.add(HeaderTraceparent, r.Traceparent)
	if r.Attempt > 0 {
		m.add(HeaderAttempt, strconv.Itoa(r.Attempt))
	}
	m.add(HeaderCause, r.Cause)
	if r.NotDue > 0 {
		m.add(HeaderNotDue, strconv.Itoa(r.NotDue))
	}
	m.add(HeaderLane, r.Lane)
	if !r.PendingSince.IsZero() {
		m.add(HeaderPendingSince, strconv.FormatInt(r.PendingSince.UnixMilli(), 10))
	}
	if r.Origin.Topic != "" {
		m.add(HeaderOriginTopic, r.Origin.Topic)
		m.add(HeaderOriginPartition, strconv.Itoa(r.Origin.Partition))
		m.add(HeaderOriginOffset, strconv.FormatInt(r.Origin.Offset, 10))
	}
	return m, nil
}

// addDue adds the headers that every record has.
func (m *Message) addDue(release time.Time) {
	m.add(HeaderDue, strconv.FormatInt(CeilMilli(release).UnixMilli(), 10))
	m.add(HeaderVersion, WireVersion)
}

func (m *Message) add(key, value string) {
	if value != "" {
		m.Headers = append(m.Headers, Header{key, []byte(value)})
	}
}

// Header returns the value of the last header of that name, as Kafka clients do.
func (m *Message) Header(key string) (value string, ok bool) {
	for i := len(m.Headers) - 1; i >= 0; i-- {
		if m.Headers[i].Key == key {
			return string(m.Headers[i].Value), true
		}
	}
	return "", false
}

// What can be wrong with a record. Their texts are the causes of dead letters.
var (
	ErrNoKey       = errors.New("no_key")
	ErrBadVersion  = errors.New("bad_version")
	ErrBadDue      = errors.New("bad_due")
	ErrBadValue    = errors.New("bad_value")
	ErrBadHeader   = errors.New("bad_header")
	ErrKeyMismatch = errors.New("key_mismatch")
)

// RecordError says what makes a record unreadable.
type RecordError struct {
	Reason error // one of the Err values above
	Detail string
}

func (e *RecordError) Error() string { return e.Reason.Error() + ": " + e.Detail }

// Unwrap returns the reason.
func (e *RecordError) Unwrap() error { return e.Reason }

// Due reads from m what a relay needs, without looking into its value: that it
// has a key, a version that this code knows, and when it is to be released. The
// error is a *RecordError.
func (m *Message) Due() (time.Time, error) {
	if len(m.Key) == 0 {
		return time.Time{}, &RecordError{ErrNoKey, "the key must be the order id"}
	}
	if v, _ := m.Header(HeaderVersion); v != WireVersion {
		return time.Time{}, &RecordError{ErrBadVersion, fmt.Sprintf("header v is %q, want %q", cut(v, 32), WireVersion)}
	}
	due, _ := m.Header(HeaderDue)
	ms, err := strconv.ParseInt(due, 10, 64)
	if err != nil {
		return time.Time{}, &RecordError{ErrBadDue, fmt.Sprintf("header due is %q, want unix milliseconds", cut(due, 32))}
	}
	return time.UnixMilli(ms), nil
}

// Decode reads a whole record. The error is a *RecordError.
func (m *Message) Decode() (Record, error) {
	release, err := m.Due()
	if err != nil {
		return Record{}, err
	}
	var p payload
	if err := json.Unmarshal(m.Value, &p); err != nil {
		return Record{}, &RecordError{ErrBadValue, err.Error()}
	}
	r := Record{Release: release}
	if r.Order, err = p.order(string(m.Key)); err != nil {
		return Record{}, err
	}
	if r.Attempt, err = m.count(HeaderAttempt); err != nil {
		return Record{}, err
	}
	if r.NotDue, err = m.count(HeaderNotDue); err != nil {
		return Record{}, err
	}
	r.Traceparent, _ = m.Header(HeaderTraceparent)
	r.Cause, _ = m.Header(HeaderCause)
	r.Lane, _ = m.Header(HeaderLane)
	if since, err := m.number(HeaderPendingSince, 63, "unix milliseconds"); err != nil {
		return Record{}, err
	} else if since > 0 {
		r.PendingSince = time.UnixMilli(since)
	}
	r.Origin, err = m.origin()
	return r, err
}

// order is the order that a value tells of, under the key that it came with. The
// error is a *RecordError.
func (p payload) order(key string) (o Order, err error) {
	o = Order{ID: p.OrderID, Category: p.Category, Attributes: p.Attributes}
	if o.CreatedAt, err = time.Parse(time.RFC3339, p.CreatedAt); err != nil {
		return Order{}, &RecordError{ErrBadValue, fmt.Sprintf("created_at is %q, want RFC 3339", cut(p.CreatedAt, 40))}
	}
	if o.Due, err = time.Parse(time.RFC3339, p.DueAt); err != nil {
		return Order{}, &RecordError{ErrBadValue, fmt.Sprintf("due_at is %q, want RFC 3339", cut(p.DueAt, 40))}
	}
	if p.OrderID != key {
		return Order{}, &RecordError{ErrKeyMismatch, fmt.Sprintf("the key is %q and order_id %q", cut(key, MaxIDBytes), cut(p.OrderID, MaxIDBytes))}
	}
	if err := ValidateID(p.OrderID); err != nil {
		return Order{}, &RecordError{ErrBadValue, err.Error()}
	}
	return o, nil
}

// origin reads where the record that failed first lay.
func (m *Message) origin() (o Origin, err error) {
	o.Topic, _ = m.Header(HeaderOriginTopic)
	if o.Topic == "" {
		return Origin{}, nil
	}
	if o.Partition, err = m.count(HeaderOriginPartition); err != nil {
		return Origin{}, err
	}
	if o.Offset, err = m.number(HeaderOriginOffset, 63, "an offset"); err != nil {
		return Origin{}, err
	}
	return o, nil
}

// count reads a header that counts something; absent is 0.
func (m *Message) count(key string) (int, error) {
	n, err := m.number(key, 31, "a count")
	return int(n), err
}

// number reads a header that is a number of so many bits, not negative; absent is
// 0.
func (m *Message) number(key string, bits int, want string) (int64, error) {
	v, ok := m.Header(key)
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, bits)
	if err != nil {
		return 0, &RecordError{ErrBadHeader, fmt.Sprintf("header %s is %q, want %s", key, cut(v, 32), want)}
	}
	return int64(n), nil
}

// CeilMilli rounds t up to the next whole millisecond.
func CeilMilli(t time.Time) time.Time {
	if down := t.Truncate(time.Millisecond); !down.Equal(t) {
		return down.Add(time.Millisecond)
	}
	return t
}
