package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/retry"
)

// requestTimeout is how long an answer may take, from the request on, besides the time for which the request makes the broker
// wait. Brokers that take 3 s are slow, and not dead. The client library sends half of it to the broker as the request's timeout.
const requestTimeout = 5 * time.Second

// errNotSent means that a request was not sent: its partition has no leader, or its broker cannot be reached.
var errNotSent = errors.New("the request was not sent")

// notSent is an error that is errNotSent too.
type notSent struct{ error }

func (e notSent) Unwrap() []error { return []error{e.error, errNotSent} }

// errCoordinatorSilent means that the coordinator of a group did not answer. Another broker may be the coordinator by now.
var errCoordinatorSilent = errors.New("the group's coordinator does not answer")

// transport sends every request of this package, also those of the client library: to the right broker, by one connection, once. Only
// the callers repeat requests. Callers give the error codes of answers to judge.
type transport struct {
	brokers  *brokers
	topology *topology
	security Security
	reached  atomic.Bool // a request has been answered
}

// route says which broker must answer a request.
type route struct {
	address string // or anyBroker
	// The broker leads a partition of the topic, or is the coordinator of the group. If it gives no answer, another broker may be that
	// by now. At most one of both is set.
	topic, group string
	wait         time.Duration // how long the request makes the broker wait, such as for records; see requestTimeout
}

// RoundTrip implements kafka.RoundTripper, for the requests of the client library. It sends a request once, to the broker that must
// answer it, and returns the answer. Each answer has requestTimeout, also those about the leader or the coordinator, and those of a
// new connection.
func (t *transport) RoundTrip(ctx context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	to, err := t.route(ctx, req)
	if err != nil {
		return nil, err
	}
	return t.send(ctx, to, req)
}

// send sends a request of the client library.
func (t *transport) send(ctx context.Context, to route, req kafka.Request) (kafka.Response, error) {
	return exchange(ctx, t, to, func(c *conn) (kafka.Response, error) { return c.exchange(req) })
}

// route returns the broker that must answer a request of the client library.
func (t *transport) route(ctx context.Context, req kafka.Request) (route, error) {
	switch r := req.(type) {
	case protocol.GroupMessage:
		return t.coordinator(ctx, r.Group())
	case protocol.BrokerMessage: // the controller, or the broker whose settings it is about
		cluster, err := t.cluster(ctx)
		if err != nil {
			return route{}, err
		}
		if to, err := r.Broker(cluster); err == nil && to.Host != "" {
			return route{address: addressOf(to.Host, to.Port)}, nil
		}
	}
	return route{}, nil
}

// leader returns the leader of a partition.
func (t *transport) leader(ctx context.Context, topic string, partition int) (route, error) {
	known, err := t.routable(ctx, topic)
	if err != nil {
		return route{}, err
	}
	address, err := t.topology.leader(known, partition)
	if err != nil {
		return route{}, err
	}
	return route{address: address, topic: topic}, nil
}

// coordinator returns the coordinator of a group. If this user may not know it, that is any broker: that broker's answer says why.
func (t *transport) coordinator(ctx context.Context, group string) (route, error) {
	if address := t.topology.coordinator(group); address != "" {
		return route{address: address, group: group}, nil
	}
	res, err := t.send(ctx, route{}, &findcoordinator.Request{Key: group})
	if err != nil {
		return route{}, err
	}
	answer := res.(*findcoordinator.Response)
	switch code := kafka.Error(answer.ErrorCode); {
	case code == kafka.GroupAuthorizationFailed:
		return route{group: group}, nil
	case code != 0:
		return route{}, code
	}
	address := addressOf(answer.Host, answer.Port)
	t.topology.setCoordinator(group, address)
	return route{address: address, group: group}, nil
}

