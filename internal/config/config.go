// Package config is the grammar of topics.yaml: buckets, delays by category, names. Load reads and checks a file, and Parse its content.
//
// Parse is a pure function of its bytes. It returns either a complete, checked Config or all problems of the file at once, with line and column. So a
// process can check a changed file completely before it applies anything.
//
// Package internal/reload applies a changed file while a process runs, and internal/environ reads the environment.
//
// The keys of topics.yaml are tags of the fields that have their values: decode.go reads them.
package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Config is a checked topics.yaml. It is read-only: all parts of a process share it. Every duration is positive.
type Config struct {
	Delays   orderclose.Delays  // by category; default: 30 minutes
	MaxDelay time.Duration      `yaml:"delays.max"` // no new order may be due further ahead; at most 3660 days; default: 30 days
	Buckets  orderclose.Buckets // at least one; shortest first
	Topics   Topics             `yaml:"topics"`
	// Partitions is that of each delay topic, of the close topic, and of the events; default: 12. The bound is a safety
	// limit: each costs a loop in the relay and files on the broker.
	Partitions int `yaml:"partitions" min:"1" max:"10000"`
	// Replication is that of every topic; default: 1. The Kafka protocol has 16 bits for it.
	Replication int              `yaml:"replication" min:"1" max:"32767"`
	Sync        SyncMode         `yaml:"sync" enum:"always never"`
	Kafka       Kafka            `yaml:"kafka"`
	Compensator Compensator      `yaml:"compensator"`
	Closer      Closer           `yaml:"closer"`
	Orders      *mapping.Mapping `yaml:"orders"` // the user's own tables; nil: the reference schema
	OrdersAt    *Source          // the positions of Orders in the file; nil if Orders is nil
	Webhook     Webhook          `yaml:"webhook"`
	// Accept holds the names of refusals that the file lifts; see Accepts and Acceptable.
	Accept []string `yaml:"accept" is:"refusal" example:"[long_smallest_bucket]"`
}

// Topics are the topic names, with the prefix applied.
//
// The names are fixed: a prefix is enough for shops that prescribe names.
type Topics struct {
	Prefix     string `yaml:"prefix"` // the beginning of every topic and group name, and of the keys in Redis; often ""
	Close      string // due orders
	DeadLetter string // records that cannot be handled
	Events     string // events about orders, for any consumer
	Delay      string // the pattern of a bucket's topic; {bucket} stands for the bucket's length
}

// SyncMode says whether brokers write a record to disk before they acknowledge it; see Config.FlushMessages.
type SyncMode string

// The values of SyncMode. The default is "".
const (
	SyncAlways SyncMode = "always"
	SyncNever  SyncMode = "never"
)

// FlushMessages returns after how many records of a partition the brokers write a topic to disk. 1: before they acknowledge each record. 0: as
// the brokers do by default. If topics.yaml has no sync, a record with one copy is on disk in the topics in which it waits. The close topic may
// lose records, because the compensator closes their orders. If a service closes the orders, there may be no database that has them: then
// each topic is on disk.
func (c *Config) FlushMessages(topic string) int {
	only := c.Sync == "" && c.Replication == 1
	switch {
	case c.Sync == SyncAlways, only && c.Closer.Kind == KindHTTP: //mutant:service-close-lost
		return 1
	case !only:
		return 0
	case topic == c.Topics.Close:
		return 1000
	}
	return 1
}

// Kafka holds the settings of the connections to Kafka.
type Kafka struct {
	SessionTimeout time.Duration `yaml:"session_timeout"` // how long a group waits for a silent member, 6 s to 5 minutes; default: kafka.DefaultSessionTimeout
}

// Compensator holds the settings of the loop that closes overdue orders.
type Compensator struct {
	Period time.Duration `yaml:"period"`                     // of the compensation that has a row in the database; default: 1 hour
	Rate   int           `yaml:"rate" min:"1" max:"1000000"` // orders per second; default: 5000
	Lock   Lock          `yaml:",inline"`
}

// LockKind says which server has the lock of the compensator.
type LockKind string

// The kinds of locks.
const (
	LockRedis    LockKind = "redis"
	LockDatabase LockKind = "database" // no part of the pipeline connects to Redis
)

