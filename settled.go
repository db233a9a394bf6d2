package orderclose

import (
	"fmt"
	"strconv"
	"strings"
)

// Names of the headers of a Mark.
const (
	HeaderSettles = "settles" // partition/offset of the dead letter
	HeaderSettled = "settled" // a Settlement
)

// Settlement is what somebody did about a dead letter.
type Settlement string

// The settlements. Other words may come; they settle all the same.
const (
	Redriven  Settlement = "redriven"  // it was sent again
	Discarded Settlement = "discarded" // nobody needs it
)

// Mark says that a dead letter waits for nobody any more. It is a record of the
// dead-letter topic itself, in the partition of the dead letter and behind it;
// dead letters without a mark are pending. Several marks of one are as good as
// one.
type Mark struct {
	Partition int
	Offset    int64
	How       Settlement
}

// Encode returns the mark's record. The key is that of the dead letter, so that
// whoever looks for an order finds both. The value is empty and not null: where
// a topic is compacted null would delete.
func (m Mark) Encode(key []byte) Message {
	mark := Message{Key: key, Value: []byte{}}
	mark.add(HeaderSettles, fmt.Sprintf("%d/%d", m.Partition, m.Offset))
	mark.add(HeaderSettled, string(m.How))
	return mark
}

// ReadMark reads a record of the dead-letter topic that is a mark; ok is false of
// any other. What has the coordinates of a source is a dead letter, whatever
// other headers its record came with.
func ReadMark(m *Message) (mark Mark, ok bool) {
	settles, _ := m.Header(HeaderSettles)
	if _, dead := m.Header(HeaderSourceOffset); dead {
		return Mark{}, false
	}
	how, _ := m.Header(HeaderSettled)
	mark.How = Settlement(how)
	mark.Partition, mark.Offset, ok = ParsePlace(settles)
	return mark, ok
}

// ParsePlace reads partition/offset, both in decimal.
func ParsePlace(s string) (partition int, offset int64, ok bool) {
	left, right, ok := strings.Cut(s, "/")
	p, err1 := strconv.ParseUint(left, 10, 31)
	o, err2 := strconv.ParseUint(right, 10, 63)
	return int(p), int64(o), ok && err1 == nil && err2 == nil
}
