// Package outbox publishes rows of outbox tables to Kafka. Create a Dispatcher with
// New, with a Kind for each table, and call Run.
//
// A transaction that changes an order also writes an outbox row. So the row exists if
// and only if the change was committed. A Dispatcher reads rows in batches, lowest
// ids first, appends their records with acks=all, and then deletes the rows. If it is
// killed at any moment, some rows may be published again, and no row is lost: each
// row is delivered at least once.
//
// Any number of processes may dispatch. Each skips the rows that another one has
// locked. Together they keep no order between records, so consumers must not rely on
// it: an event carries the version of its order.
//
//	dispatcher.go   lifecycle: which worker polls when, and the backlog
//	publish.go      one batch: to Kafka, or to the dead letters
//	unavailable.go  partitions and topics that accept no records
//	quarantine.go   rows that can be neither published nor dead-lettered
//	undeleted.go    rows that are published and not yet deleted
//	walk.go         reading past rows that were skipped
//	decide.go       how long to pause (pure)
package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/loglimit"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// Stage is the name of this part in dead letters.
const Stage = "outbox"

// Defaults of Options, and time limits.
const (
	// DefaultBatch is the default number of rows per transaction. A transaction costs
	// four round trips to the database and a few to Kafka, whatever its size: twice
	// as many rows make a quarter more a second. 999 is what one statement deletes; a
	// larger batch would only hold its locks longer.
	DefaultBatch = 999
	// DefaultInFlight is the default number of batches that a process dispatches at
	// once: while one waits for Kafka, the database reads the other.
	DefaultInFlight = 2

	// publishTimeout limits how long rows stay locked while Kafka does not answer. The
	// transactions that insert rows do not wait for these locks, but the batch
	// occupies a database connection.
	publishTimeout = 3 * time.Second
	// stopTimeout is how long a batch may continue after ctx has ended, so that
	// published rows are also deleted.
	stopTimeout = publishTimeout + time.Second
	// backlogInterval is the time between two measurements of the backlog, each of which
	// costs two statements by primary key.
	backlogInterval = 5 * time.Second
)

// Kind is a kind of outbox rows, and how to make their records.
type Kind struct {
	// Outbox is the table of the rows.
	Outbox wire.Outbox
	// Route returns the record of a row and its topic. It is called for each attempt
	// to publish, from several goroutines. A row for which it returns an error
	// becomes a dead letter.
	Route func(row wire.OutboxRow) (topic string, m wire.Message, err error)
}

// Events returns the kind of the rows for closed orders. The payload is the value of
// the record, and the order's id is its key.
func Events(topic string) Kind {
	return Kind{Outbox: wire.EventOutbox, Route: func(row wire.OutboxRow) (string, wire.Message, error) {
		return topic, wire.Message{
			Key: []byte(row.OrderID), Value: row.Payload,
			Headers: []wire.Header{{Key: orderclose.HeaderContentType, Value: []byte(orderclose.EventContentType)}},
		}, nil
	}}
}

// Scheduling holds what Schedules needs to make the records of orders.
type Scheduling struct {
	Buckets    orderclose.Buckets // shortest first
	CloseTopic string             // for orders that are due already
	// Now is the clock that selects the bucket. Default: time.Now. A wrong clock
	// costs the same as a producer's: more hops or a late close, never an early one.
	Now func() time.Time
}

// errDueTooFar is a cause of dead letters, the same as the relay's.
var errDueTooFar = errors.New("due_too_far")

// Schedules returns the kind of the rows that producer.Outbox adds. Each row becomes
// the record that the producer would have sent. The bucket is picked for each attempt
// to publish, so that it suits the remaining time even after an hour without Kafka.
// Schedules calls current for each attempt; its result may change. The maximum delay
// was checked when the row was committed. A row is given up only if its due time
// cannot be right, see wire.MaxDelayLimit.
func Schedules(current func() Scheduling) Kind {
	return Kind{Outbox: wire.ScheduleOutbox, Route: func(row wire.OutboxRow) (string, wire.Message, error) {
		m, due, err := row.Schedule()
		if err != nil {
			return "", m, err
		}
		s := current()
		now := time.Now()
		if s.Now != nil {
			now = s.Now()
		}
		if ahead := due.Sub(now); wire.BeyondLimit(ahead) {
			return "", m, &wire.RecordError{Reason: errDueTooFar, Detail: fmt.Sprintf(
				"the order is due in %v, the limit is %v", ahead.Round(time.Second), wire.MaxDelayLimit)}
		}
		return s.Buckets.TopicAt(now, due, s.CloseTopic), m, nil
	}}
}

// Store holds the rows. *store.Store of internal/store implements it.
type Store interface {
	// Dispatch reads and locks up to limit rows with ids above after, lowest first,
	// passes them to publish, and deletes the rows whose ids publish returns. It
	// skips rows that another dispatcher has locked. It returns the number of rows
	// that it read.
	Dispatch(ctx context.Context, box wire.Outbox, after int64, limit int, publish func(ctx context.Context, rows []wire.OutboxRow) (done []int64)) (int, error)
	// Backlog returns how many rows wait, and for how long.
	Backlog(ctx context.Context, box wire.Outbox) (wire.OutboxBacklog, error)
}

