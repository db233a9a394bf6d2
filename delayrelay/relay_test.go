package delayrelay

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderclose"
)

// fakeLog is one partition of each topic, in memory.
type fakeLog struct {
	fail func(topic string) error                // an append's answer; nil is an ack
	hang func(ctx context.Context, topic string) // what an append does first

	mu     sync.Mutex
	topics map[string][]orderclose.Message
	begin  map[string]int64 // offset of the first message
	done   []int64          // what was reported done, in order
	resume int64            // where the claim begins
	lost   bool             // the claim is somebody else's; Confirm finds out
}

func (f *fakeLog) put(topic string, m orderclose.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.topics == nil {
		f.topics, f.begin = map[string][]orderclose.Message{}, map[string]int64{}
	}
	m.Topic, m.Offset, m.Appended = topic, f.begin[topic]+int64(len(f.topics[topic])), time.Now()
	f.topics[topic] = append(f.topics[topic], m)
}

// remake deletes a topic and makes it again with one record.
func (f *fakeLog) remake(topic string, m orderclose.Message) {
	f.mu.Lock()
	f.topics[topic] = nil
	f.mu.Unlock()
	f.put(topic, m)
}

func (f *fakeLog) keys(topic string) (keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.topics[topic] {
		keys = append(keys, string(m.Key))
	}
	return keys
}

func (f *fakeLog) Consume(ctx context.Context, _, topic string, serve func(context.Context, orderclose.Claim)) error {
	if topic == testBuckets[0].Topic {
		ctx, revoke := context.WithCancel(ctx)
		defer revoke()
		serve(ctx, orderclose.Claim{Topic: topic, Offset: f.resume, Done: func(offset int64, _ string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.done = append(f.done, offset)
		}, Confirm: func(context.Context) error {
			if !f.lost {
				return nil
			}
			revoke()
			return errors.New("unknown member")
		}})
	}
	<-ctx.Done()
	return nil
}

func (f *fakeLog) Fetch(ctx context.Context, topic string, _ int, offset int64) (orderclose.Fetched, error) {
	for range 20 {
		f.mu.Lock()
		all, begin := f.topics[topic], f.begin[topic]
		f.mu.Unlock()
		if end := begin + int64(len(all)); offset > end {
			return orderclose.Fetched{Next: begin, Anew: true, Lost: &orderclose.Range{First: begin, Last: offset - 1, Err: errors.New("ends early")}}, nil
		}
		if offset < begin {
			return orderclose.Fetched{Next: begin, Lost: &orderclose.Range{First: offset, Last: begin - 1, Err: errors.New("gone")}}, nil
		}
		if end := begin + int64(len(all)); offset < end {
			fetched := orderclose.Fetched{Next: end}
			for _, m := range all[offset-begin:] {
				fetched.Records = append(fetched.Records, m.Raw())
			}
			return fetched, nil
		}
		select {
		case <-ctx.Done():
			return orderclose.Fetched{}, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return orderclose.Fetched{Next: offset}, nil
}

func (f *fakeLog) Spread(_ context.Context, _ orderclose.Claim, _ string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error) {
	return map[int][]orderclose.RawRecord{0: records}, nil
}

// Idempotent gives appends that try until they are acked, like the real ones.
func (f *fakeLog) Idempotent(trying func(), _ func(int)) orderclose.AppendFunc {
	return func(ctx context.Context, topic string, _ int, records []orderclose.RawRecord) (time.Time, error) {
		if f.hang != nil {
			f.hang(ctx, topic)
		}
		for f.fail != nil {
			if trying != nil {
				trying()
			}
			err := f.fail(topic)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return time.Time{}, err
			case <-time.After(100 * time.Millisecond):
			}
		}
		for _, r := range records {
			m, err := r.Message()
			if err != nil {
				return time.Time{}, err
			}
			f.put(topic, m)
		}
		return time.Now(), nil
	}
}

func (f *fakeLog) lastDone() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.done) == 0 {
		return -1
	}
	return f.done[len(f.done)-1]
}

// record is a message that is due after the delay, as the wire format has it.
func record(key string, delay time.Duration) orderclose.Message {
	return orderclose.Message{Key: []byte(key), Headers: []orderclose.Header{
		{Key: orderclose.HeaderDue, Value: []byte(strconv.FormatInt(orderclose.CeilMilli(time.Now().Add(delay)).UnixMilli(), 10))},
		{Key: orderclose.HeaderVersion, Value: []byte(orderclose.WireVersion)},
	}}
}

