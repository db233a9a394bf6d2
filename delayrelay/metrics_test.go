package delayrelay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	r := testkit.NewMetrics()
	m := must.Get(newMetrics(r))(t)
	m.Serve("delay_5m") // a series must exist at 0, or increase() does not see its first increase
	for _, name := range []string{"relay_forwarded_total", "relay_hops_total", "producer_stamped_batches_total"} {
		expect.Equal(t, r.Series(name), 1, "%s: series at 0", name)
	}
	m.Waiting("delay_5m", 3, now.Add(-90*time.Second), 7, 700)
	m.Waiting("delay_5m", 4, now.Add(time.Minute), 1, 100)
	m.Waiting("delay_5m", 5, time.Time{}, 0, 0)
	m.Waiting("delay_5m", 6, now.Add(-time.Hour), 1, 100)
	m.Revoked("delay_5m", 6)
	m.forwarded.WithLabelValues("delay_5m").Inc()
	m.lateness.Observe(.002)
	for partition, want := range map[string]float64{"3": metrics.Timestamp(now) - 90, "4": metrics.Timestamp(now) + 60, "5": 0} {
		got := r.Value("delay_head_due_timestamp_seconds", "topic", "delay_5m", "partition", partition)
		expect.That(t, got == want, "the head of partition %s is due at %v, want %v", partition, got, want)
	}
	for name, want := range map[string]float64{
		"relay_window_records": 8, "relay_window_bytes": 800, "relay_lateness_seconds": 1, "relay_forwarded_total": 1,
	} {
		expect.Equal(t, r.Value(name), want, "%s", name)
	}
	for _, name := range []string{"delay_head_due_timestamp_seconds", "relay_window_records", "relay_window_bytes"} {
		expect.Equal(t, r.Series(name), 3, "%s: series of the partitions that are not revoked", name)
	}
}

// A due time that no delay explains says nothing about the relay.
func TestMetrics_AnImpossibleLatenessIsNotObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, metrics := &testkit.Log{}, testkit.NewMetrics()
		log.Put(bucket10s, record("late", -29*24*time.Hour))
		log.Put(bucket10s, record("forged", -31*24*time.Hour))
		forged := record("older than time", 0)
		for i := range forged.Headers {
			if forged.Headers[i].Key == wire.HeaderDue {
				forged.Headers[i].Value = []byte("1")
			}
		}
		log.Put(bucket10s, forged)
		defer runRelay(t, log, func(o *Options) { o.Registerer = metrics })()
		time.Sleep(time.Minute)
		if n, observed := len(log.Keys("order-close")), metrics.Value("relay_lateness_seconds"); n != 3 || observed != 1 {
			t.Errorf("%d records were forwarded, the lateness of %v was observed; want 3 and 1", n, observed)
		}
	})
}

// Without exemplars, the header of a traced order costs nothing.
func TestRelay_WithoutExemplarsAllocatesNothingForATrace(t *testing.T) {
	m := record("traced", 0)
	m.Headers = append(m.Headers, wire.Header{Key: wire.HeaderTraceparent, Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")})
	for exemplars, want := range map[bool]string{false: "", true: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		h, raw := &handler{o: &Options{Exemplars: exemplars}}, m.Raw()
		expect.Equal(t, h.traceparent(&raw), want, "exemplars %v", exemplars)
		n := testing.AllocsPerRun(100, func() { h.traceparent(&raw) })
		expect.That(t, n == 0 || exemplars, "%v allocations", n)
	}
}

// A record that is due when it is fetched waits in memory while the close topic does not answer.
func TestRelay_ADueRecordIsOverdueSinceItsDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, registry := &testkit.Log{Hang: func(context.Context, string) { time.Sleep(3 * time.Second) }}, testkit.NewMetrics()
		log.Put(bucket10s, record("late", -2*time.Second))
		defer runRelay(t, log, func(o *Options) { o.Registerer = registry })()
		time.Sleep(time.Second)
		expect.Between(t, float64(time.Now().Unix())-registry.Value("delay_head_due_timestamp_seconds"), 2, 4, "the seconds that the head is overdue by")
	})
}
