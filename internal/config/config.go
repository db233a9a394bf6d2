// Package config reads what a person sets: topics.yaml (buckets, delays by
// category, names) and the environment (where the servers are, with their
// secrets).
//
// Parse is a pure function of bytes and either returns a whole, checked Config
// or everything that is wrong with the file at once, with line and column. So a
// changed file can be read to the end before anything running is touched.
package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"orderclose"
	"orderclose/internal/tables"
)

// Config is a checked topics.yaml. Treat it as read-only: parts share it.
type Config struct {
	Delays      orderclose.Delays  // by category
	MaxDelay    time.Duration      // no order may be due further ahead
	Buckets     orderclose.Buckets // at least one; shortest first
	Topics      Topics
	Partitions  int // of each delay topic and of those for closing and events
	Replication int
	Compensator Compensator
	Closer      Closer
	Orders      *tables.Mapping // the user's own tables; nil: the reference schema
	OrdersAt    *Source         // where Orders stands in the file; nil as Orders is
	Outbox      Outbox
}

// Topics are the names beside those of the buckets, with the prefix applied.
type Topics struct {
	Prefix     string // what every topic and group name begins with; often ""
	Close      string // due orders
	Replay     string // what is sent again by hand, so that it delays nothing that is due now
	DeadLetter string // records that cannot be handled
	Events     string // what happened to orders, for whoever wants to know
	Control    string // what the parts tell one another
	Delay      string // of a bucket; {bucket} stands for its length
}

// Compensator is how the hourly sweep works.
type Compensator struct {
	Period   time.Duration // from the start of one sweep to the next
	Grace    time.Duration // how long past due an order is left to the pipeline
	PageSize int           // orders per transaction, 1 to MaxBatch
	Rate     int           // orders per second, 1 to MaxRate
	Lock     Lock
	Causes   Causes
}

// MaxCauseRecords bounds Causes.Records: some 60 bytes of each are kept, 600 MB in all.
const MaxCauseRecords = 10_000_000

// Causes bound finding out why the pipeline missed what a sweep found.
type Causes struct {
	Records int           // of all topics that one sweep may look at; 0: none
	Time    time.Duration // for how long one sweep may look
}

// Lock is the lock in Redis under which one process sweeps at a time.
type Lock struct {
	Key    string
	Expiry time.Duration // for how long it is held without an extension
	Extend time.Duration // how often it is extended; at most half of Expiry
}

// Closer is how due orders are closed.
type Closer struct {
	Batch int // orders per transaction, 1 to MaxBatch
	// Latency is how long a transaction may take before fewer orders are closed at
	// once.
	Latency time.Duration
	Kind    ClosingKind // what closing an order means
	HTTP    HTTPClosing // of KindHTTP
	Payment Payment     // asked first, if its URL is set
}

// Outbox is how what stands in the outboxes gets to Kafka.
type Outbox struct {
	Batch    int // rows per transaction, 1 to MaxBatch
	InFlight int // batches at once per process, 1 to 16
}

// MaxBatch is the largest batch and page that is accepted: one statement names
// every order of a transaction, and some databases take no more parameters.
const MaxBatch = 999

// MaxRate is the largest rate of a sweep that is accepted: more than any database
// closes, and so none at all.
const MaxRate = 1_000_000

// Load reads and checks the file at path.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read; name the right topics.yaml: %w", err)
	}
	return Parse(path, data)
}

// Parse reads and checks the content of a topics.yaml; file is its name, for
// messages. The error is of type Problems and names everything that is wrong.
//
// The file must list the buckets. Everything else may be left out: it is then as
// in Default, except that no category has a delay of its own.
func Parse(file string, data []byte) (*Config, error) {
	r := newReader(file)
	s := defaults()
	if r.document(data) {
		if r.root != nil {
			s.grammar()(r, "", r.root)
		}
		r.check(s)
	}
	if len(r.problems) > 0 {
		return nil, r.problems.sorted()
	}
	return s.config(), nil
}

// Default is what the topics.yaml that comes with the program says.
func Default() *Config {
	s := defaults()
	s.delays.ByCategory["virtual"] = 5 * time.Minute
	s.delays.ByCategory["physical"] = 30 * time.Minute
	for _, length := range []time.Duration{
		10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 12 * time.Hour,
	} {
		s.buckets = append(s.buckets, bucket{length: length})
	}
	return s.config()
}

// RelayGroup is the name of the consumer group that empties b. A group belongs
// to one topic, so that a rebalance of one bucket leaves the others alone.
func (c *Config) RelayGroup(b orderclose.Bucket) string {
	return c.group("relay", b.Topic)
}

// CloserGroup is the name of the consumer group that reads the close topic.
func (c *Config) CloserGroup() string { return c.group("closer", c.Topics.Close) }

// ReplayGroup is the name of the consumer group that reads the replay topic.
func (c *Config) ReplayGroup() string { return c.group("closer", c.Topics.Replay) }

// CompensatorGroup is the name in which it is kept how far compensators have read
// the control topic. It has no members.
func (c *Config) CompensatorGroup() string { return c.group("compensator", c.Topics.Control) }