// runRelay runs a relay on the log until the test ends it.
func runRelay(t *testing.T, log *fakeLog, change func(*Options)) (stop func()) {
	t.Helper()
	o := Options{
		Log: log, Buckets: testBuckets, CloseTopic: "order-close", DeadLetterTopic: "dead", ControlTopic: "control",
		Group: func(b orderclose.Bucket) string { return b.Topic },
	}
	if change != nil {
		change(&o)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestRelay_WhatWasSentAgainKeepsItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		log.put("delay_10s", record("fresh", 2*time.Second))
		log.put("delay_10s", record("replayed", 2*time.Second).SentAgain())
		log.put("delay_10s", record("replayed, due later", time.Minute).SentAgain())
		defer runRelay(t, log, func(o *Options) { o.ReplayTopic = "order-close-replay" })()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		for topic, want := range map[string][]string{"order-close": {"fresh"}, "order-close-replay": {"replayed"}} {
			if diff := cmp.Diff(want, log.keys(topic)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", topic, diff)
			}
		}
		if log.lastDone() != 3 {
			t.Errorf("done below %d, want 3", log.lastDone())
		}
	})
}

func TestRelay_ALaterDueInFrontDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		log.put("delay_10s", record("slow", 9*time.Second))
		log.put("delay_10s", record("quick", time.Second))
		defer runRelay(t, log, nil)()
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"quick"}, log.keys("order-close")); diff != "" {
			t.Errorf("after 1 s (-want +got):\n%s", diff)
		}
		if done := log.lastDone(); done > 0 {
			t.Errorf("%d was reported done while 0 still waits", done)
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"quick", "slow"}, log.keys("order-close")); diff != "" || log.lastDone() != 2 {
			t.Errorf("after 9 s, done %d (-want +got):\n%s", log.lastDone(), diff)
		}
	})
}

func TestRelay_ReportsDoneOnlyAfterTheAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		log := &fakeLog{fail: func(string) error {
			if time.Since(begin) < 31*time.Second {
				return errors.New("no answer")
			}
			return nil
		}}
		log.put("delay_10s", record("a", time.Second))
		defer runRelay(t, log, nil)()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if done := log.lastDone(); done != -1 {
			t.Errorf("%d was reported done and nothing was acked", done)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a"}, log.keys("order-close")); diff != "" || log.lastDone() != 1 {
			t.Errorf("done %d (-want +got):\n%s", log.lastDone(), diff)
		}
	})
}

func TestRelay_WhatIsNotDueAtTheEndOfItsBucketHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		log.put("delay_10s", record("long", 70*time.Second))
		defer runRelay(t, log, nil)()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"long"}, log.keys("delay_1m")); diff != "" {
			t.Errorf("in delay_1m (-want +got):\n%s", diff)
		}
	})
}

func TestRelay_PoisonWithoutADeadLetterTopicStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{fail: func(topic string) error {
			if topic == "dead" {
				return errors.New("no such topic")
			}
			return nil
		}}
		log.put("delay_10s", orderclose.Message{Key: []byte("poison")})
		log.put("delay_10s", record("well", time.Second))
		defer runRelay(t, log, nil)()
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"well"}, log.keys("order-close")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if done := log.lastDone(); done > 0 {
			t.Errorf("%d was reported done and the dead letter is nowhere", done)
		}
	})
}

// TestRelay_ALogThatWasMadeAnew: offsets of the old log mean other records now,
// and none of them may be reported done for an old one's sake.
func TestRelay_ALogThatWasMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		for i := range 5 {
			log.put("delay_10s", record(strconv.Itoa(i), 5*time.Second))
		}
		defer runRelay(t, log, nil)()
		time.Sleep(time.Second)
		synctest.Wait()
		log.remake("delay_10s", record("new", 9*time.Second))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if done := log.lastDone(); done > 0 {
			t.Errorf("%d was reported done while the new log's first record waits", done)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if keys := log.keys("order-close"); len(keys) == 0 || keys[len(keys)-1] != "new" || log.lastDone() != 1 {
			t.Errorf("forwarded %v, done %d", keys, log.lastDone())
		}
	})
}

func TestRelay_GoesOnWhereTheLogBeginsAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{topics: map[string][]orderclose.Message{}, begin: map[string]int64{"delay_10s": 40}, resume: 7}
		log.put("delay_10s", record("a", time.Second))
		defer runRelay(t, log, nil)()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a"}, log.keys("order-close")); diff != "" || log.lastDone() != 41 {
			t.Errorf("done %d, want 41 (-want +got):\n%s", log.lastDone(), diff)
		}
	})
}

