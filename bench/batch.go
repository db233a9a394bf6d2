package main

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// headerSize is the size of the header of a record batch (magic 2), in bytes.
const headerSize = 61

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is a record batch under construction. The bench has its own encoder, so that
// sources hold exactly the intended batches, independent of any client.
type batch struct {
	records []byte
	count   int
}

func (b *batch) add(m wire.Message) {
	b.records = appendRecord(b.records, b.count, m)
	b.count++
}

// appendRecord appends m as the record with offset delta within its batch.
func appendRecord(to []byte, delta int, m wire.Message) []byte {
	body := make([]byte, 0, 64+len(m.Key)+len(m.Value))
	body = append(body, 0)              // attributes
	body = binary.AppendVarint(body, 0) // timestamp delta
	body = binary.AppendVarint(body, int64(delta))
	body = appendBytes(body, m.Key)
	body = appendBytes(body, m.Value)
	body = binary.AppendVarint(body, int64(len(m.Headers)))
	for _, h := range m.Headers {
		body = appendBytes(body, []byte(h.Key))
		body = appendBytes(body, h.Value)
	}
	return appendBytes(to, body)
}

func appendBytes(to, b []byte) []byte {
	return append(binary.AppendVarint(to, int64(len(b))), b...)
}

// seal returns the encoded batch, created at now.
func (b *batch) seal(now time.Time) []byte {
	const unknown = ^uint64(0) // -1
	at := uint64(now.UnixMilli())
	out := make([]byte, 0, headerSize+len(b.records))
	out = binary.BigEndian.AppendUint64(out, 0) // base offset
	out = binary.BigEndian.AppendUint32(out, uint32(headerSize-12+len(b.records)))
	out = binary.BigEndian.AppendUint32(out, uint32(unknown&0xffffffff)) // leader epoch
	out = append(out, 2)                                                 // magic
	out = binary.BigEndian.AppendUint32(out, 0)                          // checksum, below
	out = binary.BigEndian.AppendUint16(out, 0)                          // attributes: not compressed
	out = binary.BigEndian.AppendUint32(out, uint32(b.count-1))
	out = binary.BigEndian.AppendUint64(out, at)
	out = binary.BigEndian.AppendUint64(out, at)
	out = binary.BigEndian.AppendUint64(out, unknown)                    // producer id
	out = binary.BigEndian.AppendUint16(out, uint16(unknown&0xffff))     // its epoch
	out = binary.BigEndian.AppendUint32(out, uint32(unknown&0xffffffff)) // sequence
	out = binary.BigEndian.AppendUint32(out, uint32(b.count))
	out = append(out, b.records...)
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], castagnoli))
	return out
}
