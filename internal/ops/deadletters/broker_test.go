package deadletters

import (
	"context"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestCatalog_FollowsATopicOfABroker(t *testing.T) {
	broker := must[*kfake.Cluster](t)(kfake.NewCluster(kfake.NumBrokers(1)))
	defer broker.Close()
	client := must[*kafka.Cluster](t)(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))
	defer client.Close()
	create := func(keys ...string) {
		t.Helper()
		if _, _, err := client.Apply(t.Context(), []kafka.TopicSpec{{Name: deadTopic, Partitions: 1, Replication: 1}}); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if _, err := client.Append(t.Context(), deadTopic, 0, []wire.Message{dead(t, key, "failed", now)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("a", "b", "c", "d")
	c := NewCatalog(client, deadTopic, slog.New(slog.DiscardHandler)).fed(t)
	if got := c.keys(t, Query{}); got != "d c b a" {
		t.Errorf("%q", got)
	}
	deleteRecords(t, broker.ListenAddrs(), 1)
	if l := must[Listing](t)(c.List(t.Context(), Query{})); len(l.Letters) != 3 || l.Gone != 1 {
		t.Errorf("deleted: %d letters, %d gone", len(l.Letters), l.Gone)
	}
	if got := c.fed(t).keys(t, Query{}); got != "d c b" || c.State().Letters != 3 {
		t.Errorf("deleted: %q, %s", got, brief(c.State()))
	}
	if err := client.DeleteTopics(t.Context(), deadTopic); err != nil {
		t.Fatal(err)
	}
	if err := c.poll(t.Context()); err == nil || c.State().Problem == "" {
		t.Errorf("the topic is missing: %v, %s", err, brief(c.State()))
	}
	create("e", "f", "g", "h")
	if got := c.fed(t).keys(t, Query{}); got != "h g f e" || c.State().Letters != 4 {
		t.Errorf("recreated: %q, %s", got, brief(c.State()))
	}
}

// deleteRecords deletes the records below an offset.
func deleteRecords(t *testing.T, brokers []string, below int64) {
	t.Helper()
	client := must[*kgo.Client](t)(kgo.NewClient(kgo.SeedBrokers(brokers...)))
	defer client.Close()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = below
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic, topic.Partitions = deadTopic, append(topic.Partitions, p)
	req := kmsg.NewDeleteRecordsRequest()
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(context.Background(), client)
	if err != nil || res.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal(res, err)
	}
}