// exchange calls send with a connection to a broker, and returns the answer, or an error when ctx ends. It repeats nothing. A
// connection that was open and broke says nothing about the broker. A broker that cannot be reached or does not answer in time, also
// after ctx has ended, may no longer be the leader or the coordinator.
func exchange[Answer any](ctx context.Context, t *transport, to route, send func(*conn) (Answer, error)) (answer Answer, err error) {
	lost := func() {
		t.topology.setCoordinator(to.group, "")
		t.topology.suspect(to.topic)
	}
	c, err := t.brokers.take(ctx, to.address)
	if err != nil {
		if ctx.Err() == nil {
			lost()
		}
		return answer, notSent{t.explain(err, to)}
	}
	var late Answer // not the result: it may come after ctx has ended
	answered, released := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(released)
		sent, failed := sinceStart(), c.begin(to.wait)
		if failed == nil {
			late, failed = send(c)
		}
		err := failed
		if errors.Is(failed, os.ErrDeadlineExceeded) {
			lost()
			err = fmt.Errorf("broker %s gives no answer: %w", c.broker.address, context.DeadlineExceeded)
		}
		if answered <- err; c.muted > 0 {
			retry.Sleep(t.brokers.lifetime, c.muted)
			c.muted = 0
		}
		t.brokers.release(c, sent, failed)
	}()
	select {
	case err = <-answered:
	case <-ctx.Done(): //mutant:given-up-closes
		return answer, t.explain(ctx.Err(), to)
	}
	select {
	case <-released: // a caller that went on would open another connection, and use up more of the quota
	case <-ctx.Done(): // the answer counts nevertheless
	}
	if err != nil {
		return answer, t.explain(err, to)
	}
	t.reached.Store(true)
	return late, nil
}

// explain returns the error of a request without an answer.
func (t *transport) explain(err error, to route) error {
	err = explainConnection(err, t.security, !t.reached.Load())
	if access := (*AccessError)(nil); to.group != "" && !errors.As(err, &access) {
		err = fmt.Errorf("%w: %w", errCoordinatorSilent, err)
	}
	return err
}

// about is what an error code of an answer is about: the request, and its topic or group.
type about struct {
	request      protocol.ApiKey
	topic, group string
}

// judge returns the error of an answer, or nil if its code is 0. If the code says that a leader or a coordinator has moved, judge
// notes that. If the code refuses access, the error is an AccessError.
func (t *transport) judge(of about, err error) error {
	code, ok := errors.AsType[kafka.Error](err)
	if !ok {
		return err
	}
	switch code {
	case 0:
		return nil
	case kafka.NotCoordinatorForGroup, kafka.GroupCoordinatorNotAvailable:
		t.topology.setCoordinator(of.group, "")
	case kafka.NotLeaderForPartition, kafka.UnknownTopicOrPartition, kafka.LeaderNotAvailable, kafka.ReplicaNotAvailable,
		kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, kafka.KafkaStorageError, kafka.UnknownTopicID, kafka.Unknown:
		t.topology.suspect(of.topic)
	}
	if needed, refused := neededACL(of, code); refused { //mutant:refusal-unexplained
		return denied(t.security.who(), needed, err)
	}
	return err
}

// askTopics asks any broker for the metadata of topics by name; nil means all topics. It never creates a topic.
func (t *transport) askTopics(ctx context.Context, names []string) (*kmsg.MetadataResponse, error) {
	return t.askBroker(ctx, anyBroker, names)
}

// askBroker is askTopics of the broker at an address.
func (t *transport) askBroker(ctx context.Context, address string, names []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	if names != nil {
		req.Topics = []kmsg.MetadataRequestTopic{}
	}
	for _, name := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	answer, err := req.RequestWith(ctx, query{transport: t, route: route{address: address}, version: metadataWithID})
	if err == nil {
		t.brokers.learn(answer.Brokers)
	}
	return answer, err
}

// describe returns the answers about topics, as in topology.lookup. If this user may not see one
// of the topics, it returns an AccessError.
func (t *transport) describe(ctx context.Context, enough func(topic) bool, names ...string) ([]topic, error) {
	found, err := t.topology.lookup(ctx, names, enough)
	var hidden []string
	for _, known := range found {
		if known.code == kafka.TopicAuthorizationFailed {
			hidden = append(hidden, known.name)
		}
		if known.at.IsZero() && err != nil {
			return found, err
		}
	}
	if len(hidden) > 0 {
		return found, t.hidden(protocol.Metadata, hidden)
	}
	return found, err
}

// hidden returns the AccessError of a request about topics that this user may not see.
func (t *transport) hidden(request protocol.ApiKey, topics []string) error {
	slices.Sort(topics)
	return t.judge(about{request: request, topic: strings.Join(slices.Compact(topics), ", ")}, kafka.TopicAuthorizationFailed)
}

// routable returns the answer about a topic by which requests are routed. An old answer may still be right, so it counts if there is no newer one.
func (t *transport) routable(ctx context.Context, name string) (topic, error) {
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
