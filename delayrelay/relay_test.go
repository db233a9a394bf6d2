package delayrelay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// bucket10s is a partition that the relays under test serve.
var bucket10s = testkit.TopicPartition{Topic: testBuckets[0].Topic}

// record returns a message in the wire format that is due after the delay.
func record(key string, delay time.Duration) wire.Message {
	return wire.Message{Key: []byte(key), Headers: []wire.Header{
		{Key: wire.HeaderDue, Value: []byte(strconv.FormatInt(orderclose.CeilMilli(time.Now().Add(delay)).UnixMilli(), 10))},
		{Key: wire.HeaderVersion, Value: []byte(wire.WireVersion)},
	}}
}

// runRelay runs a relay on the log until stop is called.
func runRelay(t *testing.T, log *testkit.Log, change func(*Options)) (stop func()) {
	t.Helper()
	o := Options{
		Log: log, Buckets: testBuckets, CloseTopic: "order-close", DeadLetterTopic: "dead",
		Group: func(b orderclose.Bucket) string { return b.Topic },
	}
	if change != nil {
		change(&o)
	}
	r := must.Get(New(o))(t)
	return testkit.Start(t, r.Run)
}

func TestRelay_CopiesGoToTheCloseTopicToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		log.Put(bucket10s, record("fresh", 2*time.Second))
		log.Put(bucket10s, record("redriven", 2*time.Second).Resend())
		log.Put(bucket10s, record("redriven, due later", time.Minute).Resend())
		defer runRelay(t, log, nil)()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		expect.Same(t, log.Keys("order-close"), []string{"fresh", "redriven"}, "in the close topic")
		lane, _ := log.Appended()["order-close"][1].Header(wire.HeaderLane)
		expect.Equal(t, lane, wire.LaneReplay, "the mark of the copy")
		expect.Equal(t, log.DoneBelow(bucket10s), 3, "done below")
	})
}

func TestRelay_ALaterDueTimeInFrontDelaysNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		log.Put(bucket10s, record("slow", 9*time.Second))
		log.Put(bucket10s, record("quick", time.Second))
		defer runRelay(t, log, nil)()
		time.Sleep(time.Second)
		synctest.Wait()
		expect.Same(t, log.Keys("order-close"), []string{"quick"}, "after 1 s")
		if done := log.DoneBelow(bucket10s); done > 0 {
			t.Errorf("committed %d while offset 0 still waits", done)
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		expect.Same(t, log.Keys("order-close"), []string{"quick", "slow"}, "forwarded after 9 s")
		expect.Equal(t, log.DoneBelow(bucket10s), 2, "done below")
	})
}

// Also if the ack takes an hour, which is no hang.
func TestRelay_CommitsOnlyAfterTheAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, metrics := &testkit.Log{Fail: testkit.Rejects(time.Hour)}, testkit.NewMetrics()
		log.Put(bucket10s, record("a", time.Second))
		defer runRelay(t, log, func(o *Options) { o.Registerer = metrics })()
		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		expect.Equal(t, log.DoneBelow(bucket10s), 0, "committed before an ack")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		expect.Same(t, log.Keys("order-close"), []string{"a"}, "forwarded")
		expect.Equal(t, log.DoneBelow(bucket10s), 1, "done below")
		expect.Equal(t, metrics.Value("partition_stuck_total"), 0, "times stuck")
	})
}

func TestRelay_ARecordThatIsNotDueAtTheEndOfItsBucketHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		log.Put(bucket10s, record("long", 70*time.Second))
		log.Put(bucket10s, record("nearly due", 10*time.Second+shortHop))
		defer runRelay(t, log, nil)()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expect.Same(t, log.Keys("delay_1m"), []string{"long"}, "in delay_1m")
		time.Sleep(shortHop + time.Millisecond)
		onTime(t, log, 1, time.Millisecond)
	})
}

func TestRelay_AFailingDeadLetterTopicDelaysNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Fail: testkit.Rejects(time.Hour, "dead")}
		log.Put(bucket10s, wire.Message{Key: []byte("poison")})
		log.Put(bucket10s, record("well", time.Second))
		defer runRelay(t, log, nil)()
		time.Sleep(time.Minute)
		synctest.Wait()
		expect.Same(t, log.Keys("order-close"), []string{"well"}, "in the close topic")
		if done := log.DoneBelow(bucket10s); done > 0 {
			t.Errorf("committed %d before the dead letter was appended", done)
		}
	})
}

func TestRelay_ContinuesAtTheLogStartAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		log.SetStart(bucket10s, 40)
		log.Commit(bucket10s, 7, "")
		log.Put(bucket10s, record("a", time.Second))
		defer runRelay(t, log, nil)()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		expect.Same(t, log.Keys("order-close"), []string{"a"}, "forwarded")
		expect.Equal(t, log.DoneBelow(bucket10s), 41, "done below")
	})
}

// inEachTurn makes the loops call do in each turn, in which they ask for the time.
func inEachTurn(o *Options, do func()) {
	var calling atomic.Bool // do may ask for the time itself
	o.Clock = clock.New(func() time.Time {
		if calling.CompareAndSwap(false, true) {
			do()
			calling.Store(false)
		}
		return time.Now()
	})
}

func TestRelay_AfterAPauseItMovesNothingOfALostPartition(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log := &testkit.Log{Lost: lost}
			log.Put(bucket10s, record("due", 2*time.Second))
			metrics, stopped := testkit.NewMetrics(), false
			stop := runRelay(t, log, func(o *Options) {
				o.Registerer = metrics
				inEachTurn(o, func() { // blocks the loop as SIGSTOP does, once a record waits in memory
					if !stopped && metrics.Value("relay_window_records") > 0 {
						stopped = true
						time.Sleep(8 * time.Second)
					}
				})
			})
			time.Sleep(9 * time.Second)
			synctest.Wait()
			moved := len(log.Keys("order-close")) > 0
			expect.That(t, moved != lost, "claim lost: %v; record moved: %v", lost, moved)
			stop()
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Of two partitions of the close topic one has no leader.
func TestRelay_AClosePartitionWithoutALeaderDelaysNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Count: 2, Answer: func(_ context.Context, _ string, p int, _ []string) error {
			if p == 1 {
				return errors.New("Leader Not Available")
			}
			return nil
		}}
		log.SetStart(bucket10s, 0)
		defer runRelay(t, log, nil)()
		for i := range 300 { // five a second
			log.Put(bucket10s, record(fmt.Sprint(i), 8*time.Second))
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var worst time.Duration
		n := 0
		for _, m := range log.Appended()["order-close"] {
			due, _ := m.Due()
			worst, n = max(worst, m.Appended.Sub(due)), n+1
		}
		expect.That(t, n == 300 && worst <= 200*time.Millisecond,
			"%d records were appended, the latest %v late; want 300, at most 200 ms late", n, worst)
	})
}
