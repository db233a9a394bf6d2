// Package producer schedules the close of orders, for the checkout service. It
// appends one record per order to the delay topic for the time that remains until
// the order is due.
//
//	p, err := producer.New(producer.Options{Brokers: brokers, TopicsFile: "topics.yaml"})
//	defer p.Close()
//	order, err := p.OrderIn(ctx, producer.MySQL, orderclose.SQL(tx), "order-17", facts)   // computes Due by the database's clock
//	… write the order with its Due in tx, commit …
//	err = p.Schedule(ctx, order)
//
// Call Schedule after the order's transaction has committed. If the process dies in
// between, or Kafka stays unavailable, the order is not lost: a sweep closes
// it. A duplicate is harmless. docs/wire.md describes the record for producers in
// other languages.
//
// If an order must not wait for a sweep after such a crash, add it to an Outbox in
// its own transaction instead:
//
//	err = outbox.Add(ctx, orderclose.SQL(tx), order)   // tx: *sql.Tx, or gorm's ConnPool
//
// orderclose run outbox then schedules it if and only if the transaction commits.
package producer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/tracing"
	"github.com/orderclose/orderclose/internal/wire"
)

// DefaultTimeout limits a Schedule whose context has no deadline.
const DefaultTimeout = 30 * time.Second

// ErrRefused means that Kafka rejects a record for good: a retry cannot succeed. An
// example is a record that is larger than the topic allows.
var ErrRefused = wire.ErrRefused

// Appender appends a record to a topic, to whichever partition, and returns when all
// in-sync replicas have it. An error that wraps ErrRefused is final.
type Appender interface {
	Append(ctx context.Context, topic string, m Message) error
}

// Message is a record for an Appender. Its Key, Value and Headers are set.
type Message = wire.Message

// Options configure a Producer. Brokers is required, and TopicsFile or Buckets with
// CloseTopic.
type Options struct {
	// Brokers are the host:port addresses of the Kafka cluster.
	Brokers []string
	// TLS, if set, encrypts the connections to Brokers. A certificate in it
	// authenticates the client. SASL, if set, authenticates by user and password, or by a token.
	TLS      *tls.Config
	SASL     *SASL
	Appender Appender // replaces the connections to Brokers, such as in a test; may be nil
	// TopicsFile is the path of the topics.yaml that relays and closers use. It sets
	// Buckets, CloseTopic, Delays and MaxDelay, each only if it is not set.
	TopicsFile string
	// Watch applies changes of TopicsFile until Close: new delays apply to later
	// calls of Order, and new buckets to later calls of Schedule. If the file has a mistake, the
	// lines are logged and the current settings stay.
	Watch bool

	Buckets    orderclose.Buckets // shortest first
	CloseTopic string             // for orders that are due already
	Delays     orderclose.Delays  // for Order
	// MaxDelay is the longest time from now to an order's due time. Default:
	// orderclose.DefaultMaxDelay.
	MaxDelay time.Duration

	// Timeout limits a Schedule whose context has no deadline. Default:
	// DefaultTimeout.
	Timeout time.Duration
	// OnUnknownCategory is called with each category that Order finds in no list, for
	// the caller's log or metric. It must not block.
	OnUnknownCategory func(category string)
	// OnDueAlready is called with each order that is due when Schedule is called, for the caller's metric. It must not block. Unless its due
	// time was moved on purpose, a clock is wrong, or the order was scheduled too late. Schedule also logs it, and sends the record.
	OnDueAlready func(order orderclose.Order)
	// Now is the clock that selects the bucket, and that decides what is already due or
	// too far ahead. Default: time.Now. A wrong clock closes no order early. If the clock
	// is behind by more than 6 s, an order may be late by the rest, or wait for the
	// sweep. If the clock is ahead, the order takes more hops.
	Now    func() time.Time
	Logger *slog.Logger // default: warnings and errors, to slog.Default
}

// Producer schedules closes. It is safe for concurrent use. Create it with New.
type Producer struct {
	o       Options
	close   func()
	live    atomic.Pointer[rules]
	watcher *watcher // nil: the rules never change
}

// rules are the settings of one call. A call uses the same rules from start to end.
type rules struct {
	delays   orderclose.Delays
	maxDelay time.Duration
	buckets  orderclose.Buckets
}

// New returns a Producer, or an error if the options or the topics file are invalid.
// It connects when it first has a record to send.
func New(o Options) (*Producer, error) {
	given := o
	var file *config.Config
	if o.TopicsFile != "" {
		var err error
		if file, err = config.Load(o.TopicsFile); err != nil {
			return nil, err
		}
		o.setFrom(file)
	}
	if len(o.Buckets) == 0 || o.CloseTopic == "" {
		return nil, errors.New("producer: Options need TopicsFile, or Buckets and CloseTopic")
	}
	if o.Watch && o.TopicsFile == "" {
		return nil, errors.New("producer: Options.Watch needs TopicsFile")
	}
	o.MaxDelay = cmp.Or(o.MaxDelay, orderclose.DefaultMaxDelay)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = retry.LimitLogs(o.Logger)
	p := &Producer{o: o, close: func() {}}
	p.live.Store(&rules{delays: o.Delays, maxDelay: o.MaxDelay, buckets: o.Buckets})
	if o.Appender == nil {
		cluster, err := kafka.New(kafka.Options{
			Brokers: o.Brokers, ClientID: "orderclose-producer", Logger: o.Logger,
			Security: kafka.Security{TLS: o.TLS, SASL: o.SASL},
		})
		if err != nil {
			return nil, fmt.Errorf("producer: Options.Brokers, TLS or SASL: %w", err)
		}
		p.o.Appender, p.close = cluster.Appender, cluster.Close
	}
	if file != nil {
		p.watch(given, file)
	}
	return p, nil
}

