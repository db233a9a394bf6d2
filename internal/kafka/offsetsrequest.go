package kafka

import (
	"context"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
)

// offsetsRequest asks one broker for offsets of partitions that the broker leads. The client library
// would send a request of its own for each partition.
type offsetsRequest struct {
	request listoffsets.Request
	leader  int32
	version int16
}

// newOffsetsRequest returns the request. A partition may be in it only once.
func newOffsetsRequest(leader int32, about []*foundOffset) *offsetsRequest {
	r := &offsetsRequest{leader: leader, request: listoffsets.Request{ReplicaID: -1}}
	topics := map[string]int{} // the index of each topic
	for _, f := range about {
		i, there := topics[f.topic]
		if !there {
			i = len(r.request.Topics)
			topics[f.topic] = i
			r.request.Topics = append(r.request.Topics, listoffsets.RequestTopic{Topic: f.topic})
		}
		t := &r.request.Topics[i]
		t.Partitions = append(t.Partitions, listoffsets.RequestPartition{
			Partition: int32(f.partition), CurrentLeaderEpoch: -1, Timestamp: int64(f.moment),
		})
	}
	return r
}

// ApiKey implements protocol.Message.
func (*offsetsRequest) ApiKey() protocol.ApiKey { return protocol.ListOffsets }

// Broker implements protocol.BrokerMessage.
func (r *offsetsRequest) Broker(protocol.Cluster) (protocol.Broker, error) {
	return protocol.Broker{ID: r.leader}, nil
}

// Required implements protocol.RawExchanger. versions has the version of each kind of request
// that the connection uses.
func (r *offsetsRequest) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = versions[protocol.ListOffsets]
	return true
}

// RawExchange sends the request and reads the answer.
func (r *offsetsRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	return protocol.RoundTrip(rw, r.version, oneRequest, clientName, &r.request)
}

// topicLeaders has the leaders of the partitions of a topic, or the error that hides them.
type topicLeaders struct {
	protocol.Topic
	err     error
	suspect func() // marks the topic as one that may have changed
}

// leadersOf returns the leaders of a topic.
func (t *transport) leadersOf(ctx context.Context, topic string) topicLeaders {
	cluster, err := t.layout(ctx, topic)
	return topicLeaders{
		Topic: cluster.Topics[topic], err: explainConnection(err, t.security, !t.reached.Load()),
		suspect: func() { t.topology.suspect(topic) },
	}
}

// of returns the id of the broker that leads a partition.
func (l topicLeaders) of(partition int) (int32, error) {
	if l.err != nil {
		return 0, l.err
	}
	p, there := l.Partitions[int32(partition)]
	switch {
	case !there:
		l.suspect()
		return 0, kafka.UnknownTopicOrPartition
	case p.Leader < 0:
		l.suspect()
		return 0, kafka.LeaderNotAvailable
	}
	return p.Leader, nil
}
