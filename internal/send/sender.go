// Package send appends records to the partitions of Kafka's topics, and remembers which
// partitions accept none. The loops of internal/partition, the outbox, the compensator, redrives and replays use it.
//
// Make a Sender with New. Append appends to one partition. AppendAll finds the partitions of
// records and appends to several at once.
//
//	sender.go   Sender, its options, and appends to one partition or to several
//	health.go   which partitions fail, and how long they rest
//
// From a Sender to Kafka the calls are these, and two of them repeat:
//
//	Loop.Send, or AppendAll    a goroutine for each partition
//	  Sender.Append            an append: one request after the other, of up to wire.MaxAppendBytes each
//	    appendOrHalve          halves a request that Kafka refuses for good (repeats 1)
//	      wire.AppendFunc      sends a request until it is acked or refused (repeats 2)
//	        kafka.Cluster      one request, 5 s at most
//
// The deadline of the context bounds all of it, look-ups included: MaxTime, or 8 s in the outbox, whose
// rows are locked meanwhile. A loop of internal/partition gives the look-up and the append of
// Loop.Send a MaxTime each. Then the records that are not acked return to the caller, and the
// partition rests, for MaxRest at most. The caller sends them again. So a record that waits for a
// partition is sent at the latest MaxRest after the partition accepts records again. Only dead
// letters have no deadline: nothing waits for them.
//
// A partition has one request in flight, and its records keep their order. If an answer is
// missing, the request is repeated under the same producer id, so that the broker drops a
// duplicate. If the broker has forgotten the producer id, or the append ends without an answer, records may
// be there twice (Options.Repeated).
package send

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// MaxTime is the time limit that callers set for an append: a look-up, a new producer id and a request, if each answer takes 3 s.
const MaxTime = 10 * time.Second

// minRequest is the shortest time that an append leaves for a further request. If the deadline cuts a
// request off, Kafka may have written its records, and the caller sends them again.
const minRequest = 4 * time.Second

// probeRecords is how many records the first request to a partition has that failed before. If
// they are written but the answer is missing, that many records are written again.
const probeRecords = 100

// GroupFunc groups records by their partition of a topic. It keeps the order of records within a
// partition.
type GroupFunc func(ctx context.Context, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error)

// Producers makes producers; kafka.Cluster implements it.
type Producers interface {
	// Idempotent returns an append function for one goroutine, with a producer id of its own. If an answer
	// is lost, the function sends the records again, and the broker drops the duplicate. It calls repeated,
	// which may be nil, with the number of records that may have been written twice, because the broker
	// forgot the producer id.
	Idempotent(repeated func(records int)) wire.AppendFunc
}

// KeyedProducers also finds the partitions of records by their keys. kafka.Cluster, which is Kafka of
// pipeline.Connections, implements it.
type KeyedProducers interface {
	Producers
	// GroupByKey is a GroupFunc: a record goes to the partition for its key.
	GroupByKey(ctx context.Context, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error)
}

// Options of a Sender. Producers, Group and Logger are required.
type Options struct {
	Producers  Producers
	Group      GroupFunc
	FinishTime time.Duration     // how long a request in flight may take after the context of its append was cancelled
	MinRest    time.Duration     // how long a partition rests after one failed append, doubled by each further one; default MinRest
	MaxRest    time.Duration     // default MaxRest
	Repeated   func(records int) // counts records that may have been written twice; may be nil
	Logger     *slog.Logger
}

// Result is the result of an append to one partition. Each record is in one of Acked, Refused and
// Left.
type Result struct {
	Topic   string
	Began   time.Time
	Acked   []Acked
	Refused []Refusal // to be given up
	// Left holds the records that were not acked in time, in their order. Some may have been
	// written nevertheless.
	Left  []wire.RawRecord
	Pause time.Duration // how long the partition rests now, if Left is not empty
	Err   error         // why records are left; nil if nothing was tried, because the partition rests
}

// Acked is one acked request.
type Acked struct {
	Records  []wire.RawRecord
	At       time.Time // the broker's append time, by its own clock; zero if unknown
	Answered time.Time // when the ack arrived, by the local clock
}

// Refusal is a record that the broker refuses for good, and its error.
type Refusal struct {
	Record wire.RawRecord
	Err    error
}

// Sender appends records. Its methods may be called from several goroutines, but Append for one
// partition only from one at a time.
type Sender struct {
	o         Options
	health    *health
	mu        sync.Mutex // protects producers
	producers map[Destination]wire.AppendFunc
}

// New returns a Sender.
func New(o Options) *Sender { return with(o, newHealth(o)) }

// Twin returns a Sender with the same options and producer ids of its own. Both know which
// partitions fail. Of several that want to try such a partition again, one does.
func (s *Sender) Twin() *Sender { return with(s.o, s.health) }

func with(o Options, h *health) *Sender {
	return &Sender{o: o, health: h, producers: map[Destination]wire.AppendFunc{}}
}

