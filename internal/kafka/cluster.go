package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
)

// keepAlive makes the kernel close a connection 8 s after the last packet from the broker's
// machine. Otherwise each idle connection to a dead machine costs one request its deadline.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 5}

// Options say how to reach a cluster.
type Options struct {
	Brokers  []string // host:port, at least one
	ClientID string   // default "orderclose"; memberships: see NameMember
	// Dial opens TCP connections. Default: a net.Dialer. Tests pass an in-memory one.
	Dial           func(ctx context.Context, network, address string) (net.Conn, error)
	Security       Security      // of every connection; default: none
	SessionTimeout time.Duration // how long a group waits for a member that is silent; default DefaultSessionTimeout
	// PoisonFreedMemory is for tests. Freed memory is overwritten at once, so that reading
	// it after Free is noticed.
	PoisonFreedMemory bool
	Logger            *slog.Logger // default: warnings and errors, to slog.Default
}

// Cluster is a connection to a Kafka cluster, safe for concurrent use.
type Cluster struct {
	*send.Appender
	opts      Options
	transport *transport
	client    *kafka.Client // encodes most requests; transport sends them

	answers   answerPool
	batches   sync.Pool // of *[]byte: batches that were acked, see idempotentProducer.try
	topicList atomic.Pointer[topicList]
	member    atomic.Pointer[string] // the client id of memberships
	instance  instance
	onAck     atomic.Pointer[ackFunc]

	heartbeats heartbeats
	notJoined  sync.Map     // of notJoined, by the membership
	claimed    sync.Map     // each *claimedLog that noteEnds asks about
	endsNoted  atomic.Int64 // when noteEnds asked last; see sinceStart. 0: never
}

// notJoined is since when a member is not in its group, and why.
type notJoined struct {
	since time.Time // zero: it was never in the group
	why   error     // nil: no try has failed yet
}

// joinSoon is how long a member may fail to join its group before the process is not ready. Rebalances and moves of coordinators take less.
const joinSoon = 10 * time.Second

// NotJoined says why members of this process are not in their group: they have not joined it yet, or have failed to join it again for 10 s. "": all
// are in their groups.
func (c *Cluster) NotJoined() (why string) {
	c.notJoined.Range(func(m, value any) bool {
		group := m.(*membership).group
		switch n := value.(notJoined); {
		case n.since.IsZero() && n.why == nil:
			why = fmt.Sprintf("group %s: not joined yet", group)
		case n.since.IsZero():
			why = fmt.Sprintf("group %s: not joined yet: %v", group, n.why)
		case time.Since(n.since) >= joinSoon:
			why = fmt.Sprintf("no member of group %s could join since %s: %v", group, n.since.UTC().Format(time.RFC3339), n.why)
		}
		return why == ""
	})
	return why
}

// New returns a Cluster. It opens no connection; Ping does.
func New(o Options) (*Cluster, error) {
	if len(o.Brokers) == 0 {
		return nil, errors.New("there are no brokers: name host:port of some brokers of the cluster")
	}
	for _, broker := range o.Brokers {
		if _, _, err := net.SplitHostPort(broker); err != nil {
			return nil, fmt.Errorf("%q is not host:port; write it such as 127.0.0.1:9092", broker)
		}
	}
	o.ClientID = cmp.Or(o.ClientID, "orderclose")
	o.SessionTimeout = cmp.Or(o.SessionTimeout, DefaultSessionTimeout)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	}
	o.Logger = retry.LimitLogs(o.Logger)
	start, err := o.Security.start(o.Logger)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	if warning := o.Security.warning(); warning != "" {
		o.Logger.Warn(warning, "user", o.Security.SASL.User)
	}
	o.Security = o.Security.withoutPassword() // from here on only start knows the password
	c := &Cluster{opts: o, answers: answerPool{poison: o.PoisonFreedMemory}}
	c.member.Store(&o.ClientID)
	c.transport = &transport{security: o.Security, brokers: newBrokers(o.Brokers, connector{
		dial: o.Dial, clientID: o.ClientID, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(o.ClientID)),
		member: &c.member, tls: o.Security.TLS, mechanism: mechanismOf(o.Security), start: start, log: o.Logger,
	})}
	c.transport.topology = newTopology(c.transport.askTopics)
	c.Appender = send.New(send.Options{Log: c, PartitionOf: PartitionOf, Logger: o.Logger})
	c.client = &kafka.Client{Addr: kafka.TCP(o.Brokers...), Timeout: requestTimeout, Transport: c.transport}
	return c, nil
}

