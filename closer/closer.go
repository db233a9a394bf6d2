// Package closer takes due orders from the close topic and closes those that are
// still unpaid.
//
// A Closer is a member of one consumer group for the close topic, and of one for
// the replay topic, where what was sent again by hand travels. For each partition
// that it is given, one loop (partition.go) reads records, closes their orders in
// batches through the Store, does with each what its verdict asks for (decide.go),
// keeps those that wait within a bound of memory (buffer.go), and lets offsets be
// committed once everything below them is settled. Batches of all loops take turns,
// fresh ones first, and go together (turns.go), no more than the store closes quickly
// (pace.go). Records are delivered at least once; the Store makes closing twice the
// same as once.
package closer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"orderclose"
	"orderclose/internal/closing"
	"orderclose/internal/loglimit"
	"orderclose/internal/partition"
)

// Stage is the name of this stage in dead letters.
const Stage = "closer"

// Defaults of Options. Batches of 500 by two to four workers are what saturates
// one database server; larger ones only hold their locks for longer.
const (
	DefaultBatch   = 500
	DefaultWorkers = 4
)

// DefaultLatency is how long a transaction may take before fewer orders are closed
// at once: twenty times what 500 orders take on MariaDB with durable commits, 12
// ms, and an eighth of the 2 s after which a row counts as held. Nobody who buys
// the same goods waits longer than that for one transaction.
const DefaultLatency = 250 * time.Millisecond

// Log is what a Closer needs of Kafka; internal/kafka's Cluster is one.
type Log interface {
	// Consume serves the partitions of a topic that the group gives to this
	// process until ctx ends.
	Consume(ctx context.Context, group, topic string, serve func(context.Context, orderclose.Claim)) error
	// Read reads a partition on, waiting a little for a record.
	Read(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error)
	// Verify says whether the position's log is still there.
	Verify(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error)
	// Spread sorts records of a claim by the partition of another topic that each
	// belongs to.
	Spread(ctx context.Context, claim orderclose.Claim, topic string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error)
	// Idempotent returns a function for one goroutine that appends records so that a
	// repeat after a lost answer is not a duplicate.
	Idempotent(trying func(), repeated func(records int)) orderclose.AppendFunc
}

