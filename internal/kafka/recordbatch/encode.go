package recordbatch

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/wire"
)

// NoProducer marks a batch that is not idempotent.
var NoProducer = Sequence{ProducerID: -1, Epoch: -1, Base: -1}

// recordOverhead is the number of bytes of a record before its body: two lengths below 1 MB of up
// to 3 bytes each, attributes and timestamp.
const recordOverhead = 8

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
		size += recordOverhead + len(r.Body)
	}
	if cap(buf) < size {
		buf = make([]byte, 0, size)
	}
	header := kmsg.RecordBatch{ // the broker sets the offset
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(records) - 1), NumRecords: int32(len(records)),
		FirstTimestamp: now.UnixMilli(), MaxTimestamp: now.UnixMilli(),
		ProducerID: by.ProducerID, ProducerEpoch: by.Epoch, FirstSequence: by.Base,
	}
	out := header.AppendTo(buf[:4])
	var number [binary.MaxVarintLen64]byte
	for i, r := range records {
		delta := number[:binary.PutVarint(number[:], int64(i))]
		out = binary.AppendVarint(out, int64(1+1+len(delta)+len(r.Body)))
		out = append(out, 0, 0) // attributes, timestamp delta
		out = append(out, delta...)
		out = append(out, r.Body...)
	}
	batch := out[4:]
	binary.BigEndian.PutUint32(out, uint32(len(batch)))
	binary.BigEndian.PutUint32(batch[atLength:], uint32(len(batch)-atLength-4))
	binary.BigEndian.PutUint32(batch[atCRC:], crc32.Checksum(batch[atAttributes:], castagnoli))
	return out
}