// Log is Kafka. *kafka.Cluster of internal/kafka implements it.
type Log interface {
	// GroupByKey groups records by the partition for their key, and keeps their order.
	GroupByKey(ctx context.Context, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error)
	// Idempotent returns a function that appends records without duplicates when it
	// retries after a lost answer. Only one goroutine may use the function.
	Idempotent(trying func(), repeated func(records int)) wire.AppendFunc
}

// Metrics receives the counts of a Dispatcher; internal/obs implements it for
// Prometheus. Its methods are called from many goroutines and must not block.
type Metrics interface {
	// Dispatched adds rows that were published and deleted.
	Dispatched(box wire.Outbox, rows int)
	// Backlog sets the current backlog, every few seconds.
	Backlog(box wire.Outbox, b wire.OutboxBacklog)
	// DeadLettered counts one row that became a dead letter.
	DeadLettered(stage, cause string)
	// Repeated adds records that may have been written twice.
	Repeated(records int)
}

// Options configure a Dispatcher. Store, Log, Kinds and DeadLetterTopic are required.
type Options struct {
	Store           Store
	Log             Log
	Kinds           []Kind // at most one for each outbox
	DeadLetterTopic string
	Batch           int          // maximum of rows per transaction; default DefaultBatch
	InFlight        int          // maximum of batches of one kind at once; default DefaultInFlight
	Logger          *slog.Logger // default: no log
	Metrics         Metrics      // default: none
}

// Dispatcher publishes outbox rows. Create it with New.
type Dispatcher struct{ o Options }

// New returns a Dispatcher, or an error if an option is missing or invalid.
func New(o Options) (*Dispatcher, error) {
	switch {
	case o.Store == nil, o.Log == nil, len(o.Kinds) == 0, o.DeadLetterTopic == "":
		return nil, errors.New("outbox: Options need Store, Log, Kinds and DeadLetterTopic")
	case o.Batch < 0, o.InFlight < 0:
		return nil, fmt.Errorf("outbox: Batch is %d and InFlight %d, both must be positive", o.Batch, o.InFlight)
	}
	if o.Batch == 0 {
		o.Batch = DefaultBatch
	}
	if o.InFlight == 0 {
		o.InFlight = DefaultInFlight
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	return &Dispatcher{o}, nil
}

// Run dispatches until ctx ends. It returns when the batches in flight have ended,
// within 4 s. It retries all failures and returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, k := range d.o.Kinds {
		more := make(chan struct{}, d.o.InFlight)
		q, u, s := newQuarantine(), newUnavailable(), &skippedRows{}
		running.Go(func() { d.newWorker(ctx, k, q, u, s).lead(more) })
		for range d.o.InFlight - 1 {
			running.Go(func() { d.newWorker(ctx, k, q, u, s).help(more) })
		}
		running.Go(func() { d.reportBacklog(ctx, k.Outbox) })
	}
	running.Wait()
	return nil
}

// reportBacklog reports the backlog to the metrics. It does not log database errors,
// because the workers log them.
func (d *Dispatcher) reportBacklog(ctx context.Context, box wire.Outbox) {
	for {
		asking, cancel := context.WithTimeout(ctx, backlogInterval)
		b, err := d.o.Store.Backlog(asking, box)
		cancel()
		if err == nil {
			d.o.Metrics.Backlog(box, b)
		}
		if !retry.Sleep(ctx, backlogInterval) {
			return
		}
	}
}

// lead polls for rows, at once after a full batch, otherwise after a pause. Only one
// worker of a kind polls, so that a quiet outbox costs little. While batches are full
// it wakes the other workers.
func (w *worker) lead(more chan<- struct{}) {
	failures := retry.NewBackOff()
	var pause time.Duration
	for w.ctx.Err() == nil {
		found, err := w.dispatchNew()
		if err == nil && w.ctx.Err() == nil {
			var walked int
			walked, err = w.dispatchSkipped()
			found = max(found, walked)
		}
		if w.ctx.Err() != nil {
			return
		}
		if err != nil {
			if failures.ShouldLog() {
				w.logger.Warn("dispatch failed, will retry", "err", err)
			}
			pause = failures.NextBackOff()
		} else {
			failures.Reset()
			pause = nextPause(pause, found, w.o.Batch)
		}
		if err == nil && pause == 0 {
			select {
			case more <- struct{}{}:
			default: // all workers are awake
			}
			continue
		}
		if !retry.Sleep(w.ctx, jitter(pause)) {
			return
		}
	}
}

// help dispatches batches when the leader wakes it, until a batch is not full.
func (w *worker) help(more <-chan struct{}) {
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-more:
		}
		for w.ctx.Err() == nil {
			if found, err := w.dispatchNew(); err != nil || found < w.o.Batch {
				break // the leader handles the rest
			}
		}
	}
}

// noMetrics discards all counts.
type noMetrics struct{}

func (noMetrics) Dispatched(wire.Outbox, int)             {}
func (noMetrics) Backlog(wire.Outbox, wire.OutboxBacklog) {}
func (noMetrics) DeadLettered(string, string)             {}
func (noMetrics) Repeated(int)                            {}