// Store does the closing. An error is the fault of an order in the batch, which is
// searched for, tried again and at last given up. If it is orderclose.ErrUnavailable it
// is the store's fault, and the batch is tried again; an order that gets it alone,
// several times while the store closes other orders, is given up as well, unless the
// error is orderclose.ErrStoreDown too. CloseOrders must return within a bounded time.
type Store interface {
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Metrics takes what there is to count; internal/obs has one for Prometheus. Its
// methods are called from many goroutines and must not block.
type Metrics interface {
	// Verdict counts one order.
	Verdict(path orderclose.Path, v orderclose.Verdict)
	// Lateness is how long after its due time an order was closed, by the
	// database's clock. Negative would be early.
	Lateness(path orderclose.Path, d time.Duration)
	// Batch is how long closing one batch took.
	Batch(path orderclose.Path, orders int, took time.Duration)
	// Pace says how many orders may be in transactions at once from now on.
	Pace(orders int)
	// Retried counts one order that is tried again later: not_found, failed,
	// payment_pending, or, if there was no room for it in memory, contended or
	// no_verdict.
	Retried(cause string)
	// PaymentPending counts one order that waits for the payment provider's word from
	// now on, or no longer does.
	PaymentPending(waits bool)
	// DeadLettered counts one record given up.
	DeadLettered(stage, cause string)
	// Stuck counts the times that a partition's loop hung and was started again.
	Stuck(stage, topic string, partition int)
	// Repeated counts records that may have been written twice.
	Repeated(records int)
	// Lost counts offsets that the log no longer had when they were asked for.
	Lost(topic string, partition int, records int64)
	// FetchFailing says since when no fetch of a partition has succeeded. The zero
	// time: they do.
	FetchFailing(stage, topic string, partition int, since time.Time)
	// FetchEnded says that a partition is fetched no longer.
	FetchEnded(stage, topic string, partition int)
}

// Options for a Closer. Log, Store, Buckets, Group, CloseTopic,
// DeadLetterTopic and ControlTopic must be set.
type Options struct {
	Log             Log
	Store           Store
	Buckets         orderclose.Buckets // where an order goes that is not due yet, or is tried again
	Group           string
	CloseTopic      string
	ReplayGroup     string // with ReplayTopic: who reads it
	ReplayTopic     string // what was sent again by hand; "" for none
	DeadLetterTopic string
	ControlTopic    string        // where losses are told
	Batch           int           // orders per transaction at most; default DefaultBatch
	Workers         int           // transactions at once; default DefaultWorkers
	Latency         time.Duration // of a transaction, at most, or fewer orders are closed at once; default DefaultLatency
	// BufferBytes bounds what waits in all partitions together, in bytes of memory: orders
	// that are nearly due, or whose rows are held, and what is read ahead while the
	// store is unavailable. Default DefaultBufferBytes. Beyond it orders that wait do
	// so in a bucket. One fetch for each partition comes on top.
	BufferBytes int
	Now         func() time.Time // measures how long a record has been here; default time.Now
	// Clock is the brokers' clock, by which orders that come too soon, or are tried again,
	// are scheduled; default Now.
	Clock func() time.Time
	// Abandon is called, with the reason, when a loop hangs and cannot be stopped: the
	// process should exit, and its supervisor start another. Default panics.
	Abandon func(why string)
	Logger  *slog.Logger // default: discard
	Metrics Metrics      // default: none
}

// Closer closes due orders. Make it with New.
type Closer struct {
	o        Options
	turns    *turns
	culprits *closing.Culprits
	budget   *partition.Budget
	watchdog partition.Watchdog
	buckets  atomic.Pointer[orderclose.Buckets]
}

// Pick changes the buckets that orders go to which are not due yet, or tried
// again, while the closer runs.
func (c *Closer) Pick(bs orderclose.Buckets) { c.buckets.Store(&bs) }

// New returns a Closer, or says what is missing in the options.
func New(o Options) (*Closer, error) {
	switch {
	case o.Log == nil, o.Store == nil, o.Group == "", o.CloseTopic == "", o.DeadLetterTopic == "", o.ControlTopic == "":
		return nil, errors.New("closer: Options need Log, Store, Group, CloseTopic, DeadLetterTopic and ControlTopic")
	case len(o.Buckets) == 0:
		return nil, errors.New("closer: Options need at least one bucket")
	case (o.ReplayTopic == "") != (o.ReplayGroup == ""), o.ReplayTopic == o.CloseTopic:
		return nil, errors.New("closer: ReplayTopic and ReplayGroup belong together, and the topic is not CloseTopic")
	case o.Batch < 0, o.Workers < 0, o.Latency < 0, o.BufferBytes < 0:
		return nil, fmt.Errorf("closer: Batch is %d, Workers %d, Latency %v and BufferBytes %d, all must be positive", o.Batch, o.Workers, o.Latency, o.BufferBytes)
	}
	if o.Batch == 0 {
		o.Batch = DefaultBatch
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.Latency == 0 {
		o.Latency = DefaultLatency
	}
	if o.BufferBytes == 0 {
		o.BufferBytes = DefaultBufferBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Clock == nil {
		o.Clock = o.Now
	}
	if o.Abandon == nil {
		o.Abandon = func(why string) { panic("closer: " + why) }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	c := &Closer{o: o, budget: partition.NewBudget(o.BufferBytes)}
	c.watchdog = partition.Watchdog{Stage: Stage, Stuck: o.Metrics.Stuck, Abandon: o.Abandon, Logger: o.Logger}
	c.Pick(o.Buckets)
	c.turns = newTurns(newPace(o.Latency, o.Batch, o.Workers), o.Workers, o.Batch, c.close, o.Metrics.Pace)
	c.culprits = closing.NewCulprits(timed{o.Store, c.turns}, closing.ProofPipeline)
	return c, nil
}

// Run closes until ctx ends. Before it returns, the transactions under way have
// ended, within 2 s, what is settled is committed, and the groups are left. It
// returns an error only if it could not begin.
func (c *Closer) Run(ctx context.Context) error {
	groups, ctx := errgroup.WithContext(ctx)
	consume := func(group, topic string) {
		groups.Go(func() error {
			return c.o.Log.Consume(ctx, group, topic, func(ctx context.Context, claim orderclose.Claim) {
				c.watchdog.Serve(ctx, claim, func(ctx context.Context, claim orderclose.Claim, pulse *partition.Pulse) {
					newLoop(ctx, c, claim, pulse).run()
				})
			})
		})
	}
	consume(c.o.Group, c.o.CloseTopic)
	if c.o.ReplayTopic != "" {
		consume(c.o.ReplayGroup, c.o.ReplayTopic)
	}
	return groups.Wait()
}

// close closes orders together and counts the outcomes. With an error some of them, or
// all, have no verdict.
func (c *Closer) close(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	began := time.Now()
	outcomes, err := c.culprits.CloseOrders(ctx, orderclose.PathPipeline, requests)
	if errors.Is(err, closing.ErrSilent) {
		c.turns.change(func(p *pace, _ int) { p.failed(time.Now()) })
	}
	if err == nil {
		c.o.Metrics.Batch(orderclose.PathPipeline, len(requests), time.Since(began))
	}
	for _, o := range outcomes {
		if o.Verdict == "" {
			continue
		}
		c.o.Metrics.Verdict(orderclose.PathPipeline, o.Verdict)
		if o.Verdict == orderclose.Closed {
			c.o.Metrics.Lateness(orderclose.PathPipeline, -o.Remaining())
		}
	}
	return outcomes, err
}

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) Verdict(orderclose.Path, orderclose.Verdict) {}
func (noMetrics) Lateness(orderclose.Path, time.Duration)     {}
func (noMetrics) Batch(orderclose.Path, int, time.Duration)   {}
func (noMetrics) Pace(int)                                    {}
func (noMetrics) Retried(string)                              {}
func (noMetrics) PaymentPending(bool)                         {}
func (noMetrics) DeadLettered(string, string)                 {}
func (noMetrics) Stuck(string, string, int)                   {}
func (noMetrics) Repeated(int)                                {}
func (noMetrics) Lost(string, int, int64)                     {}
func (noMetrics) FetchFailing(string, string, int, time.Time) {}
func (noMetrics) FetchEnded(string, string, int)              {}
