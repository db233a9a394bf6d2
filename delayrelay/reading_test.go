package delayrelay

import (
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

// onTime checks how many records were forwarded, and that each was late by less than some time.
func onTime(t *testing.T, log *testkit.Log, records int, late time.Duration) {
	t.Helper()
	expect.Equal(t, len(log.Keys("order-close")), records, "forwarded records, each once")
	for _, m := range log.Appended()["order-close"] {
		was := m.Appended.Sub(time.UnixMilli(must.Get(m.Raw().Route())(t)))
		must.That(t, was < late, "record %s was %v late", m.Key, was)
	}
}

func TestRelay_ReadsARecordOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 20_000
		log, at := &testkit.Log{}, testkit.TopicPartition{Topic: "delay_2h"}
		for i := range records {
			log.Put(at, record(fmt.Sprint(i), 2*time.Hour))
		}
		defer runRelay(t, log, func(o *Options) {
			o.Buckets = orderclose.Buckets{{Topic: "delay_5m", Length: 5 * time.Minute}, {Topic: at.Topic, Length: 2 * time.Hour}}
		})()
		time.Sleep(121 * time.Minute)
		expect.Equal(t, log.Fetched(), records, "records that were read")
		expect.Equal(t, len(log.Keys("order-close")), records, "forwarded records")
	})
}

// A fetch comes on top of the bound, and no fetch begins until records have left.
func TestRelay_AFullWindowStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, bytes = 12_000, 300_000
		log, metrics, most := &testkit.Log{}, testkit.NewMetrics(), 0.0
		for i := range records {
			log.Put(bucket10s, record(fmt.Sprint(i), time.Duration(i/1500)*time.Second))
		}
		defer runRelay(t, log, func(o *Options) {
			o.WindowBytes, o.Registerer = bytes, metrics
			inEachTurn(o, func() { most = max(most, metrics.Value("relay_window_bytes")) })
		})()
		time.Sleep(500 * time.Millisecond)
		expect.AtMost(t, log.Fetched(), 6000, "records that were read while the window was full")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		expect.Between(t, most, bytes, 900_000, "bytes in the window at most")
		onTime(t, log, records, 200*time.Millisecond)
		expect.Equal(t, log.DoneBelow(bucket10s), records, "done below")
	})
}

// Of 12 partitions at 1,000 records a second, one gets a record each 12 ms. Whatever their delays, from the pause on, none is late.
func TestRelay_ABusyBucketIsReadInPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 1000
		var reads atomic.Int32
		log := &testkit.Log{OnRead: func(wire.Position) { reads.Add(1) }}
		defer runRelay(t, log, func(o *Options) { o.Buckets = testBuckets[:1] })()
		for i := range records {
			log.Put(bucket10s, record(fmt.Sprint(i), readPause+time.Duration(1+i*37%9000)*time.Millisecond))
			time.Sleep(12 * time.Millisecond)
		}
		expect.AtMost(t, reads.Load(), 1.1*records*12/50, "fetches")
		time.Sleep(30 * time.Second)
		onTime(t, log, records, 2*time.Millisecond)
	})
}

// A record in a bucket of an hour waits for nearly an hour, so its empty partition is fetched
// rarely. The smallest bucket may get a record that is due at once.
func TestRelay_AnEmptyPartitionIsFetchedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ofShort, ofLong atomic.Int32
		log, hour := &testkit.Log{}, testkit.TopicPartition{Topic: "delay_1h"}
		log.OnRead = func(at wire.Position) {
			if at.Topic == hour.Topic {
				ofLong.Add(1)
			} else {
				ofShort.Add(1)
			}
		}
		short, long := record("short", 10*time.Second), record("long", time.Hour)
		log.Put(bucket10s, short)
		log.Put(hour, long)
		defer runRelay(t, log, func(o *Options) {
			o.Buckets = orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: hour.Topic, Length: time.Hour}}
		})()
		time.Sleep(3 * time.Hour) // all records have left
		must.That(t, len(log.Keys("order-close")) == 2, "forwarded %v, want both records", log.Keys("order-close"))
		ofShort.Store(0)
		ofLong.Store(0)
		time.Sleep(10 * time.Minute)
		expect.AtMost(t, ofLong.Load(), 11, "fetches of the hour's bucket in ten minutes")
		expect.That(t, ofShort.Load() >= 200, "%d fetches of the smallest bucket in ten minutes, want one every 2 s", ofShort.Load())
		began := time.Now()
		log.Put(hour, record("later", time.Hour))
		for len(log.Keys("order-close")) < 3 {
			time.Sleep(500 * time.Millisecond)
		}
		expect.Between(t, time.Since(began), time.Hour, time.Hour+time.Second, "the time until the record was forwarded")
	})
}
