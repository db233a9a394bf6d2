package delayrelay

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// Hops from memory and directly from a fetch wait for the topic. Records that become due leave on time, also those that waited to hop.
func TestRelay_AFailingDelayTopicDelaysNoDueRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Fail: testkit.Rejects(time.Hour, "delay_")}
		begin, due := time.Now(), map[string]time.Duration{}
		put := func(key string, d time.Duration, appended time.Time) {
			m := record(key, d)
			m.Appended = appended
			due[key] = time.Since(begin) + d
			log.Put(bucket10s, m)
		}
		put("hops", 80*time.Second, begin)
		put("hops right away", 70*time.Second, begin.Add(-10*time.Second))
		metrics := testkit.NewMetrics()
		defer runRelay(t, log, func(o *Options) { o.Registerer = metrics })()
		for i := range 60 {
			put(fmt.Sprint(i), 5*time.Second, time.Now())
			time.Sleep(time.Second)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		expect.Equal(t, log.DoneBelow(bucket10s), 0, "committed before the hop was acked")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		seen := map[string]int{}
		for _, m := range log.Appended()["order-close"] {
			key := string(m.Key)
			seen[key]++
			expect.Between(t, m.Appended.Sub(begin.Add(due[key])), 0, 200*time.Millisecond, "the lateness of record %q", key)
		}
		for key := range due {
			expect.Equal(t, seen[key], 1, "times that record %q left", key)
		}
		expect.That(t, log.DoneBelow(bucket10s) == 62 && metrics.Value("partition_stuck_total") == 0,
			"done below %d, want 62; %v times stuck", log.DoneBelow(bucket10s), metrics.Value("partition_stuck_total"))
		expect.Equal(t, metrics.Value("delay_head_due_timestamp_seconds"), 0, "the head of an empty partition")
	})
}

func TestRelay_HopsContinueWhenTheirTopicIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Fail: testkit.Rejects(20*time.Second, "delay_")}
		for i := range 3 {
			m := record(fmt.Sprint(i), 100*time.Second)
			m.Appended = time.Now().Add(-10 * time.Second)
			log.Put(bucket10s, m)
		}
		defer runRelay(t, log, nil)()
		time.Sleep(20*time.Second + send.MaxTime + 4*time.Second + time.Second)
		synctest.Wait()
		expect.Same(t, log.Keys("delay_1m"), []string{"0", "1", "2"}, "hopped")
		expect.Equal(t, log.DoneBelow(bucket10s), 3, "done below")
	})
}

func TestRelay_ARevocationLosesNoWaitingHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Fail: testkit.Rejects(40*time.Second, "delay_")}
		log.Put(bucket10s, record("hops", 140*time.Second))
		log.Put(bucket10s, record("due", 2*time.Second))
		for _, after := range []time.Duration{11, 7, 13, 20} { // the topic works during the last one
			stop := runRelay(t, log, nil)
			time.Sleep(after * time.Second)
			stop()
			if hopped, done := len(log.Keys("delay_1m")), log.DoneBelow(bucket10s); hopped == 0 && done > 0 {
				t.Errorf("committed %d before the hop was acked", done)
			}
		}
		expect.Same(t, log.Keys("delay_1m"), []string{"hops"}, "hopped")
		expect.Same(t, log.Keys("order-close"), []string{"due"}, "forwarded")
		expect.Equal(t, log.DoneBelow(bucket10s), 2, "done below")
	})
}

// The ack arrives when the offset belongs to another record.
func TestRelay_AHopOfTheOldLogMarksNoOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Hang: func(_ context.Context, topic string) {
			if topic == "delay_1m" {
				time.Sleep(4 * time.Second)
			}
		}}
		for i := range 3 {
			log.Put(bucket10s, record(fmt.Sprint(i), 100*time.Second))
		}
		defer runRelay(t, log, nil)()
		time.Sleep(11 * time.Second)
		log.Recreate(bucket10s, record("new", 9*time.Second))
		time.Sleep(7 * time.Second)
		synctest.Wait()
		done := log.DoneBelow(bucket10s)
		expect.That(t, done == 0 && len(log.Keys("delay_1m")) == 3, "committed %d while the new log's first record waits", done)
	})
}

