package deadletters

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/orderclose/orderclose/internal/wire"
)

// Position is the position of a dead letter in the dead-letter topic.
type Position struct {
	Partition int
	Offset    int64
}

// String formats the position as commands accept it: 0/17.
func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Partition, p.Offset) }

// MarshalText implements encoding.TextMarshaler.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Position) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePartitionOffset(string(b))
	return err
}

// ParsePartitionOffset parses the output of String.
func ParsePartitionOffset(s string) (Position, error) {
	left, right, ok := strings.Cut(s, "/")
	partition, err1 := strconv.ParseUint(left, 10, 31)
	offset, err2 := strconv.ParseUint(right, 10, 63)
	if !ok || err1 != nil || err2 != nil {
		return Position{}, fmt.Errorf("%q is not the position of a dead letter: want PARTITION/OFFSET, such as 0/17", s)
	}
	return Position{int(partition), int64(offset)}, nil
}

// Source is the position from which the record of a dead letter was read.
type Source struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Letter is a dead letter.
type Letter struct {
	At         Position   `json:"at"`
	AppendedAt time.Time  `json:"buried_at"` // the append time of the dead letter
	Cause      string     `json:"cause"`
	Stage      string     `json:"stage"`
	Detail     string     `json:"detail"`
	Source     Source     `json:"source"`
	Key        string     `json:"key"`             // the order's id, if the record had one
	Order      OrderState `json:"order,omitempty"` // "": not known
	// Record is the original record, without the headers that the dead letter added. It may have been cut.
	Record wire.Message `json:"-"`

	created, due time.Time // of the order, if the record has them: they tell where its row is
}

// Read decodes a record of the dead-letter topic.
func Read(partition int, m wire.Message) Letter {
	header := func(name string) string {
		v, _ := m.Header(name)
		return v
	}
	l := Letter{
		At: Position{partition, m.Offset}, AppendedAt: m.Appended.UTC(), Key: string(m.Key),
		Cause: header(wire.HeaderCause), Stage: header(wire.HeaderStage), Detail: header(wire.HeaderDetail),
		Source: Source{Topic: header(wire.HeaderSourceTopic)},
	}
	// An invalid number becomes 0: only people read it.
	l.Source.Partition, _ = strconv.Atoi(header(wire.HeaderSourcePartition))
	l.Source.Offset, _ = strconv.ParseInt(header(wire.HeaderSourceOffset), 10, 64)
	l.Record = wire.Message{Key: m.Key, Value: m.Value, Headers: wire.WithoutDead(m.Headers)}
	if r, err := l.Record.DecodeWithoutAttributes(); err == nil {
		l.created, l.due = r.Order.CreatedAt, r.Order.Due
	}
	return l
}

// withoutRecord returns the dead letter as a list has it. It takes little memory.
func (l Letter) withoutRecord() Letter {
	l.Record = wire.Message{}
	l.Detail, l.Key = cut(l.Detail, maxText), cut(l.Key, maxText)
	l.Cause, l.Stage, l.Source.Topic = cut(l.Cause, maxName+1), cut(l.Stage, maxName), cut(l.Source.Topic, maxName)
	return l
}

// cut returns at most the first n bytes of s, in memory of their own.
func cut(s string, n int) string {
	return strings.Clone(s[:min(len(s), n)])
}

// cut says which part of the record was cut, or may have been cut, when it became a dead letter. It returns "" if the record is whole.
func (l Letter) cut() string {
	switch {
	case len(l.Record.Key) >= wire.MaxDeadKey:
		return fmt.Sprintf("its key was cut at %d bytes", wire.MaxDeadKey)
	case len(l.Record.Value) >= wire.MaxDeadValue:
		return fmt.Sprintf("its value was cut at %d bytes", wire.MaxDeadValue)
	case len(l.Record.Headers) >= wire.MaxDeadHeaders-1: // one of them may have been a cause header of the record
		return fmt.Sprintf("only the first %d of its headers were kept", wire.MaxDeadHeaders)
	}
	for _, h := range l.Record.Headers {
		if len(h.Key) >= wire.MaxDeadHeader-3 || len(h.Value) >= wire.MaxDeadHeader { // names are cut between runes, up to 3 bytes earlier
			return fmt.Sprintf("its header %.40q was cut at %d bytes", h.Key, wire.MaxDeadHeader)
		}
	}
	return ""
}

// Whole is a dead letter with its record.
type Whole struct {
	Letter
	Headers []Header `json:"headers"`
	// Value is the record's value: JSON if it is valid JSON, or else text. Base64 has the value if it is neither.
	Value        any    `json:"value,omitempty"`
	Base64       []byte `json:"value_base64,omitempty"`
	OrderProblem string `json:"order_problem,omitempty"` // why it is not a valid record of an order
}

// Header is a header of a record, as text.
type Header struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Whole returns the dead letter with its record.
func (l Letter) Whole() Whole {
	w := Whole{Letter: l, Headers: []Header{}}
	for _, h := range l.Record.Headers {
		w.Headers = append(w.Headers, Header{h.Key, string(h.Value)})
	}
	switch value := l.Record.Value; {
	case json.Valid(value):
		w.Value = json.RawMessage(value)
	case utf8.Valid(value):
		w.Value = string(value)
	default:
		w.Base64 = value
	}
	if _, err := l.Record.Decode(); err != nil {
		w.OrderProblem = err.Error()
	}
	return w
}

// Text returns the value for people: text, or base64.
func (w Whole) Text() string {
	switch v := w.Value.(type) {
	case json.RawMessage:
		return string(v)
	case string:
		return v
	}
	return base64.StdEncoding.EncodeToString(w.Base64)
}
