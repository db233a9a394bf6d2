// Package closer consumes records of due orders from the close topic and closes the
// orders that are still unpaid.
//
// Most programs run a Closer through package pipeline, with a Store of their own if they close
// something else than orders in SQL. Otherwise make one with New, from a log (Kafka of
// pipeline.Host.Connections), a Store and the names of topics and groups. Call Run; it returns when
// its context ends.
//
// A Closer is a member of the consumer group of the close topic. Each assigned
// partition has one handler (handler.go), which runs in the partition's loop
// (internal/partition). It closes the orders of its records in batches through the Store,
// and applies the decision for each verdict (decide.go, outcome.go). It keeps orders that
// wait within a bound of memory (buffer.go), and sends retries back through the buckets
// (retries.go). An offset is committed only when everything below it is settled. A
// batcher combines the batches of all handlers into groups
// (batcher.go). Each group is closed in a transaction (transaction.go), whose traced orders get spans
// (spans.go). A limiter keeps the number of orders in transactions to what the store closes quickly (limiter.go).
//
// Records are delivered at least once. A repeated record is harmless because the Store
// makes a second close of an order a no-op.
package closer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/tracing"
)

// Stage is the name of this stage in dead letters.
const Stage = "closer"

// Defaults of Options. Two transactions of 500 orders at once saturate one database server. Larger
// ones only hold their locks longer. Two more workers serve orders while other
// transactions wait for locks or for a service.
const (
	DefaultBatch   = 500
	DefaultWorkers = 4
)

// DefaultTargetLatency is the target time of a transaction. After a slower transaction, fewer
// orders are closed at once. A target is no bound: one transaction may take longer, and a
// checkout of the same goods then waits longer. The default is twenty times the 12 ms that 500
// orders take on MariaDB with durable commits, and an eighth of the 2 s after which a row counts
// as locked.
const DefaultTargetLatency = 250 * time.Millisecond

// ServiceTargetLatency is the target time if a service closes the orders, or is asked whether they were paid. It is the
// longest timeout of a request.
const ServiceTargetLatency = 3 * time.Second

// The types of Options.Log and Options.Clock, which pipeline.Host.Connections has, and of Options.Skews.
type (
	Log   = partition.Log
	Clock = clock.Clock
	Skews = clock.Skews
)

