package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"orderclose"
)

// Where else things stand in the header of a record batch; batch.go has the rest.
const (
	atFirstTimestamp = 27
	atProducerID     = 43
	atProducerEpoch  = 51
	atBaseSequence   = 53
)

// noProducer is the producer id, epoch and sequence of a batch that is not
// produced idempotently.
var noProducer = sequenced{id: -1, epoch: -1, base: -1}

// sequenced is what makes a batch recognisable when it is sent again.
type sequenced struct {
	id    int64
	epoch int16
	base  int32
}

// splice makes one record batch of the records, stamped now, and puts the size
// that a produce request wants before it. The bodies are copied byte for byte;
// only what Kafka counts per batch is written anew: length, timestamp and offset
// deltas. No compression; one copy, and one pass for the checksum. The batch is
// written over what is in buf, if that is large enough.
func splice(buf []byte, records []orderclose.RawRecord, now time.Time, by sequenced) []byte {
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
func seal(b []byte, records int, now int64, by sequenced) {
	binary.BigEndian.PutUint64(b, 0) // base offset: the broker's to set
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-atLength-4))
	binary.BigEndian.PutUint32(b[atLength+4:], ^uint32(0)) // leader epoch: -1
	b[atMagic] = 2
	binary.BigEndian.PutUint16(b[atAttributes:], 0)
	binary.BigEndian.PutUint32(b[atLastDelta:], uint32(records-1))
	binary.BigEndian.PutUint64(b[atFirstTimestamp:], uint64(now))
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(now))
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(by.id))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(by.epoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(by.base))
	binary.BigEndian.PutUint32(b[atCount:], uint32(records))
	binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttributes:], castagnoli))
}

// recordSize bounds what a record with a body of n bytes takes in a batch of so
// many records.
func recordSize(n, records int) int {
	delta := varintSize(int64(records))
	return varintSize(int64(2+delta+n)) + 2 + delta + n
}

// varintSize is how many bytes a zigzag-encoded number takes.
func varintSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