// ReleaseGroup is the name of the consumer group that reads the events to release
// stock.
func (c *Config) ReleaseGroup() string { return c.group("release", c.Topics.Events) }

func (c *Config) group(stage, topic string) string {
	return c.Topics.Prefix + "orderclose-" + stage + "-" + strings.TrimPrefix(topic, c.Topics.Prefix)
}

// settings is a topics.yaml as it is written, before names and buckets are put
// together.
type settings struct {
	prefix, close, replay, deadLetter, events, control, delay string // names without the prefix

	buckets     []bucket
	delays      orderclose.Delays
	maxDelay    time.Duration
	partitions  int
	replication int
	compensator Compensator
	closer      Closer
	orders      *tables.Mapping
	ordersAt    *Source
	outbox      Outbox
}

// bucket is an entry of the list of buckets and where it stands in the file.
type bucket struct {
	path     string // of its length
	length   time.Duration
	draining bool
}

// placeholder is what stands for the bucket's length in the name of its topic.
const placeholder = "{bucket}"

func (s *settings) topicOf(length time.Duration) string { return s.topics().OfBucket(length) }

// OfBucket is the topic of the bucket of a length.
func (t Topics) OfBucket(length time.Duration) string {
	return strings.ReplaceAll(t.Delay, placeholder, orderclose.ShortDuration(length))
}

// DelayPrefix is what the name of every delay topic begins with.
func (t Topics) DelayPrefix() string {
	prefix, _, _ := strings.Cut(t.Delay, placeholder)
	return prefix
}

// BucketOf is the bucket whose topic has this name, whether it is in use or not;
// false if the name is no delay topic's.
func (t Topics) BucketOf(topic string) (orderclose.Bucket, bool) {
	before, after, ok := strings.Cut(t.Delay, placeholder)
	if !ok || !strings.HasPrefix(topic, before) || !strings.HasSuffix(topic, after) || len(topic) < len(before)+len(after) {
		return orderclose.Bucket{}, false
	}
	length, err := ParseDuration(topic[len(before) : len(topic)-len(after)])
	if err != nil || length < minBucket || t.OfBucket(length) != topic {
		return orderclose.Bucket{}, false
	}
	return orderclose.Bucket{Topic: topic, Length: length}, true
}

func (s *settings) topics() Topics {
	return Topics{
		Prefix:     s.prefix,
		Close:      s.prefix + s.close,
		Replay:     s.prefix + s.replay,
		DeadLetter: s.prefix + s.deadLetter,
		Events:     s.prefix + s.events,
		Control:    s.prefix + s.control,
		Delay:      s.prefix + s.delay,
	}
}

// WithPrefix returns the names with another prefix.
func (t Topics) WithPrefix(prefix string) Topics {
	renamed := t
	renamed.Prefix = prefix
	for _, name := range []*string{&renamed.Close, &renamed.Replay, &renamed.DeadLetter, &renamed.Events, &renamed.Control, &renamed.Delay} {
		*name = prefix + strings.TrimPrefix(*name, t.Prefix)
	}
	return renamed
}

// defaults is what holds for what a file leaves out.
func defaults() *settings {
	return &settings{
		close:      "order-close",
		replay:     "order-close-replay",
		deadLetter: "order-close-dead-letter",
		events:     "order-events",
		control:    "order-close-control",
		delay:      "delay_" + placeholder,
		delays: orderclose.Delays{
			Default:    30 * time.Minute,
			ByCategory: map[string]time.Duration{},
			Mixed:      orderclose.Shortest,
		},
		maxDelay:    orderclose.DefaultMaxDelay,
		partitions:  12,
		replication: 1,
		compensator: Compensator{
			Period:   time.Hour,
			Grace:    time.Minute,
			PageSize: 500,
			Rate:     5000,
			Lock:     Lock{Key: "lock:scan_unpaid_orders", Expiry: time.Minute, Extend: 20 * time.Second},
			Causes:   Causes{Records: 500_000, Time: 10 * time.Second},
		},
		closer: Closer{Batch: 500, Latency: 250 * time.Millisecond, Kind: KindSQL, HTTP: HTTPClosing{Batch: 200}, Payment: Payment{Batch: 100}},
		outbox: Outbox{Batch: 999, InFlight: 2},
	}
}

// config puts checked settings together.
func (s *settings) config() *Config {
	c := &Config{
		Delays:      s.delays,
		MaxDelay:    s.maxDelay,
		Topics:      s.topics(),
		Partitions:  s.partitions,
		Replication: s.replication,
		Compensator: s.compensator,
		Closer:      s.closer,
		Orders:      s.orders,
		OrdersAt:    s.ordersAt,
		Outbox:      s.outbox,
	}
	c.Delays.ByCategory = maps.Clone(s.delays.ByCategory)
	for _, b := range s.buckets {
		c.Buckets = append(c.Buckets, orderclose.Bucket{Topic: s.topicOf(b.length), Length: b.length, Draining: b.draining})
	}
	slices.SortFunc(c.Buckets, func(a, b orderclose.Bucket) int { return cmp.Compare(a.Length, b.Length) })
	return c
}
