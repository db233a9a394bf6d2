package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	metadataAPI "github.com/segmentio/kafka-go/protocol/metadata"

	"orderclose/internal/partition"
)

const (
	// suspectFor is how long a topology waits before it asks again for a topic that may
	// have changed: while a partition has no leader, every request finds a change.
	suspectFor = 100 * time.Millisecond
	// keepFor is how long after the last request a topology is kept recent.
	keepFor = 10 * time.Second
)

// topology knows the topics that this process uses: their partitions and leaders. The
// client library would ask for every topic of the cluster, or for a list that cannot
// change, and would accept an answer only within its time to live.
//
// Requests are routed by what is known, however old. While there are requests, all of it
// is asked for again every metadataTTL in the background. A topic is asked for before its
// next request when an answer, or a missing one, says that it may have changed.
type topology struct {
	ask func(ctx context.Context, topics []string) (*metadataAPI.Response, error)

	turn chan struct{} // held while asking; never while mu is

	mu      sync.Mutex
	used    time.Time        // when a request was routed last
	keeping bool             // keep runs
	cluster protocol.Cluster // its brokers; replaced, never changed
	brokers []metadataAPI.ResponseBroker
	topics  map[string]topic
}

// topic is the last answer about a topic.
type topic struct {
	metadataAPI.ResponseTopic
	layout  protocol.Topic
	at      time.Time // when it was asked for
	suspect bool      // it may have changed since
}

func newTopology(ask func(context.Context, []string) (*metadataAPI.Response, error)) *topology {
	return &topology{ask: ask, turn: make(chan struct{}, 1), topics: map[string]topic{}}
}

// usable says whether requests may be routed by what is known of a topic.
func (t topic) usable() bool {
	return !t.at.IsZero() && (!t.suspect || time.Since(t.at) < suspectFor)
}

// recent says whether the answer is good enough for who asks how a topic is.
func (t topic) recent() bool {
	if t.suspect || t.ErrorCode != 0 {
		return time.Since(t.at) < suspectFor
	}
	return time.Since(t.at) < 2*metadataTTL // a round and its answer
}

// all says whether enough holds for each topic.
func (t *topology) all(names []string, enough func(topic) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return !enough(t.topics[name]) })
}

// learn asks the cluster until enough holds for each of the topics, once at most. One
// request at a time asks for all topics that are known.
func (t *topology) learn(ctx context.Context, names []string, enough func(topic) bool) error {
	if t.all(names, enough) {
		return nil
	}
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.turn }()
	if t.all(names, enough) { // somebody else asked meanwhile
		return nil
	}
	return t.refresh(ctx, names)
}

// refresh asks for the topics and for all that are known. The caller has the turn.
func (t *topology) refresh(ctx context.Context, names []string) error {
	t.mu.Lock()
	asked := append([]string{}, names...) // never nil, which would be all topics
	for name := range t.topics {
		if !slices.Contains(asked, name) {
			asked = append(asked, name)
		}
	}
	t.mu.Unlock()
	at := time.Now()
	res, err := t.ask(ctx, asked)
	if err != nil {
		return err
	}
	cluster := protocol.Cluster{ClusterID: res.ClusterID, Controller: res.ControllerID, Brokers: map[int32]protocol.Broker{}}
	for _, b := range res.Brokers {
		cluster.Brokers[b.NodeID] = protocol.Broker{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: b.Rack}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cluster, t.brokers = cluster, res.Brokers
	for _, answer := range res.Topics {
		t.topics[answer.Name] = topic{ResponseTopic: answer, layout: layoutOf(answer), at: at}
	}
	return nil
}

// layoutOf is an answer in the words of the client library's routing.
func layoutOf(answer metadataAPI.ResponseTopic) protocol.Topic {
	layout := protocol.Topic{Name: answer.Name, Error: answer.ErrorCode, Partitions: map[int32]protocol.Partition{}}
	for _, p := range answer.Partitions {
		layout.Partitions[p.PartitionIndex] = protocol.Partition{ID: p.PartitionIndex, Error: p.ErrorCode, Leader: p.LeaderID}
	}
	return layout
}

// layout returns the cluster with these topics, by which requests are routed. Topics
// that do not exist are left out, and so are those that are hidden from us. It fails only
// if nothing is known of a topic: else the last answer may still be right.
func (t *topology) layout(ctx context.Context, names []string) (cluster protocol.Cluster, hidden refusals, err error) {
	failed := t.learn(ctx, names, topic.usable)
	t.mu.Lock()
	defer t.mu.Unlock()
	cluster = t.cluster
	cluster.Topics = make(map[string]protocol.Topic, len(names))
	for _, name := range names {
		known := t.topics[name]
		if known.at.IsZero() {
			return cluster, hidden, failed
		}
		hidden.see(known.ErrorCode, name)
		if len(known.Partitions) > 0 {
			cluster.Topics[name] = known.layout
		}
	}
	return cluster, hidden, nil
}

// describe answers a metadata request about topics. If it names none, it is about the
// brokers, which are asked for.
func (t *topology) describe(ctx context.Context, names []string) (*metadataAPI.Response, error) {
	if len(names) == 0 {
		return t.ask(ctx, []string{}) // nil would be all topics
	}
	if err := t.learn(ctx, names, topic.recent); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	res := &metadataAPI.Response{ClusterID: t.cluster.ClusterID, ControllerID: t.cluster.Controller, Brokers: t.brokers}
	for _, name := range names {
		res.Topics = append(res.Topics, t.topics[name].ResponseTopic)
	}
	return res, nil
}

// keepRecent has what requests are routed by refreshed while there are requests. It does
// not wait: run starts a function in the background, or reports false.
func (t *topology) keepRecent(run func(func(context.Context)) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = time.Now()
	if !t.keeping {
		t.keeping = run(t.keep)
	}
}

// keep refreshes every metadataTTL until there was no request for keepFor, or ctx ends.
// The rate does not depend on when requests come.
func (t *topology) keep(ctx context.Context) {
	for partition.Sleep(ctx, metadataTTL) {
		t.mu.Lock()
		t.keeping = time.Since(t.used) < keepFor
		goesOn := t.keeping
		t.mu.Unlock()
		if !goesOn {
			return
		}
		select {
		case t.turn <- struct{}{}:
			limited, cancel := context.WithTimeout(ctx, requestTimeout)
			t.refresh(limited, nil) // what is known holds until this succeeds
			cancel()
			<-t.turn
		case <-ctx.Done():
		}
	}
}

// suspect marks topics that may have changed.
func (t *topology) suspect(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if known, ok := t.topics[name]; ok {
			known.suspect = true
			t.topics[name] = known
		}
	}
}

// forget forgets every topic, after a change of ours.
func (t *topology) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.topics)
}

// see takes an error code of an answer about a topic.
func (t *topology) see(code int16, name string) {
	switch kafka.Error(code) {
	case kafka.NotLeaderForPartition, kafka.UnknownTopicOrPartition, kafka.LeaderNotAvailable, kafka.ReplicaNotAvailable,
		kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, kafka.KafkaStorageError, kafka.UnknownTopicID, kafka.Unknown:
		t.suspect(name)
	}
}
