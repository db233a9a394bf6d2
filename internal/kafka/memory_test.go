package kafka

import (
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestAnswerPool_ReusesLargeBuffers(t *testing.T) {
	var pool answerPool
	first := pool.get(fetchMaxBytes)
	first.records = append(first.records, wire.RawRecord{Offset: 7, Body: first.body[:5]})
	room := cap(first.body)
	pool.put(first)
	r := first.records[:1][0]
	expect.That(t, r.Body == nil && r.Offset == 0, "a buffer in the pool still holds %+v", r)
	// A sync.Pool may drop what was put into it, and does so under the race detector.
	for range 100 {
		again := pool.get(pooledBytes)
		must.That(t, len(again.body) == pooledBytes && cap(again.body) == room && len(again.records) == 0,
			"%d bytes with room for %d, %d records; want %d with room for %d and none", len(again.body), cap(again.body), len(again.records), pooledBytes, room)
		pool.put(again)
	}
}

func TestAnswerPool_NeverSharesABuffer(t *testing.T) {
	var pool answerPool
	kept := map[*byte]bool{}
	for range 20 { // none of which is put back
		m := pool.get(fetchMaxBytes)
		must.That(t, !kept[&m.body[0]], "two answers have the same buffer")
		kept[&m.body[0]] = true
	}
	small, huge := pool.get(100), pool.get(mostPooled+1)
	pool.put(small)
	pool.put(huge)
	for range 3 {
		if m := pool.get(pooledBytes); &m.body[0] == &small.body[0] || &m.body[0] == &huge.body[0] {
			t.Errorf("a buffer of %d bytes was pooled", cap(m.body))
		}
	}
}

// TestIdempotent_KeepsNoMemoryAfterAck: a relay has a producer id for each target of each partition, and each may have appended a large batch once.
func TestIdempotent_KeepsNoMemoryAfterAck(t *testing.T) {
	broker, c := newFakeWith(t, 1)
	broker.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.Partitions = "t", append(topic.Partitions, kmsg.NewProduceResponseTopicPartition())
		res.Topics = append(res.Topics, topic)
		return res, nil, true // without storing the records
	})
	const producers, size = 50, 500 << 10
	m := wire.Message{Key: []byte("k"), Value: make([]byte, size)}
	records := []wire.RawRecord{m.Raw()}
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC() // a sync.Pool is empty after two collections
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse()
	var all []wire.AppendFunc
	for range producers {
		all = append(all, c.Idempotent(nil))
		must.Get(all[len(all)-1](t.Context(), "t", 0, records))(t)
	}
	kept := int64(inUse() - before)
	expect.That(t, kept <= producers*size/5, "%d producers keep %d KB", producers, kept>>10)
	runtime.KeepAlive(all)
}
