// Package delayrelay moves records out of the delay topics at their release time: to the
// close topic if they are due, else to another delay topic (a hop).
//
// Make a Relay with New, from a log (internal/kafka's Cluster), the buckets and the names
// of topics and groups. Call Run; it returns when its context ends.
//
// A Relay is a member of one consumer group per bucket, draining buckets included;
// buckets.go changes the buckets at run time. Each assigned partition has one handler
// (handler.go), which runs in the partition's loop (internal/partition). The handler reads as
// far ahead as records may be due soon, and keeps them in a heap by release time (window.go).
// At a release time it appends the record to the topic that decide.go picks (forward.go), and
// waits for the ack; only then the offset is committed. Hops are appended beside the loop (hops.go), so that
// they do not delay due records. clock.go corrects the times in memory when a broker's clock
// is set. While a loop sleeps it does not fetch. Heartbeats have their own goroutine, so a
// wait of hours costs nothing.
//
// A record is forwarded at least once, and never before it is due by the clock of
// Options.Now.
package delayrelay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/loglimit"
	"github.com/orderclose/orderclose/internal/partition"
)

// Stage is the name of this stage in dead letters.
const Stage = "relay"

// DefaultWindowBytes bounds the look-ahead of a process: 1 MB, the size of a fetch, for
// each of the 12 partitions of six buckets.
const DefaultWindowBytes = 72 << 20

// Log is the part of Kafka that a Relay uses; internal/kafka's Cluster implements it.
type Log = partition.Log

// Metrics receives the measurements of a Relay; internal/obs implements it for
// Prometheus. The methods are called from many goroutines and must not block.
type Metrics interface {
	partition.Metrics
	// Head sets the release time of the record that leaves a partition next. The zero
	// time means that no record waits in memory. The metric shows how long the head is
	// overdue, also while the loop hangs.
	Head(topic string, partition int, release time.Time)
	// Revoked means that the partition is no longer assigned to this process.
	Revoked(topic string, partition int)
	// Window sets how many records and bytes of a partition wait in memory.
	Window(topic string, partition, records, bytes int)
	// WindowDropped counts records that were dropped from a full look-ahead. They are
	// read again later.
	WindowDropped(topic string, records int)
	// Forwarded counts records appended to the close topic, with the lateness of each.
	Forwarded(topic string, lateness []time.Duration)
	// Early counts records that a broker appended before they were due, by the broker's
	// clock.
	Early(topic string)
	// Hopped counts records that moved from one delay topic to another.
	Hopped(from, to string, records int)
	// Unrecorded counts runs of acked records that did not fit into the metadata of a
	// commit. The next owner of the partition may repeat them.
	Unrecorded(runs int)
	// Mispicked counts records that were put into the wrong bucket and may therefore be
	// read too late.
	Mispicked(topic string)
	// Drifted counts batches with a producer's timestamp instead of the broker's.
	Drifted(topic string, batches int)
}

// Options of a Relay. Log, Buckets, Group, CloseTopic, DeadLetterTopic and ControlTopic
// are required.
type Options struct {
	Log             Log
	Buckets         orderclose.Buckets             // the buckets at the start, shortest first; SetBuckets replaces them
	Group           func(orderclose.Bucket) string // the consumer group of a bucket
	CloseTopic      string
	ReplayTopic     string // receives due records of the replay lane; default CloseTopic
	DeadLetterTopic string
	ControlTopic    string // receives notices of losses
	// WindowBytes bounds the memory, in bytes, of the look-ahead of all partitions
	// together. Beyond it, the records with the latest release times are dropped and read
	// again later. Default DefaultWindowBytes.
	WindowBytes int
	// OnHang is called with the reason when a loop hangs and does not stop. The process
	// should then exit and be restarted by its supervisor. Default: panic.
	OnHang  func(why string)
	Now     func() time.Time // the brokers' clock, which decides when a record is due; default time.Now
	Logger  *slog.Logger     // default: discard
	Metrics Metrics          // default: none
}

// Relay moves records between topics. Make it with New. Its methods are safe for
// concurrent use.
type Relay struct {
	o      Options
	stage  partition.Stage
	memory *partition.MemoryLimit

	current    atomic.Pointer[Options] // o with the buckets that hops go to now
	wholeUpTo  atomic.Int64            // the topics of buckets up to this length are read whole
	newBuckets chan orderclose.Buckets // the latest list that Run has not applied yet
}

// New returns a Relay, or an error that names the missing or invalid options.
func New(o Options) (*Relay, error) {
	switch {
	case o.Log == nil, o.Group == nil, o.CloseTopic == "", o.DeadLetterTopic == "", o.ControlTopic == "":
		return nil, errors.New("delayrelay: Options need Log, Group, CloseTopic, DeadLetterTopic and ControlTopic")
	case len(o.Buckets) == 0:
		return nil, errors.New("delayrelay: Options need at least one bucket")
	}
	for i := 1; i < len(o.Buckets); i++ {
		if o.Buckets[i-1].Length >= o.Buckets[i].Length {
			return nil, fmt.Errorf("delayrelay: buckets must be sorted, shortest first: %v", o.Buckets)
		}
	}
	if o.ReplayTopic == "" {
		o.ReplayTopic = o.CloseTopic
	}
	if o.WindowBytes == 0 {
		o.WindowBytes = DefaultWindowBytes
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = loglimit.New(o.Logger)
	if o.OnHang == nil {
		o.OnHang = func(why string) { panic("delayrelay: " + why) }
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	r := &Relay{o: o, memory: partition.NewMemoryLimit(o.WindowBytes), newBuckets: make(chan orderclose.Buckets, 1)}
	r.stage = partition.Stage{
		Name: Stage, Log: o.Log, DeadLetterTopic: o.DeadLetterTopic, ControlTopic: o.ControlTopic,
		Loss:    "the log has lost records: the next sweep closes their orders",
		Metrics: o.Metrics, Unrecorded: o.Metrics.Unrecorded, Memory: r.memory, OnHang: o.OnHang, Logger: o.Logger,
	}
	r.current.Store(&o)
	r.SetBuckets(o.Buckets, o.Buckets)
	return r, nil
}

// Run relays records until ctx ends. Before it returns, the appends in flight are acked
// or given up, within 2 s, the acked offsets are committed, and the relay has left its
// groups. It returns an error only if a group could not be consumed.
func (r *Relay) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	consumers := map[string]*consumer{} // by topic
	failed := make(chan error, 1)
	var err error
	for err == nil {
		select {
		case <-ctx.Done():
			for _, c := range consumers {
				<-c.ended
			}
			return nil
		case serve := <-r.newBuckets:
			r.consume(ctx, consumers, serve, failed)
		case err = <-failed:
		}
	}
	cancel()
	for _, c := range consumers {
		<-c.ended
	}
	return err
}

// noMetrics discards all measurements.
type noMetrics struct{ partition.NoMetrics }

func (noMetrics) Head(string, int, time.Time)       {}
func (noMetrics) Revoked(string, int)               {}
func (noMetrics) Window(string, int, int, int)      {}
func (noMetrics) WindowDropped(string, int)         {}
func (noMetrics) Forwarded(string, []time.Duration) {}
func (noMetrics) Early(string)                      {}
func (noMetrics) Hopped(string, string, int)        {}
func (noMetrics) Mispicked(string)                  {}
func (noMetrics) Unrecorded(int)                    {}
func (noMetrics) Drifted(string, int)               {}