// Lock is the lock of the compensator. One process at a time holds the lock and works.
type Lock struct {
	Kind LockKind `yaml:"lock" enum:"redis database"` // default: LockRedis
	Key  string   // the prefix and lockKey; it has no key
}

// lockKey is the key of the lock in Redis, and a part of its name in the database.
const lockKey = "lock:scan_unpaid_orders"

// Closer holds the settings of closing due orders.
type Closer struct {
	// TargetLatency is the target duration of a transaction. If a slower transaction would be faster with fewer
	// orders, fewer are closed at once. 0, the default: 250 ms, and 3 s with KindHTTP or a payment provider.
	TargetLatency time.Duration  `yaml:"target_latency"`
	Kind          ClosingKind    // how orders are closed: KindHTTP if HTTP has a URL, otherwise KindSQL
	HTTP          Service        `yaml:"http"`    // closes orders; default batch: 200
	Payment       PaymentService `yaml:"payment"` // is asked before an order is closed; default batch: 100
}

// Webhook names the receiver of events, for shops without Kafka.
type Webhook struct {
	URL string `yaml:"url" is:"url"` // http or https; "": events go to Kafka
}

// Option changes how a file is read.
type Option func(*settings)

// WithoutKafka is for a process that has no Kafka: its file need not list the buckets. Those of a file without buckets are the
// default ones. An empty file is refused as by all: it may be one that is just being written.
func WithoutKafka(s *settings) { s.withoutKafka = true }

// Load reads and checks the file at path. The error is of type Problems if the file can
// be read and is wrong.
func Load(path string, options ...Option) (*Config, error) {
	data, err := Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, options...)
}

// EnvConfig is the environment variable with the topics.yaml of a command without the flag --config, for the commands that a person copies from an
// output.
const EnvConfig = "ORDERCLOSE_CONFIG"

// Read returns the content of the topics.yaml at path. It may return an error with a part of the content.
func Read(path string) ([]byte, error) {
	data, err := ReadFile(path, MaxFile)
	if err != nil {
		err = fmt.Errorf("read the configuration: %w; pass the path of topics.yaml, as with --config or in %s", err, EnvConfig)
	}
	return data, err
}

// Parse reads and checks the content of a topics.yaml. file is the name that messages
// give to the file. The error is of type Problems and lists every problem.
//
// The file must list the buckets, except of a process WithoutKafka. Any other key may be missing: the value is then that
// of Default, except that no category has a delay of its own.
func Parse(file string, data []byte, options ...Option) (*Config, error) {
	r, s := read(file, data, options)
	if len(r.problems) > 0 {
		return nil, r.problems.sorted()
	}
	return s.config(), nil
}

// read reads and checks the content of a topics.yaml. The reader has the problems. Values are compared with each other only if each
// is right by itself.
func read(file string, data []byte, options []Option) (*reader, *settings) {
	r, s := newReader(file), defaults()
	for _, option := range options {
		option(s)
	}
	r.document(data)
	if r.root != nil {
		r.section("", r.root, fieldsOf(reflect.ValueOf(s).Elem()))
		s.use(r)
	}
	if len(r.problems) == 0 {
		r.check(s)
	}
	return r, s
}

// use sets what the Config has in another form than the file.
func (s *settings) use(r *reader) {
	s.Delays.Default = s.Own.Default
	for i, rule := range s.Own.Rules {
		s.Delays.Rules = append(s.Delays.Rules, rule.rule(r, RulePath(i)))
	}
	if s.Tables != nil {
		s.Orders, s.OrdersAt = s.Tables.mapping(r), &Source{r.file, r.at}
	}
	if s.Closer.HTTP.URL != "" {
		s.Closer.Kind = KindHTTP
	}
}

// Default returns the configuration of the topics.yaml that is shipped with the program.
func Default() *Config {
	s := defaults()
	s.Delays.ByCategory["virtual"] = 5 * time.Minute
	s.Delays.ByCategory["physical"] = 30 * time.Minute
	s.Lengths = defaultLengths()
	return s.config()
}

func defaultLengths() []time.Duration {
	return []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 12 * time.Hour}
}

// ByRule reports whether orders are due by rule: a category's delay after they were created.
func (c *Config) ByRule() bool { return c.Orders != nil && c.Orders.ByRule }

