package kafka

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka/recordbatch"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// newFake starts a broker with one topic, t, with the given number of partitions.
func newFake(t *testing.T, partitions int32, opts ...kfake.Opt) (*kfake.Cluster, *Cluster) {
	t.Helper()
	broker := must.Get(kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"))...))(t)
	t.Cleanup(broker.Close)
	c := must.Get(New(Options{Brokers: broker.ListenAddrs()}))(t)
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
		must.Get(c.Append(t.Context(), "t", 0, []wire.Message{{Key: []byte("k")}}))(t)
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

// TestRead_GoodBatchAboveHighWatermarkIsNotCorrupt: Kafka reads the high watermark before it reads the log, so an answer may hold records that were
// appended in between. A larger first batch comes whole.
func TestRead_ReadsAtMostMaxBytes(t *testing.T) {
	t.Parallel() // a fetch at the end of the log waits
	_, c := newFake(t, 1)
	for _, size := range []int{20 << 10, 100 << 10, 20 << 10, 20 << 10, 20 << 10, 20 << 10} {
		must.Get(c.Append(t.Context(), "t", 0, []wire.Message{{Key: []byte("k"), Value: make([]byte, size)}}))(t)
	}
	for offset, next := range map[int64]int64{0: 1, 1: 2, 2: 5, 3: 6, 6: 6} {
		f, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: offset, MaxBytes: 64 << 10})
		expect.That(t, err == nil && f.Next == next && int64(len(f.Records)) == next-offset,
			"from %d: %d records, next %d, %v; want up to %d", offset, len(f.Records), f.Next, err, next)
	}
}

func TestRead_GoodBatchAboveHighWatermarkIsNotCorrupt(t *testing.T) {
	broker, c := newFakeWith(t, 3)
	good := append(batchOf(1, "a"), batchOf(2, "b")...)
	answers(broker, func(p *kmsg.FetchResponseTopicPartition) { p.HighWatermark, p.RecordBatches = 1, good })
	f, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: 1})
	expect.That(t, err == nil && f.Corrupt == nil && len(f.Records) == 2 && f.Next == 3,
		"%d records, next %d, corrupt %+v, %v; want 2, 3", len(f.Records), f.Next, f.Corrupt, err)
	f, err = c.ReadOnce(t.Context(), wire.Position{Topic: "t", Offset: 1})
	expect.That(t, err == nil && len(f.Records) == 2, "once: %d records, %v", len(f.Records), err)
}

// TestRead_BatchBeyondEndOfLogIsCorrupt: Read asks for the end of the log first.
func TestRead_BatchBeyondEndOfLogIsCorrupt(t *testing.T) {
	broker, c := newFakeWith(t, 3)
	damaged := batchOf(1, "a")
	binary.BigEndian.PutUint64(damaged, 1<<40)
	answers(broker, func(p *kmsg.FetchResponseTopicPartition) { p.HighWatermark, p.RecordBatches = 1, damaged })
	f, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: 1})
	expect.That(t, err == nil && f.Corrupt != nil && len(f.Records) == 0 && f.Next == 2,
		"%d records, next %d, corrupt %+v, %v; want offset 1 corrupt", len(f.Records), f.Next, f.Corrupt, err)
}

// TestRead_NothingBeforeTheEndOfTheLogIsAnError: a broker answers so if it finds no batch behind a damaged length.
func TestRead_NothingBeforeTheEndOfTheLogIsAnError(t *testing.T) {
	broker, c := newFakeWith(t, 3)
	answers(broker, func(p *kmsg.FetchResponseTopicPartition) { p.HighWatermark = 3 })
	_, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: 1})
	expect.That(t, err != nil && strings.Contains(err.Error(), "fetch t/0 at 1: the broker sent 0 bytes"), "before the end: %v", err)
	f, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: 3})
	expect.That(t, err == nil && f.Next == 3 && f.AtEnd, "at the end: %+v, %v", f, err)
}

// TestRead_WaitsAsLongAsAQuotaDemands: then a broker answers without a topic, and for that time reads no request of the connection.
func TestRead_WaitsAsLongAsAQuotaDemands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		c, asked := b.cluster(Options{}), 0
		appendTo(t, c, 1)
		b.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if asked++; asked == 3 {
				return nil, nil, false
			}
			b.KeepControl()
			return &kmsg.FetchResponse{Version: req.GetVersion(), ThrottleMillis: 3000}, nil, true
		})
		began, connections := time.Now(), b.dials.Load()
		f, err := c.Read(t.Context(), wire.Position{Topic: "t"})
		expect.That(t, err == nil && len(f.Records) == 1 && asked == 3, "%d records after %d requests, %v", len(f.Records), asked, err)
		expect.Equal(t, time.Since(began), 6*time.Second, "the time of two pauses")
		expect.Equal(t, b.dials.Load(), connections+1, "connections, with that of the topology")
		expect.Equal(t, strings.Count(b.log.String(), "a quota of Kafka delays requests"), 1, "lines of the log in a minute")
	})
}

// TestAppend_AnAckCountsThoughItsCallerGivesUpWhileAQuotaMutesTheConnection: otherwise its records would be written twice.
func TestAppend_AnAckCountsThoughItsCallerGivesUpWhileAQuotaMutesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		b.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			return &kmsg.ProduceResponse{Version: req.GetVersion(), ThrottleMillis: 5000,
				Topics: []kmsg.ProduceResponseTopic{{Topic: "t", Partitions: []kmsg.ProduceResponseTopicPartition{{}}}}}, nil, true
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := b.cluster(Options{}).Idempotent(nil)(ctx, "t", 0, []wire.RawRecord{(&wire.Message{Key: []byte("k")}).Raw()})
		expect.NoError(t, err)
	})
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

func TestFirstWaiting_StaysWithinLog(t *testing.T) {
	for _, c := range []struct{ commit, start, end, want int64 }{
		{-1, 5, 9, 5}, {3, 5, 9, 5}, {5, 5, 9, 5}, {7, 5, 9, 7}, {9, 5, 9, 9}, {10, 5, 9, 5}, {-1, 0, 0, 0},
	} {
		expect.Equal(t, FirstWaiting(Commit{Offset: c.commit}, c.start, c.end), c.want, "commit %d in a log of [%d, %d)", c.commit, c.start, c.end)
	}
}

// No run is counted twice or above the end.
func TestWaiting_CountsBetweenTheRuns(t *testing.T) {
	acked, _ := wire.EncodeRuns(10, []wire.Run{{First: 11, End: 13}, {First: 15, End: 18}})
	c := Commit{Offset: 10, Metadata: acked}
	for end, want := range map[int64]int64{10: 0, 11: 1, 12: 1, 14: 2, 16: 3, 18: 3, 20: 5} {
		expect.Equal(t, Waiting(c, 0, end), want, "below %d", end)
	}
	expect.Equal(t, Waiting(c, 12, 15), 3, "waiting in a log that begins after the commit")
}
