package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"orderclose"
	"orderclose/internal/loglimit"
)

const (
	// metadataTTL is how often the topics in use are asked for. A leader that refuses a
	// request, or does not answer, has its topic asked for at once.
	metadataTTL = 1 * time.Second
	// brokersTTL is the most between two looks of the client library at the brokers. It is
	// also the deadline of that request. A broker that is missing is asked for at once.
	brokersTTL = requestTimeout
	// requestTimeout bounds every request, so that a loop always turns. The
	// client library tells the broker half of it.
	requestTimeout = 5 * time.Second
	// idleTimeout keeps connections through quiet times: the next burst should
	// not begin with dialling. The library's default is 30 s.
	idleTimeout = 9 * time.Minute
)

// keepAlive has the kernel close a connection 8 s after the broker's machine was last
// heard of. Otherwise each of the idle connections costs a request its deadline.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 5}

// Options say how to reach a cluster.
type Options struct {
	Brokers  []string // host:port, at least one
	ClientID string   // what brokers log; default "orderclose"
	// Dial opens connections; default a net.Dialer. Tests give an in-memory one.
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
	Security Security // of every connection; default: none
	// Scribble is for tests: what was freed is written over at once, so that whoever
	// reads it still is seen.
	Scribble bool
	Logger   *slog.Logger // default: discard
}

// Cluster is a connection to a Kafka cluster, safe for concurrent use.
type Cluster struct {
	opts      Options
	connect   *connector
	transport *transport
	client    *kafka.Client

	memories memories
	buffers  buffers
	clock    atomic.Pointer[BrokerClock] // that Keep keeps; nil: none
	listed   listed
	brokers  brokers

	mu     sync.Mutex
	counts map[string]partitionCount // by topic
	noIDs  time.Time                 // when the brokers were last found to have no topic ids
}

// partitionCount is a number of partitions and when it was asked for.
type partitionCount struct {
	n  int
	at time.Time
}

// New returns a Cluster. It connects to nothing yet; Ping does.
func New(o Options) (*Cluster, error) {
	if len(o.Brokers) == 0 {
		return nil, fmt.Errorf("kafka: no brokers given: set ORDERCLOSE_KAFKA_BROKERS to host:port,host:port")
	}
	if o.ClientID == "" {
		o.ClientID = "orderclose"
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 3 * time.Second, KeepAliveConfig: keepAlive}).DialContext
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	mechanism, err := o.Security.mechanism()
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	if warning := o.Security.warning(); warning != "" {
		o.Logger.Warn(warning, "user", o.Security.SASL.User)
	}
	o.Security = o.Security.withoutPassword() // which the mechanism alone has from here on
	connect := newConnector(o, mechanism)
	t := &transport{connect: connect, security: o.Security, addr: kafka.TCP(anyBroker), Transport: &kafka.Transport{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return connect.open(ctx, o.Dial, network, address)
		},
		DialTimeout: connect.timeout(),
		IdleTimeout: idleTimeout,
		MetadataTTL: brokersTTL,
		// No topic, rather than all of them: only the brokers.
		MetadataTopics: []string{},
		ClientID:       o.ClientID,
	}}
	t.topology = newTopology(t.askTopics)
	t.lifetime, t.end = context.WithCancel(context.Background())
	client := &kafka.Client{Addr: t.addr, Timeout: requestTimeout, Transport: t}
	return &Cluster{opts: o, connect: connect, transport: t, client: client, memories: memories{scribble: o.Scribble}, counts: map[string]partitionCount{}}, nil
}

// Close closes the connections. What is still under way fails.
func (c *Cluster) Close() {
	c.transport.close()
	c.transport.CloseIdleConnections()
}

// Ping reports whether the cluster answers. The error names the brokers.
func (c *Cluster) Ping(ctx context.Context) error {
	if _, err := c.metadata(ctx); err != nil {
		return fmt.Errorf("kafka at %v does not answer: %w", c.opts.Brokers, err)
	}
	return nil
}

// Partitions returns how many partitions the topic has, or had within the last
// three seconds.
func (c *Cluster) Partitions(ctx context.Context, topic string) (int, error) {
	// The library keeps metadata too, but each look at it builds an answer anew.
	c.mu.Lock()
	known := c.counts[topic]
	c.mu.Unlock()
	if known.n > 0 && time.Since(known.at) < metadataTTL {
		return known.n, nil
	}
	n, err := c.askPartitions(ctx, topic)
	c.mu.Lock()
	c.counts[topic] = partitionCount{n, time.Now()}
	c.mu.Unlock()
	return n, err
}

func (c *Cluster) askPartitions(ctx context.Context, topic string) (int, error) {
	res, err := c.metadata(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("topic %s: %w", topic, err)
	}
	for _, t := range res.Topics {
		if t.Name == topic && t.Error == nil && len(t.Partitions) > 0 {
			return len(t.Partitions), nil
		}
	}
	return 0, fmt.Errorf("topic %s: %w: run orderclose topics apply", topic, kafka.UnknownTopicOrPartition)
}

// Spread sorts records of a claim by the partition of another topic that each
// belongs to. Where the topic has as many partitions as the claim's, that is the
// claim's for all of them: they are there because of their keys already. Else, as
// while partitions are being added, each goes by its key.
func (c *Cluster) Spread(ctx context.Context, claim orderclose.Claim, topic string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	if own, err := c.Partitions(ctx, claim.Topic); err == nil && own == n {
		return map[int][]orderclose.RawRecord{claim.Partition: records}, nil
	}
	return byKey(records, n), nil
}

// ByKey sorts records by the partition of a topic that each belongs to by its key,
// in their order.
func (c *Cluster) ByKey(ctx context.Context, topic string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	return byKey(records, n), nil
}

func byKey(records []orderclose.RawRecord, n int) map[int][]orderclose.RawRecord {
	spread := map[int][]orderclose.RawRecord{}
	for _, r := range records {
		p := PartitionOf(r.Key(), n)
		spread[p] = append(spread[p], r)
	}
	return spread
}

// metadata describes the topics; without names, the brokers alone. A topic that we may
// not see is an AccessError.
func (c *Cluster) metadata(ctx context.Context, topics ...string) (*kafka.MetadataResponse, error) {
	return c.client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
}

// PartitionOf returns where a record with this key belongs among n partitions:
// where Java clients put it (murmur2).
func PartitionOf(key []byte, n int) int {
	all := firstPartitions
	if n > len(all) {
		all = sequence(n)
	}
	return kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: key}, all[:n]...)
}

// firstPartitions spares PartitionOf a slice per record; it is never written.
var firstPartitions = sequence(1024)

func sequence(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}
