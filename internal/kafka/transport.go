package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createpartitions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/deletetopics"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/joingroup"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/segmentio/kafka-go/protocol/syncgroup"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requestTimeout is how long an answer may take, from the request on, besides brokerWait. Brokers that take 3 s
// are slow, and not dead. The client library sends half of it to the broker as the request's timeout.
const requestTimeout = 5 * time.Second

// brokerWait returns how long a request makes the broker wait: for other members of a group, or for records.
func brokerWait(req kafka.Request) time.Duration {
	switch r := req.(type) {
	case *joingroup.Request, *syncgroup.Request:
		return rebalanceTimeout
	case *message:
		if f, ok := r.Request.(*kmsg.FetchRequest); ok {
			return time.Duration(f.MaxWaitMillis) * time.Millisecond //mutant:fetch-wait-counts
		}
	}
	return 0
}

// errNotSent means that a request was not sent, because its partition has no leader or does not exist.
var errNotSent = errors.New("the request was not sent")

// errCoordinatorSilent means that the coordinator of a group did not answer. Another broker may be the coordinator by now.
var errCoordinatorSilent = errors.New("the group's coordinator does not answer")

// transport sends every request of this package, also those of the client library: to the right broker, by one connection, once. Only
// the callers repeat requests. If an answer refuses access to any resource, RoundTrip returns an AccessError.
type transport struct {
	brokers  *brokers
	topology *topology
	security Security
	reached  atomic.Bool // a request has been answered
}

// RoundTrip implements kafka.RoundTripper. It sends a request once, to the broker that must answer it, and returns the answer. Each
// answer has requestTimeout, also those about the leader or the coordinator, and those of a new connection.
func (t *transport) RoundTrip(ctx context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	address, err := t.route(ctx, req)
	if err != nil {
		return nil, err
	}
	return t.exchange(ctx, address, req)
}

// route returns the address of the broker that must answer a request.
func (t *transport) route(ctx context.Context, req kafka.Request) (string, error) {
	if group := groupOf(req); group != "" {
		return t.coordinator(ctx, group)
	}
	if topic, partition := partitionOf(req); topic != "" {
		known, err := t.routes(ctx, topic)
		if err != nil {
			return "", err
		}
		address, err := t.topology.leader(known, partition)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errNotSent, err)
		}
		return address, nil
	}
	if about, ok := req.(protocol.BrokerMessage); ok { // the controller, or the broker whose settings it is about
		cluster, err := t.cluster(ctx)
		if err != nil {
			return "", err
		}
		if to, err := about.Broker(cluster); err == nil && to.Host != "" {
			return addressOf(to.Host, to.Port), nil
		}
	}
	return anyBroker, nil
}

// exchange sends a request to the broker at an address.
func (t *transport) exchange(ctx context.Context, address string, req kafka.Request) (kafka.Response, error) {
	group := groupOf(req)
	topic, _ := partitionOf(req)
	res, err := t.brokers.exchange(ctx, address, req, func() { // another broker may answer such requests by now
		t.topology.setCoordinator(group, "")
		t.topology.suspect(topic)
	})
	if err != nil {
		err = explainConnection(err, t.security, !t.reached.Load())
		if access := (*AccessError)(nil); group != "" && !errors.As(err, &access) {
			err = fmt.Errorf("%w: %w", errCoordinatorSilent, err)
		}
		return nil, err
	}
	t.reached.Store(true)
	var missing missingACLs
	eachErrorCode(req, res, func(code int16, name string) {
		if kafka.Error(code) == kafka.NotCoordinatorForGroup || kafka.Error(code) == kafka.GroupCoordinatorNotAvailable {
			t.topology.setCoordinator(group, "")
		}
		t.topology.observe(code, name)
		missing.observe(code, name)
	})
	switch req.(type) {
	case *createtopics.Request, *createpartitions.Request, *deletetopics.Request:
		t.topology.forget()
	}
	if err := missing.explain(req.ApiKey(), group, t.security.who); err != nil {
		return nil, err
	}
	return res, nil
}

// askTopics asks any broker for the metadata of topics by name; nil means all topics.
func (t *transport) askTopics(ctx context.Context, names []string) (*kmsg.MetadataResponse, error) {
	res, err := t.exchange(ctx, anyBroker, metadataRequest(names))
	if err != nil {
		return nil, err
	}
	answer := res.(messageAnswer).Response.(*kmsg.MetadataResponse)
	t.brokers.learn(answer.Brokers)
	return answer, nil
}

// describe returns the answers about topics, as in topology.lookup. If this user may not see one
// of the topics, it returns an AccessError.
func (t *transport) describe(ctx context.Context, enough func(topic) bool, names ...string) ([]topic, error) {
	found, err := t.topology.lookup(ctx, names, enough)
	var hidden missingACLs
	for _, known := range found {
		hidden.observe(int16(known.code), known.name)
		if known.at.IsZero() && err != nil {
			return found, err
		}
	}
	if denied := hidden.explain(protocol.Metadata, "", t.security.who); denied != nil {
		return found, denied
	}
	return found, err
}

