package simulation

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/delayrelay"
	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/wire"
)

// largestBatches are batches that a broker accepts from everybody who may produce: each is below 1 MB when it is compressed. They have
// several times what one answer may have. More of the same only takes longer.
var largestBatches = map[string]struct {
	records int
	record  func(i int) wire.Message
}{
	"records without a key": {200_000, func(int) wire.Message { return wire.Message{} }},
	"the smallest records with a due time": {100_000, func(int) wire.Message {
		return wire.Message{Key: []byte("k"), Headers: headers("1", 0)}
	}},
	"records with many headers": {4000, func(i int) wire.Message {
		return wire.Message{Key: fmt.Append(nil, "order-", i), Value: orderValue(fmt.Sprint("order-", i), ""), Headers: headers("1", 990)}
	}},
	"records with too many headers": {4000, func(int) wire.Message {
		return wire.Message{Key: []byte("k"), Headers: headers("1", 1500)}
	}},
	"large orders that are not due": {5, func(i int) wire.Message {
		return wire.Message{Key: fmt.Append(nil, "order-", i), Headers: headers("4000000000000", 0),
			Value: orderValue(fmt.Sprint("order-", i), `,"attributes":{"list":[`+strings.Repeat("0,", 950_000)+"0]}")}
	}},
	"large orders with a list as their deadline": {5, func(i int) wire.Message {
		return wire.Message{Key: fmt.Append(nil, "order-", i), Headers: headers("1", 0),
			Value: orderValue(fmt.Sprint("order-", i), `,"deadline_at":[`+strings.Repeat("[],", 600_000)+"[]]")}
	}},
	"one record of 31 MB": {1, func(int) wire.Message {
		return wire.Message{Key: []byte("k"), Headers: headers("1", 0), Value: make([]byte, 31<<20)}
	}},
}

func headers(due string, empty int) []wire.Header {
	all := make([]wire.Header, empty, empty+2)
	return append(all, wire.Header{Key: wire.HeaderDue, Value: []byte(due)}, wire.Header{Key: wire.HeaderVersion, Value: []byte(wire.WireVersion)})
}

func orderValue(id, more string) []byte {
	return fmt.Appendf(nil, `{"order_id":%q,"category":"x","created_at":"2020-01-01T00:00:00Z","due_at":"2020-01-01T00:00:00Z"%s}`, id, more)
}

// floodedLog is a log of some partitions. Each begins with the flood, and has the record of an order behind it.
type floodedLog struct {
	testkit.Log
	flood, behind []byte // batches
	first         int64  // offset of the record of the order
}