// RelayGroup returns the name of the consumer group that reads the topic of b. Each
// bucket has a group of its own, so that a rebalance of one bucket leaves the others alone.
func (c *Config) RelayGroup(b orderclose.Bucket) string {
	return c.Group("relay", b.Topic)
}

// CloserGroup returns the name of the consumer group that reads the close topic.
func (c *Config) CloserGroup() string { return c.Group("closer", c.Topics.Close) }

// Group returns the name of the consumer group in which a stage reads a topic.
func (c *Config) Group(stage, topic string) string {
	return c.Topics.Prefix + "orderclose-" + stage + "-" + strings.TrimPrefix(topic, c.Topics.Prefix)
}

// settings is a Config that is being read, and the keys that a Config has in another form: its topics have no prefix yet, and it has no buckets.
type settings struct {
	Config
	Lengths []time.Duration `yaml:"buckets" example:"[10s, 1m, 5m]"`
	Own     struct {
		Default    time.Duration            `yaml:"default"`
		Categories map[string]time.Duration `yaml:"categories"` // is Delays.ByCategory
		Rules      []rule                   `yaml:"rules" example:"- match: {category: virtual}"`
	} `yaml:"delays"`
	Tables *orders `yaml:"orders"`

	withoutKafka bool // the file need not list the buckets
}

// placeholder stands for the bucket's length in the name of its topic.
const placeholder = "{bucket}"

// OfBucket returns the topic of the bucket with this length.
func (t Topics) OfBucket(length time.Duration) string {
	return strings.ReplaceAll(t.Delay, placeholder, orderclose.ShortDuration(length))
}

// DelayPrefix returns the common beginning of the names of all delay topics.
func (t Topics) DelayPrefix() string {
	prefix, _, _ := strings.Cut(t.Delay, placeholder)
	return prefix
}

// BucketOf returns the bucket with this topic, whether the bucket is in use or not. It returns false if the name is not the name of a delay topic.
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
	bare := s.Topics
	bare.Prefix = ""
	return bare.WithPrefix(s.Topics.Prefix)
}

// all returns every name but the prefix.
func (t *Topics) all() []*string {
	return []*string{&t.Close, &t.DeadLetter, &t.Events, &t.Delay}
}

// WithPrefix returns the names with another prefix.
func (t Topics) WithPrefix(prefix string) Topics {
	renamed := t
	renamed.Prefix = prefix
	for _, name := range renamed.all() {
		*name = prefix + strings.TrimPrefix(*name, t.Prefix)
	}
	return renamed
}

// defaults returns the settings of an empty file.
func defaults() *settings {
	s := &settings{Config: Config{
		Topics: Topics{
			Close:      "order-close",
			DeadLetter: "order-close-dead-letter",
			Events:     "order-events",
			Delay:      "delay_" + placeholder,
		},
		Delays: orderclose.Delays{
			Default:    orderclose.DefaultDelay,
			ByCategory: map[string]time.Duration{},
		},
		MaxDelay:    orderclose.DefaultMaxDelay,
		Partitions:  12,
		Replication: 1,
		Kafka:       Kafka{SessionTimeout: kafka.DefaultSessionTimeout},
		Compensator: Compensator{
			Period: time.Hour,
			Rate:   5000,
			Lock:   Lock{Kind: LockRedis},
		},
		Closer: Closer{
			Kind: KindSQL, HTTP: Service{Batch: 200},
			Payment: PaymentService{Batch: 100, Recheck: []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour}, RecheckRate: 20},
		},
	}}
	s.Own.Default, s.Own.Categories = s.Delays.Default, s.Delays.ByCategory
	return s
}

// config returns the Config of checked settings: it applies the prefix and builds the buckets.
func (s *settings) config() *Config {
	c := s.Config
	c.Topics = s.topics()
	c.Compensator.Lock.Key = c.Topics.Prefix + lockKey
	for _, length := range s.Lengths {
		c.Buckets = append(c.Buckets, orderclose.Bucket{Topic: c.Topics.OfBucket(length), Length: length})
	}
	slices.SortFunc(c.Buckets, func(a, b orderclose.Bucket) int { return cmp.Compare(a.Length, b.Length) })
	return &c
}
