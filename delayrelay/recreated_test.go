package delayrelay

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// Offsets of the old log belong to other records now. An ack of an old record must not
// commit a new one.
func TestRelay_ARecreatedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		for i := range 5 {
			log.Put(bucket10s, record(strconv.Itoa(i), 5*time.Second))
		}
		defer runRelay(t, log, nil)()
		time.Sleep(time.Second)
		synctest.Wait()
		log.Recreate(bucket10s, record("new", 9*time.Second))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if done := log.DoneBelow(bucket10s); done > 0 {
			t.Errorf("committed %d while the new log's first record waits", done)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		keys := log.Keys("order-close")
		expect.That(t, len(keys) != 0 && keys[len(keys)-1] == "new" && log.DoneBelow(bucket10s) == 1, "forwarded %v, done %d", keys, log.DoneBelow(bucket10s))
	})
}

// The new log may be longer than the old one was read.
func TestRelay_ReadsALogRecreatedWhileItSleepsFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, at, metrics := &testkit.Log{}, testkit.TopicPartition{Topic: "delay_1h"}, testkit.NewMetrics()
		log.Put(at, record("old", time.Hour))
		defer runRelay(t, log, func(o *Options) {
			o.Buckets, o.Registerer = append(o.Buckets, orderclose.Bucket{Topic: at.Topic, Length: time.Hour}), metrics
		})()
		time.Sleep(12 * time.Second)
		var all []wire.Message
		var want []string
		for i := range 5 {
			all, want = append(all, record(strconv.Itoa(i), time.Hour)), append(want, strconv.Itoa(i))
		}
		log.Recreate(at, all...)
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		expect.Equal(t, metrics.Value("retention_lost_records_total"), 1, "records that are counted as lost")
		expect.Same(t, log.Keys("order-close"), want, "forwarded")
		expect.Equal(t, log.DoneBelow(at), 5, "done below")
	})
}