// TestRelay_AFullWindowGoesOnEmittingByRelease: with room for a few records only,
// each still leaves on time and once, whatever their order.
func TestRelay_AFullWindowGoesOnEmittingByRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		const records = 300
		begin, due := time.Now(), map[string]time.Duration{}
		for i := range records {
			key := strconv.Itoa(i)
			due[key] = time.Duration((i*7919)%9000) * time.Millisecond
			log.put("delay_10s", record(key, due[key]))
		}
		defer runRelay(t, log, func(o *Options) { o.WindowBytes = 3000 })()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		seen := map[string]bool{}
		for _, m := range log.topics["order-close"] {
			key := string(m.Key)
			if late := m.Appended.Sub(begin.Add(due[key])); late < 0 || late > 150*time.Millisecond {
				t.Errorf("record %s left %v late", key, late)
			}
			if seen[key] {
				t.Errorf("record %s left twice", key)
			}
			seen[key] = true
		}
		if len(seen) != records || log.lastDone() != records {
			t.Errorf("%d of %d were forwarded, done %d", len(seen), records, log.lastDone())
		}
	})
}

func TestRelay_ALoopThatHangsIsBegunAnewFromItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Int64
		log := &fakeLog{hang: func(ctx context.Context, topic string) {
			if topic == "order-close" && hangs.Add(1) == 2 {
				<-ctx.Done() // an answer that never comes, and no deadline
			}
		}}
		log.put("delay_10s", record("before", time.Second))
		log.put("delay_10s", record("hangs", 3*time.Second))
		log.put("delay_10s", record("after", 4*time.Second))
		defer runRelay(t, log, func(o *Options) { o.Abandon = func(why string) { t.Error(why) } })()
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"before", "hangs", "after"}, log.keys("order-close")); diff != "" || log.lastDone() != 3 {
			t.Errorf("done %d (-want +got):\n%s", log.lastDone(), diff)
		}
	})
}

func TestRelay_ALoopThatDoesNotLetGoIsForTheSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		abandoned := make(chan struct{})
		log := &fakeLog{hang: func(context.Context, string) { <-abandoned }}
		log.put("delay_10s", record("hangs", time.Second))
		defer runRelay(t, log, func(o *Options) { o.Abandon = func(string) { close(abandoned) } })()
		select {
		case <-abandoned:
		case <-time.After(2 * time.Minute):
			t.Error("nobody was told")
		}
	})
}

func TestRelay_KafkaBeingAwayIsNoHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		log := &fakeLog{fail: func(topic string) error {
			if time.Since(begin) < time.Hour && topic != "control" {
				return errors.New("no answer")
			}
			return nil
		}}
		log.put("delay_10s", record("a", time.Second))
		stuck := &stuckCounter{}
		defer runRelay(t, log, func(o *Options) { o.Metrics = stuck })()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a"}, log.keys("order-close")); diff != "" || stuck.n.Load() != 0 {
			t.Errorf("%d times stuck (-want +got):\n%s", stuck.n.Load(), diff)
		}
	})
}

// stuckCounter counts loops that hung.
type stuckCounter struct {
	noMetrics
	n atomic.Int64
}

func (s *stuckCounter) Stuck(string, int) { s.n.Add(1) }

// stopped stops the loop, as SIGSTOP stops a process, once its window is filled.
type stopped struct {
	noMetrics
	once *sync.Once
}

func (s stopped) Window(_ string, _, records, _ int) {
	if records > 0 {
		s.once.Do(func() { time.Sleep(8 * time.Second) })
	}
}

func TestRelay_AfterAStopItMovesNothingThatIsNotItsOwn(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log := &fakeLog{lost: lost}
			log.put("delay_10s", record("due", 2*time.Second))
			stop := runRelay(t, log, func(o *Options) { o.Metrics = stopped{once: new(sync.Once)} })
			time.Sleep(9 * time.Second)
			synctest.Wait()
			if moved := len(log.keys("order-close")) > 0; moved == lost {
				t.Errorf("the claim is lost: %v; the record was moved: %v", lost, moved)
			}
			stop()
		})
	}
}

func TestNew_SaysWhatIsMissing(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("accepted nothing")
	}
	o := Options{Log: &fakeLog{}, Group: func(orderclose.Bucket) string { return "g" }, CloseTopic: "c", DeadLetterTopic: "d", ControlTopic: "c2",
		Buckets: orderclose.Buckets{testBuckets[1], testBuckets[0]}}
	if _, err := New(o); err == nil {
		t.Error("accepted buckets out of order")
	}
}
