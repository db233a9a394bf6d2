package delayrelay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderclose/internal/partition/partitiontest"
)

// awayFor returns a log in which the delay topics take nothing for so long.
func awayFor(d time.Duration) *partitiontest.Log {
	begin := time.Now()
	return &partitiontest.Log{Fail: func(to string) error {
		if strings.HasPrefix(to, "delay_") && time.Since(begin) < d {
			return errors.New("no answer")
		}
		return nil
	}}
}

// TestRelay_AHopsTargetThatTakesNothingHoldsUpNothingElse: hops from memory and right
// from a fetch wait for it, what is due leaves on time, and so do they when they are due.
func TestRelay_AHopsTargetThatTakesNothingHoldsUpNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := awayFor(time.Hour)
		begin, due := time.Now(), map[string]time.Duration{}
		put := func(key string, d time.Duration, appended time.Time) {
			m := record(key, d)
			m.Appended = appended
			due[key] = time.Since(begin) + d
			log.Put(bucket10s, m)
		}
		put("hops", 80*time.Second, begin)
		put("hops right away", 70*time.Second, begin.Add(-10*time.Second))
		stuck := &stuckCounter{}
		defer runRelay(t, log, func(o *Options) { o.Metrics = stuck })()
		for i := range 60 {
			put(fmt.Sprint(i), 5*time.Second, time.Now())
			time.Sleep(time.Second)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if done := log.DoneBelow(bucket10s); done != 0 {
			t.Errorf("%d was reported done and the hop was not acked", done)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		seen := map[string]int{}
		for _, m := range log.Appended()["order-close"] {
			key := string(m.Key)
			seen[key]++
			if late := m.Appended.Sub(begin.Add(due[key])); late < 0 || late > 200*time.Millisecond {
				t.Errorf("record %q left %v late", key, late)
			}
		}
		for key := range due {
			if seen[key] != 1 {
				t.Errorf("record %q left %d times", key, seen[key])
			}
		}
		if log.DoneBelow(bucket10s) != 62 || stuck.n.Load() != 0 {
			t.Errorf("done below %d, want 62; %d times stuck", log.DoneBelow(bucket10s), stuck.n.Load())
		}
	})
}

func TestRelay_HopsGoOnWhenTheirTargetIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := awayFor(20 * time.Second)
		for i := range 3 {
			m := record(fmt.Sprint(i), 100*time.Second)
			m.Appended = time.Now().Add(-10 * time.Second)
			log.Put(bucket10s, m)
		}
		defer runRelay(t, log, nil)()
		time.Sleep(20*time.Second + hopPatience + maxHopPause + 3*time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"0", "1", "2"}, log.Keys("delay_1m")); diff != "" || log.DoneBelow(bucket10s) != 3 {
			t.Errorf("done %d (-want +got):\n%s", log.DoneBelow(bucket10s), diff)
		}
	})
}

func TestRelay_ARevocationWhileHopsWaitLosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := awayFor(40 * time.Second)
		log.Put(bucket10s, record("hops", 140*time.Second))
		log.Put(bucket10s, record("due", 2*time.Second))
		for _, after := range []time.Duration{11, 7, 13, 20} { // none can be brought, and then it can
			stop := runRelay(t, log, nil)
			time.Sleep(after * time.Second)
			stop()
			if hopped, done := len(log.Keys("delay_1m")), log.DoneBelow(bucket10s); hopped == 0 && done > 0 {
				t.Errorf("%d was reported done and the hop was not acked", done)
			}
		}
		if diff := cmp.Diff([]string{"hops"}, log.Keys("delay_1m")); diff != "" {
			t.Errorf("hopped (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"due"}, log.Keys("order-close")); diff != "" || log.DoneBelow(bucket10s) != 2 {
			t.Errorf("done %d, forwarded (-want +got):\n%s", log.DoneBelow(bucket10s), diff)
		}
	})
}

// TestRelay_HopsOfALogThatWasMadeAnewMarkNothing: the answer comes when their offsets
// mean others.
func TestRelay_HopsOfALogThatWasMadeAnewMarkNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &partitiontest.Log{Hang: func(_ context.Context, topic string) {
			if topic == "delay_1m" {
				time.Sleep(4 * time.Second)
			}
		}}
		for i := range 3 {
			m := record(fmt.Sprint(i), 100*time.Second)
			m.Appended = time.Now().Add(-10 * time.Second)
			log.Put(bucket10s, m)
		}
		defer runRelay(t, log, nil)()
		time.Sleep(time.Second)
		log.Remake(bucket10s, record("new", 9*time.Second))
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if done := log.DoneBelow(bucket10s); done != 0 || len(log.Keys("delay_1m")) != 3 {
			t.Errorf("%d was reported done while the new log's first record waits", done)
		}
	})
}

func TestRelay_HopsThatDoNotLetGoAreForTheSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		abandoned := make(chan struct{})
		log := &partitiontest.Log{Hang: func(_ context.Context, topic string) {
			if topic == "delay_1m" {
				<-abandoned
			}
		}}
		log.Put(bucket10s, record("hangs", 100*time.Second))
		defer runRelay(t, log, func(o *Options) { o.Abandon = func(string) { close(abandoned) } })()
		select {
		case <-abandoned:
		case <-time.After(2 * time.Minute):
			t.Error("nobody was told")
		}
	})
}
