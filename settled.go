package orderclose

import (
	"fmt"
	"strconv"
	"strings"
)

// Names of the headers of a Mark.
const (
	HeaderSettles = "settles" // partition/offset of the dead letter
	HeaderSettled = "settled" // a Resolution
)

// Resolution is how an operator settled a dead letter.
type Resolution string

// The known settlements. Other values may appear in the topic; they settle a dead
// letter too.
const (
	Redriven  Resolution = "redriven"  // the record was sent again
	Discarded Resolution = "discarded" // the record is not needed
)

// Mark settles a dead letter. It is a record of the dead-letter topic, in the
// partition of the dead letter and behind it. A dead letter without a mark is
// pending. Several marks of one dead letter count as one.
type Mark struct {
	Partition int
	Offset    int64
	How       Resolution
}

// Encode returns the record of the mark. Its key is the dead letter's key, so that a
// search for an order finds both. The value is empty but not null: in a compacted
// topic null would delete the dead letter.
func (m Mark) Encode(key []byte) Message {
	mark := Message{Key: key, Value: []byte{}}
	mark.add(HeaderSettles, fmt.Sprintf("%d/%d", m.Partition, m.Offset))
	mark.add(HeaderSettled, string(m.How))
	return mark
}

// ReadMark decodes a mark. ok is false if m is not a mark. A record with a
// source-offset header is always a dead letter, whatever other headers it has.
func ReadMark(m *Message) (mark Mark, ok bool) {
	settles, _ := m.Header(HeaderSettles)
	if _, dead := m.Header(HeaderSourceOffset); dead {
		return Mark{}, false
	}
	how, _ := m.Header(HeaderSettled)
	mark.How = Resolution(how)
	mark.Partition, mark.Offset, ok = ParsePartitionOffset(settles)
	return mark, ok
}

// ParsePartitionOffset parses "partition/offset", both in decimal.
func ParsePartitionOffset(s string) (partition int, offset int64, ok bool) {
	left, right, ok := strings.Cut(s, "/")
	p, err1 := strconv.ParseUint(left, 10, 31)
	o, err2 := strconv.ParseUint(right, 10, 63)
	return int(p), int64(o), ok && err1 == nil && err2 == nil
}
