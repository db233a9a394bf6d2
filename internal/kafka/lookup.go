package kafka

import (
	"context"
	"io"

	"github.com/segmentio/kafka-go/protocol"
	metadataAPI "github.com/segmentio/kafka-go/protocol/metadata"
)

// topicRequest asks a broker for the metadata of topics by name. The client library would
// answer a plain metadata request from its own cache, which has no topics; see topology. A
// topicRequest never creates a topic.
type topicRequest struct {
	metadataAPI.Request
	version int16
}

// Required implements protocol.RawExchanger. versions has the version of each kind of request
// that the connection uses.
func (l *topicRequest) Required(versions map[protocol.ApiKey]int16) bool {
	l.version = versions[protocol.Metadata]
	return true
}

// RawExchange sends the request and reads the answer.
func (l *topicRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if err := protocol.WriteRequest(rw, l.version, oneRequest, clientName, &l.Request); err != nil {
		return nil, err
	}
	_, res, err := protocol.ReadResponse(rw, protocol.Metadata, l.version)
	if err != nil {
		return nil, err
	}
	return &topicAnswer{res.(*metadataAPI.Response)}, nil
}

// topicAnswer is the answer to a topicRequest. It is a type of its own, because the library
// would take a metadataAPI.Response for the answer to a request of the library.
type topicAnswer struct{ *metadataAPI.Response }

// askTopics asks any broker for the metadata of topics by name; nil means all topics.
func (t *transport) askTopics(ctx context.Context, names []string) (*metadataAPI.Response, error) {
	res, err := t.send(ctx, t.addr, &topicRequest{Request: metadataAPI.Request{TopicNames: names}})
	if err != nil {
		return nil, err
	}
	answer := res.(*topicAnswer).Response
	t.connect.learn(answer.Brokers)
	return answer, nil
}
