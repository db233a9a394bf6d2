package recordbatch

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// More fields in the header of a record batch; see also split.go.
const (
	atFirstTimestamp = 27
	atProducerID     = 43
	atProducerEpoch  = 51
	atBaseSequence   = 53
)

// NoProducer marks a batch that is not idempotent.
var NoProducer = Sequence{ProducerID: -1, Epoch: -1, Base: -1}

// Sequence identifies a batch, so that the broker recognises a retry.
type Sequence struct {
	ProducerID int64
	Epoch      int16
	Base       int32
}

// Encode makes one record batch of the records, with the timestamp now, and prepends its
// size, as a produce request needs it. The bodies are copied byte for byte. Only the fields
// that depend on the batch are new: lengths, timestamps, offset deltas and the checksum. The
// batch is not compressed. It costs one copy and one pass for the checksum. Encode writes
// the batch into buf if it is large enough.
func Encode(buf []byte, records []wire.RawRecord, now time.Time, by Sequence) []byte {
	size := 4 + headerSize
	for _, r := range records {
		size += recordSize(len(r.Body), len(records))
	}
	if cap(buf) < size {
		buf = make([]byte, 0, size)
	}
	out := buf[:4+headerSize]
	for i, r := range records {
		delta := int64(i)
		out = binary.AppendVarint(out, int64(1+1+varintSize(delta)+len(r.Body)))
		out = append(out, 0, 0) // attributes, timestamp delta
		out = binary.AppendVarint(out, delta)
		out = append(out, r.Body...)
	}
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	seal(out[4:], len(records), now.UnixMilli(), by)
	return out
}

// seal writes the header of a batch whose records are in place.
func seal(b []byte, records int, now int64, by Sequence) {
	binary.BigEndian.PutUint64(b, 0) // base offset: set by the broker
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-atLength-4))
	binary.BigEndian.PutUint32(b[atLength+4:], ^uint32(0)) // leader epoch: -1
	b[atMagic] = 2
	binary.BigEndian.PutUint16(b[atAttributes:], 0)
	binary.BigEndian.PutUint32(b[atLastDelta:], uint32(records-1))
	binary.BigEndian.PutUint64(b[atFirstTimestamp:], uint64(now))
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(now))
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(by.ProducerID))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(by.Epoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(by.Base))
	binary.BigEndian.PutUint32(b[atCount:], uint32(records))
	binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttributes:], castagnoli))
}

// recordSize returns the most bytes that a record with a body of n bytes takes in a batch of
// the given number of records.
func recordSize(n, records int) int {
	delta := varintSize(int64(records))
	return varintSize(int64(2+delta+n)) + 2 + delta + n
}

// varintSize returns the number of bytes of a zigzag-encoded number.
func varintSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
