package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/orderclose/orderclose"
)

// WireVersion is the version of the record format that this code writes, and the only
// version that it reads. docs/wire.md describes the format.
const WireVersion = "1"

// Names of the headers of a record. docs/wire.md describes each.
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

// LaneReplay is the value of the lane header on copies: records that a person has sent again.
const LaneReplay = "replay"

// Record is an order in a Kafka record.
type Record struct {
	Order orderclose.Order
	// Release is when this record is to reach the close topic: the order's due time,
	// or the time of a retry. It is encoded in milliseconds and rounded up, so that
	// rounding never makes a record early.
	Release     time.Time
	Traceparent string // W3C trace context, "" if there is none
	Attempt     int    // number of failed attempts
	Cause       string // cause of the last failure
	NotDue      int    // how often the order was not due when this record was handled, for the same due time
	Lane        string // "" or LaneReplay
	// PendingSince is when the close was first deferred because the payment provider
	// could not answer; zero if it never was. Precision: milliseconds.
	PendingSince time.Time
	Origin       Origin // coordinates of the first record of this order that failed
}

// Origin holds the coordinates of a record. An empty Topic means that they are
// unknown.
type Origin struct {
	Topic     string
	Partition int
	Offset    int64
}

// payload is the value of a record, in JSON so that any language can write it.
type payload struct {
	identity
	Attributes attributes `json:"attributes,omitempty"`
}

// identity is a payload without its attributes.
type identity struct {
	OrderID   string `json:"order_id"`
	Category  string `json:"category"`
	CreatedAt string `json:"created_at"`
	DueAt     string `json:"due_at"`
	// DeadlineAt is left out if it is DueAt, or not known. No stage uses it, so any value is accepted.
	DeadlineAt optionalText `json:"deadline_at,omitempty"`
}

// optionalText is text in JSON. Any other value is accepted and left out, without decoding it: a list would take many times its bytes.
type optionalText string

func (t *optionalText) UnmarshalJSON(b []byte) error {
	*t = ""
	if b[0] != '"' {
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// attributes keeps numbers as written. A retry decodes a record and encodes it again,
// and float64 would change 64-bit ids.
type attributes map[string]any

func (a *attributes) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode((*map[string]any)(a))
}

// rfc3339 formats t in UTC with milliseconds.
func rfc3339(t time.Time) (string, error) {
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return "", fmt.Errorf("created_at or due is in the year %d: were milliseconds taken for seconds?", y)
	}
	return t.Format("2006-01-02T15:04:05.000Z07:00"), nil
}

// payloadOf returns the record value of an order.
func payloadOf(o orderclose.Order) (payload, error) {
	created, err1 := rfc3339(o.CreatedAt)
	due, err2 := rfc3339(orderclose.CeilMilli(o.Due))
	if err := errors.Join(err1, err2); err != nil {
		return payload{}, fmt.Errorf("order %q: %w", o.ID, err)
	}
	p := payload{identity{OrderID: o.ID, Category: o.Category, CreatedAt: created, DueAt: due}, o.Attributes}
	if !o.Deadline.IsZero() && !o.Deadline.Equal(o.Due) {
		deadline, err := rfc3339(o.Deadline)
		if err != nil {
			return payload{}, fmt.Errorf("order %q: deadline_at: %w", o.ID, err)
		}
		p.DeadlineAt = optionalText(deadline)
	}
	return p, nil
}

// inJSON encodes value, which contains the attributes of o.
func inJSON(o orderclose.Order, value any) ([]byte, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("order %q: its attributes cannot be written as JSON: %w", o.ID, err)
	}
	return b, nil
}

// Encode returns the key, value and headers of r. It fails if the attributes cannot
// be encoded as JSON, or a time as RFC 3339.
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

// addDue adds the two headers that every record has.
func (m *Message) addDue(release time.Time) {
	m.add(HeaderDue, strconv.FormatInt(orderclose.CeilMilli(release).UnixMilli(), 10))
	m.add(HeaderVersion, WireVersion)
}

func (m *Message) add(key, value string) {
	if value != "" {
		m.Headers = append(m.Headers, Header{key, []byte(value)})
	}
}

// SetHeader replaces the value of each header with that name. It adds none.
func (m *Message) SetHeader(key, value string) {
	for i := range m.Headers {
		if m.Headers[i].Key == key {
			m.Headers[i].Value = []byte(value)
		}
	}
}

// Header returns the value of the last header with that name, as Kafka clients do.
func (m *Message) Header(key string) (value string, ok bool) {
	for i := len(m.Headers) - 1; i >= 0; i-- {
		if m.Headers[i].Key == key {
			return string(m.Headers[i].Value), true
		}
	}
	return "", false
}

