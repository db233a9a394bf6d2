package delayrelay

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

var (
	bucket5m  = orderclose.Bucket{Topic: "delay_5m", Length: 5 * time.Minute}
	bucket30m = orderclose.Bucket{Topic: "delay_30m", Length: 30 * time.Minute}
	bucket2h  = orderclose.Bucket{Topic: "delay_2h", Length: 2 * time.Hour}
)

// lateness returns by how much each record was forwarded after it was due, by key.
func lateness(t *testing.T, log *testkit.Log) map[string]time.Duration {
	t.Helper()
	late := map[string]time.Duration{}
	for _, m := range log.Appended()["order-close"] {
		due, _, err := m.Raw().Route()
		if err != nil {
			t.Fatal(err)
		}
		late[string(m.Key)] = m.Appended.Sub(time.UnixMilli(due))
	}
	return late
}

// The buckets were 30m and 2h, and 5m is added. A producer still uses the old list, in which 30m
// takes each shorter delay. The relay may have started after the change, and remembers nothing.
func TestRelay_AProducerWithAnEarlierListMakesNoOrderLate(t *testing.T) {
	before, after := orderclose.Buckets{bucket30m, bucket2h}, orderclose.Buckets{bucket5m, bucket30m, bucket2h}
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log, at := &testkit.Log{}, testkit.TopicPartition{Topic: bucket30m.Topic}
			log.Put(at, record("first", 30*time.Minute))
			log.Put(testkit.TopicPartition{Topic: bucket5m.Topic}, record("x", 5*time.Minute))
			o := Options{Log: log, Buckets: before, CloseTopic: "order-close", DeadLetterTopic: "dead",
				Group: func(b orderclose.Bucket) string { return b.Topic }}
			if restarted {
				o.Buckets = after
			}
			r := must.Get(New(o))(t)
			defer testkit.Start(t, r.Run)()
			time.Sleep(time.Second)
			r.SetBuckets(after, after)
			for i := range 60 {
				time.Sleep(time.Second)
				log.Put(at, record(fmt.Sprint("slow", i), 30*time.Minute))
			}
			log.Put(at, record("six minutes", 6*time.Minute))
			log.Put(at, record("ten seconds", 10*time.Second))
			time.Sleep(time.Hour)
			late := lateness(t, log)
			expect.That(t, late["six minutes"] <= time.Second, "restarted %v: an order of six minutes was %v late", restarted, late["six minutes"])
			expect.AtMost(t, late["ten seconds"], time.Minute, "restarted %v: the lateness of an order of ten seconds", restarted)
			expect.Equal(t, len(log.Keys("order-close")), 64, "restarted %v: forwarded records, each once", restarted)
		})
	}
}

// The records that are due soon take the place of the others in a full window, wherever they are
// in the log.
func TestRelay_AFullWindowKeepsTheEarliest(t *testing.T) {
	for _, buckets := range []orderclose.Buckets{{bucket30m}, {bucket5m, bucket30m}} {
		synctest.Test(t, func(t *testing.T) {
			log, at := &testkit.Log{}, testkit.TopicPartition{Topic: bucket30m.Topic}
			log.Put(at, record("first", 30*time.Minute))
			defer runRelay(t, log, func(o *Options) { o.Buckets, o.WindowBytes = buckets, 96<<10 })()
			quick := []string{}
			for s := range 3600 {
				log.Put(at, record(fmt.Sprint("slow", s), 30*time.Minute))
				if s%30 == 0 {
					for i := range 50 { // with the slow ones more than the window holds
						quick = append(quick, fmt.Sprint("quick", s, "-", i))
						log.Put(at, record(quick[len(quick)-1], 4*time.Minute))
					}
				}
				time.Sleep(time.Second)
			}
			time.Sleep(40 * time.Minute)
			late := lateness(t, log)
			for _, key := range quick {
				must.That(t, late[key] <= time.Minute, "buckets %v: %s was %v late", buckets, key, late[key])
			}
			expect.Equal(t, len(log.Keys("order-close")), 3601+len(quick), "buckets %v: forwarded records, each once", buckets)
			expect.That(t, log.DoneBelow(at) == int64(3601+len(quick)), "buckets %v: done below %d of %d", buckets, log.DoneBelow(at), 3601+len(quick))
		})
	}
}

// The due records of a burst leave while a full window reads its urgent records again. What it drops
// meanwhile does not make it forget the urgent records that it has not reached.
func TestRelay_AFullWindowReadsAllUrgentRecordsBeforeItBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, at := &recordsRead{Log: &testkit.Log{}, takes: time.Second}, testkit.TopicPartition{Topic: bucket30m.Topic}
		put := func(count int, delay time.Duration) {
			for i := range count {
				log.Put(at, record(fmt.Sprint(delay, i), delay))
			}
		}
		put(1000, 6*time.Minute)
		put(1500, 6*time.Minute+3*time.Second)
		put(6000, 20*time.Minute)
		put(20_000, 30*time.Minute)
		put(1, 8*time.Minute)
		defer runRelay(t, log.Log, func(o *Options) {
			o.Log, o.Buckets, o.WindowBytes = log, orderclose.Buckets{bucket5m, bucket30m}, 300<<10
		})()
		time.Sleep(40 * time.Minute)
		expect.AtMost(t, lateness(t, log.Log)["8m0s 0"], 10*time.Second, "the lateness of the last urgent record")
		expect.Equal(t, len(log.Keys("order-close")), 28_501, "forwarded records, each once")
	})
}

