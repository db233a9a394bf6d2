package deadletters

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"orderclose"
)

// Place is where a dead letter lies in the dead-letter topic.
type Place struct {
	Partition int
	Offset    int64
}

// String writes it as people give it: 0/17.
func (p Place) String() string { return fmt.Sprintf("%d/%d", p.Partition, p.Offset) }

// MarshalText implements encoding.TextMarshaler.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Place) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePlace(string(b))
	return err
}

// ParsePlace reads what String wrote.
func ParsePlace(s string) (Place, error) {
	partition, offset, ok := orderclose.ParsePlace(s)
	if !ok {
		return Place{}, fmt.Errorf("%q is no place of a dead letter: want PARTITION/OFFSET, such as 0/17", s)
	}
	return Place{partition, offset}, nil
}

// Source is where the record of a dead letter lay.
type Source struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Letter is a dead letter.
type Letter struct {
	At     Place                 `json:"at"`
	Buried time.Time             `json:"buried_at"` // when it came to the topic
	Cause  string                `json:"cause"`
	Stage  string                `json:"stage"`
	Detail string                `json:"detail"`
	Source Source                `json:"source"`
	Key    string                `json:"key"`               // the order's id, as far as its record had one
	Settle orderclose.Settlement `json:"settled,omitempty"` // "" while pending
	// Record is the record as it came, at most cut, without what the dead letter
	// added to it.
	Record orderclose.Message `json:"-"`
}

// added are the headers that a dead letter has beside those of its record.
var added = []string{
	orderclose.HeaderCause, orderclose.HeaderDetail, orderclose.HeaderStage,
	orderclose.HeaderSourceTopic, orderclose.HeaderSourcePartition, orderclose.HeaderSourceOffset,
}

// Read takes a record of the dead-letter topic apart that is no mark.
func Read(partition int, m orderclose.Message) Letter {
	header := func(name string) string {
		v, _ := m.Header(name)
		return v
	}
	l := Letter{
		At: Place{partition, m.Offset}, Buried: m.Appended.UTC(), Key: string(m.Key),
		Cause: header(orderclose.HeaderCause), Stage: header(orderclose.HeaderStage), Detail: header(orderclose.HeaderDetail),
		Source: Source{Topic: header(orderclose.HeaderSourceTopic)},
	}
	// Numbers that cannot be read stay zero: they are for people.
	l.Source.Partition, _ = strconv.Atoi(header(orderclose.HeaderSourcePartition))
	l.Source.Offset, _ = strconv.ParseInt(header(orderclose.HeaderSourceOffset), 10, 64)
	l.Record = orderclose.Message{Key: m.Key, Value: m.Value, Headers: slices.DeleteFunc(m.Headers, func(h orderclose.Header) bool {
		return slices.Contains(added, h.Key)
	})}
	return l
}

// cut says what of the record was cut when it became a dead letter, or may have
// been: "" if nothing.
func (l Letter) cut() string {
	switch {
	case len(l.Record.Key) >= orderclose.MaxDeadKey:
		return fmt.Sprintf("its key was cut at %d bytes", orderclose.MaxDeadKey)
	case len(l.Record.Value) >= orderclose.MaxDeadValue:
		return fmt.Sprintf("its value was cut at %d bytes", orderclose.MaxDeadValue)
	case len(l.Record.Headers) >= orderclose.MaxDeadHeaders-1: // one may have been its cause
		return fmt.Sprintf("of its headers only the first %d were kept", orderclose.MaxDeadHeaders)
	}
	for _, h := range l.Record.Headers {
		if len(h.Key) >= orderclose.MaxDeadHeader-3 || len(h.Value) >= orderclose.MaxDeadHeader { // names are cut between runes
			return fmt.Sprintf("its header %.40q was cut at %d bytes", h.Key, orderclose.MaxDeadHeader)
		}
	}
	return ""
}
