// Package outbox publishes rows of outbox tables to Kafka. Create a Dispatcher with New, with a Kind for each table, and call Run.
//
// A transaction that changes an order also writes an outbox row. So the row exists if and only if the change was committed. A Dispatcher reads rows
// in batches, lowest ids first, appends their records with acks=all, and then deletes the rows. If it is killed at any moment, some rows may be
// published again, and no row is lost: each row is delivered at least once.
//
// Any number of processes may dispatch. Each skips the rows that another one has locked. Together they keep no order between records, so consumers
// must not rely on it: an event carries the version of its order.
//
//	dispatcher.go   options, start and stop, and the backlog
//	kinds.go        which record a row becomes
//	worker.go       which batch is read when, and the pauses between batches
//	publish.go      one batch: to Kafka by internal/send, or to the dead letters; rows that can go to neither
//	rowbatch.go     what became of the rows of a batch, and rows that are published and not yet deleted
//	metrics.go      metrics
package outbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// Stage is the name of this part in dead letters.
const Stage = "outbox"

// Defaults of Options.
const (
	// DefaultBatch is the default number of rows per transaction. A transaction costs four round trips to the database and a few to Kafka, whatever
	// its size: twice as many rows make a quarter more a second. 999 is what one statement deletes; a larger batch would only hold its locks longer.
	DefaultBatch = 999
	// DefaultInFlight is the default number of batches that a process dispatches at once: while one waits for Kafka, the database reads the other.
	DefaultInFlight = 2
)

// backlogInterval is the time between two measurements of the backlog of an outbox that has rows, each of which costs a statement by primary key.
const backlogInterval = 10 * time.Second

// Types of a Store: the name of an outbox, a row of it, and how many rows wait.
type (
	Table   = wire.Outbox
	Row     = wire.OutboxRow
	Backlog = wire.OutboxBacklog
)

// The types of Options.Log, which pipeline.Host.Connections has, and of Options.Skews.
type (
	Log   = send.KeyedSender
	Skews = clock.Skews
)

// Store holds the rows: Store of pipeline.Host.Connections is one.
type Store interface {
	// Dispatch reads and locks up to limit rows with ids above after, lowest first, passes them to publish, and deletes the rows whose ids publish
	// returns. It skips rows that another dispatcher has locked. It returns the number of rows that it passed, or limit if it left rows of the first limit
	// ones because they have too many bytes together.
	Dispatch(ctx context.Context, box Table, after int64, limit int, publish func(ctx context.Context, rows []Row) (done []int64)) (int, error)
	// Waiting reports for each outbox whether it has a row.
	Waiting(ctx context.Context, boxes ...Table) ([]bool, error)
	// Backlog returns how many rows wait, and for how long.
	Backlog(ctx context.Context, box Table) (Backlog, error)
}

// Options configure a Dispatcher. Store, Kafka, Kinds and DeadLetterTopic are required.
type Options struct {
	Store           Store
	Kafka           send.KeyedSender // Kafka of pipeline.Host.Connections
	Kinds           []Kind           // at most one for each outbox
	DeadLetterTopic string
	Batch           int // maximum of rows per transaction; default DefaultBatch
	InFlight        int // maximum of batches of one kind at once; default DefaultInFlight
	// Skews compares the creation times of scheduled orders with when their rows were inserted. Default: they are not compared.
	Skews  *Skews
	Logger *slog.Logger // default: warnings and errors, to slog.Default
	// Registerer gets the metrics (orderclose_…). Dispatchers of one process may share it. Default: no metrics.
	Registerer prometheus.Registerer
	// TracerProvider makes the spans of traced orders. Default: no spans.
	TracerProvider trace.TracerProvider
}

// Dispatcher publishes outbox rows. Create it with New.
type Dispatcher struct {
	o       Options
	metrics *dispatcherMetrics
}

// New returns a Dispatcher, or an error if a metric cannot be registered.
func New(o Options) (*Dispatcher, error) {
	o.Batch = cmp.Or(o.Batch, DefaultBatch)
	o.InFlight = cmp.Or(o.InFlight, DefaultInFlight)
	o.Logger = retry.LimitLogs(o.Logger)
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return &Dispatcher{o, m}, nil
}

// Run dispatches until ctx ends. It returns when the batches in flight have ended, within 10 s. It retries all failures and returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	var all []*waiting
	for _, k := range d.o.Kinds {
		more := make(chan struct{}, d.o.InFlight)
		workers := newWorkers(d.o, d.metrics, k)
		w := &waiting{box: k.outbox, rows: make(chan struct{}, 1)}
		all = append(all, w)
		running.Go(func() { workers[0].lead(ctx, w.rows, more) })
		for _, w := range workers[1:] {
			running.Go(func() { w.help(ctx, more) })
		}
	}
	running.Go(func() { d.poll(ctx, all) })
	running.Wait()
	return nil
}

// waiting is what poll knows of an outbox.
type waiting struct {
	box      wire.Outbox
	rows     chan struct{} // wakes the leader: there may be rows
	measured time.Time     // when the backlog was read
	since    time.Time     // when the oldest row that may wait was written
}

// poll asks the database until ctx ends which outboxes have rows, and wakes their leaders. It asks about all outboxes with one statement, and waits
// for about a second in between at most. After an error it wakes all leaders: each tries a batch, and logs why that fails.
func (d *Dispatcher) poll(ctx context.Context, all []*waiting) {
	boxes := make([]wire.Outbox, len(all))
	for i, w := range all {
		boxes[i], w.since = w.box, time.Now()
	}
	var pause time.Duration
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, backlogInterval)
		has, err := d.o.Store.Waiting(asking, boxes...)
		cancel()
		found := 0
		for i, w := range all {
			if err == nil && !has[i] {
				d.metrics.backlog(w.box, wire.OutboxBacklog{})
				w.measured, w.since = time.Time{}, time.Now()
				continue
			}
			select {
			case w.rows <- struct{}{}:
				found++
			default: // it has not looked since
			}
			d.measure(ctx, w)
		}
		pause = nextPause(pause, found, math.MaxInt)
		retry.Sleep(ctx, jitter(pause))
	}
}

// measure reports the backlog of an outbox to the metrics, if it was not read just before. While it cannot be read, rows may
// have waited since the last look. measure does not log database errors, because the workers log them.
func (d *Dispatcher) measure(ctx context.Context, w *waiting) {
	if time.Since(w.measured) < backlogInterval {
		return
	}
	asking, cancel := context.WithTimeout(ctx, backlogInterval)
	defer cancel()
	b, err := d.o.Store.Backlog(asking, w.box)
	if err != nil {
		d.metrics.oldest.WithLabelValues(string(w.box)).Set(time.Since(w.since).Seconds())
		return
	}
	w.measured, w.since = time.Now(), time.Now().Add(-b.Oldest)
	d.metrics.backlog(w.box, b)
}
