package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func deleteTopic(t *testing.T, c *Cluster, name string) {
	t.Helper()
	must.Get(c.Client().DeleteTopics(t.Context(), &kafka.DeleteTopicsRequest{Topics: []string{name}}))(t)
	c.Forget()
}

// recreate deletes t and creates it again with n records.
func recreate(t *testing.T, c *Cluster, n int) {
	t.Helper()
	deleteTopic(t, c, "t")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	must.Do(t, c.createTopic(ctx, TopicSpec{Name: "t", Partitions: 1, Replication: 1}))
	must.Do(t, c.awaitTopics(ctx, []TopicSpec{{Name: "t", Partitions: 1}}))
	appendTo(t, c, n)
}

// mustRead reads at an offset of a log.
func mustRead(t *testing.T, c *Cluster, offset int64, log wire.LogID) wire.Fetched {
	t.Helper()
	return must.Get(c.Read(t.Context(), wire.Position{Topic: "t", Offset: offset, Log: log}))(t)
}

// TestRead_NoticesRecreatedTopic also if the new log is longer than the position in the old.
func TestRead_NoticesRecreatedTopic(t *testing.T) {
	_, c := newFakeWith(t, 3)
	old := mustRead(t, c, 0, wire.LogID{})
	must.That(t, old.Log.Topic != noTopicID && old.Log.Epoch >= 0 && len(old.Records) != 0 && !old.Replaced, "%+v", old)
	same := must.Get(c.Read(t.Context(), wire.Position{Topic: "t", Offset: 3, Log: old.Log, NoWait: true}))(t)
	expect.That(t, same.Lost == nil && same.Next == 3 && same.Log == old.Log, "the same log: %+v", same)
	recreate(t, c, 5)
	f := mustRead(t, c, 3, old.Log)
	expect.That(t, f.Lost != nil && f.Replaced && f.Next == 0 && f.Lost.Last == 2 && len(f.Records) == 0 && f.Log.Topic != old.Log.Topic,
		"%+v, lost %+v; want the whole new log, from 0", f, f.Lost)
	f = mustRead(t, c, f.Next, f.Log)
	expect.That(t, f.Lost == nil && len(f.Records) != 0, "the next read: %+v", f)
}

func TestRead_DeletedTopicIsAnError(t *testing.T) {
	_, c := newFakeWith(t, 3)
	log := mustRead(t, c, 0, wire.LogID{}).Log
	deleteTopic(t, c, "t")
	if f, err := c.Read(t.Context(), wire.Position{Topic: "t", Offset: 3, Log: log}); err == nil {
		t.Errorf("%+v", f)
	}
	expect.Is(t, expect.Err(c.TopicID(t.Context(), "t")), kafka.UnknownTopicOrPartition, "TopicID")
}

// TestRead_TruncatedLogContinuesAtDivergence: the broker reports where its log diverges, also if the log has grown past the position again.
func TestRead_TruncatedLogContinuesAtDivergence(t *testing.T) {
	broker, c := newFakeWith(t, 9)
	log := mustRead(t, c, 0, wire.LogID{}).Log
	log.Epoch = 4
	asked := int32(-1)
	broker.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		asked = req.(*kmsg.FetchRequest).Topics[0].Partitions[0].LastFetchedEpoch
		return nil, nil, false
	})
	answers(broker, func(p *kmsg.FetchResponseTopicPartition) {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 3, 5
	})
	f := mustRead(t, c, 8, log)
	expect.That(t, f.Lost != nil && f.Replaced && f.Next == 5 && f.Lost.First == 5 && f.Lost.Last == 7 && f.Log.Topic == log.Topic && f.Log.Epoch == 3,
		"%+v, lost %+v; want offsets 5 to 7 lost", f, f.Lost)
	expect.Equal(t, asked, 4, "the request has epoch")
}

// TestRead_TruncatedLogIsReadFromItsEnd if it is unknown where it diverges. A log of which nothing was read is read from its start.
func TestRead_TruncatedLogIsReadFromItsEnd(t *testing.T) {
	broker, c := newFakeWith(t, 6)
	log := mustRead(t, c, 0, wire.LogID{}).Log
	f := mustRead(t, c, 9, wire.LogID{Topic: log.Topic, Epoch: -1})
	expect.That(t, f.Replaced && f.Next == 0 && f.Lost.Last == 8, "nothing was read: %+v, lost %+v", f, f.Lost)
	f = mustRead(t, c, 9, log)
	expect.That(t, f.Replaced && f.Next == 6 && f.Lost.First == 6 && f.Lost.Last == 8, "%+v, lost %+v; want offsets 6 to 8 lost", f, f.Lost)
	// The broker's data was restored from a backup, which does not have this epoch.
	broker.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		if asked := req.(*kmsg.FetchRequest); asked.Topics[0].Partitions[0].LastFetchedEpoch >= 0 {
			res := asked.ResponseKind().(*kmsg.FetchResponse)
			topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
			p.ErrorCode = kerr.OffsetOutOfRange.Code
			topic.TopicID, topic.Partitions = asked.Topics[0].TopicID, append(topic.Partitions, p)
			res.Topics = append(res.Topics, topic)
			return res, nil, true
		}
		return nil, nil, false
	})
	f = mustRead(t, c, 4, log)
	expect.That(t, f.Lost == nil && f.Next == 4 && f.Log.Epoch < 0, "with an epoch that the broker does not know: %+v, lost %+v", f, f.Lost)
	expect.Equal(t, len(mustRead(t, c, f.Next, f.Log).Records), 2, "records of the next read")
}