func TestRelay_AbandonsTheProcessWhenAnAppendHangs(t *testing.T) {
	for topic, delay := range map[string]time.Duration{"order-close": time.Second, "delay_1m": 100 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			abandoned := make(chan struct{})
			log := &testkit.Log{Hang: func(_ context.Context, to string) {
				if to == topic {
					<-abandoned
				}
			}}
			log.Put(bucket10s, record("hangs", delay))
			defer runRelay(t, log, func(o *Options) { o.OnHang = func(string) { close(abandoned) } })()
			select {
			case <-abandoned:
			case <-time.After(2 * time.Minute):
				t.Errorf("%s: OnHang was not called", topic)
			}
		})
	}
}

// Due records wait for the topic.
func TestRelay_AFailingCloseTopicDelaysNoHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Loop: true, Fail: testkit.Rejects(5*time.Minute, "order-close")}
		for i := range 20 {
			log.Put(bucket10s, record(fmt.Sprint("due-", i), time.Second))
		}
		log.Put(bucket10s, record("hops", 20*time.Minute))
		metrics := testkit.NewMetrics()
		defer runRelay(t, log, func(o *Options) {
			o.Registerer, o.Buckets = metrics, testBuckets[:1]
		})()
		time.Sleep(time.Minute)
		expect.That(t, len(log.Keys(bucket10s.Topic)) >= 5, "hops %v while the close topic accepts nothing", log.Keys(bucket10s.Topic))
		time.Sleep(5 * time.Minute)
		expect.That(t, len(log.Keys("order-close")) == 20 && metrics.Value("partition_stuck_total") == 0,
			"%d of 20 left when the close topic was back; %v times stuck", len(log.Keys("order-close")), metrics.Value("partition_stuck_total"))
	})
}

// This includes records acked since the last commit.
func TestRelay_AStopCommitsAllAckedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		log.Put(bucket10s, record("first", time.Second))
		log.Put(bucket10s, record("second", time.Second+50*time.Millisecond))
		stop := runRelay(t, log, nil)
		time.Sleep(1100 * time.Millisecond)
		stop()
		expect.Equal(t, log.DoneBelow(bucket10s), 2, "committed after the stop")
	})
}

// The memory of a fetch is freed after the append to the close topic, or after its failure.
func TestRelay_RecordsDueWhenFetchedOutlastTheFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Fail: testkit.Rejects(2 * time.Second)}
		log.Put(bucket10s, record("fresh", -time.Second))
		defer runRelay(t, log, nil)()
		time.Sleep(20 * time.Second)
		expect.Same(t, log.Keys("order-close"), []string{"fresh"}, "in the close topic")
	})
}

// The dead letters in memory are bounded, and in the end every record becomes a dead letter.
func TestRelay_StopsReadingWhileDeadLettersCannotBeAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const garbage, most = 10_000, 1000 + 3000 // a fetch of this log brings 3,000
		log := &testkit.Log{Fail: testkit.Rejects(time.Minute+time.Second, "dead")}
		for range garbage {
			log.Put(bucket10s, wire.Message{Key: []byte("k"), Value: []byte("garbage")})
		}
		defer runRelay(t, log, nil)()
		time.Sleep(time.Minute)
		expect.AtMost(t, log.ReadUpTo(), most, "records of garbage that were read")
		time.Sleep(time.Minute)
		expect.That(t, len(log.Keys("dead")) == garbage && log.DoneBelow(bucket10s) == garbage,
			"%d of %d are dead letters, done below %d", len(log.Keys("dead")), garbage, log.DoneBelow(bucket10s))
	})
}
