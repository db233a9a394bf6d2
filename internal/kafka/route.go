package kafka

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// route sends a request to the right broker. Requests about groups go to their coordinators, and
// requests about one partition are routed by the topology. All other requests are routed by the
// client library, which knows the brokers.
func (t *transport) route(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	if about, ok := req.(protocol.GroupMessage); ok {
		return t.toCoordinator(ctx, addr, about.Group(), req)
	}
	names := topicsOf(req)
	if len(names) == 0 {
		return t.exchange(ctx, addr, &routed{Message: req})
	}
	layout, err := t.layout(ctx, names...)
	if err != nil {
		return nil, err
	}
	res, err := t.exchange(ctx, addr, &routed{Message: req, layout: &layout})
	if err != nil && ctx.Err() != context.Canceled { // no answer: the leader may be another broker by now
		t.topology.suspect(names...)
	}
	return res, err
}

// layout returns the cluster with the named topics, for routing. It leaves out topics that do not
// exist.
func (t *transport) layout(ctx context.Context, names ...string) (protocol.Cluster, error) {
	layout, hidden, err := t.topology.layout(ctx, names)
	if err == nil {
		err = hidden.explain(protocol.Metadata, t.security.who)
	}
	if err == nil {
		t.topology.keepRecent(t.background)
	}
	return layout, err
}

// exchange sends a request through the client library. If the library does not know the
// broker yet, exchange makes it ask for the brokers, and sends the request again.
func (t *transport) exchange(ctx context.Context, addr net.Addr, req *routed) (kafka.Response, error) {
	req.clientID = t.ClientID
	res, err := t.send(ctx, addr, req.sendable())
	if errors.Is(err, kafka.BrokerNotAvailable) {
		if _, err := t.send(ctx, addr, &askBrokers{}); err != nil {
			return nil, err
		}
		res, err = t.send(ctx, addr, req.sendable())
	}
	if answer, ok := res.(*answer); ok {
		return answer.Message, err
	}
	return res, err
}

// topicsOf returns the topics of a request that goes to the leaders of partitions.
func topicsOf(req kafka.Request) (names []string) {
	switch r := req.(type) {
	case *rawFetch:
		names = []string{fetchTopic(req)}
	case *fetch.Request:
		for _, t := range r.Topics {
			names = append(names, t.Topic)
		}
	case *rawproduce.Request:
		for _, t := range r.Topics {
			names = append(names, t.Topic)
		}
	}
	return names
}

// routed is a request that goes to a broker, or is routed by layout.
type routed struct {
	protocol.Message
	broker   *int32            // the id; -1: any broker; nil: not known
	layout   *protocol.Cluster // nil: that of the client library
	clientID string
	versions map[protocol.ApiKey]int16
}

// sendable returns the message for the client library. The library routes most requests
// itself, and they stay as they are. A request to create topics is wrapped nevertheless:
// after its answer the library would wait until it knows these topics, and it never does.
func (r *routed) sendable() kafka.Request {
	if _, creates := r.Message.(*createtopics.Request); r.broker == nil && r.layout == nil && !creates {
		return r.Message
	}
	return r
}

// Broker implements protocol.BrokerMessage.
func (r *routed) Broker(library protocol.Cluster) (protocol.Broker, error) {
	if r.broker != nil {
		return protocol.Broker{ID: *r.broker}, nil
	}
	if r.layout != nil {
		library = *r.layout
	}
	return r.Message.(protocol.BrokerMessage).Broker(library)
}

// Required implements protocol.RawExchanger. versions has the version of each kind of request
// that the connection uses.
func (r *routed) Required(versions map[protocol.ApiKey]int16) bool {
	r.versions = versions
	return true
}

// RawExchange sends the request and reads the answer.
func (r *routed) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if raw, ok := r.Message.(protocol.RawExchanger); ok && raw.Required(r.versions) {
		return raw.RawExchange(rw)
	}
	version := r.versions[r.ApiKey()]
	if prepared, ok := r.Message.(protocol.PreparedMessage); ok {
		prepared.Prepare(version)
	}
	res, err := protocol.RoundTrip(rw, version, oneRequest, r.clientID, r.Message)
	if err != nil {
		return nil, err
	}
	return &answer{res}, nil
}

// answer hides the type of an answer from the client library, which acts on some types.
type answer struct{ protocol.Message }

// askBrokers makes the client library ask for the brokers and sends nothing itself. The
// library does so after a request to create topics, and takes askBrokers for one.
type askBrokers struct{}

// ApiKey implements protocol.Message.
func (*askBrokers) ApiKey() protocol.ApiKey { return protocol.CreateTopics }

// Required implements protocol.RawExchanger.
func (*askBrokers) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange sends nothing, and returns an answer by which no topic was created.
func (*askBrokers) RawExchange(io.ReadWriter) (protocol.Message, error) {
	return &createtopics.Response{}, nil
}
