// Package outbox brings rows of outbox tables to Kafka.
//
// Whoever changes an order writes a row that tells of it in the same transaction,
// so that there is a row if and only if there was a change. A Dispatcher takes rows
// in batches, oldest first, appends their records with acks=all, and deletes the
// rows, in this order: killed at any moment, it leaves rows behind that are
// published again, and none that is not. So each row arrives at least once.
//
//	dispatcher.go  lifecycle: who looks when, and what waits
//	publish.go     one batch: to Kafka, or to the dead letters
//	shunned.go     partitions and topics that take no records
//	aside.go       rows that can neither be published nor made dead letters of
//	kept.go        rows that are published and not deleted
//	walk.go        how rows that were left are looked past
//	decide.go      how long to wait (pure)
//
// Any number of processes may dispatch: what one has in hand the others skip.
// Between them they keep no order, so that records must not rest on it: an event
// carries its order's version.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/loglimit"
	"orderclose/internal/partition"
)

// Stage is the name of this stage in dead letters.
const Stage = "outbox"

// Defaults of Options, and bounds.
const (
	// DefaultBatch is how many rows one transaction takes. A transaction costs four
	// round trips to the database and a few to Kafka whatever its size, which hundreds
	// of rows share: twice as many make a quarter more a second. 999 is what one
	// statement deletes; more would only hold their locks for longer.
	DefaultBatch = 999
	// DefaultInFlight is how many batches a process has in hand at once when there is
	// more than one: while one waits for Kafka the database reads the other.
	DefaultInFlight = 2

	// holdTime bounds how long rows stay locked while Kafka does not answer. Whoever
	// wrote them is not kept waiting by it; a connection is.
	holdTime = 3 * time.Second
	// lingerTime is how long a batch may take to its end when ctx has ended: what was
	// published should also be deleted.
	lingerTime = holdTime + time.Second
	// lookEvery is how often the backlog is looked at: two statements by key.
	lookEvery = 5 * time.Second
)

// Kind is a kind of rows, and what becomes of each.
type Kind struct {
	// Outbox is where the rows stand.
	Outbox orderclose.Outbox
	// Route makes a row's record, at the moment of producing, and says to which topic
	// it goes. It is called again for each attempt, from several goroutines. A row
	// that it refuses is given up: dead letter.
	Route func(row orderclose.OutboxRow) (topic string, m orderclose.Message, err error)
}

// Events is the kind of rows that tell of closes: each payload goes to the topic as
// it is, keyed by the order's id.
func Events(topic string) Kind {
	return Kind{Outbox: orderclose.EventOutbox, Route: func(row orderclose.OutboxRow) (string, orderclose.Message, error) {
		return topic, orderclose.Message{
			Key: []byte(row.OrderID), Value: row.Payload,
			Headers: []orderclose.Header{{Key: orderclose.HeaderContentType, Value: []byte(orderclose.EventContentType)}},
		}, nil
	}}
}

// Scheduling is what the records of orders are made and sent by.
type Scheduling struct {
	Buckets    orderclose.Buckets // shortest first
	CloseTopic string             // for what is due already
	// Now is the clock that picks the bucket. Default time.Now. A wrong one costs what
	// a producer's costs: hops, or lateness, and never an early close.
	Now func() time.Time
}

// errDueTooFar is the relays' word for it.
var errDueTooFar = errors.New("due_too_far")

// Schedules is the kind of rows that producer.Outbox adds: each becomes the record
// that the producer would have sent, in the bucket that suits what remains until
// the order is due. The bucket is picked whenever the record is produced, so that
// it suits also after an hour without Kafka; current is asked each time, and may
// answer something else from one time to the next. How far ahead an order may be due was
// decided when its row was committed: a row is given up only for a due time that is
// nonsense, see orderclose.MaxDelayLimit.
func Schedules(current func() Scheduling) Kind {
	return Kind{Outbox: orderclose.ScheduleOutbox, Route: func(row orderclose.OutboxRow) (string, orderclose.Message, error) {
		m, due, err := row.Schedule()
		if err != nil {
			return "", m, err
		}
		s := current()
		now := time.Now()
		if s.Now != nil {
			now = s.Now()
		}
		if ahead := due.Sub(now); orderclose.BeyondLimit(ahead) {
			return "", m, &orderclose.RecordError{Reason: errDueTooFar, Detail: fmt.Sprintf(
				"it is due in %v, and at most %v is possible", ahead.Round(time.Second), orderclose.MaxDelayLimit)}
		}
		return s.Buckets.TopicAt(now, due, s.CloseTopic), m, nil
	}}
}

