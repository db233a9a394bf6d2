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
			o := Options{Log: log, Buckets: before, CloseTopic: "order-close", DeadLetterTopic: "dead", ControlTopic: "control",
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
			if late["six minutes"] > time.Second {
				t.Errorf("restarted %v: an order of six minutes was %v late", restarted, late["six minutes"])
			}
			if late["ten seconds"] > time.Minute {
				t.Errorf("restarted %v: an order of ten seconds was %v late, want a minute at most", restarted, late["ten seconds"])
			}
			if n := len(log.Keys("order-close")); n != 64 {
				t.Errorf("restarted %v: %d records were forwarded, want 64, each once", restarted, n)
			}
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
			defer runRelay(t, log, func(o *Options) { o.Buckets, o.WindowBytes = buckets, 128<<10 })()
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
				if late[key] > time.Minute {
					t.Fatalf("buckets %v: %s was %v late", buckets, key, late[key])
				}
			}
			if n := len(log.Keys("order-close")); n != 3601+len(quick) {
				t.Errorf("buckets %v: %d records were forwarded, want %d, each once", buckets, n, 3601+len(quick))
			}
			if done := log.DoneBelow(at); done != int64(3601+len(quick)) {
				t.Errorf("buckets %v: done below %d of %d", buckets, done, 3601+len(quick))
			}
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
		if late := lateness(t, log.Log)["8m0s 0"]; late > 10*time.Second {
			t.Errorf("the last urgent record was %v late", late)
		}
		if n := len(log.Keys("order-close")); n != 28_501 {
			t.Errorf("%d records were forwarded, want 28501, each once", n)
		}
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
			if n := log.fetches.Load(); n > 30 {
				t.Errorf("bucket %v: %d fetches in 4 s", row.bucket, n)
			}
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
		if n := log.n.Load(); n > 2*records {
			t.Errorf("%d records were read while %d waited, want each twice at most", n, records)
		}
		time.Sleep(2 * time.Minute)
		if n := len(log.Keys("order-close")); n != records {
			t.Errorf("%d of %d were forwarded", n, records)
		}
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
			if late > 1200*time.Millisecond {
				t.Fatalf("record %s was %v late, want some more than a look-ahead's second", key, late)
			}
		}
		if n := len(log.Keys("order-close")); n != records+1 {
			t.Errorf("%d records were forwarded, want %d", n, records+1)
		}
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
		if keys := log.Keys("order-close"); len(keys) != 2 {
			t.Fatalf("forwarded %v, want both records", keys)
		}
		log.short.Store(0)
		log.long.Store(0)
		time.Sleep(10 * time.Minute)
		if n := log.long.Load(); n > 11 {
			t.Errorf("%d fetches of the hour's bucket in ten minutes, want one a minute", n)
		}
		if n := log.short.Load(); n < 200 {
			t.Errorf("%d fetches of the smallest bucket in ten minutes, want one every 2 s", n)
		}
		began := time.Now()
		log.Put(hour, record("later", time.Hour))
		for len(log.Keys("order-close")) < 3 {
			time.Sleep(500 * time.Millisecond)
		}
		if took := time.Since(began); took < time.Hour || took > time.Hour+time.Second {
			t.Errorf("the record was forwarded after %v, want an hour", took)
		}
	})
}
