package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	metadataAPI "github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// minRefreshInterval is the shortest time between two requests for a topic that may have
	// changed. While a partition has no leader, every answer marks its topic as one that may
	// have changed, and without this limit each request would cause a refresh.
	minRefreshInterval = 100 * time.Millisecond
	// refreshFor is how long after the last request a topology is still refreshed.
	refreshFor = 10 * time.Second
)

// topology caches the metadata of the topics that this process uses: their partitions and
// leaders. The client library would request the metadata of every topic of the cluster, or
// of a list that cannot change, and would use an answer only within its time to live.
//
// Requests are routed by the cached metadata, however old it is. While there are requests,
// all of it is refreshed every metadataTTL in the background. When an answer, or a missing
// answer, says that a topic may have changed, the topic is refreshed before its next request.
type topology struct {
	ask func(ctx context.Context, topics []string) (*metadataAPI.Response, error)

	refreshLock chan struct{} // is held while asking; acquire it before mu, never while holding mu

	mu         sync.Mutex
	used       time.Time        // when the last request was routed
	refreshing bool             // refreshLoop runs
	cluster    protocol.Cluster // without topics; is replaced, never changed
	brokers    []metadataAPI.ResponseBroker
	topics     map[string]topic
}

// topic is the last answer about a topic.
type topic struct {
	metadataAPI.ResponseTopic
	layout  protocol.Topic
	at      time.Time // when the answer was requested; zero: there is none
	suspect bool      // the topic may have changed since
}

func newTopology(ask func(context.Context, []string) (*metadataAPI.Response, error)) *topology {
	return &topology{ask: ask, refreshLock: make(chan struct{}, 1), topics: map[string]topic{}}
}

// usable reports whether requests may be routed by the cached answer.
func (t topic) usable() bool {
	return !t.at.IsZero() && (!t.suspect || time.Since(t.at) < minRefreshInterval)
}

// recent reports whether the cached answer is recent enough to describe the topic.
func (t topic) recent() bool {
	if t.suspect || t.ErrorCode != 0 {
		return time.Since(t.at) < minRefreshInterval
	}
	return time.Since(t.at) < 2*metadataTTL // one refresh and its answer
}

// all reports whether enough is true for each topic.
func (t *topology) all(names []string, enough func(topic) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return !enough(t.topics[name]) })
}

// ensure refreshes the cache, at most once, if enough is false for one of the topics. Only one
// goroutine refreshes at a time, and each refresh asks for all cached topics.
func (t *topology) ensure(ctx context.Context, names []string, enough func(topic) bool) error {
	if t.all(names, enough) {
		return nil
	}
	select {
	case t.refreshLock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.refreshLock }()
	if t.all(names, enough) { // another goroutine has refreshed meanwhile
		return nil
	}
	return t.refresh(ctx, names)
}

// refresh requests the named topics and all cached topics. The caller holds refreshLock.
func (t *topology) refresh(ctx context.Context, names []string) error {
	t.mu.Lock()
	asked := append([]string{}, names...) // never nil, which would mean all topics
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

// layoutOf converts an answer to the type that the client library's routing uses.
func layoutOf(answer metadataAPI.ResponseTopic) protocol.Topic {
	layout := protocol.Topic{Name: answer.Name, Error: answer.ErrorCode, Partitions: map[int32]protocol.Partition{}}
	for _, p := range answer.Partitions {
		layout.Partitions[p.PartitionIndex] = protocol.Partition{ID: p.PartitionIndex, Error: p.ErrorCode, Leader: p.LeaderID}
	}
	return layout
}

// layout returns the cluster with the named topics, for routing. It leaves out topics that do
// not exist or that this user may not see; the latter are in hidden. It fails only if a topic
// has no cached answer and the refresh failed: an old answer may still be right.
func (t *topology) layout(ctx context.Context, names []string) (cluster protocol.Cluster, hidden missingACLs, err error) {
	failed := t.ensure(ctx, names, topic.usable)
	t.mu.Lock()
	defer t.mu.Unlock()
	cluster = t.cluster
	cluster.Topics = make(map[string]protocol.Topic, len(names))
	for _, name := range names {
		known := t.topics[name]
		if known.at.IsZero() {
			return cluster, hidden, failed
		}
		hidden.observe(known.ErrorCode, name)
		if len(known.Partitions) > 0 {
			cluster.Topics[name] = known.layout
		}
	}
	return cluster, hidden, nil
}

// describe answers a metadata request about topics. Without names the request is about the
// brokers, and describe forwards it.
func (t *topology) describe(ctx context.Context, names []string) (*metadataAPI.Response, error) {
	if len(names) == 0 {
		return t.ask(ctx, []string{}) // nil would mean all topics
	}
	if err := t.ensure(ctx, names, topic.recent); err != nil {
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

// keepRecent starts refreshLoop if it does not run, and does not wait for it. run starts a
// function in the background, or returns false.
func (t *topology) keepRecent(run func(func(context.Context)) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = time.Now()
	if !t.refreshing {
		t.refreshing = run(t.refreshLoop)
	}
}

// refreshLoop refreshes every metadataTTL, until there was no request for refreshFor or ctx
// ends. The rate does not depend on the rate of requests.
func (t *topology) refreshLoop(ctx context.Context) {
	for retry.Sleep(ctx, metadataTTL) {
		t.mu.Lock()
		t.refreshing = time.Since(t.used) < refreshFor
		goesOn := t.refreshing
		t.mu.Unlock()
		if !goesOn {
			return
		}
		select {
		case t.refreshLock <- struct{}{}:
			limited, cancel := context.WithTimeout(ctx, requestTimeout)
			t.refresh(limited, nil) // after a failure the cached answers stay
			cancel()
			<-t.refreshLock
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

// forget drops all cached topics, after this process has changed topics.
func (t *topology) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.topics)
}

// observe marks a topic as suspect if an error code says that it may have changed.
func (t *topology) observe(code int16, name string) {
	switch kafka.Error(code) {
	case kafka.NotLeaderForPartition, kafka.UnknownTopicOrPartition, kafka.LeaderNotAvailable, kafka.ReplicaNotAvailable,
		kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, kafka.KafkaStorageError, kafka.UnknownTopicID, kafka.Unknown:
		t.suspect(name)
	}
}
