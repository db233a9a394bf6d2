// Package delayrelay moves records out of the delay topics when their time has
// come: to the close topic if they are due, to another delay topic if they are
// not yet.
//
// A Relay is a member of one consumer group per bucket, of those too that are
// draining; buckets.go changes them while it runs. For each partition that
// it is given, one loop (partition.go) reads as far ahead as records may be due
// soon, keeps what it read in a heap by release time (window.go), pauses until
// the head is due, appends it to where it goes (decide.go), waits for the ack,
// and only then lets its offset be committed. Hops have goroutines of their own
// (hops.go), so that they hold up nothing that is due. While a loop pauses it does not
// fetch; heartbeats go on by themselves, so a wait of hours costs nothing.
//
// A record is forwarded at least once. It is never forwarded early, by the clock
// in Options.Now.
package delayrelay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"orderclose"
	"orderclose/internal/loglimit"
	"orderclose/internal/partition"
)

// Stage is the name of this stage in dead letters.
const Stage = "relay"

// DefaultWindowBytes bounds the look-ahead of a process: a megabyte, which is a
// fetch, for each partition of twelve and six buckets.
const DefaultWindowBytes = 72 << 20

// Log is what a Relay needs of Kafka; internal/kafka's Cluster is one.
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

// Metrics takes what there is to count; internal/obs has one for Prometheus. Its
// methods are called from many goroutines and must not block.
type Metrics interface {
	// Head says when the record of a partition that leaves next is to leave. The
	// zero time: none waits that was read. It tells by how much the head is overdue
	// even if the loop hangs.
	Head(topic string, partition int, release time.Time)
	// Revoked says that a partition is no longer ours to tell about.
	Revoked(topic string, partition int)
	// Window says how many records, and bytes, of a partition wait in memory.
	Window(topic string, partition, records, bytes int)
	// WindowDropped counts records that were dropped from a look-ahead over its bound,
	// to be read again.
	WindowDropped(topic string, records int)
	// Forwarded counts records appended to the close topic, each so late.
	Forwarded(topic string, lateness []time.Duration)
	// Early counts records that the broker took before they were due, by its clock.
	Early(topic string)
	// Hopped counts records appended to the delay topic to.
	Hopped(from, to string, records int)
	// Unrecorded counts runs of acked records that did not fit beside a commit, and
	// may be repeated by whoever takes the partition over.
	Unrecorded(runs int)
	// Mispicked counts records that were put into the wrong bucket, and may be read too
	// late for it.
	Mispicked(topic string)
	// Stuck counts the times that a partition's loop hung and was started again.
	Stuck(stage, topic string, partition int)
	// Repeated counts records that may have been written twice.
	Repeated(records int)
	// DeadLettered counts one record given up.
	DeadLettered(stage, cause string)
	// Lost counts offsets that the log no longer had when they were asked for.
	Lost(topic string, partition int, records int64)
	// Drifted counts batches that their producer stamped, not the broker.
	Drifted(topic string, batches int)
	// FetchFailing says since when no fetch of a partition has succeeded. The zero
	// time: they do.
	FetchFailing(stage, topic string, partition int, since time.Time)
	// FetchEnded says that a partition is fetched no longer.
	FetchEnded(stage, topic string, partition int)
}

// Options for a Relay. Log, Buckets, Group, CloseTopic, DeadLetterTopic
// and ControlTopic must be set.
type Options struct {
	Log             Log
	Buckets         orderclose.Buckets // all of them, to begin with: hops go from any to any
	Group           func(orderclose.Bucket) string
	CloseTopic      string
	ReplayTopic     string // for what is due on the replay lane; default CloseTopic
	DeadLetterTopic string
	ControlTopic    string // where losses are told
	// WindowBytes bounds the look-ahead of all partitions together, in bytes of
	// memory. Default DefaultWindowBytes. Beyond it the latest releases are dropped
	// and read again.
	WindowBytes int
	// Abandon is called, with the reason, when a loop hangs so that it cannot even be
	// begun anew: the process should exit, and its supervisor start another. Default
	// panics.
	Abandon func(why string)
	Now     func() time.Time // the clock that decides; default time.Now
	Logger  *slog.Logger     // default: discard
	Metrics Metrics          // default: none
}

// Relay moves records on. Make it with New.
type Relay struct {
	o        Options
	watchdog partition.Watchdog
	budget   *partition.Budget

	live    atomic.Pointer[Options] // o with the buckets that are picked now
	whole   atomic.Int64            // up to this length of a bucket its topic is read whole
	serving chan orderclose.Buckets // the latest that Run has not taken up yet
}

// New returns a Relay, or says what is missing in the options.
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
	if o.Abandon == nil {
		o.Abandon = func(why string) { panic("delayrelay: " + why) }
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	r := &Relay{o: o, budget: partition.NewBudget(o.WindowBytes), serving: make(chan orderclose.Buckets, 1)}
	r.watchdog = partition.Watchdog{Stage: Stage, Stuck: o.Metrics.Stuck, Abandon: o.Abandon, Logger: o.Logger}
	r.live.Store(&o)
	r.Change(o.Buckets, o.Buckets)
	return r, nil
}

// Run relays until ctx ends. Before it returns, what it had begun to append is
// acked or given up within 2 s, what was acked is committed, and the groups are
// left. It returns an error only if it could not begin.
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
		case serve := <-r.serving:
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

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) Head(string, int, time.Time)                 {}
func (noMetrics) Revoked(string, int)                         {}
func (noMetrics) Window(string, int, int, int)                {}
func (noMetrics) WindowDropped(string, int)                   {}
func (noMetrics) Forwarded(string, []time.Duration)           {}
func (noMetrics) Early(string)                                {}
func (noMetrics) Hopped(string, string, int)                  {}
func (noMetrics) Mispicked(string)                            {}
func (noMetrics) Stuck(string, string, int)                   {}
func (noMetrics) Unrecorded(int)                              {}
func (noMetrics) Repeated(int)                                {}
func (noMetrics) DeadLettered(string, string)                 {}
func (noMetrics) Lost(string, int, int64)                     {}
func (noMetrics) Drifted(string, int)                         {}
func (noMetrics) FetchFailing(string, string, int, time.Time) {}
func (noMetrics) FetchEnded(string, string, int)              {}
