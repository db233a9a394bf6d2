package partition_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

var source = testkit.TopicPartition{Topic: "source", Partition: 0}

// recorder is a handler that records what it is given. settle decides what to do with a
// record; default: it is done.
type recorder struct {
	*partition.Loop
	keys   []string // in the order of Handle; "end" stands for that call
	settle func(h *recorder, r wire.RawRecord)
	late   time.Duration // that each later iteration takes
}

func (h *recorder) Handle(f wire.Fetched) {
	for _, r := range f.Records {
		h.keys = append(h.keys, string(r.Key()))
		if h.settle != nil {
			h.settle(h, r)
			continue
		}
		h.Done(r.Offset)
	}
}

func (h *recorder) Turn()                               { time.Sleep(h.late) }
func (h *recorder) Room() (bool, time.Duration)         { return true, 0 }
func (h *recorder) Sleep(d time.Duration) time.Duration { return d }
func (h *recorder) End()                                { h.keys = append(h.keys, "end") }

// consume runs a stage on the log while play runs, and returns its handler.
func consume(t *testing.T, log partition.Log, r prometheus.Registerer, settle func(*recorder, wire.RawRecord), play func()) *recorder {
	t.Helper()
	s := partition.Stage{
		Name: "test", Log: log, DeadLetterTopic: "dead", Loss: "records are lost",
		Metrics: partition.NewMetrics(metrics.With(r), "test"), OnHang: func(why string) { t.Error(why) }, Logger: slog.New(slog.DiscardHandler),
	}
	h := &recorder{settle: settle}
	stop := testkit.Start(t, func(ctx context.Context) error {
		return s.Consume(ctx, "g", source.Topic, func(l *partition.Loop) partition.Handler {
			h.Loop = l
			return h
		})
	})
	synctest.Wait()
	play()
	stop()
	return h
}

func put(log *testkit.Log, keys ...string) {
	for _, key := range keys {
		log.Put(source, wire.Message{Key: []byte(key)})
	}
}

func TestLoop_HandlesEachRecordThatIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		put(log, "a", "b", "c", "d")
		acked, _ := wire.EncodeRuns(1, []wire.Run{{First: 2, End: 3}})
		log.Commit(source, 1, acked) // a and c are done
		h := consume(t, log, nil, nil, func() {
			time.Sleep(time.Second)
			put(log, "e")
			time.Sleep(time.Second)
			expect.Equal(t, log.DoneBelow(source), 5, "committed")
		})
		expect.Same(t, h.keys, []string{"b", "d", "e", "end"}, "handled")
	})
}

// firstStart is a log without commits.
type firstStart struct {
	*testkit.Log
	committed []int64
}

func (l *firstStart) Consume(ctx context.Context, group, topic string, serve func(context.Context, wire.Claim)) error {
	return l.Log.Consume(ctx, group, topic, func(ctx context.Context, claim wire.Claim) {
		claim.NoCommit, claim.Done = true, func(offset int64, _ string) { l.committed = append(l.committed, offset) }
		serve(ctx, claim)
	})
}

// So that the next owner notices if the topic is deleted.
func TestLoop_AFirstStartCommitsItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &firstStart{Log: &testkit.Log{}}
		put(log.Log, "a")
		consume(t, log, nil, func(*recorder, wire.RawRecord) {}, func() { time.Sleep(time.Second) })
		expect.That(t, len(log.committed) == 1 && log.committed[0] == 0, "committed at a first start: %v, want 0", log.committed)
	})
}

// The loop ends, and another one begins. What the first one had in flight marks no record of the new log.
func TestLoop_AReplacedLogIsALossAndIsReadFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, m := &testkit.Log{}, testkit.NewMetrics()
		put(log, "a", "b")
		h := consume(t, log, m, func(h *recorder, r wire.RawRecord) {
			loop := h.Loop
			loop.Go(func(ctx context.Context) { <-ctx.Done() }, func() {
				if string(r.Key()) != "x" {
					loop.Done(r.Offset)
				}
			})
		}, func() {
			time.Sleep(time.Second)
			log.Recreate(source, wire.Message{Key: []byte("x")})
			time.Sleep(10 * time.Second)
		})
		expect.Same(t, h.keys, []string{"a", "b", "end", "x", "end"}, "handled")
		expect.Equal(t, log.DoneBelow(source), 0, "committed while x is not done")
		expect.Equal(t, m.Value("retention_lost_records_total"), 2, "records that are counted as lost")
	})
}

// claimedLog is a log whose claims know its end, and when its topic is gone.
type claimedLog struct {
	*testkit.Log
	gone bool
}

func (l *claimedLog) Consume(ctx context.Context, group, topic string, serve func(context.Context, wire.Claim)) error {
	return l.Log.Consume(ctx, group, topic, func(ctx context.Context, claim wire.Claim) {
		claim.Log = wire.ClaimedLog{Topic: [16]byte{1}, End: func() int64 { return 40 }, Gone: func(ctx context.Context) bool {
			retry.Sleep(ctx, time.Second)
			return l.gone && ctx.Err() == nil
		}}
		serve(ctx, claim)
	})
}

