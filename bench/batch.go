package main

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/wire"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is a record batch under construction. The bench puts batches together itself, so that sources
// hold exactly the intended ones.
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
	r := kmsg.Record{OffsetDelta: int32(delta), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	body := r.AppendTo(nil)[1:] // without the length, of which AppendTo knows nothing
	return append(binary.AppendVarint(to, int64(len(body))), body...)
}

// seal returns the encoded batch, created at now.
func (b *batch) seal(now time.Time) []byte {
	at := now.UnixMilli()
	all := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(b.count - 1), FirstTimestamp: at, MaxTimestamp: at,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(b.count), Records: b.records,
	}
	out := all.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-12)) // what follows the length
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], castagnoli))
	return out
}
