package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// route sends a request to the broker that it is for. Requests about partitions go by
// the topology; all others go by the client library, which knows the brokers.
func (t *transport) route(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	names := topicsOf(req)
	if len(names) == 0 {
		return t.exchange(ctx, addr, &routed{Message: req})
	}
	layout, hidden, err := t.topology.layout(ctx, names)
	if err == nil {
		err = hidden.explain(protocol.Metadata, t.security.who)
	}
	if err != nil {
		return nil, err
	}
	t.topology.keepRecent(t.background)
	res, err := t.toLeaders(ctx, addr, req, layout)
	if err != nil && ctx.Err() != context.Canceled { // no answer: the leader may be another broker by now
		t.topology.suspect(names...)
	}
	return res, err
}

// toLeaders sends a request about partitions, in parts if it is for several brokers.
func (t *transport) toLeaders(ctx context.Context, addr net.Addr, req kafka.Request, layout protocol.Cluster) (kafka.Response, error) {
	whole, ok := req.(protocol.Splitter)
	if !ok {
		return t.exchange(ctx, addr, &routed{Message: req, layout: &layout})
	}
	parts, merger, err := whole.Split(layout)
	if err != nil {
		return nil, err
	}
	results := make([]any, len(parts))
	var running sync.WaitGroup
	for i, part := range parts {
		running.Go(func() {
			res, err := t.exchange(ctx, addr, &routed{Message: part, layout: &layout})
			if results[i] = res; err != nil {
				results[i] = err
			}
		})
	}
	running.Wait()
	return merger.Merge(parts, results)
}

// exchange sends a request by the client library, once more if that did not know the
// broker yet.
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
	case *listoffsets.Request:
		for _, t := range r.Topics {
			names = append(names, t.Topic)
		}
	}
	return names
}

// routed is a request that finds its broker by a layout of ours.
type routed struct {
	protocol.Message
	layout   *protocol.Cluster // nil: the client library's
	clientID string
	versions map[protocol.ApiKey]int16
}

// sendable is what the client library gets. Requests that find their way without
// help stay as they are, but for one to create topics: after its answer the library would
// wait until those are among the topics that it knows, and it knows none.
func (r *routed) sendable() kafka.Request {
	if _, creates := r.Message.(*createtopics.Request); r.layout == nil && !creates {
		return r.Message
	}
	return r
}

// Broker implements protocol.BrokerMessage.
func (r *routed) Broker(library protocol.Cluster) (protocol.Broker, error) {
	if r.layout != nil {
		library = *r.layout
	}
	return r.Message.(protocol.BrokerMessage).Broker(library)
}

// Required is asked with the versions that the connection agreed on.
func (r *routed) Required(versions map[protocol.ApiKey]int16) bool {
	r.versions = versions
	return true
}

// RawExchange sends the request and reads the answer.
func (r *routed) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if raw, ok := r.Message.(protocol.RawExchanger); ok && raw.Required(r.versions) {
		return raw.RawExchange(rw)
	}
	res, err := protocol.RoundTrip(rw, r.versions[r.ApiKey()], oneRequest, r.clientID, r.Message)
	if err != nil {
		return nil, err
	}
	return &answer{res}, nil
}

// answer hides the type of an answer from the client library.
type answer struct{ protocol.Message }

// askBrokers is no request: the client library asks for the brokers after it has
// created topics, and takes this for an answer that none was created.
type askBrokers struct{}

// ApiKey makes it a protocol message.
func (*askBrokers) ApiKey() protocol.ApiKey { return protocol.CreateTopics }

// Required says that it is exchanged as below.
func (*askBrokers) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange sends nothing.
func (*askBrokers) RawExchange(io.ReadWriter) (protocol.Message, error) {
	return &createtopics.Response{}, nil
}
