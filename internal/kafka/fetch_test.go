package kafka

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
	"github.com/orderclose/orderclose/internal/wire"
)

// newFake starts a broker with one topic, t, with the given number of partitions.
func newFake(t *testing.T, partitions int32, opts ...kfake.Opt) (*kfake.Cluster, *Cluster) {
	t.Helper()
	broker, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	c, err := New(Options{Brokers: broker.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return broker, c
}

// newFakeWith starts a broker with one topic, t, of one partition with n records.
func newFakeWith(t *testing.T, n int) (*kfake.Cluster, *Cluster) {
	t.Helper()
	broker, c := newFake(t, 1)
	appendTo(t, c, n)
	return broker, c
}

// appendTo appends n records to t, each in its own batch.
func appendTo(t *testing.T, c *Cluster, n int) {
	t.Helper()
	for range n {
		if _, err := c.Append(t.Context(), "t", 0, []wire.Message{{Key: []byte("k")}}); err != nil {
			t.Fatal(err)
		}
	}
}

// answers makes the broker answer every fetch with the partition that with sets.
func answers(broker *kfake.Cluster, with func(*kmsg.FetchResponseTopicPartition)) {
	broker.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		asked := req.(*kmsg.FetchRequest)
		res := asked.ResponseKind().(*kmsg.FetchResponse)
		p := kmsg.NewFetchResponseTopicPartition()
		with(&p)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = asked.Topics[0].Topic, asked.Topics[0].TopicID
		topic.Partitions = append(topic.Partitions, p)
		res.Topics = append(res.Topics, topic)
		return res, nil, true
	})
}

// batchOf returns a record batch as a fetch returns it, with one record at the offset.
func batchOf(offset int64, key string) []byte {
	m := wire.Message{Key: []byte(key)}
	b := recordbatch.Encode(nil, []wire.RawRecord{m.Raw()}, time.UnixMilli(1000), recordbatch.NoProducer)[4:] // the size comes first
	binary.BigEndian.PutUint64(b, uint64(offset))
	return b
}

// TestRead_GoodBatchAboveHighWatermarkIsNotCorrupt: Kafka reads the high watermark before it
// reads the log, so an answer may hold records that were appended in between.
// A larger first batch comes whole.
func TestRead_ReadsAtMostMaxBytes(t *testing.T) {
	_, c := newFake(t, 1)
	for _, size := range []int{20 << 10, 100 << 10, 20 << 10, 20 << 10, 20 << 10, 20 << 10} {
		if _, err := c.Append(t.Context(), "t", 0, []wire.Message{{Key: []byte("k"), Value: make([]byte, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	for offset, next := range map[int64]int64{0: 1, 1: 2, 2: 5, 3: 6, 6: 6} {
		f, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: offset, MaxBytes: LittleBytes})
		if err != nil || f.Next != next || int64(len(f.Records)) != next-offset {
			t.Errorf("from %d: %d records, next %d, %v; want up to %d", offset, len(f.Records), f.Next, err, next)
		}
	}
}

func TestRead_GoodBatchAboveHighWatermarkIsNotCorrupt(t *testing.T) {
	broker, c := newFakeWith(t, 3)
	good := append(batchOf(1, "a"), batchOf(2, "b")...)
	answers(broker, func(p *kmsg.FetchResponseTopicPartition) { p.HighWatermark, p.RecordBatches = 1, good })
	f, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: 1})
	if err != nil || f.Corrupt != nil || len(f.Records) != 2 || f.Next != 3 {
		t.Errorf("%d records, next %d, corrupt %+v, %v; want 2, 3", len(f.Records), f.Next, f.Corrupt, err)
	}
	if m, err := c.Peek(t.Context(), "t", 0, 1, 3); err != nil || m == nil || string(m.Key) != "a" {
		t.Errorf("peek: %+v, %v; want a", m, err)
	}
}

// TestRead_BatchBeyondEndOfLogIsCorrupt: Read asks for the end of the log first.
func TestRead_BatchBeyondEndOfLogIsCorrupt(t *testing.T) {
	broker, c := newFakeWith(t, 3)
	damaged := batchOf(1, "a")
	binary.BigEndian.PutUint64(damaged, 1<<40)
	answers(broker, func(p *kmsg.FetchResponseTopicPartition) { p.HighWatermark, p.RecordBatches = 1, damaged })
	f, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: 1})
	if err != nil || f.Corrupt == nil || len(f.Records) != 0 || f.Next != 2 {
		t.Errorf("%d records, next %d, corrupt %+v, %v; want offset 1 corrupt", len(f.Records), f.Next, f.Corrupt, err)
	}
}

// TestRead_BelievesDamageAfterThreeAnswers: a single answer may be damaged on the network.
func TestRead_BelievesDamageAfterThreeAnswers(t *testing.T) {
	good := batchOf(1, "a")
	bad := batchOf(1, "a")
	bad[len(bad)-1] ^= 1 // the checksum is wrong
	for _, damaged := range []int{0, 1, 2, 3, 4} {
		broker, c := newFakeWith(t, 3)
		asked := 0
		answers(broker, func(p *kmsg.FetchResponseTopicPartition) {
			p.HighWatermark, p.RecordBatches = 3, good
			if asked++; asked <= damaged {
				p.RecordBatches = bad
			}
		})
		f, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: 1})
		if believed := f.Corrupt != nil; err != nil || believed != (damaged >= 3) || asked != min(damaged+1, 3) {
			t.Errorf("%d damaged answers: asked %d times, corrupt %+v, %v", damaged, asked, f.Corrupt, err)
		}
	}
}
