// Package delayrelay moves records out of the delay topics at their release time: to the
// close topic if they are due, else to another delay topic (a hop).
//
// Make a Relay with New, from a log (Kafka of pipeline.Host.Connections), the buckets and the names
// of topics and groups. Call Run; it returns when its context ends.
//
// A Relay is a member of one consumer group per bucket, buckets that left topics.yaml included; buckets.go changes the buckets at run time. Each
// assigned partition has one handler (handler.go), which runs in the partition's loop (internal/partition). The handler reads as far ahead as records
// may be due soon, and keeps them in a heap by release time (window.go). At a release time it appends the record (forward.go). The offset is
// committed only after the ack. Hops are appended beside the loop, so that they do not delay due records. Pure functions say when to read on, and
// where each record goes (decide.go). Heartbeats have their own goroutine, so a loop may sleep for long.
// skew.go compares the clocks of those who created the orders with the brokers'.
//
// A record is forwarded at least once, and never before it is due by the database's clock, as Options.Clock knows it.
package delayrelay

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/retry"
)

// Stage is the name of this stage in dead letters.
const Stage = "relay"

// DefaultWindowBytes bounds the records in the memory of a process: those of 5,000 a second of 1 KB that are due within the 36 s
// which a relay reads ahead.
const DefaultWindowBytes = 256 << 20

// The types of Options.Log and Options.Clock, which pipeline.Host.Connections has, and of Options.Skews.
type (
	Log   = partition.Log
	Clock = clock.Clock
	Skews = clock.Skews
)

// Options of a Relay. Log, Buckets, Group, CloseTopic, and DeadLetterTopic are required. Zero values of the others have a meaning.
type Options struct {
	Log             partition.Log
	Buckets         orderclose.Buckets             // the buckets at the start, shortest first; SetBuckets replaces them
	Group           func(orderclose.Bucket) string // the consumer group of a bucket
	CloseTopic      string
	DeadLetterTopic string
	// WindowBytes bounds the memory, in bytes, of the records that all partitions read ahead. Beyond it, a partition that uses more than
	// an equal share is not read on until records have left. Default DefaultWindowBytes.
	WindowBytes int
	// OnHang is called with the reason when a loop hangs and does not stop. The process
	// should then exit and be restarted by its supervisor. Default: panic.
	OnHang func(why string)
	Clock  *clock.Clock // a record is due by its Database; default: all times are those of this machine
	// Skews compares the creation times of orders with when their first records were appended. Default: they are not compared.
	Skews  *clock.Skews
	Logger *slog.Logger // default: warnings and errors, to slog.Default
	// Registerer gets the metrics (orderclose_…). Relays of one process may share it. Default: no metrics.
	Registerer prometheus.Registerer
	// Exemplars gives the metric of lateness the trace ids of sampled records.
	Exemplars bool
}

// Relay moves records between topics. Make it with New. Its methods are safe for concurrent use.
type Relay struct {
	o       Options
	metrics *relayMetrics
	stage   partition.Stage
	memory  *partition.MemoryLimit

	current    atomic.Pointer[Options] // o with the buckets that hops go to now
	atOnceUpTo atomic.Int64            // records of buckets up to this length are read at once, see readsAtOnce
	newBuckets chan orderclose.Buckets // the latest list that Run has not applied yet
}

// New returns a Relay, or an error if a metric cannot be registered.
func New(o Options) (*Relay, error) {
	o.WindowBytes = cmp.Or(o.WindowBytes, DefaultWindowBytes)
	o.Clock = cmp.Or(o.Clock, clock.New(nil))
	o.Logger = retry.LimitLogs(o.Logger)
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("delayrelay: %w", err)
	}
	r := &Relay{o: o, metrics: m, memory: partition.NewMemoryLimit(o.WindowBytes), newBuckets: make(chan orderclose.Buckets, 1)}
	r.stage = partition.Stage{
		Name: Stage, Log: o.Log, DeadLetterTopic: o.DeadLetterTopic,
		Loss:    "the log has lost records: the next sweep closes their orders",
		Metrics: m.Metrics, Unrecorded: func(runs int) { m.unrecorded.Add(float64(runs)) }, Memory: r.memory, OnHang: o.OnHang, Logger: o.Logger,
	}
	r.current.Store(&o)
	r.SetBuckets(o.Buckets, o.Buckets)
	return r, nil
}

// Run relays records until ctx ends. Before it returns, the appends in flight are acked or given up, within 2 s, the acked offsets are committed, and
// the relay has left its groups. It returns an error only if a group could not be consumed.
func (r *Relay) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	consumers := map[string]*consumer{} // by topic
	defer func() {
		cancel()
		for _, c := range consumers {
			<-c.ended
		}
	}()
	failed := make(chan error, 1)
	for {
		select {
		case <-ctx.Done():
			return nil
		case serve := <-r.newBuckets:
			r.consume(ctx, consumers, serve, failed)
		case err := <-failed:
			return err
		}
	}
}
