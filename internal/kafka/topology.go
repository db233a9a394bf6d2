package kafka

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/retry"
)

const (
	// metadataTTL is how often the metadata of the topics in use is refreshed. A leader that
	// refuses a request, or does not answer, causes a refresh at once.
	metadataTTL = 1 * time.Second
	// minRefreshInterval is the shortest time between two requests for a topic that may have
	// changed. While a partition has no leader, every answer marks its topic as one that may
	// have changed, and without this limit each request would cause a refresh.
	minRefreshInterval = 100 * time.Millisecond
	// refreshFor is how long after the last request a topology is still refreshed.
	refreshFor = 10 * time.Second
	// metadataWithID is the first version of metadata with topic ids (Kafka 2.8).
	metadataWithID = 10
)

// topology caches the metadata of a cluster that this process uses: partitions, leaders and ids
// of topics, and the coordinators of groups. Every request is routed by it.
//
// Requests are routed by the cached metadata, however old it is. While there are requests,
// all of it is refreshed every metadataTTL in the background. When an answer, or a missing
// answer, says that a topic may have changed, the topic is refreshed before its next request.
type topology struct {
	ask func(ctx context.Context, topics []string) (*kmsg.MetadataResponse, error)

	lifetime    context.Context // of refreshLoop
	end         context.CancelFunc
	loop        sync.WaitGroup
	refreshLock chan struct{} // is held while asking; acquire it before mu, never while holding mu

	mu           sync.Mutex
	used         time.Time // when the last request was routed
	refreshing   bool      // refreshLoop runs
	topics       map[string]topic
	coordinators map[string]string // the address of each group's coordinator
}

// topic is the last answer about a topic.
type topic struct {
	name     string
	code     kafka.Error
	id       [16]byte
	leaders  []string      // of each partition: the address of its leader; "": it has none
	replicas int           // of partition 0
	at       time.Time     // when the answer was requested; zero: there is none
	took     time.Duration // until the answer came
	suspect  bool          // the topic may have changed since
}

func newTopology(ask func(context.Context, []string) (*kmsg.MetadataResponse, error)) *topology {
	t := &topology{ask: ask, refreshLock: make(chan struct{}, 1), topics: map[string]topic{}, coordinators: map[string]string{}}
	t.lifetime, t.end = context.WithCancel(context.Background())
	return t
}

// close ends refreshLoop, and waits for it.
func (t *topology) close() {
	t.mu.Lock()
	t.end() // under mu: keepRecent starts no loop from now on
	t.mu.Unlock()
	t.loop.Wait()
}

// exists reports whether the topic exists and this user may see it.
func (t topic) exists() bool { return t.code == 0 && len(t.leaders) > 0 }

// usable reports whether requests may be routed by the cached answer.
func (t topic) usable() bool {
	return !t.at.IsZero() && (!t.suspect || time.Since(t.at) < minRefreshInterval)
}

// recent reports whether the cached answer is recent enough to describe the topic.
func (t topic) recent() bool {
	if t.suspect || t.code != 0 {
		return time.Since(t.at) < minRefreshInterval
	}
	return time.Since(t.at) < 2*(metadataTTL+t.took) // one refresh and its answer //mutant:slow-answer-old
}

// cached returns the cached answers, and whether each of them is enough. From now on the topics are cached.
func (t *topology) cached(names []string, enough func(topic) bool) (found []topic, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if _, known := t.topics[name]; !known {
			t.topics[name] = topic{name: name} // every refresh asks about it, also if its caller gives up //mutant:given-up-forgotten
		}
		found = append(found, t.topics[name])
	}
	return found, !slices.ContainsFunc(found, func(known topic) bool { return !enough(known) })
}

// lookup returns the answers about topics. If enough is false for one of them, it refreshes
// the cache first, once. If that fails, it returns the error and the cached answers. Only one
// goroutine refreshes at a time, and each refresh asks for all cached topics.
func (t *topology) lookup(ctx context.Context, names []string, enough func(topic) bool) ([]topic, error) {
	found, ok := t.cached(names, enough)
	if ok {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*requestTimeout) // while the brokers hang, many may wait for the lock
	defer cancel()
	select {
	case t.refreshLock <- struct{}{}:
	case <-ctx.Done():
		return found, ctx.Err()
	}
	defer func() { <-t.refreshLock }()
	if found, ok = t.cached(names, enough); ok { // another goroutine has refreshed meanwhile
		return found, nil
	}
	err := t.refresh(ctx, names)
	found, _ = t.cached(names, enough)
	return found, err
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
	res, err := t.ask(ctx, asked) //mutant:metadata-of-all
	if err != nil {
		return err
	}
	addresses := map[int32]string{}
	for _, b := range res.Brokers {
		addresses[b.NodeID] = addressOf(b.Host, b.Port)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, answer := range res.Topics {
		known := topic{name: *answer.Topic, code: kafka.Error(answer.ErrorCode), id: answer.TopicID, at: at, took: time.Since(at)}
		known.leaders = make([]string, len(answer.Partitions))
		for _, p := range answer.Partitions {
			if int(p.Partition) < len(known.leaders) {
				known.leaders[p.Partition] = addresses[p.Leader]
			}
			if p.Partition == 0 {
				known.replicas = len(p.Replicas)
			}
		}
		t.topics[known.name] = known
	}
	return nil
}

func addressOf(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// leader returns the address of the leader of a partition.
func (t *topology) leader(of topic, partition int) (string, error) {
	err := kafka.LeaderNotAvailable
	switch {
	case partition < 0 || partition >= len(of.leaders):
		err = kafka.UnknownTopicOrPartition
	case of.leaders[partition] != "":
		return of.leaders[partition], nil
	}
	t.suspect(of.name)
	return "", err
}

// keepRecent starts refreshLoop if it does not run, and does not wait for it.
func (t *topology) keepRecent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = time.Now()
	if !t.refreshing && t.lifetime.Err() == nil {
		t.refreshing = true
		t.loop.Go(t.refreshLoop)
	}
}

// refreshLoop refreshes every metadataTTL, until there was no request for refreshFor or the topology
// is closed. The rate does not depend on the rate of requests.
func (t *topology) refreshLoop() {
	for retry.Sleep(t.lifetime, metadataTTL) {
		t.mu.Lock()
		t.refreshing = time.Since(t.used) < refreshFor
		goesOn := t.refreshing
		t.mu.Unlock()
		if !goesOn {
			return
		}
		select {
		case t.refreshLock <- struct{}{}:
			t.refresh(t.lifetime, nil) // after a failure the cached answers stay
			<-t.refreshLock
		case <-t.lifetime.Done():
		}
	}
}

// suspect marks a topic that may have changed.
func (t *topology) suspect(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.topics[name]; ok {
		known.suspect = true //mutant:moved-leader-asked
		t.topics[name] = known
	}
}

// forget drops all that is cached, after this process has changed topics.
func (t *topology) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.topics)
	clear(t.coordinators)
}

// coordinator returns the cached address of a group's coordinator; "": it is not known.
func (t *topology) coordinator(group string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.coordinators[group]
}

// setCoordinator caches the address of a group's coordinator. "" forgets it.
func (t *topology) setCoordinator(group, address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.coordinators, group); address != "" {
		t.coordinators[group] = address
	}
}
