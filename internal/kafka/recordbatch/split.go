package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/wire"
)

// Positions in a record batch, magic 2, of what is read before, or written after, the whole header.
const (
	atLength     = 8
	atCRC        = 17
	atAttributes = 21 // the checksum covers the batch from here on
	headerSize   = 61
)

// Bits of the attributes.
const (
	compressionBits  = 0x07
	logAppendTimeBit = 0x08
	controlBit       = 0x20
)

const (
	// maxInflated bounds the size of a batch after decompression, in bytes. Brokers accept
	// batches of 1 MB by default; more than thirty times that is a decompression bomb.
	maxInflated = 32 << 20
	// answerInflated bounds the total size after decompression of all batches of one answer
	// but the first, in bytes. Batches beyond it are fetched again.
	answerInflated = 8 << 20
)

// maxLastDelta bounds the last offset delta in a header: a larger one is damaged.
const maxLastDelta = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Split finds the records from the given offset on in the record batches of a fetch,
// and appends them to records. It neither decodes nor copies a record, but it decompresses
// batches. Split stops at the first batch that cannot be read and reports it in
// Corrupt. It leaves a batch that is cut off at the end to the next fetch. end is the end
// of the log: a batch whose base offset is not below it is corrupt.
func Split(b []byte, offset, end int64, records []wire.RawRecord) wire.Fetched {
	f := wire.Fetched{Next: offset, Records: records, Log: wire.LogID{Epoch: -1}}
	room := maxInflated
	for first := true; len(b) >= headerSize && f.Corrupt == nil; first = false {
		size := atLength + 4 + int(int32(binary.BigEndian.Uint32(b[atLength:])))
		if size > len(b) && !first {
			return f
		}
		if size < headerSize || size > len(b) { // a broker sends the first batch whole
			f.Corrupt = &wire.Range{First: f.Next, Last: f.Next, Err: fmt.Errorf("batch length is %d bytes, but the answer has %d", size, len(b))}
			f.Next++
			return f
		}
		inflated, ok := splitBatch(b[:size], b[size:], end, room, &f)
		if !ok {
			return f
		}
		if first {
			room = answerInflated
		} else {
			room -= inflated
		}
		b = b[size:]
	}
	return f
}

// splitBatch adds the records of one whole batch, b, to f. rest is what follows the batch.
// room is how many bytes the batch may have after decompression. If the batch is larger, and
// room is less than maxInflated, ok is false and f is unchanged: the batch is fetched again. If
// it is larger than maxInflated, it is corrupt. inflated is the size of the batch after
// decompression, or 0 if it is not compressed.
func splitBatch(b, rest []byte, end int64, room int, f *wire.Fetched) (inflated int, ok bool) {
	var batch kmsg.RecordBatch
	_ = batch.UnsafeReadFrom(b) // Split has checked the length
	base, delta := batch.FirstOffset, int64(batch.LastOffsetDelta)
	if delta < 0 || delta > maxLastDelta {
		delta = 0
	}
	last, asked := base+delta, f.Next
	records, err := recordsOf(&batch, b, room)
	if errors.Is(err, errNoRoom) && room < maxInflated {
		return 0, false
	}
	if batch.Attributes&compressionBits != 0 {
		inflated = len(records)
	}
	if err == nil && base >= end { // the checksum does not cover the base offset
		err = fmt.Errorf("batch has offsets %d to %d, but the log ends at %d", base, last, end)
	}
	if err == nil && batch.Attributes&controlBit == 0 {
		if batch.Attributes&logAppendTimeBit == 0 {
			f.DriftedAppend++
		}
		err = splitRecords(records, int(batch.NumRecords), base, last, batch.MaxTimestamp, f)
	}
	if last < asked { // the batch ends below the offset asked for: never move back
		last = asked
	}
	if err != nil {
		first := asked
		if n := len(f.Records); n > 0 && f.Records[n-1].Offset >= first {
			first = f.Records[n-1].Offset + 1
		}
		last = corruptUpTo(first, last, end, rest)
		f.Corrupt = &wire.Range{First: first, Last: last, Err: err}
	}
	if err == nil {
		f.Log.Epoch = batch.PartitionLeaderEpoch // not the highest: the checksum does not cover it, and one may be damaged
	}
	f.Next = last + 1
	return inflated, true
}

// corruptUpTo returns the last offset of a batch that cannot be read. The header of the
// batch says last, but the header may be damaged too. The base offset of the next batch is
// more reliable, and nothing lies beyond the end of the log. If neither helps,
// corruptUpTo returns first alone, and the rest is fetched again.
func corruptUpTo(first, last, end int64, rest []byte) int64 {
	if len(rest) >= atLength {
		if next := int64(binary.BigEndian.Uint64(rest)); next > first && next <= end {
			return next - 1
		}
	}
	if last >= first && last < end {
		return last
	}
	return first
}

// recordsOf checks a batch, whose bytes are b, and returns its records, decompressed to at most room
// bytes.
func recordsOf(batch *kmsg.RecordBatch, b []byte, room int) ([]byte, error) {
	if batch.Magic != 2 {
		return nil, fmt.Errorf("batch has format %d, want 2", batch.Magic)
	}
	if want, have := uint32(batch.CRC), crc32.Checksum(b[atAttributes:], castagnoli); want != have { //mutant:checksum-ignored
		return nil, fmt.Errorf("batch has checksum %08x, want %08x", have, want)
	}
	records, compression := batch.Records, batch.Attributes&compressionBits
	if compression == 0 || batch.Attributes&controlBit != 0 {
		return records, nil
	}
	codec := compress.Compression(compression)
	inflated, err := inflate(codec, records, room)
	if err != nil {
		return nil, fmt.Errorf("decompress batch with %s: %w", codec, err)
	}
	if len(inflated) > room {
		return nil, fmt.Errorf("%w: more than %d bytes", errNoRoom, room)
	}
	return inflated, nil
}

var (
	errNoRoom     = errors.New("batch is too large after decompression")
	errTruncated  = errors.New("record ends early")
	errOutOfOrder = errors.New("record offset is not after the previous record, or not in its batch")
)

// splitRecords appends to f the records from f.Next on of a batch with offsets
// [base, last]. The records refer to b; their bodies are not copied.
func splitRecords(b []byte, count int, base, last, appended int64, f *wire.Fetched) error {
	all := kbin.Reader{Src: b}
	before := base - 1
	for range count {
		body := kbin.Reader{Src: all.Span(int(all.Varint()))}
		body.Int8()    // attributes
		body.Varlong() // timestamp delta
		offset := base + int64(body.Varint())
		if !all.Ok() || !body.Ok() {
			return errTruncated
		}
		if offset <= before || offset > last {
			return fmt.Errorf("offset %d: %w", offset, errOutOfOrder)
		}
		before = offset
		if offset >= f.Next {
			f.Records = append(f.Records, wire.RawRecord{Offset: offset, Appended: appended, Body: body.Src})
		}
	}
	return nil
}
