package kafka

import (
	"context"
	"io"

	"github.com/segmentio/kafka-go/protocol"
	metadataAPI "github.com/segmentio/kafka-go/protocol/metadata"
)

// lookup asks a broker for topics by their names. The client library answers such a
// request from what it knows, which is nothing; see topology. It never creates a topic.
type lookup struct {
	metadataAPI.Request
	version int16
}

// Required is asked with the versions that the connection agreed on.
func (l *lookup) Required(versions map[protocol.ApiKey]int16) bool {
	l.version = versions[protocol.Metadata]
	return true
}

// RawExchange sends the request and reads the answer.
func (l *lookup) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if err := protocol.WriteRequest(rw, l.version, oneRequest, clientName, &l.Request); err != nil {
		return nil, err
	}
	_, res, err := protocol.ReadResponse(rw, protocol.Metadata, l.version)
	if err != nil {
		return nil, err
	}
	return &lookedUp{res.(*metadataAPI.Response)}, nil
}

// lookedUp is the answer, of a type of its own: one of the library's it would
// take for the answer to a request of its own.
type lookedUp struct{ *metadataAPI.Response }

// askTopics asks any broker for topics by their names; nil is all of them.
func (t *transport) askTopics(ctx context.Context, names []string) (*metadataAPI.Response, error) {
	res, err := t.send(ctx, t.addr, &lookup{Request: metadataAPI.Request{TopicNames: names}})
	if err != nil {
		return nil, err
	}
	answer := res.(*lookedUp).Response
	t.connect.learn(answer.Brokers)
	return answer, nil
}