// routes returns the answer about a topic by which requests are routed. An old answer may still be right, so it counts if there is no newer one.
func (t *transport) routes(ctx context.Context, name string) (topic, error) {
	t.topology.keepRecent()
	found, err := t.describe(ctx, topic.usable, name)
	if known := found[0]; err != nil && (known.at.IsZero() || known.code != 0) {
		return known, err
	}
	return found[0], nil
}

// cluster returns the brokers and the controller.
func (t *transport) cluster(ctx context.Context) (protocol.Cluster, error) {
	res, err := t.askTopics(ctx, []string{}) // nil would mean all topics
	if err != nil {
		return protocol.Cluster{}, err
	}
	cluster := protocol.Cluster{Controller: res.ControllerID, Brokers: map[int32]protocol.Broker{}}
	for _, b := range res.Brokers {
		cluster.Brokers[b.NodeID] = protocol.Broker{ID: b.NodeID, Host: b.Host, Port: b.Port}
	}
	return cluster, nil
}

// coordinator returns the address of the coordinator of a group. If this user may not know it, that is any broker: that broker's answer says why.
func (t *transport) coordinator(ctx context.Context, group string) (string, error) {
	if address := t.topology.coordinator(group); address != "" {
		return address, nil
	}
	res, err := t.brokers.exchange(ctx, anyBroker, &findcoordinator.Request{Key: group}, func() {})
	if err != nil {
		return "", explainConnection(err, t.security, !t.reached.Load())
	}
	answer := res.(*findcoordinator.Response)
	switch code := kafka.Error(answer.ErrorCode); {
	case code == kafka.GroupAuthorizationFailed:
		return anyBroker, nil
	case code != 0:
		return "", code
	}
	address := addressOf(answer.Host, answer.Port)
	t.topology.setCoordinator(group, address)
	return address, nil
}

// missingACLs collects the resources that an answer refuses access to.
type missingACLs struct {
	code  kafka.Error
	names []string
}

// observe records an error code and the name of its resource, if the code is a refusal.
func (r *missingACLs) observe(code int16, name string) {
	if c := kafka.Error(code); refusedResources[c] != "" {
		r.code = c
		if !slices.Contains(r.names, name) {
			r.names = append(r.names, name)
		}
	}
}

// explain returns the AccessError of a request, which may be for a group, or nil if nothing was refused.
func (r *missingACLs) explain(request protocol.ApiKey, group string, who func() string) error {
	a, ok := neededACL(request, r.code)
	if !ok {
		return nil
	}
	switch a.resource {
	case "Cluster": // the names are those of brokers
	case "Group": // an answer may name each partition
		a.name = group
	default:
		slices.Sort(r.names)
		a.name = strings.Join(r.names, ", ")
	}
	return denied(who(), a, r.code)
}

// eachErrorCode calls see with every error code of an answer and with the name of the topic, group or other resource that the code is about.
func eachErrorCode(req kafka.Request, res kafka.Response, see func(code int16, name string)) {
	switch r := res.(type) {
	case messageAnswer:
		switch f := r.Response.(type) {
		case *kmsg.FetchResponse:
			topic, _ := partitionOf(req)
			see(int16(fetchError(f)), topic)
		case *kmsg.HeartbeatResponse:
			see(f.ErrorCode, groupOf(req))
		}
	case *produce.Response: // the most frequent one, without reflection
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				see(r.Topics[i].Partitions[j].ErrorCode, r.Topics[i].Topic)
			}
		}
	default:
		eachCodeIn(reflect.ValueOf(res).Elem(), groupOf(req), see)
	}
}

// eachCodeIn is eachErrorCode for a structure of the client library. Its error code is in the field
// ErrorCode. The resource is named there, or in the structure around it.
func eachCodeIn(v reflect.Value, name string, see func(code int16, name string)) {
	for _, field := range []string{"Topic", "Name", "GroupID", "ResourceName"} {
		if f := v.FieldByName(field); f.IsValid() {
			name = f.String()
		}
	}
	if code := v.FieldByName("ErrorCode"); code.IsValid() {
		see(int16(code.Int()), name)
	}
	for _, f := range v.Fields() {
		if f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct {
			for i := range f.Len() {
				eachCodeIn(f.Index(i), name, see)
			}
		}
	}
}

// groupOf returns the group of a request that goes to a coordinator; "" for any other request.
func groupOf(req kafka.Request) string {
	switch r := req.(type) {
	case *message:
		if h, ok := r.Request.(*kmsg.HeartbeatRequest); ok {
			return h.Group
		}
	case protocol.GroupMessage:
		return r.Group()
	}
	return ""
}

// partitionOf returns a partition of a request that goes to its leader. For any other request the topic is "".
func partitionOf(req kafka.Request) (topic string, partition int) {
	switch r := req.(type) {
	case *message:
		if f, ok := r.Request.(*kmsg.FetchRequest); ok {
			return f.Topics[0].Topic, int(f.Topics[0].Partitions[0].Partition)
		}
	case *rawproduce.Request:
		return r.Topics[0].Topic, int(r.Topics[0].Partitions[0].Partition)
	}
	return "", 0
}