// setFrom sets the options that are not set from the topics file.
func (o *Options) setFrom(c *config.Config) {
	if len(o.Buckets) == 0 {
		o.Buckets = c.Buckets
	}
	o.CloseTopic = cmp.Or(o.CloseTopic, c.Topics.Close)
	if o.Delays.Default == 0 && o.Delays.ByCategory == nil && o.Delays.Rules == nil {
		o.Delays = c.Delays
	}
	o.MaxDelay = cmp.Or(o.MaxDelay, c.MaxDelay)
}

// Close waits for appends in flight and closes the connections. Do not call Schedule
// after Close. Close of a nil Producer, which New returns with an error, does
// nothing.
func (p *Producer) Close() {
	if p == nil {
		return
	}
	p.watcher.close()
	p.close()
}

// Order is OrderWith for an order without attributes. Where a database has the order, OrderIn is better: it uses the database's clock.
func (p *Producer) Order(id string, createdAt time.Time, categories ...string) orderclose.Order {
	return p.OrderWith(id, orderclose.Facts{CreatedAt: createdAt, Categories: categories})
}

// OrderWith returns an order with the due time that Delays and its rules give it: see
// orderclose.Delays.For. Write its Due with the order, and show its Deadline to the
// customer. The facts' attributes travel with the record. A category that is not listed gets
// the default delay; see Options.OnUnknownCategory.
//
// If a rule says that the order is never closed, Due is orderclose.NeverDue and Deadline is
// zero. In a column that may be NULL, NULL means the same. Schedule and Outbox.Add accept
// the order and do nothing.
func (p *Producer) OrderWith(id string, facts orderclose.Facts) orderclose.Order {
	d := p.live.Load().delays.For(facts)
	if p.o.OnUnknownCategory != nil {
		for _, c := range d.Unknown {
			p.o.OnUnknownCategory(c)
		}
	}
	return orderclose.Order{
		ID: id, Category: d.Category, CreatedAt: facts.CreatedAt, Due: d.Due, Deadline: d.Shown, Attributes: facts.Attributes,
	}
}

// MaxDelay returns the current maximum delay. Use it as OutboxOptions.MaxDelayFunc.
func (p *Producer) MaxDelay() time.Duration { return p.live.Load().maxDelay }

// Schedule appends the order's record and returns when all in-sync replicas have it.
// It uses the order's Due as given; an order with a due time in the past goes
// straight to the close topic. If ctx has no deadline, Options.Timeout limits the call.
// An order that is never closed (orderclose.IsNever) has no record: Schedule sends nothing
// and returns nil.
//
// Schedule rejects an order that cannot be scheduled with an *orderclose.OrderError
// before it sends anything. If Kafka rejects the record for good, the error wraps
// ErrRefused. After any other failure Schedule retries until ctx ends, and
// the error wraps the last failure. The record may have been written all the same;
// scheduling the order again is harmless.
//
// If ctx has a sampled span of OpenTelemetry, Schedule adds a span, and the record carries its trace
// context.
func (p *Producer) Schedule(ctx context.Context, order orderclose.Order) (err error) {
	rules := p.live.Load()
	if orderclose.IsNever(order.Due) {
		return orderclose.ValidateID(order.ID)
	}
	if err := order.Validate(p.o.Now(), rules.maxDelay); err != nil {
		return err
	}
	if dueAlready(order, p.o.Now(), p.o.OnDueAlready) {
		p.o.Logger.Warn("an order is due when it is scheduled: check the clocks of this machine and of the database", "order", order.ID,
			"created", order.CreatedAt, "due", order.Due)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.o.Timeout)
		defer cancel()
	}
	ctx, span := tracing.Child(ctx, tracing.Schedule, order.ID)
	defer func() { tracing.End(span, err) }()
	m, err := wire.Record{Order: order, Release: order.Due, Traceparent: tracing.Of(ctx)}.Encode()
	if err != nil {
		return err
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 20*time.Millisecond, time.Second
	pauses.Reset()
	for known := rules; ; {
		topic := rules.topic(order.Due, p.o)
		err := p.append(ctx, topic, m)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, kafka.ErrNoTopic) && len(rules.buckets) > 1 && topic != p.o.CloseTopic: //mutant:scheduled-without-topic
			p.o.Logger.Warn("delay topic does not exist, using another bucket: run orderclose topics apply", "topic", topic)
			rules = rules.without(topic)
			continue
		case errors.Is(err, ErrRefused):
			return fmt.Errorf("schedule order %q: %w", order.ID, err)
		case !retry.Sleep(ctx, pauses.NextBackOff()):
			return fmt.Errorf("schedule order %q: %w; last attempt: %w", order.ID, context.Cause(ctx), err)
		}
		rules = known
	}
}

// attemptTimeout is how long one attempt may stay unanswered before the topic is
// picked again, since another bucket may suit by then. The attempt may still succeed
// later; the duplicate is harmless. A look-up, the append before it and its own fit if each answer takes 3 s.
const attemptTimeout = 10 * time.Second

// append makes one attempt to append the record.
func (p *Producer) append(ctx context.Context, topic string, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return p.o.Appender.Append(ctx, topic, m)
}

// Topic returns the topic for a record with this due time now.
func (p *Producer) Topic(due time.Time) string { return p.live.Load().topic(due, p.o) }

// topic picks the topic by the clock of o.
func (r *rules) topic(due time.Time, o Options) string {
	return r.buckets.TopicAt(o.Now(), due, o.CloseTopic)
}

// without returns the rules without the bucket with this topic.
func (r *rules) without(topic string) *rules {
	other := *r
	other.buckets = slices.DeleteFunc(slices.Clone(r.buckets), func(b orderclose.Bucket) bool { return b.Topic == topic })
	return &other
}
