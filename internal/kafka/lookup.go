package kafka

import (
	"context"
	"io"
	"net"

	"github.com/segmentio/kafka-go/protocol"
	metadataAPI "github.com/segmentio/kafka-go/protocol/metadata"
)

// lookup asks a broker for topics by their names. The client library asks for
// all topics and answers from what it got; in that list a topic that is missing
// and one that we may not see look alike. It never creates a topic.
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
	const correlationID = 1 // one request at a time on a connection
	if err := protocol.WriteRequest(rw, l.version, correlationID, "orderclose", &l.Request); err != nil {
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

// hidden returns an AccessError if one of the topics is not to be seen by us,
// and nil if they are or do not exist, or if it cannot tell.
func (t *transport) hidden(ctx context.Context, addr net.Addr, topics ...string) error {
	req := &lookup{Request: metadataAPI.Request{TopicNames: topics}}
	res, err := t.Transport.RoundTrip(ctx, addr, req)
	if err != nil {
		return nil
	}
	var refused refusals
	for _, topic := range res.(*lookedUp).Topics {
		refused.see(topic.ErrorCode, topic.Name)
	}
	return refused.explain(protocol.Metadata, t.security.who)
}