// Append appends records to one partition, in their order. If Kafka refuses some for good
// (wire.ErrRefused), the others are appended. After any other error no further request is made.
// If the partition rests, nothing is tried. After ctx has ended no request is started. The
// deadline of ctx is the time limit.
func (s *Sender) Append(ctx context.Context, to Destination, records []wire.RawRecord) Result {
	return s.attempt(ctx, to, records, func(finishing context.Context, failed bool, r *Result) {
		request, most := s.request(ctx, finishing, to, r), math.MaxInt
		if failed {
			most = probeRecords
		}
		for len(r.Left) > 0 && r.Err == nil {
			n := min(wire.Fitting(r.Left), most)
			n, r.Err = appendOrHalve(r.Left[:n:n], request, r)
			r.Left, most = r.Left[n:], math.MaxInt
		}
	})
}

// Group groups records by their partition of the topic. If the partitions cannot be looked up, parts
// is nil and failed has all records. The topic then rests as a partition does.
func (s *Sender) Group(ctx context.Context, topic string, records []wire.RawRecord) (parts map[int][]wire.RawRecord, failed Result) {
	failed = s.attempt(ctx, Destination{topic, AllPartitions}, records, func(finishing context.Context, _ bool, r *Result) {
		if parts, r.Err = s.o.Group(finishing, topic, records); r.Err == nil {
			r.Left = nil
		}
	})
	return parts, failed
}

// attempt calls do with a Result that has all records left, unless ctx has ended or the partition rests.
// failed reports whether the last attempt failed. The context of do ends at the deadline of ctx, and
// Options.FinishTime after ctx was cancelled.
func (s *Sender) attempt(ctx context.Context, to Destination, records []wire.RawRecord, do func(finishing context.Context, failed bool, r *Result)) (r Result) {
	r = Result{Topic: to.Topic, Began: time.Now(), Left: records, Err: ctx.Err()}
	if r.Err != nil {
		return r
	}
	failed, wait := s.health.begin(to)
	if r.Pause = wait; wait > 0 {
		return r
	}
	finishing, cancel := retry.WithFinishTime(ctx, s.o.FinishTime)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		finishing, cancel = context.WithDeadline(finishing, deadline)
		defer cancel()
	}
	do(finishing, failed, &r)
	s.health.end(ctx, to, &r)
	return r
}

// request returns a function that makes one request to the partition, and notes an ack in r.
func (s *Sender) request(ctx, finishing context.Context, to Destination, r *Result) func([]wire.RawRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	produce := s.producers[to]
	if produce == nil {
		produce = s.o.Producers.Idempotent(s.o.Repeated)
		s.producers[to] = produce
	}
	return func(records []wire.RawRecord) error {
		if ctx.Err() != nil { //mutant:append-after-revoke
			return ctx.Err()
		}
		if end, ok := ctx.Deadline(); ok && len(r.Acked) > 0 && time.Until(end) < minRequest {
			return context.DeadlineExceeded
		}
		at, err := produce(finishing, to.Topic, to.Partition, records)
		switch {
		case err == nil:
			r.Acked = append(r.Acked, Acked{records, at, time.Now()})
		case errors.Is(err, wire.ErrUnanswered) && !errors.Is(ctx.Err(), context.Canceled) && s.o.Repeated != nil:
			s.o.Repeated(len(records)) // the caller sends them again, under another producer id
		}
		return err
	}
}

// appendOrHalve makes one request. If Kafka refuses the records for good, appendOrHalve appends
// each half on its own. n is the number of records, from the first on, that are acked or
// refused. If err is nil, n is the number of all records.
func appendOrHalve(records []wire.RawRecord, request func([]wire.RawRecord) error, r *Result) (n int, err error) {
	err = request(records)
	switch {
	case err == nil:
		return len(records), nil
	case !errors.Is(err, wire.ErrRefused):
		return 0, err
	case len(records) == 1: //mutant:refuse-all-records,rejected-refuses-all
		r.Refused = append(r.Refused, Refusal{records[0], err}) //mutant:refuse-all-records,rejected-refuses-all
		return 1, nil                                           //mutant:refuse-all-records,rejected-refuses-all
	}
	half := len(records) / 2
	if n, err = appendOrHalve(records[:half:half], request, r); err != nil {
		return n, err
	}
	n, err = appendOrHalve(records[half:], request, r)
	return half + n, err
}

// parallel is how many partitions one AppendAll appends to at once, apart from those that failed
// before. Those are tried one after the other, beside the others.
const parallel = 4

// AppendAll appends records to their partitions of several topics. It calls each with each result,
// one after the other, and returns when all appends have ended. A partition that fails or rests delays
// no other.
func (s *Sender) AppendAll(ctx context.Context, topics map[string][]wire.RawRecord, each func(Result)) {
	var reporting sync.Mutex
	report := func(r Result) {
		reporting.Lock()
		defer reporting.Unlock()
		each(r)
	}
	slots, probes := make(chan struct{}, parallel), make(chan struct{}, 1)
	var running sync.WaitGroup
	for topic, records := range topics {
		running.Go(func() {
			parts, failed := s.Group(ctx, topic, records)
			if parts == nil {
				report(failed)
			}
			for p, part := range parts {
				running.Go(func() {
					to, slot := Destination{topic, p}, slots
					if s.health.failed(to) {
						slot = probes
					}
					slot <- struct{}{}
					r := s.Append(ctx, to, part)
					<-slot
					report(r)
				})
			}
		})
	}
	running.Wait()
}
