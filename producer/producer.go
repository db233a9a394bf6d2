// Package producer is for checkout: it schedules the close of an order by
// appending one record to the delay topic that suits what remains until the
// order is due.
//
//	p, err := producer.New(producer.Options{Brokers: brokers, TopicsFile: "topics.yaml"})
//	defer p.Close()
//	order := p.Order("order-17", createdAt, "virtual")   // computes Due
//	… write the order with its Due, commit …
//	err = p.Schedule(ctx, order)
//
// Schedule after the order's transaction has committed. If the process dies in
// between, or Kafka stays away, the order is not lost: the hourly sweep closes
// it. A repeat is harmless. docs/wire.md describes the record for producers in
// other languages.
//
// Where an order must not wait for a sweep because a process died at the wrong
// moment, add it to an Outbox in its own transaction instead:
//
//	err = outbox.Add(ctx, tx, order)   // tx: *sql.Tx, or what gorm has underneath
//
// orderclose run outbox then schedules it, if and only if the transaction commits.
package producer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"orderclose"
	"orderclose/internal/config"
	"orderclose/internal/kafka"
	"orderclose/internal/loglimit"
)

// attemptTimeout is how long one try may stay unanswered before the bucket is
// picked anew: by then another one may suit. The first try may still arrive; the
// repeat is harmless.
const attemptTimeout = 5 * time.Second

// DefaultTimeout bounds a Schedule whose context has no deadline.
const DefaultTimeout = 30 * time.Second

// DefaultDelay is the delay of a category in no list, unless the topics file or
// the options say otherwise.
const DefaultDelay = 30 * time.Minute

// Appender appends a record to the partition of the topic that its key belongs
// to, and returns when all in-sync replicas have it. An error that is
// orderclose.ErrRefused is final.
type Appender interface {
	Append(ctx context.Context, topic string, m orderclose.Message) error
}

// Options for a Producer. Either Brokers or Appender must be set, and either
// TopicsFile or Buckets with CloseTopic.
type Options struct {
	// Brokers are the host:port of the Kafka cluster.
	Brokers []string
	// TLS, if set, encrypts the connections to Brokers; with a certificate in it,
	// that is who we are. SASL, if set, is who we are by name and password.
	TLS  *tls.Config
	SASL *SASL
	// Appender replaces the Producer's own connection to Brokers.
	Appender Appender
	// TopicsFile is the path of the topics.yaml that relays and closers use too. It
	// sets what is not set below.
	TopicsFile string
	// Watch takes up what changes in TopicsFile, until Close: new delays for the orders
	// that Order makes from then on, new buckets as Reload says. A file with a mistake
	// is logged with its lines, and what was before stays.
	Watch bool
	// Settle is how long after it was read a changed list of buckets is picked from:
	// by then the relays must have read it too. Default 2 minutes.
	Settle time.Duration

	Buckets    orderclose.Buckets // shortest first
	CloseTopic string             // for what is due already
	Delays     orderclose.Delays  // for Order; its Default is DefaultDelay if it is not set
	// MaxDelay is how far ahead an order may be due. Default
	// orderclose.DefaultMaxDelay.
	MaxDelay time.Duration

	// Timeout bounds a Schedule whose context has no deadline. Default
	// DefaultTimeout.
	Timeout time.Duration
	// OnUnknownCategory is called with each category that Order finds in no list, for
	// a log or a metric of the caller's. It must not block. UnknownCategories counts
	// them in any case.
	OnUnknownCategory func(category string)
	// Now is the clock that decides: which bucket a record goes to, and what is due
	// already or too far ahead. Default time.Now. One that is s wrong makes nothing
	// early. Behind, an order may be s − 6 s late, or wait for the sweep; ahead, it
	// takes more hops.
	Now    func() time.Time
	Logger *slog.Logger // default: discard
}

// Producer schedules closes. It is safe for concurrent use. Make it with New.
type Producer struct {
	o       Options
	close   func()
	unknown atomic.Uint64
	live    atomic.Pointer[rules]
	watcher *watcher // nil: the rules never change
}

// rules are what a call goes by: one set from its beginning to its end.
type rules struct {
	delays   orderclose.Delays
	maxDelay time.Duration
	buckets  orderclose.Buckets
}