// TestLoop_OfATopicThatIsGoneCountsWhatWaited, also what nobody has read, and once. A loop that is late counts nothing, because another one may count it.
func TestLoop_OfATopicThatIsGoneCountsWhatWaited(t *testing.T) {
	for name, c := range map[string]struct {
		gone, recreated bool
		late            time.Duration
		counted         float64
		committed       int64
	}{
		"there":                   {committed: 1},
		"gone":                    {gone: true, counted: 39},
		"recreated":               {gone: true, recreated: true, counted: 39},
		"gone, and the loop late": {gone: true, late: time.Second, committed: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, m := &claimedLog{Log: &testkit.Log{}, gone: c.gone}, testkit.NewMetrics()
			put(log.Log, "a", "b")
			consume(t, log, m, func(h *recorder, r wire.RawRecord) {
				if r.Offset == 0 {
					h.Done(0)
				}
				h.late = c.late
			}, func() {
				time.Sleep(time.Second)
				if c.recreated {
					log.Recreate(source)
					time.Sleep(5 * time.Second)
				}
				if c.late > 0 {
					put(log.Log, "c")
					time.Sleep(200 * time.Millisecond)
				}
			})
			expect.Equal(t, m.Value("retention_lost_records_total"), c.counted, "%s: records that are counted as lost", name)
			expect.Equal(t, log.DoneBelow(source), c.committed, "%s: committed", name)
		})
	}
}

// Work of Loop.Go may finish after a revocation, and its outcome is committed.
func TestLoop_GoOutlastsTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		put(log, "a", "b")
		h := consume(t, log, nil, func(h *recorder, r wire.RawRecord) {
			h.Go(func(ctx context.Context) {
				expect.That(t, retry.Sleep(ctx, time.Hour) || context.Cause(ctx) != nil, "the context has not ended")
			}, func() {
				h.keys = append(h.keys, fmt.Sprintf("done with %s", r.Key()))
				h.Done(r.Offset)
			})
		}, func() { time.Sleep(time.Second) })
		slices.Sort(h.keys[2:4])
		expect.Same(t, h.keys, []string{"a", "b", "done with a", "done with b", "end"}, "handled")
		expect.Equal(t, log.DoneBelow(source), 2, "committed")
	})
}

// A record that becomes a dead letter is done when the dead letter is acked.
func TestLoop_CommitsADeadLetterOnceItIsAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Fail: testkit.Rejects(15*time.Second + time.Millisecond)}
		put(log, "a", "b")
		consume(t, log, nil, func(h *recorder, r wire.RawRecord) { h.DeadLetterRaw(r, "test", "") }, func() {
			time.Sleep(15 * time.Second)
			expect.Equal(t, log.DoneBelow(source), 0, "committed before the ack")
			time.Sleep(5 * time.Second) // the longest rest of a partition, and more
			expect.Equal(t, log.DoneBelow(source), 2, "committed")
		})
		expect.Same(t, log.Keys("dead"), []string{"a", "b"}, "dead letters")
	})
}

func TestMetrics_HaveTheTimeForWhichFetchesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testkit.NewMetrics()
		m := partition.NewMetrics(metrics.With(r), "relay", "own_cause")
		want := func(relay, closer float64) {
			t.Helper()
			for stage, want := range map[string]float64{"relay": relay, "closer": closer} {
				expect.Equal(t, r.Value("fetch_failing_since_timestamp_seconds", "stage", stage, "partition", "3"), want, "since when fetches of the %s fail", stage)
			}
		}
		m.FetchFailing("relay", "delay_5m", 3, time.Time{})
		m.FetchFailing("closer", "order-close", 3, time.Now())
		want(0, metrics.Timestamp(time.Now()))
		m.FetchFailing("closer", "order-close", 3, time.Time{})
		want(0, 0)
		expect.Equal(t, r.Series("fetch_failing_since_timestamp_seconds"), 2, "series")
		m.FetchEnded("closer", "order-close", 3)
		expect.Equal(t, r.Series("fetch_failing_since_timestamp_seconds"), 1, "series after the end of one")
		// A series must exist at 0, or increase() does not see its first increase.
		m.Claimed("relay", "delay_5m", 3)
		for _, name := range []string{"partition_stuck_total", "retention_lost_records_total"} {
			expect.Equal(t, r.Series(name), 1, "series of %s, one for the partition", name)
		}
		causes := r.Series("dead_letters_total")
		m.DeadLettered("relay", "own_cause")
		m.DeadLettered("relay", "bad_due")
		expect.That(t, r.Series("dead_letters_total") == causes && causes >= 2, "%d causes, want the same %d as before", r.Series("dead_letters_total"), causes)
		expect.Equal(t, r.Value("dead_letters_total", "stage", "relay", "cause", "bad_due"), 1, "dead letters")
	})
}
