package delayrelay

import (
	"context"
	"fmt"
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

// lateness returns by how much each record was forwarded after it was due, by key.
func lateness(t *testing.T, log *testkit.Log) map[string]time.Duration {
	t.Helper()
	late := map[string]time.Duration{}
	for _, m := range log.Appended()["order-close"] {
		due, err := m.Raw().Route()
		if err != nil {
			t.Fatal(err)
		}
		late[string(m.Key)] = m.Appended.Sub(time.UnixMilli(due))
	}
	return late
}

// recordsRead counts the records that were read.
type recordsRead struct {
	*testkit.Log
	n atomic.Int64
}

func (l *recordsRead) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	f, err := l.Log.Read(ctx, at)
	l.n.Add(int64(len(f.Records)))
	return f, err
}

func TestRelay_ReadsARecordOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 20_000
		log, at := &recordsRead{Log: &testkit.Log{}}, testkit.TopicPartition{Topic: "delay_2h"}
		for i := range records {
			log.Put(at, record(fmt.Sprint(i), 2*time.Hour))
		}
		defer runRelay(t, log.Log, func(o *Options) {
			o.Log = log
			o.Buckets = orderclose.Buckets{{Topic: "delay_5m", Length: 5 * time.Minute}, {Topic: at.Topic, Length: 2 * time.Hour}}
		})()
		time.Sleep(121 * time.Minute)
		expect.Equal(t, log.n.Load(), records, "records that were read")
		expect.Equal(t, len(log.Keys("order-close")), records, "forwarded records")
	})
}

// A fetch comes on top of the bound, and no fetch begins until records have left.
func TestRelay_AFullWindowStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, bytes = 12_000, 300_000
		log, metrics, most := &recordsRead{Log: &testkit.Log{}}, testkit.NewMetrics(), 0.0
		for i := range records {
			log.Put(bucket10s, record(fmt.Sprint(i), time.Duration(i/1500)*time.Second))
		}
		defer runRelay(t, log.Log, func(o *Options) {
			o.Log, o.WindowBytes, o.Registerer = log, bytes, metrics
			inEachTurn(o, func() { most = max(most, metrics.Value("relay_window_bytes")) })
		})()
		time.Sleep(500 * time.Millisecond)
		expect.AtMost(t, log.n.Load(), 6000, "records that were read while the window was full")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		expect.Between(t, most, bytes, 900_000, "bytes in the window at most")
		for key, late := range lateness(t, log.Log) {
			must.That(t, late < 200*time.Millisecond, "record %s was %v late", key, late)
		}
		expect.Equal(t, len(log.Keys("order-close")), records, "forwarded records, each once")
		expect.Equal(t, log.DoneBelow(bucket10s), records, "done below")
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
