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
