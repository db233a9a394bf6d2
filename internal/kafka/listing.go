package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// describeTopicPartitions lists topics in the order of their names, from a given name on.
	// Brokers have it since Kafka 3.8.
	describeTopicPartitions protocol.ApiKey = 75
	// pagePartitions bounds the number of partitions in an answer, so that each page has one
	// topic. Only the names are used, and there are few delay topics.
	pagePartitions = 1
	// listAllEvery is how often an older broker is asked for all topics.
	listAllEvery = 10 * time.Minute
)

// topicList is the answer of a cluster with older brokers: the names of all topics, in order.
type topicList struct {
	names []string
	at    time.Time
}

// TopicNames returns, in order, the names of the topics with a prefix that this user may see. It
// does not request the metadata of other topics, of which a cluster may have thousands. If
// the brokers are older than Kafka 3.8 or the prefix is empty, it reads the metadata of all
// topics, and the answer may be 10 minutes old.
func (c *Cluster) TopicNames(ctx context.Context, prefix string) ([]string, error) {
	names, err := c.namesFrom(ctx, prefix)
	if errors.Is(err, errNotOffered) {
		names, err = c.allNames(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}

// namesFrom reads pages until a page has no topic with the prefix.
func (c *Cluster) namesFrom(ctx context.Context, prefix string) (names []string, err error) {
	if prefix == "" {
		return nil, errNotOffered
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for from := prefix; ; from = names[len(names)-1] + "-" { // no character of topic names sorts before -
		page, err := c.page(ctx, from)
		if err != nil {
			return nil, err
		}
		names = append(names, page...)
		if len(page) == 0 || !strings.HasPrefix(page[len(page)-1], prefix) {
			return names, nil
		}
	}
}

// allNames returns the names of all topics, from the cache if it is younger than
// listAllEvery.
func (c *Cluster) allNames(ctx context.Context) ([]string, error) {
	known := c.topicList.Load()
	if known == nil || time.Since(known.at) >= listAllEvery {
		res, err := c.transport.askTopics(ctx, nil)
		if err != nil {
			return nil, err
		}
		known = &topicList{at: time.Now()}
		for _, t := range res.Topics {
			if t.ErrorCode == 0 && len(t.Partitions) > 0 {
				known.names = append(known.names, *t.Topic)
			}
		}
		slices.Sort(known.names)
		c.topicList.Store(known)
	}
	return slices.Clone(known.names), nil
}

// page returns the names of the first topics whose names are not less than from. It fails with
// errNotOffered if the broker is too old.
func (c *Cluster) page(ctx context.Context, from string) (names []string, err error) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit, req.Cursor = pagePartitions, &kmsg.DescribeTopicPartitionsRequestCursor{Topic: from}
	res, err := c.transport.exchange(ctx, anyBroker, &message{Request: req, version: func(offered map[protocol.ApiKey]int16) (int16, bool) {
		_, ok := offered[describeTopicPartitions]
		return 0, ok
	}})
	if err != nil {
		return nil, err
	}
	for _, t := range res.(messageAnswer).Response.(*kmsg.DescribeTopicPartitionsResponse).Topics {
		if t.ErrorCode != 0 {
			return nil, fmt.Errorf("%s: %w", *t.Topic, kafka.Error(t.ErrorCode))
		}
		names = append(names, *t.Topic)
	}
	return names, nil
}
