package kafka

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// counted counts the requests of a kind.
func counted(b *kfake.Cluster, key kmsg.Key) *atomic.Int64 {
	var n atomic.Int64
	b.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		n.Add(1)
		return nil, nil, false
	})
	return &n
}

// TestOffsets_AsksEachLeaderOncePerMoment of a partition, whatever the number of topics and partitions.
func TestOffsets_AsksEachLeaderOncePerMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(6, "t", "u", "empty"), kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
		for _, topic := range []string{"t", "u", "empty"} {
			for p := range int32(6) {
				must.Do(t, b.MoveTopicPartition(topic, p, p%3))
			}
		}
		c := b.cluster(Options{})
		began := time.Now()
		for range 3 {
			time.Sleep(time.Second)
			for p := range 6 {
				for _, topic := range []string{"t", "u"} {
					must.Get(c.Append(t.Context(), topic, p, []wire.Message{{Key: []byte("k")}}))(t)
				}
			}
		}
		at := func(after time.Duration) Moment { return MomentOf(began.Add(after)) }
		requests := counted(b.Cluster, kmsg.ListOffsets)
		queries := OffsetQueries("t", 6, LogStart, LogEnd, at(0), at(1500*time.Millisecond), at(time.Hour))
		queries = append(queries, OffsetQueries("u", 6, at(2500*time.Millisecond), LogEnd)...)
		queries = append(queries, OffsetQueries("empty", 6, at(0))...)
		queries = append(queries, OffsetQuery{"t", 3, []Moment{LogEnd, at(0)}}, OffsetQuery{"t", 6, []Moment{LogStart}}, OffsetQuery{"t", 0, nil})
		answers := c.Offsets(t.Context(), queries)
		for i, a := range answers[:19] {
			want := []int64{0}
			switch {
			case i < 6:
				want = []int64{0, 3, 0, 1, 3}
			case i < 12:
				want = []int64{2, 3}
			case i == 18:
				want = []int64{3, 0}
			}
			expect.Same(t, a.Offsets, want, "offsets of %+v", queries[i])
			expect.NoError(t, a.Err)
		}
		expect.That(t, errors.Is(answers[19].Err, kafka.UnknownTopicOrPartition) && answers[20].Err == nil,
			"a partition that does not exist: %v; no moment: %v", answers[19].Err, answers[20].Err)
		// Of each partition of t the start and three times; then the ends.
		expect.Equal(t, requests.Load(), 3*(4+1), "requests to three leaders")
	})
}

// refuseOffsets makes ListOffsets answer with an error about a partition.
func refuseOffsets(b *kfake.Cluster, partition int32, err *kerr.Error) {
	b.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		res := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, t := range req.(*kmsg.ListOffsetsRequest).Topics {
			answer := kmsg.ListOffsetsResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				one := kmsg.NewListOffsetsResponseTopicPartition()
				if one.Partition, one.Offset = p.Partition, 7; p.Partition == partition {
					one.ErrorCode, one.Offset = err.Code, -1
				}
				answer.Partitions = append(answer.Partitions, one)
			}
			res.Topics = append(res.Topics, answer)
		}
		return res, nil, true
	})
}

func TestOffsets_AnErrorIsThatOfItsPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []*kerr.Error{kerr.KafkaStorageError, kerr.NotLeaderForPartition} {
			b := newBroker(t, kfake.SeedTopics(3, "t"), kfake.NumBrokers(1))
			refuseOffsets(b.Cluster, 1, code)
			began := time.Now()
			answers := b.cluster(Options{}).Offsets(t.Context(), OffsetQueries("t", 3, LogStart, LogEnd))
			expect.That(t, answers[0].Err == nil && answers[2].Err == nil && errors.Is(answers[1].Err, kafka.Error(code.Code)), "%v: %+v", code, answers)
			expect.AtMost(t, time.Since(began), 2*leaderTimeout+time.Second, "%v: the time until it gave up", code)
		}
	})
}

func TestAppend_AWrongClockOfTheProcessRefusesNoRecordForGood(t *testing.T) {
	broker, c := newFake(t, 1)
	broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidTimestamp, Count: 3})
	expect.NoError(t, c.Appender.Append(t.Context(), "t", wire.Message{Key: []byte("k")}))
}

// TestOffsets_WaitsForANewLeader that does not know the end of its log yet.
func TestOffsets_WaitsForANewLeader(t *testing.T) {
	broker, c := newFake(t, 1)
	broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.OffsetNotAvailable, Count: 3})
	_, _, err := c.Bounds(t.Context(), "t", 0)
	expect.NoError(t, err)
}

func TestOffsets_AsksAgainOnlyAboutPartitionsWhoseLeaderMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(4, "t"), kfake.NumBrokers(2), kfake.Ports(9092, 9093))
		for p := range int32(4) {
			must.Do(t, b.MoveTopicPartition("t", p, 0))
		}
		c := b.cluster(Options{})
		c.Offsets(t.Context(), OffsetQueries("t", 4, LogEnd)) // caches the leaders
		var asked []int32
		b.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.KeepControl()
			if len(asked) == 0 { // the leader moves while the first request is on its way
				expect.NoError(t, b.MoveTopicPartition("t", 2, 1))
			}
			for _, p := range req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions {
				asked = append(asked, p.Partition)
			}
			return nil, nil, false
		})
		for i, a := range c.Offsets(t.Context(), OffsetQueries("t", 4, LogStart)) {
			expect.That(t, a.Err == nil && a.Offsets[0] == 0, "partition %d: %+v", i, a)
		}
		for _, p := range asked[4:] {
			expect.Equal(t, p, 2, "the partition of a later question; asked about %v", asked)
		}
		expect.That(t, len(asked) >= 5, "asked about %v; want partition 2 again", asked)
	})
}

func TestOffsets_EndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		refuseOffsets(b.Cluster, 0, kerr.NotLeaderForPartition)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, _, err := b.cluster(Options{}).Bounds(ctx, "t", 0); err == nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