// New returns a Producer, or says what is wrong with the options or the topics
// file. It connects when it first has something to send.
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
		return nil, errors.New("producer: Options have nothing to Watch: they need TopicsFile")
	}
	if o.Delays.Default == 0 {
		o.Delays.Default = DefaultDelay
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = orderclose.DefaultMaxDelay
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	p := &Producer{o: o, close: func() {}}
	p.live.Store(&rules{delays: o.Delays, maxDelay: o.MaxDelay, buckets: o.Buckets})
	if o.Appender == nil {
		cluster, err := kafka.New(kafka.Options{
			Brokers: o.Brokers, ClientID: "orderclose-producer", Logger: o.Logger,
			Security: kafka.Security{TLS: o.TLS, SASL: (*kafka.SASL)(o.SASL)},
		})
		if err != nil {
			return nil, err
		}
		coalescer := kafka.NewCoalescer(cluster)
		p.o.Appender = coalescer
		p.close = func() { coalescer.Close(); cluster.Close() }
	}
	if file != nil {
		if err := p.watch(given, file); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// setFrom fills in from the topics file what was not set.
func (o *Options) setFrom(c *config.Config) {
	if len(o.Buckets) == 0 {
		o.Buckets = c.Buckets
	}
	if o.CloseTopic == "" {
		o.CloseTopic = c.Topics.Close
	}
	if o.Delays.Default == 0 && o.Delays.ByCategory == nil {
		o.Delays = c.Delays
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = c.MaxDelay
	}
}

// Close waits for what is under way and closes the connections. Schedule must
// not be called after it. Close of a nil Producer, as New returns with an error, does
// nothing.
func (p *Producer) Close() {
	if p == nil {
		return
	}
	p.watcher.close()
	p.close()
}

// Order returns an order whose Due is its creation time plus the delay of its
// categories, in whole milliseconds: write that Due with the order. A category
// that is not listed gets the default delay and is counted.
func (p *Producer) Order(id string, createdAt time.Time, categories ...string) orderclose.Order {
	category, delay, unknown := p.live.Load().delays.Of(categories...)
	p.unknown.Add(uint64(len(unknown)))
	if p.o.OnUnknownCategory != nil {
		for _, c := range unknown {
			p.o.OnUnknownCategory(c)
		}
	}
	return orderclose.Order{
		ID: id, Category: category, CreatedAt: createdAt,
		Due: orderclose.CeilMilli(createdAt.Add(delay)),
	}
}

// MaxDelay is how far ahead an order may be due now. It is an OutboxOptions.Limit.
func (p *Producer) MaxDelay() time.Duration { return p.live.Load().maxDelay }

// UnknownCategories is how many categories Order has found in no list so far. It
// should stay 0: orders of such a category get the default delay.
func (p *Producer) UnknownCategories() uint64 { return p.unknown.Load() }

// Schedule appends the order's record and returns when all in-sync replicas have
// it. The order's Due is taken as it is; one in the past goes straight to the
// close topic.
//
// An order that cannot be scheduled is refused with an *orderclose.OrderError
// before anything is sent; one whose record Kafka refuses for good with an error
// that is orderclose.ErrRefused. Anything else is tried
// again until ctx ends, and the error then says what failed last; the record may
// have been written all the same, and scheduling again is harmless.
func (p *Producer) Schedule(ctx context.Context, order orderclose.Order) error {
	rules := p.live.Load()
	if err := order.Validate(p.o.Now(), rules.maxDelay); err != nil {
		return err
	}
	m, err := orderclose.Record{Order: order, Release: order.Due}.Encode()
	if err != nil {
		return err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.o.Timeout)
		defer cancel()
	}
	var last error
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		last = p.try(ctx, rules.topic(order.Due, p.o), m)
		if errors.Is(last, orderclose.ErrRefused) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	}, backoff.WithBackOff(pauses()), backoff.WithMaxElapsedTime(0))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("schedule order %q: %w; the last try: %w", order.ID, cause, last)
		}
		return fmt.Errorf("schedule order %q: %w", order.ID, last)
	}
	return nil
}

// try appends the record once.
func (p *Producer) try(ctx context.Context, topic string, m orderclose.Message) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return p.o.Appender.Append(ctx, topic, m)
}

// Topic returns the topic to which a record that is due then belongs now.
func (p *Producer) Topic(due time.Time) string { return p.live.Load().topic(due, p.o) }

// topic picks by the clock of o.
func (r *rules) topic(due time.Time, o Options) string {
	return r.buckets.TopicAt(o.Now(), due, o.CloseTopic)
}

func pauses() backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 20*time.Millisecond, time.Second
	return b
}
