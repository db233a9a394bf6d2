package deadletters

import "github.com/orderclose/orderclose/internal/wire"

// Names of the headers of a Resolution.
const (
	HeaderSettles = "settles" // partition/offset of the dead letter
	HeaderSettled = "settled" // a ResolutionKind
)

// ResolutionKind is how an operator resolved a dead letter.
type ResolutionKind string

// The known kinds. Other values may appear in the topic; they resolve a dead letter too.
const (
	Redriven  ResolutionKind = "redriven"  // the record was sent again
	Discarded ResolutionKind = "discarded" // the record is not needed
)

// Resolution says that a dead letter was redriven or discarded. It is a record of the
// dead-letter topic, in the partition of the dead letter and behind it. A dead letter without
// a resolution is pending. Several resolutions of one dead letter count as one.
type Resolution struct {
	Partition int
	Offset    int64
	How       ResolutionKind
}

// Encode returns the record of the resolution. Its key is the dead letter's key, so that a
// search for an order finds both. The value is empty but not null: in a compacted
// topic null would delete the dead letter.
func (m Resolution) Encode(key []byte) wire.Message {
	return wire.Message{Key: key, Value: []byte{}, Headers: []wire.Header{
		{Key: HeaderSettles, Value: []byte(Position{m.Partition, m.Offset}.String())}, {Key: HeaderSettled, Value: []byte(m.How)}}}
}

// DecodeResolution decodes a resolution. ok is false if m is not a resolution. A record with a
// source-offset header is always a dead letter, whatever other headers it has.
func DecodeResolution(m *wire.Message) (resolution Resolution, ok bool) {
	settles, _ := m.Header(HeaderSettles)
	if _, dead := m.Header(wire.HeaderSourceOffset); dead {
		return Resolution{}, false
	}
	how, _ := m.Header(HeaderSettled)
	resolution.How = ResolutionKind(how)
	at, err := ParsePartitionOffset(settles)
	resolution.Partition, resolution.Offset = at.Partition, at.Offset
	return resolution, err == nil
}
