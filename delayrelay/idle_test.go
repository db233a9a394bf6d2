package delayrelay

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/wire"
)

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
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took < time.Hour || took > time.Hour+time.Second {
			t.Errorf("the record was forwarded after %v, want an hour", took)
		}
	})
}
