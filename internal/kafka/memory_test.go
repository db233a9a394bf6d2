package kafka

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"orderclose"
)

func TestMemories_LargeOnesAreUsedAgain(t *testing.T) {
	var all memories
	first := all.get(fetchMaxBytes)
	first.records = append(first.records, orderclose.RawRecord{Offset: 7, Body: first.body[:5]})
	room := cap(first.body)
	all.put(first)
	if r := first.records[:1][0]; r.Body != nil || r.Offset != 0 {
		t.Errorf("what was given back still holds %+v", r)
	}
	// A pool may forget what it was given, and under the race detector does.
	for range 100 {
		again := all.get(pooledBytes)
		if len(again.body) != pooledBytes || cap(again.body) != room || len(again.records) != 0 {
			t.Fatalf("%d bytes with room for %d, %d records; want %d with room for %d and none", len(again.body), cap(again.body), len(again.records), pooledBytes, room)
		}
		all.put(again)
	}
}

func TestMemories_EachAnswerHasItsOwn(t *testing.T) {
	var all memories
	kept := map[*byte]bool{}
	for range 20 { // none of which is given back
		m := all.get(fetchMaxBytes)
		if kept[&m.body[0]] {
			t.Fatal("two have the same memory")
		}
		kept[&m.body[0]] = true
	}
	small, huge := all.get(100), all.get(mostPooled+1)
	all.put(small)
	all.put(huge)
	for range 3 {
		if m := all.get(pooledBytes); &m.body[0] == &small.body[0] || &m.body[0] == &huge.body[0] {
			t.Errorf("one of %d bytes was kept", cap(m.body))
		}
	}
}

func TestMemories_Scribble(t *testing.T) {
	all := memories{scribble: true}
	for _, size := range []int{0, 100, fetchMaxBytes} {
		m := all.get(size)
		body := m.body
		all.put(m)
		if !bytes.Equal(body, bytes.Repeat([]byte{0xdb}, size)) {
			t.Errorf("%d bytes can be read after they were given back", size)
		}
	}
}

// TestIdempotent_KeepsNoMemoryOnceItIsAcked: a relay has a producer id for each target of
// each partition, and each may have appended a large batch once.
func TestIdempotent_KeepsNoMemoryOnceItIsAcked(t *testing.T) {
	broker, c := newFakeWith(t, 1)
	broker.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.Partitions = "t", append(topic.Partitions, kmsg.NewProduceResponseTopicPartition())
		res.Topics = append(res.Topics, topic)
		return res, nil, true // and keep nothing
	})
	const pipes, size = 50, 500 << 10
	m := orderclose.Message{Key: []byte("k"), Value: make([]byte, size)}
	records := []orderclose.RawRecord{m.Raw()}
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC() // a pool forgets what it has after two
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse()
	var all []orderclose.AppendFunc
	for range pipes {
		all = append(all, c.Idempotent(nil, nil))
		if _, err := all[len(all)-1](t.Context(), "t", 0, records); err != nil {
			t.Fatal(err)
		}
	}
	if kept := int64(inUse() - before); kept > pipes*size/5 {
		t.Errorf("%d producers keep %d KB", pipes, kept>>10)
	}
	runtime.KeepAlive(all)
}
