// Package send appends records to the topics of Kafka, for all parts of a process. kafka.Cluster has an Appender.
//
//	appender.go  Appender: what callers use
//	lanes.go     which partition gets the next request, and which rests
//	request.go   what a request takes, and what becomes of it
//
// A topic has a queue, and a lane for each partition. A lane has one request in flight, under a producer id of its own. Records that arrive
// meanwhile wait in the queue, and the next request takes the records of all callers. While requests are quick, one lane works at a time, and
// each request goes to the next partition. So at a thousand records a second a request has several records, and a broker that syncs each
// append syncs less. If a request takes longer than twice the usual time, a second lane works too. If more records wait than fit into a
// request, all lanes work.
//
// Most records may go to any partition (Send). A lane that fails rests, and what it has not written goes to another one: at once if
// nothing was written, else after 5 s, during which the lane sends the same bytes again, of which the broker drops a duplicate. After that
// the records may be there twice (Result.Repeated). Records with a fixed place (SendByKey) keep their order, and come back to
// their caller as soon as their lane fails.
//
// Nothing waits for longer than MaxTime and the end of a request: then records come back, and their caller decides about them again.
package send

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// MaxTime is how long records wait for a partition at most. A look-up, a new producer id and a request fit if each answer takes 3 s.
const MaxTime = 10 * time.Second

// Log is what an Appender needs of Kafka; kafka.Cluster implements it.
type Log interface {
	// Partitions returns the number of partitions of a topic, at least 1.
	Partitions(ctx context.Context, topic string) (int, error)
	// Idempotent returns an append function for one goroutine, with a producer id of its own. It calls repeated with the number of records
	// that may have been written twice, because the broker forgot the producer id.
	Idempotent(repeated func(records int)) wire.AppendFunc
}

// Sender is the part of an Appender that stages use.
type Sender interface {
	Send(ctx context.Context, topic string, records []wire.RawRecord, done func(Result))
	Failing(topic string) (since time.Time, wait time.Duration)
}

// KeyedSender also appends records by their keys.
type KeyedSender interface {
	Sender
	SendByKey(ctx context.Context, topic string, records []wire.RawRecord, done func(Result))
}

// Options of an Appender; all are required.
type Options struct {
	Log         Log
	PartitionOf func(key []byte, partitions int) int
	Logger      *slog.Logger
}

// Result is what became of the records of one call. Each is in one of Acked, Refused and Left.
type Result struct {
	Topic    string
	Acked    []Acked
	Refused  []Refusal        // by Kafka, for good
	Left     []wire.RawRecord // not acked in time, or their place does not accept them; some may have been written nevertheless
	Err      error            // why records are left
	Pause    time.Duration    // after which it is worth sending what is left again
	Repeated int              // records that may have been written twice, or will be if what is left is sent again
}

// Acked are records of one acked request.
type Acked struct {
	Records   []wire.RawRecord
	Partition int
	Began     time.Time // of the request, by the local clock
	At        time.Time // of the append, by the broker's clock; zero: unknown
	Answered  time.Time // by the local clock
}

// Refusal is a record that the broker refuses for good, and its error.
type Refusal struct {
	Record wire.RawRecord
	Err    error
}

// Error says why not all records were acked; nil: all were.
func (r Result) Error() error {
	switch {
	case len(r.Refused) > 0:
		return r.Refused[0].Err
	case len(r.Left) > 0:
		return cmp.Or(r.Err, context.DeadlineExceeded)
	}
	return nil
}

// CountAcked returns how many records were acked.
func (r Result) CountAcked() (n int) {
	for _, a := range r.Acked {
		n += len(a.Records)
	}
	return n
}

// Appender appends records. It is safe for concurrent use. Make it with New.
type Appender struct {
	o       Options
	running sync.WaitGroup // calls, requests and look-ups

	mu     sync.Mutex // protects all below
	topics map[string]*topic
}

// New returns an Appender.
func New(o Options) *Appender { return &Appender{o: o, topics: map[string]*topic{}} }

// Close waits until all calls and requests have ended.
func (a *Appender) Close() { a.running.Wait() }

// Send appends records to any partitions of a topic. It returns at once, and calls done once, in a goroutine of its own. The bodies of
// the records must not change until then. No request begins after ctx has ended; one in flight may take retry.FinishTime more, or
// as long as it takes if other calls share it.
func (a *Appender) Send(ctx context.Context, topic string, records []wire.RawRecord, done func(Result)) {
	a.send(ctx, topic, records, nil, done)
}

// SendByKey is Send to the partitions of the records' keys. Records of a key keep their order.
func (a *Appender) SendByKey(ctx context.Context, topic string, records []wire.RawRecord, done func(Result)) {
	a.send(ctx, topic, records, func(r wire.RawRecord, n int) int { return a.o.PartitionOf(r.Key(), n) }, done)
}

