package delayrelay

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// bucket1m is a partition of a bucket that is fetched only before its records may leave.
var bucket1m = testkit.TopicPartition{Topic: testBuckets[1].Topic}

// setClock is a clock that a test can set.
type setClock struct{ ahead atomic.Int64 }

func (c *setClock) set(ahead time.Duration)   { c.ahead.Store(int64(ahead)) }
func (c *setClock) Now() time.Time            { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *setClock) of(topic string) time.Time { return c.Now() }

// The clock is an hour ahead for 40 seconds. Records that are appended afterwards leave on time.
func TestRelay_ABrokerClockSetBackDelaysNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := &setClock{}
		broker.set(time.Hour)
		log := &testkit.Log{Clock: broker.of}
		due := map[string]time.Time{}
		put := func(n int) {
			for range n {
				key := fmt.Sprint(len(due))
				due[key] = time.Now().Add(time.Minute)
				log.Put(bucket1m, record(key, time.Minute))
				time.Sleep(5 * time.Second)
			}
		}
		put(1)
		defer runRelay(t, log, func(o *Options) { o.Clock = clock.New(broker.Now) })() // it serves the partitions that have records
		put(7)
		broker.set(0)
		back := time.Now()
		put(30)
		time.Sleep(2 * time.Minute)
		left := map[string]int{}
		for _, m := range log.Appended()["order-close"] {
			key := string(m.Key)
			left[key]++
			late := m.Appended.Sub(due[key])
			expect.That(t, !due[key].After(back.Add(time.Minute)) || (late >= 0 && late <= 200*time.Millisecond), "record %s left %v late", key, late)
		}
		for key := range due {
			expect.Equal(t, left[key], 1, "times that record %s left", key)
		}
	})
}

// The record leaves after its bucket's length.
func TestRelay_AFutureAppendTimeKeepsNoRecordLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := func(string) time.Time { return time.Now().Add(time.Hour) }
		log := &testkit.Log{Clock: ahead}
		log.Put(bucket1m, record("far", 10*time.Hour))
		defer runRelay(t, log, nil)()
		time.Sleep(61 * time.Second)
		synctest.Wait()
		expect.Equal(t, len(log.Keys("delay_30m")), 1, "hops after the length of the bucket")
	})
}

// planned returns the hops of the longest walk for a delay that differs from the given one by at most apart.
func planned(buckets orderclose.Buckets, delay, apart time.Duration) (hops int) {
	for d := delay - apart; d <= delay+apart; d += time.Second {
		hops = max(hops, len(buckets.Walk(d)))
	}
	return hops
}

// hopCount sends orders of many delays through all buckets. It returns by how many hops an order exceeds its plan at most. It fails if an order is
// late by more than the clocks are apart. Each of the three parts of an order's delay may err by that much.
func hopCount(t *testing.T, log *testkit.Log, now func() time.Time, buckets orderclose.Buckets, play, apart time.Duration,
	disturb func(since time.Duration)) (most int) {
	t.Helper()
	log.Loop = true
	for _, b := range buckets {
		log.SetStart(testkit.TopicPartition{Topic: b.Topic}, 0)
	}
	defer runRelay(t, log, func(o *Options) { o.Clock, o.Buckets = clock.New(now), buckets })()
	plan, due := map[string]int{}, map[string]time.Time{}
	begin := time.Now()
	for i, last := 0, begin; time.Since(begin) < play || time.Now().Before(last.Add(30*time.Second)); i++ {
		disturb(time.Since(begin))
		if time.Since(begin) < play {
			delay := time.Duration(i*7919%1020+5) * time.Second
			key := fmt.Sprint(i, ": ", delay)
			plan[key], due[key] = planned(buckets, delay, 3*apart), time.Now().Add(delay)
			log.Put(testkit.TopicPartition{Topic: buckets.Pick(delay).Topic}, record(key, delay))
			if due[key].After(last) {
				last = due[key]
			}
		}
		time.Sleep(1700 * time.Millisecond)
	}
	closed, hops := map[string]int{}, map[string]int{}
	for topic, ms := range log.Appended() {
		for _, m := range ms {
			key := string(m.Key)
			if topic != "order-close" {
				hops[key]++
				continue
			}
			closed[key]++
			expect.AtMost(t, m.Appended.Sub(due[key]), apart+time.Second, "the lateness of %s", key)
		}
	}
	for key, n := range plan {
		expect.Equal(t, closed[key], 1, "times that %s reached the close topic", key)
		most = max(most, 1+hops[key]-n) // the producer's append is the first
	}
	return most
}

// The brokers' clock goes back by five seconds, three times, and the relay learns of each step 20 seconds later.
func TestRelay_HopsStayFewAfterAClockStep(t *testing.T) {
	for _, buckets := range []orderclose.Buckets{testBuckets, {{Topic: "delay_2s", Length: 2 * time.Second}, {Topic: "delay_3s", Length: 3 * time.Second},
		{Topic: "delay_1m", Length: time.Minute}}} {
		synctest.Test(t, func(t *testing.T) {
			broker, estimate := &setClock{}, &setClock{}
			log := &testkit.Log{Clock: broker.of}
			steps := 0
			extra := hopCount(t, log, estimate.Now, buckets, 4*time.Minute, 0, func(since time.Duration) {
				if steps < 3 && since > time.Duration(steps+1)*time.Minute {
					steps++
					broker.set(-5 * time.Second * time.Duration(steps))
				}
				if since > time.Duration(steps)*time.Minute+20*time.Second {
					estimate.set(-5 * time.Second * time.Duration(steps))
				}
			})
			expect.That(t, extra <= 2+steps, "with %v an order took %d hops more than planned, after %d clock steps", buckets, extra, steps)
		})
	}
}

// The brokers' clocks differ by 15 seconds permanently. The bound also holds if appends do not return their time.
func TestRelay_HopsStayFewWhereBrokersClocksDiffer(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, apart := range []time.Duration{-15 * time.Second, 15 * time.Second} {
			hopsWhereClocksDiffer(t, apart, silent)
		}
	}
}

func hopsWhereClocksDiffer(t *testing.T, apart time.Duration, silent bool) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Silent: silent, Clock: func(topic string) time.Time {
			if topic == "order-close" {
				return time.Now()
			}
			return time.Now().Add(apart)
		}}
		extra := hopCount(t, log, time.Now, testBuckets, 4*time.Minute, apart.Abs(), func(time.Duration) {})
		expect.That(t, extra <= 2, "%v apart, silent %v, an order took %d hops more than planned", apart, silent, extra)
	})
}