// NameMember sets the client id of the memberships of this process that begin from now on: at most
// 200 bytes of it. Status shows it as the owner of partitions. All other requests have
// Options.ClientID, so that quotas for it apply to all processes together.
func (c *Cluster) NameMember(clientID string) {
	c.member.Store(new(strings.ToValidUTF8(clientID[:min(len(clientID), 200)], "")))
}

// Close waits until all records of its Appender were acked or given back, and closes the connections. Other requests in flight fail.
func (c *Cluster) Close() {
	c.Appender.Close()
	c.transport.topology.close()
	c.transport.brokers.close()
}

// Ping returns an error that names the brokers if none of the cluster answers. It asks all of them at once, so that one that hangs keeps nobody waiting.
func (c *Cluster) Ping(ctx context.Context) error {
	asking, enough := context.WithCancel(ctx)
	defer enough()
	return noAnswer(c.opts.Brokers, c.poll(asking, enough))
}

// silentAfter is how long a broker may take to answer Silent. Requests of a status take less while all is well.
const silentAfter = 1500 * time.Millisecond

// Silent returns the addresses of the brokers that do not answer within 1.5 s: those of Options, and those that the cluster reports. The error says
// that none does.
func (c *Cluster) Silent(ctx context.Context) (silent []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, silentAfter)
	defer cancel()
	asked := c.poll(ctx, func() {})
	for address, err := range asked {
		if err != nil {
			silent = append(silent, address)
		}
	}
	slices.Sort(silent)
	c.transport.brokers.skip(silent...)
	return silent, noAnswer(c.opts.Brokers, asked)
}

// noAnswer returns an error that names the configured brokers if none of those that poll has asked has answered.
func noAnswer(configured []string, asked map[string]error) (err error) {
	for _, failed := range asked {
		if failed == nil {
			return nil
		}
		if err == nil || !errors.Is(failed, context.DeadlineExceeded) { // a refusal says more than silence
			err = failed
		}
	}
	return fmt.Errorf("kafka at %v does not answer: %w", configured, err)
}

// poll asks all brokers at once, those of Options and those that they report, until ctx ends. It calls answered after each answer, and returns
// the error of each; nil: it has answered.
func (c *Cluster) poll(ctx context.Context, answered func()) map[string]error {
	var mu sync.Mutex
	var running sync.WaitGroup
	asked := map[string]error{}
	var ask func(addresses []string)
	ask = func(addresses []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, address := range addresses {
			if _, before := asked[address]; before {
				continue
			}
			asked[address] = errNotSent
			running.Go(func() {
				_, err := c.transport.askBroker(ctx, address, []string{})
				mu.Lock()
				asked[address] = err
				mu.Unlock()
				if err == nil {
					answered()
					ask(c.transport.brokers.candidates())
				}
			})
		}
	}
	ask(c.transport.brokers.candidates())
	running.Wait()
	return asked
}

// ErrNoTopic means that a topic does not exist.
var ErrNoTopic error = kafka.UnknownTopicOrPartition

// Partitions returns the number of partitions of the topic. The number may be up to two
// seconds old. The error wraps kafka.UnknownTopicOrPartition if the topic does not exist, and
// an AccessError if this user may not see the topic.
func (c *Cluster) Partitions(ctx context.Context, name string) (int, error) {
	found, err := c.transport.describe(ctx, topic.recent, name)
	switch {
	case err != nil:
		return 0, fmt.Errorf("topic %s: %w", name, err)
	case !found[0].exists():
		return 0, fmt.Errorf("topic %s: %w: run orderclose topics apply", name, ErrNoTopic)
	}
	return len(found[0].leaders), nil
}

// Exists reports whether the topic exists. If this user may not see the topic, Exists
// returns true, and an append to it will report the missing access.
func (c *Cluster) Exists(ctx context.Context, topic string) (bool, error) {
	_, err := c.Partitions(ctx, topic)
	switch {
	case err == nil, hiddenTopic(err):
		return true, nil
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		return false, nil
	}
	return false, err
}

// PartitionOf returns the partition of a key among n partitions. It chooses the same
// partition as Java clients (murmur2).
func PartitionOf(key []byte, n int) int {
	all := firstPartitions
	if n > len(all) {
		all = sequence(n)
	}
	return kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: key}, all[:n]...)
}

// firstPartitions saves PartitionOf one slice per record. It is never written.
var firstPartitions = sequence(1024)

func sequence(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}