// newFloodedLog returns a log whose partitions of the topic are flooded with the batch.
func newFloodedLog(t *testing.T, topic string, partitions, records int, record func(i int) wire.Message) *floodedLog {
	var raw []byte
	for i := range records {
		m := record(i)
		body := m.Raw().Body
		var number [binary.MaxVarintLen64]byte
		delta := number[:binary.PutVarint(number[:], int64(i))]
		raw = binary.AppendVarint(raw, int64(2+len(delta)+len(body)))
		raw = append(append(append(raw, 0, 0), delta...), body...)
	}
	const atLength, atCRC, atAttributes, logAppendTime, compressed = 8, 17, 21, 8, 4
	packed := must.Get(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression)))(t).EncodeAll(raw, nil)
	batch := kmsg.RecordBatch{Magic: 2, Attributes: logAppendTime | compressed, LastOffsetDelta: int32(records - 1), MaxTimestamp: time.Now().UnixMilli(),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(records), Records: packed}
	l := &floodedLog{first: int64(records), flood: batch.AppendTo(nil)}
	must.That(t, len(l.flood) < 1<<20, "the batch has %d bytes: a broker refuses it", len(l.flood))
	binary.BigEndian.PutUint32(l.flood[atLength:], uint32(len(l.flood)-atLength-4))
	binary.BigEndian.PutUint32(l.flood[atCRC:], crc32.Checksum(l.flood[atAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	order := wire.Message{Key: []byte("behind"), Value: orderValue("behind", ""), Headers: headers("1", 0)}
	l.behind = recordbatch.Encode(nil, []wire.RawRecord{order.Raw()}, time.Now(), recordbatch.NoProducer)[4:]
	binary.BigEndian.PutUint64(l.behind, uint64(l.first))
	for p := range partitions {
		l.SetStart(testkit.TopicPartition{Topic: topic, Partition: p}, 0)
	}
	l.Reads = func(at wire.Position) (wire.Fetched, error) {
		switch {
		case at.Offset < l.first:
			f := recordbatch.Split(bytes.Join([][]byte{l.flood, l.behind}, nil), at.Offset, l.first+1, at.MaxRecords, nil)
			if f.Corrupt != nil {
				return f, f.Corrupt.Err
			}
			return f, nil
		case at.Offset == l.first:
			return recordbatch.Split(bytes.Clone(l.behind), at.Offset, l.first+1, at.MaxRecords, nil), nil
		}
		time.Sleep(2 * time.Second)
		return wire.Fetched{Next: at.Offset, AtEnd: true}, nil
	}
	return l
}

// TestLargest_ABatchEndsNoPart: partitions hold the largest batches of each kind that a producer may append. Relay and closer get past them
// within the memory that deploy/helm gives them, and what waits behind the batches leaves.
func TestLargest_ABatchEndsNoPart(t *testing.T) {
	ring.NotShort(t)
	const partitions = 2
	quiet := slog.New(slog.DiscardHandler)
	buckets := orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: "delay_1h", Length: time.Hour}}
	parts := map[string]struct {
		topic string
		start func(t *testing.T, l *floodedLog, hangs func(string), arrived *atomic.Int32) (stop func())
	}{
		"relay": {buckets[0].Topic, func(t *testing.T, l *floodedLog, hangs func(string), arrived *atomic.Int32) func() {
			l.Forgets = func(topic string, r wire.RawRecord) bool {
				if topic == "order-close" && string(r.Key()) == "behind" {
					arrived.Add(1)
				}
				return true
			}
			return testkit.Start(t, must.Get(delayrelay.New(delayrelay.Options{Log: l, Buckets: buckets, CloseTopic: "order-close", DeadLetterTopic: "dead",
				Group: func(b orderclose.Bucket) string { return b.Topic }, Logger: quiet, OnHang: hangs}))(t).Run)
		}},
		"closer": {"order-close", func(t *testing.T, l *floodedLog, hangs func(string), arrived *atomic.Int32) func() {
			l.Forgets = func(string, wire.RawRecord) bool { return true }
			store := &testkit.Store{Answers: func(requests []orderclose.CloseRequest, outcomes []orderclose.Outcome) {
				for i, r := range requests {
					if r.OrderID == "behind" {
						arrived.Add(1)
					} else {
						outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Failed, Err: context.DeadlineExceeded}
					}
				}
			}}
			return testkit.Start(t, must.Get(closer.New(closer.Options{Log: l, Store: store, Buckets: buckets, Group: "g", CloseTopic: "order-close",
				DeadLetterTopic: "dead", Logger: quiet, OnHang: hangs}))(t).Run)
		}},
	}
	for kind, c := range largestBatches {
		for name, part := range parts {
			t.Run(name+", "+kind, func(t *testing.T) {
				var arrived atomic.Int32
				l := newFloodedLog(t, part.topic, partitions, c.records, c.record)
				most := testkit.MostHeap(func() {
					synctest.Test(t, func(t *testing.T) {
						stop := part.start(t, l, func(why string) { t.Error(why) }, &arrived)
						for n := 0; arrived.Load() < partitions && n < 600; n++ {
							time.Sleep(time.Second)
						}
						stop()
					})
				})
				t.Logf("%d MB", most>>20)
				expect.Equal(t, arrived.Load(), partitions, "orders behind the batches that arrived")
				expect.AtMost(t, most, 150<<20, "bytes of memory")
			})
		}
	}
}