// Append appends a message to any partition, and returns when all in-sync replicas have it. If ctx ends first, it returns the error of the last
// try, or ctx's, and the message may be written nevertheless if it is in flight. An error that wraps wire.ErrRefused is final.
func (a *Appender) Append(ctx context.Context, topic string, m wire.Message) error {
	answer := make(chan Result, 1)
	a.Send(ctx, topic, []wire.RawRecord{m.Raw()}, func(r Result) { answer <- r })
	select {
	case r := <-answer:
		return r.Error()
	case <-ctx.Done():
		select {
		case r := <-answer: // what waits comes back soon
			return r.Error()
		case <-time.After(5 * dropEvery):
			return ctx.Err()
		}
	}
}

// Wait calls start with a function for its result, and waits for it.
func Wait(start func(done func(Result))) Result {
	result := make(chan Result, 1)
	start(func(r Result) { result <- r })
	return <-result
}

// All sends the records of several topics, and calls each with the results, one after the other.
func All(topics map[string][]wire.RawRecord, send func(topic string, records []wire.RawRecord, done func(Result)), each func(Result)) {
	results := make(chan Result)
	for topic, records := range topics {
		send(topic, records, func(r Result) { results <- r })
	}
	for range topics {
		each(<-results)
	}
}

// Failing returns since when a topic has accepted nothing, and after how long it may accept records; 0: it is worth a try now. Both are
// zero if its last request was acked.
func (a *Appender) Failing(name string) (since time.Time, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.topics[name]
	if t == nil || t.since.IsZero() {
		return time.Time{}, 0
	}
	return t.since, t.wait(time.Now())
}

// Accepting returns the topic of a bucket, or while that one fails and rests the topic of the longest shorter bucket that does not: a relay
// moves its records on. A topic of no bucket is returned as it is.
func Accepting(s Sender, buckets orderclose.Buckets, topic string) string {
	accepting := topic
	for _, b := range buckets { // shortest first
		_, wait := s.Failing(b.Topic)
		accepts := wait == 0
		if b.Topic == topic {
			if accepts {
				return topic
			}
			return accepting
		}
		if accepts { //mutant:retry-keeps-waiting
			accepting = b.Topic
		}
	}
	return topic
}

// entry is one call. Appender.mu protects it.
type entry struct {
	ctx    context.Context
	end    func()                                     // ends ctx and what watches it
	place  func(r wire.RawRecord, partitions int) int // nil: anywhere
	open   int                                        // parts that are neither acked, refused nor left
	flying []*request                                 // that have parts of the entry
	result Result
	done   func(Result)
}

// send begins a call.
func (a *Appender) send(ctx context.Context, name string, records []wire.RawRecord, place func(wire.RawRecord, int) int, done func(Result)) {
	ctx, cancel := context.WithTimeout(ctx, MaxTime) //mutant:topic-waited-for
	e := &entry{ctx: ctx, place: place, done: done, result: Result{Topic: name}}
	a.running.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.topics[name]
	if t == nil {
		t = newTopic(name)
		a.topics[name] = t
	}
	unwatch := context.AfterFunc(ctx, func() { a.ended(t, e) })
	e.end = func() { unwatch(); cancel() }
	known := t.known()
	if known {
		a.add(t, e, records)
	}
	if known && (t.looking || time.Since(t.lookedUp) < lookUpEvery) {
		return
	}
	t.looking = true
	a.running.Go(func() {
		a.lookUp(t)
		a.mu.Lock()
		defer a.mu.Unlock()
		if !known {
			a.add(t, e, records)
		}
	})
}

// add queues the records of a call, or gives them back if nothing accepts them. The caller holds mu.
func (a *Appender) add(t *topic, e *entry, records []wire.RawRecord) {
	e.open = 1 // until add returns
	switch {
	case e.ctx.Err() != nil:
		e.leave(records, e.ctx.Err())
	case !t.known():
		e.leave(records, t.lookUpErr)
	case e.place == nil:
		t.any.add(e, records)
	default:
		places := map[int][]wire.RawRecord{}
		for _, r := range records {
			p := e.place(r, t.partitions)
			places[p] = append(places[p], r)
		}
		for p, some := range places {
			if l := t.lane(p, a.o.Log); l.resting(time.Now()) || l.busy && !l.failing.IsZero() { //mutant:leaderless-tried-always
				e.leave(some, l.err)
			} else {
				l.fixed.add(e, some)
			}
		}
	}
	a.settle(t, e)
	a.next(t)
}

// leave gives records back to the caller.
func (e *entry) leave(records []wire.RawRecord, err error) {
	e.result.Left, e.result.Err = append(e.result.Left, records...), err
}

// settle notes that a part of a call needs nothing more, and ends the call with its last one. The caller holds mu.
func (a *Appender) settle(t *topic, e *entry) {
	if e.open--; e.open > 0 {
		return
	}
	if e.end(); len(e.result.Left) > 0 {
		e.result.Pause = max(t.wait(time.Now()), minRest)
	} else {
		e.result.Err = nil // of a request whose records were acked later
	}
	go func() {
		defer a.running.Done()
		e.done(e.result)
	}()
}

// ended runs when the context of a call has ended: its records that wait come back, and those in flight soon.
func (a *Appender) ended(t *topic, e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range e.flying {
		if r.wanted--; r.wanted == 0 {
			time.AfterFunc(retry.FinishTime, r.cancel)
		}
	}
	t.drop = true
	t.wakeIn(dropEvery, a)
}