// Store closes orders. A Store may also have these methods:
//
//	Probe(ctx context.Context) error   // nil if the store works, errors.ErrUnsupported if it cannot
//	                                   // check; called when a close fails
//	MaxBatch() int                     // the most requests in one call; 0: no limit
type Store interface {
	// CloseOrders closes the requested orders that are unpaid and due. It must not close an
	// order before it is due, by the store's own data and clock. It returns one outcome for
	// each request, in the order of the requests. An order may be requested several times, in
	// one call and in later calls: closing it again must change nothing. CloseOrders is called
	// concurrently.
	//
	// The context of a call ends after 10 s. The call must then return within 10 s
	// (Options.OnHang), and its error counts as ErrUnavailable. The closer searches the order on which the store waits, by
	// calls for fewer orders. A panic is an error of an order of the batch.
	//
	// The verdicts Closed, AlreadyPaid and AlreadyClosed are final: return AlreadyClosed for an
	// order that was deleted on purpose. NotDue needs Due and At, with Due after At; the order is
	// asked for again at Due. NotFound and Failed are retried, and become a dead letter after some
	// minutes.
	//
	// The error says who is at fault:
	//
	//   - orderclose.ErrUnavailable: the store. The batch is retried. If one order alone gets
	//     this error while the store closes other orders, that order has failed,
	//     unless the error also wraps orderclose.ErrNoOrderAtFault.
	//   - orderclose.ErrContended: a locked row. The closer searches for its order, which
	//     becomes Contended and is tried again after 1 s.
	//   - any other error: an order of the batch. The closer searches for the order and retries
	//     it. After three retries the order becomes a dead letter.
	//
	// sqlclose.Classify sorts the errors of MySQL's driver so.
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Options of a Closer. Log, Store, Buckets, Group, CloseTopic and DeadLetterTopic are required. Zero values of the others have a meaning.
type Options struct {
	Log             partition.Log
	Store           Store
	Buckets         orderclose.Buckets // for orders that are retried or not due yet
	Group           string
	CloseTopic      string
	DeadLetterTopic string
	// Swept says that a compensator closes overdue orders. Then the record of an order is settled if an operator has paused its category: the
	// compensator closes the order when the pause ends.
	Swept bool
	Batch int // maximum orders in a transaction; default DefaultBatch
	// Workers is the maximum of concurrent transactions; default DefaultWorkers. At most two of them
	// are younger than TargetLatency, or than half a second if that is shorter.
	Workers       int
	TargetLatency time.Duration // target time of a transaction, not a bound; default DefaultTargetLatency
	// BufferBytes bounds the memory, in bytes, of the orders that wait in all partitions
	// together: orders that are nearly due, orders with locked rows, and records that
	// were read ahead while the store is unavailable. Beyond it orders wait in a bucket.
	// One fetch for each partition comes on top. Default DefaultBufferBytes.
	BufferBytes int
	// Clock measures by its Now how long an order waits in memory. By its Database relays release records, so the release times of
	// retries and of orders that came too early are computed from it. Default: all times are those of this machine.
	Clock *clock.Clock
	// Skews compares the creation times of orders with when their first records were appended. Default: they are not compared.
	Skews *clock.Skews
	// Category returns the label value for an order's category in the metric of lateness. Each
	// value adds a histogram, so it must return few. Several goroutines call it at once. Default: all
	// orders have the value "default".
	Category func(category string) string
	// OnHang is called with the reason when a loop hangs and does not stop, or a call of the Store
	// goes on for 10 s after its context has ended, unless Run has returned by then. The process
	// should then exit and be restarted by its supervisor. Default: panic.
	OnHang func(why string)
	Logger *slog.Logger // default: warnings and errors, to slog.Default
	// Registerer gets the metrics (orderclose_…). Closers of one process may share it. Default:
	// no metrics.
	Registerer prometheus.Registerer
	// TracerProvider makes the spans of traced orders. A close begins a new trace, with a link to that of the checkout.
	// Default: no spans.
	TracerProvider trace.TracerProvider
}

// Closer closes due orders. Make it with New. Its methods are safe for concurrent use.
type Closer struct {
	o            Options
	metrics      *closerMetrics
	transactions *transactions
	memory       *partition.MemoryLimit
	stage        partition.Stage
	pauses       *pauseLog
	buckets      atomic.Pointer[orderclose.Buckets]
	runs         atomic.Int32 // calls of Run that have not returned
}

// SetBuckets replaces the buckets for orders that are retried or not due yet. It may be called
// while the closer runs.
func (c *Closer) SetBuckets(bs orderclose.Buckets) { c.buckets.Store(&bs) }

// New returns a Closer, or an error if a metric cannot be registered.
func New(o Options) (*Closer, error) {
	o.Batch = cmp.Or(o.Batch, DefaultBatch)
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	o.TargetLatency = cmp.Or(o.TargetLatency, DefaultTargetLatency)
	o.BufferBytes = cmp.Or(o.BufferBytes, DefaultBufferBytes)
	o.Clock = cmp.Or(o.Clock, clock.New(nil))
	o.Logger = retry.LimitLogs(o.Logger)
	m, err := newMetrics(o.Registerer, withoutPanics(o.Category, o.Logger))
	if err != nil {
		return nil, fmt.Errorf("closer: %w", err)
	}
	c := &Closer{o: o, metrics: m, memory: partition.NewMemoryLimit(o.BufferBytes), pauses: &pauseLog{logger: o.Logger}}
	c.stage = partition.Stage{
		Name: Stage, Log: o.Log, DeadLetterTopic: o.DeadLetterTopic,
		Loss:    "the log has lost records: the next sweep closes their orders",
		Metrics: m.Metrics, Memory: c.memory, OnHang: o.OnHang, Logger: o.Logger,
	}
	c.SetBuckets(o.Buckets)
	c.transactions = &transactions{
		batcher: newBatcher(newLimiter(o.TargetLatency, o.Batch, o.Workers), o.Workers, o.Batch, m.concurrencyLimit.Set),
		store:   o.Store, metrics: m, pauses: c.pauses, logger: o.Logger,
		tracer: tracing.New(o.TracerProvider),
		search: bisect.Search{Limit: bisect.CallTimeout, Caller: bisect.Caller{Logger: o.Logger}},
		onHang: func() {
			if c.runs.Load() > 0 {
				c.stage.Hangs("a call of the store has not returned 10 s after its context ended")
			}
		},
	}
	return c, nil
}

// Run closes orders until ctx ends. Before it returns, the transactions in flight have
// ended, within 2 s, the settled offsets are committed, and the closer has left its
// group. It returns an error only if the group could not be consumed.
func (c *Closer) Run(ctx context.Context) error {
	c.runs.Add(1)
	defer c.runs.Add(-1)
	return c.stage.Consume(ctx, c.o.Group, c.o.CloseTopic, c.newHandler)
}