// Reasons why a record is unreadable. Their texts are the causes of dead letters.
var (
	ErrNoKey       = errors.New("no_key")
	ErrBadVersion  = errors.New("bad_version")
	ErrBadDue      = errors.New("bad_due")
	ErrBadValue    = errors.New("bad_value")
	ErrBadHeader   = errors.New("bad_header")
	ErrKeyMismatch = errors.New("key_mismatch")
	ErrMalformed   = errors.New("malformed") // the bytes are not a record of Kafka
)

// Reasons returns all reasons why a record is unreadable.
func Reasons() []error {
	return []error{ErrNoKey, ErrBadVersion, ErrBadDue, ErrBadValue, ErrBadHeader, ErrKeyMismatch, ErrMalformed}
}

// RecordError says why a record is unreadable.
type RecordError struct {
	Reason error // one of the Err values above
	Detail string
}

func (e *RecordError) Error() string { return e.Reason.Error() + ": " + e.Detail }

// Unwrap returns the reason.
func (e *RecordError) Unwrap() error { return e.Reason }

// Due returns the release time in the due header. It checks what a relay needs,
// without reading the value: the key, the version and the due header. The error is a
// *RecordError.
func (m *Message) Due() (time.Time, error) {
	if len(m.Key) == 0 {
		return time.Time{}, &RecordError{ErrNoKey, "the key must be the order id"}
	}
	if v, _ := m.Header(HeaderVersion); v != WireVersion {
		return time.Time{}, m.headerProblem(ErrBadVersion, HeaderVersion, strconv.Quote(WireVersion))
	}
	due, _ := m.Header(HeaderDue)
	ms, err := strconv.ParseInt(due, 10, 64)
	if err != nil {
		return time.Time{}, m.headerProblem(ErrBadDue, HeaderDue, wantMillis)
	}
	return time.UnixMilli(ms), nil
}

// Decode decodes the whole record. The error is a *RecordError.
func (m *Message) Decode() (Record, error) {
	var p payload
	r, err := m.decode(&p, &p.identity)
	if err == nil {
		r.Order.Attributes = p.Attributes
	}
	return r, err
}

// DecodeWithoutAttributes is Decode for a caller that does not use the order's attributes: they are
// checked and left out, which takes a fraction of the time and memory.
func (m *Message) DecodeWithoutAttributes() (Record, error) {
	type payload struct {
		identity
		Attributes unused `json:"attributes"`
	}
	var p payload
	return m.decode(&p, &p.identity)
}

// unused is the attributes of a payload, checked and not decoded.
type unused struct{}

func (*unused) UnmarshalJSON(b []byte) error {
	if b[0] == '{' || b[0] == 'n' { // an object or null; the library has checked the rest
		return nil
	}
	return new(attributes).UnmarshalJSON(b)
}

// decode decodes the record. It decodes the value into payload, of which id is a part.
func (m *Message) decode(payload any, id *identity) (Record, error) {
	release, err := m.Due()
	if err != nil {
		return Record{}, err
	}
	if err := json.Unmarshal(m.Value, payload); err != nil {
		return Record{}, jsonProblem(m.Value, err)
	}
	r := Record{Release: release}
	if r.Order, err = id.order(string(m.Key)); err != nil {
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
	if since, err := m.number(HeaderPendingSince, 63, wantMillis); err != nil {
		return Record{}, err
	} else if since > 0 {
		r.PendingSince = time.UnixMilli(since)
	}
	r.Origin, err = m.origin()
	return r, err
}

// order returns the order without its attributes, and checks that it belongs to the record's key.
// The error is a *RecordError.
func (p identity) order(key string) (o orderclose.Order, err error) {
	o = orderclose.Order{ID: p.OrderID, Category: p.Category}
	if o.CreatedAt, err = time.Parse(time.RFC3339, p.CreatedAt); err != nil {
		return orderclose.Order{}, timeProblem("created_at", p.CreatedAt)
	}
	if o.Due, err = time.Parse(time.RFC3339, p.DueAt); err != nil {
		return orderclose.Order{}, timeProblem("due_at", p.DueAt)
	}
	o.Deadline, _ = time.Parse(time.RFC3339, string(p.DeadlineAt))
	if p.OrderID != key {
		return orderclose.Order{}, keyProblem(key, p.OrderID)
	}
	if err := orderclose.ValidateID(p.OrderID); err != nil {
		return orderclose.Order{}, &RecordError{ErrBadValue, "order_id: " + err.Error()}
	}
	return o, nil
}

// origin returns the coordinates of the first record that failed.
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

// count parses a header that holds a count. It returns 0 if the header is missing.
func (m *Message) count(key string) (int, error) {
	n, err := m.number(key, 31, "a count")
	return int(n), err
}

// number parses a header that holds a non-negative number of at most the given bits.
// It returns 0 if the header is missing.
func (m *Message) number(key string, bits int, want string) (int64, error) {
	v, ok := m.Header(key)
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, bits)
	if err != nil {
		return 0, m.headerProblem(ErrBadHeader, key, want)
	}
	return int64(n), nil
}

// Truncate returns at most the first n bytes of s, without splitting a rune.
func Truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