// A window that has no room for its second record, and one in a bucket of a few seconds.
func TestRelay_AFullWindowDoesNotReadWithoutAPause(t *testing.T) {
	for _, row := range []struct {
		bucket time.Duration
		sizes  []int
	}{
		{30 * time.Minute, []int{20 << 10, 130 << 10, 130 << 10}},
		{5 * time.Second, slices.Repeat([]int{1000}, 400)},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, b := &recordsRead{Log: &testkit.Log{}, takes: time.Millisecond}, orderclose.Bucket{Topic: "delay", Length: row.bucket}
			for i, size := range row.sizes {
				m := record(fmt.Sprint(i), row.bucket+time.Duration(i)*time.Millisecond)
				m.Value = make([]byte, size)
				log.Put(testkit.TopicPartition{Topic: b.Topic}, m)
			}
			defer runRelay(t, log.Log, func(o *Options) { o.Log, o.Buckets, o.WindowBytes = log, orderclose.Buckets{b}, 187<<10 })()
			time.Sleep(4 * time.Second)
			expect.AtMost(t, log.fetches.Load(), 30, "bucket %v: fetches in 4 s", row.bucket)
		})
	}
}

// recordsRead counts the records that were read, and the fetches.
type recordsRead struct {
	*testkit.Log
	takes      time.Duration // of each fetch
	n, fetches atomic.Int64
}

func (l *recordsRead) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	l.fetches.Add(1)
	time.Sleep(l.takes)
	f, err := l.Log.Read(ctx, at)
	l.n.Add(int64(len(f.Records)))
	return f, err
}

// A look-ahead reads each new record once, and the loop reads it again before it is due.
func TestRelay_ReadsARecordTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 20_000
		log, at := &recordsRead{Log: &testkit.Log{}}, testkit.TopicPartition{Topic: bucket2h.Topic}
		for i := range records {
			log.Put(at, record(fmt.Sprint(i), 2*time.Hour))
		}
		defer runRelay(t, log.Log, func(o *Options) { o.Log, o.Buckets = log, orderclose.Buckets{bucket5m, bucket2h} })()
		time.Sleep(119 * time.Minute)
		expect.AtMost(t, log.n.Load(), 2*records, "records that were read while %d waited", records)
		time.Sleep(2 * time.Minute)
		expect.Equal(t, len(log.Keys("order-close")), records, "forwarded records")
	})
}

// In the smallest bucket a record may have any time left, so none of those behind a full window is
// left for later.
func TestRelay_AFullWindowOfTheSmallestBucketDelaysNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		log.Put(bucket10s, record("first", time.Second))
		defer runRelay(t, log, func(o *Options) { o.WindowBytes = 48 << 10 })()
		const records = 3000
		for i := range records {
			log.Put(bucket10s, record(fmt.Sprint(i), time.Duration((i*7919)%10000)*time.Millisecond))
			time.Sleep(20 * time.Millisecond) // 500 records wait on average, some 80 KB
		}
		time.Sleep(time.Minute)
		for key, late := range lateness(t, log) {
			must.That(t, late <= 1200*time.Millisecond, "record %s was %v late, want some more than a look-ahead's second", key, late)
		}
		expect.Equal(t, len(log.Keys("order-close")), records+1, "forwarded records")
	})
}

// countingLog counts the fetches of each topic.
type countingLog struct {
	*testkit.Log
	short, long atomic.Int32
}

func (l *countingLog) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	if at.Topic == "delay_10s" {
		l.short.Add(1)
	} else {
		l.long.Add(1)
	}
	return l.Log.Read(ctx, at)
}

// A record in a bucket of an hour waits for nearly an hour, so its empty partition is fetched
// rarely. The smallest bucket may get a record that is due at once.
func TestRelay_AnEmptyPartitionIsFetchedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hour := &countingLog{Log: &testkit.Log{}}, testkit.TopicPartition{Topic: "delay_1h"}
		short, long := record("short", 10*time.Second), record("long", time.Hour)
		log.Put(bucket10s, short)
		log.Put(hour, long)
		defer runRelay(t, log.Log, func(o *Options) {
			o.Log = log
			o.Buckets = orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: hour.Topic, Length: time.Hour}}
		})()
		time.Sleep(3 * time.Hour) // all records have left
		must.That(t, len(log.Keys("order-close")) == 2, "forwarded %v, want both records", log.Keys("order-close"))
		log.short.Store(0)
		log.long.Store(0)
		time.Sleep(10 * time.Minute)
		expect.AtMost(t, log.long.Load(), 11, "fetches of the hour's bucket in ten minutes")
		expect.That(t, log.short.Load() >= 200, "%d fetches of the smallest bucket in ten minutes, want one every 2 s", log.short.Load())
		began := time.Now()
		log.Put(hour, record("later", time.Hour))
		for len(log.Keys("order-close")) < 3 {
			time.Sleep(500 * time.Millisecond)
		}
		expect.Between(t, time.Since(began), time.Hour, time.Hour+time.Second, "the time until the record was forwarded")
	})
}
