package recordbatch

import (
	"cmp"
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
	// answerBytes bounds the records of one answer that come out of compressed batches, in bytes.
	// The records beyond it, and those of the batches behind them, are fetched again.
	answerBytes = 2 << 20
	// answerRecords bounds the records of one answer: a million of the smallest ones fit into a
	// batch, and each becomes some 400 bytes in memory as an order or a dead letter.
	answerRecords = 8000
)

// inflating bounds how many batches of the process are decompressed at once, because each may
// take maxInflated until its records are copied.
var inflating = make(chan struct{}, 2)

// maxLastDelta bounds the last offset delta in a header: a larger one is damaged.
const maxLastDelta = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Split finds the records from the given offset on in the record batches of a fetch,
// and appends them to records. It decodes no record, and copies only those of a
// compressed batch of which it does not return most. It stops at the first batch that cannot be read and reports
// it in Corrupt. It leaves a batch that is cut off at the end to the next fetch. It also stops after as many
// records as most says, 0: answerRecords, or after answerBytes, in the middle of a batch too; Next is then the offset
// behind the last record. end is the end of the log: a batch whose base offset is not below it is corrupt.
func Split(b []byte, offset, end int64, most int, records []wire.RawRecord) wire.Fetched {
	s := splitter{
		f:       wire.Fetched{Next: offset, Records: records, Log: wire.LogID{Epoch: -1}},
		records: cmp.Or(most, answerRecords), bytes: answerBytes,
	}
	f := &s.f
	for first := true; len(b) >= headerSize && f.Corrupt == nil && !s.full(); first = false {
		size := atLength + 4 + int(int32(binary.BigEndian.Uint32(b[atLength:])))
		if size > len(b) && !first {
			return *f
		}
		if size < headerSize || size > len(b) { // a broker sends the first batch whole
			f.Corrupt = &wire.Range{First: f.Next, Last: f.Next, Err: fmt.Errorf("batch length is %d bytes, but the answer has %d", size, len(b))}
			f.Next++
			return *f
		}
		s.splitBatch(b[:size], b[size:], end)
		b = b[size:]
	}
	return *f
}

// splitter is one call of Split. records and bytes are how many more it may return.
type splitter struct {
	f              wire.Fetched
	records, bytes int
}

// full reports whether the next record is left to the next fetch.
func (s *splitter) full() bool { return s.records <= 0 || s.bytes <= 0 }

// splitBatch adds the records of one whole batch, b. rest is what follows the batch. A batch
// that is larger than maxInflated after decompression is corrupt.
func (s *splitter) splitBatch(b, rest []byte, end int64) {
	var batch kmsg.RecordBatch
	_ = batch.UnsafeReadFrom(b) // Split has checked the length
	base, delta := batch.FirstOffset, int64(batch.LastOffsetDelta)
	if delta < 0 || delta > maxLastDelta {
		delta = 0
	}
	f := &s.f
	last, asked := base+delta, f.Next
	compressed := batch.Attributes&compressionBits != 0 && batch.Attributes&controlBit == 0
	if compressed {
		inflating <- struct{}{}
		defer func() { <-inflating }()
	}
	records, err := recordsOf(&batch, b)
	if err == nil && base >= end { // the checksum does not cover the base offset
		err = fmt.Errorf("batch has offsets %d to %d, but the log ends at %d", base, last, end)
	}
	if err == nil && batch.Attributes&controlBit == 0 {
		if batch.Attributes&logAppendTimeBit == 0 {
			f.DriftedAppend++
		}
		before := len(f.Records)
		if err = s.splitRecords(records, int(batch.NumRecords), base, last, batch.MaxTimestamp, compressed); s.full() {
			last = max(asked, f.Records[len(f.Records)-1].Offset)
		}
		if compressed {
			release(f.Records[before:], len(records))
		}
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
}

// release copies the bodies of the records if they are less than half of the bytes that they keep in memory.
func release(records []wire.RawRecord, inflated int) {
	size := 0
	for i := range records {
		size += len(records[i].Body)
	}
	if 2*size >= inflated {
		return
	}
	kept := make([]byte, 0, size)
	for i := range records {
		kept = append(kept, records[i].Body...)
		records[i].Body = kept[len(kept)-len(records[i].Body):]
	}
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

// recordsOf checks a batch, whose bytes are b, and returns its records, decompressed.
func recordsOf(batch *kmsg.RecordBatch, b []byte) ([]byte, error) {
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
	inflated, err := inflate(codec, records, maxInflated)
	if err != nil {
		return nil, fmt.Errorf("decompress batch with %s: %w", codec, err)
	}
	if len(inflated) > maxInflated {
		return nil, fmt.Errorf("%w: more than %d bytes", errNoRoom, maxInflated)
	}
	return inflated, nil
}

var (
	errNoRoom     = errors.New("batch is too large after decompression")
	errTruncated  = errors.New("record ends early")
	errOutOfOrder = errors.New("record offset is not after the previous record, or not in its batch")
)

// splitRecords adds the records from f.Next on of a batch with offsets [base, last], until s is
// full. The records refer to b; their bodies are not copied. bounded says that their bytes count.
func (s *splitter) splitRecords(b []byte, count int, base, last, appended int64, bounded bool) error {
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
		if offset < s.f.Next {
			continue
		}
		r := wire.RawRecord{Offset: offset, Appended: appended, Body: body.Src}
		if len(r.Body) > wire.MaxRecordBytes {
			r.Body = r.Body[:wire.MaxDeadValue:wire.MaxDeadValue]
		}
		s.f.Records = append(s.f.Records, r)
		s.records--
		if bounded {
			s.bytes -= len(r.Body)
		}
		if s.full() {
			return nil
		}
	}
	return nil
}