// Store has the rows; internal/store's Store is one.
type Store interface {
	// Dispatch hands up to limit rows with ids above after, lowest first, to publish, and
	// deletes those whose ids it returns. Rows that another dispatcher has in hand are left out. It
	// returns how many there were.
	Dispatch(ctx context.Context, box orderclose.Outbox, after int64, limit int, publish func(ctx context.Context, rows []orderclose.OutboxRow) (done []int64)) (int, error)
	// Backlog tells what waits.
	Backlog(ctx context.Context, box orderclose.Outbox) (orderclose.OutboxBacklog, error)
}

// Log is where the records go; internal/kafka's Cluster is one.
type Log interface {
	// ByKey sorts records by the partition that each belongs to, in their order.
	ByKey(ctx context.Context, topic string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error)
	// Idempotent returns a function for one goroutine that appends records so that a
	// repeat after a lost answer is not a duplicate.
	Idempotent(trying func(), repeated func(records int)) orderclose.AppendFunc
}

// Metrics takes what there is to count; internal/obs has one for Prometheus. Its
// methods are called from many goroutines and must not block.
type Metrics interface {
	// Dispatched counts rows that were published and deleted.
	Dispatched(box orderclose.Outbox, rows int)
	// Backlog is what waits, now and then.
	Backlog(box orderclose.Outbox, b orderclose.OutboxBacklog)
	// DeadLettered counts one row given up.
	DeadLettered(stage, cause string)
	// Repeated counts records that may have been written twice.
	Repeated(records int)
}

// Options for a Dispatcher. Store, Log, Kinds and DeadLetterTopic must be set.
type Options struct {
	Store           Store
	Log             Log
	Kinds           []Kind // each outbox once
	DeadLetterTopic string
	Batch           int          // rows per transaction at most; default DefaultBatch
	InFlight        int          // batches at once of each kind at most; default DefaultInFlight
	Logger          *slog.Logger // default: discard
	Metrics         Metrics      // default: none
}

// Dispatcher publishes rows. Make it with New.
type Dispatcher struct{ o Options }

// New returns a Dispatcher, or says what is missing in the options.
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

// Run dispatches until ctx ends. Before it returns, the batches under way have
// ended, within 4 s. It retries whatever fails, and returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, k := range d.o.Kinds {
		more := make(chan struct{}, d.o.InFlight)
		set, places, s := newAside(), newShunned(), &seen{}
		running.Go(func() { d.newWorker(ctx, k, set, places, s).lead(more) })
		for range d.o.InFlight - 1 {
			running.Go(func() { d.newWorker(ctx, k, set, places, s).help(more) })
		}
		running.Go(func() { d.look(ctx, k.Outbox) })
	}
	running.Wait()
	return nil
}

// look tells the backlog now and then. While the database cannot be asked, the
// workers say so.
func (d *Dispatcher) look(ctx context.Context, box orderclose.Outbox) {
	for {
		asking, cancel := context.WithTimeout(ctx, lookEvery)
		b, err := d.o.Store.Backlog(asking, box)
		cancel()
		if err == nil {
			d.o.Metrics.Backlog(box, b)
		}
		if !partition.Sleep(ctx, lookEvery) {
			return
		}
	}
}

// lead looks for rows, at once while there are full batches, else now and then.
// Only one worker of a kind does, so that a quiet outbox costs little; while
// batches are full it wakes the others.
func (w *worker) lead(more chan<- struct{}) {
	failures := partition.NewBackOff()
	var pause time.Duration
	for w.ctx.Err() == nil {
		found, err := w.turn()
		if err == nil && w.ctx.Err() == nil {
			var walked int
			walked, err = w.walkOn()
			found = max(found, walked)
		}
		if w.ctx.Err() != nil {
			return
		}
		if err != nil {
			if failures.Say() {
				w.logger.Warn("dispatching failed, trying again", "err", err)
			}
			pause = failures.NextBackOff()
		} else {
			failures.Reset()
			pause = nextPause(pause, found, w.o.Batch)
		}
		if err == nil && pause == 0 {
			select {
			case more <- struct{}{}:
			default: // all are awake
			}
			continue
		}
		if !partition.Sleep(w.ctx, jitter(pause)) {
			return
		}
	}
}

// help takes batches as long as they are full, whenever it is woken.
func (w *worker) help(more <-chan struct{}) {
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-more:
		}
		for w.ctx.Err() == nil {
			if found, err := w.turn(); err != nil || found < w.o.Batch {
				break // the leader sees to the rest
			}
		}
	}
}

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) Dispatched(orderclose.Outbox, int)                   {}
func (noMetrics) Backlog(orderclose.Outbox, orderclose.OutboxBacklog) {}
func (noMetrics) DeadLettered(string, string)                         {}
func (noMetrics) Repeated(int)                                        {}
