package delayrelay

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/wire"
)

// This includes records acked since the last commit.
func TestRelay_AStopCommitsAllAckedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{}
		log.Put(bucket10s, record("first", time.Second))
		log.Put(bucket10s, record("second", time.Second+50*time.Millisecond))
		stop := runRelay(t, log, nil)
		time.Sleep(1100 * time.Millisecond)
		stop()
		if done := log.DoneBelow(bucket10s); done != 2 {
			t.Errorf("committed %d after the stop, want 2", done)
		}
	})
}

// The memory of a fetch is freed after the append to the close topic. An append to the
// replay topic outlasts the turn.
func TestRelay_RecordsDueWhenFetchedOutlastTheFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Hang: func(_ context.Context, topic string) {
			if topic == "order-close-replay" {
				time.Sleep(2 * time.Second)
			}
		}}
		m := record("replay", -time.Second)
		m.Headers = append(m.Headers, wire.Header{Key: wire.HeaderLane, Value: []byte(wire.LaneReplay)})
		log.Put(bucket10s, m)
		log.Put(bucket10s, record("fresh", -time.Second))
		defer runRelay(t, log, func(o *Options) { o.ReplayTopic = "order-close-replay" })()
		time.Sleep(5 * time.Second)
		if diff := cmp.Diff([]string{"replay"}, log.Keys("order-close-replay")); diff != "" {
			t.Errorf("in the replay topic (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"fresh"}, log.Keys("order-close")); diff != "" {
			t.Errorf("in the close topic (-want +got):\n%s", diff)
		}
	})
}

// readLog records the offset up to which it was read.
type readLog struct {
	testkit.Log
	upTo atomic.Int64
}

func (l *readLog) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	f, err := l.Log.Read(ctx, at)
	l.upTo.Store(max(l.upTo.Load(), f.Next))
	return f, err
}

// The dead letters in memory are bounded, and in the end every record becomes a dead
// letter.
func TestRelay_StopsReadingWhileDeadLettersCannotBeAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const garbage, most = 10_000, 1000 + 3000 // a fetch of this log brings 3,000
		log := &readLog{}
		var fixed atomic.Bool
		log.Fail = func(topic string) error {
			if topic == "dead" && !fixed.Load() {
				return errors.New("unknown topic or partition")
			}
			return nil
		}
		for range garbage {
			log.Put(bucket10s, wire.Message{Key: []byte("k"), Value: []byte("garbage")})
		}
		defer runRelay(t, &log.Log, func(o *Options) { o.Log = log })()
		time.Sleep(time.Minute)
		if n := log.upTo.Load(); n > most {
			t.Errorf("%d records of garbage were read, want %d at most", n, most)
		}
		fixed.Store(true)
		time.Sleep(time.Minute)
		if n := len(log.Keys("dead")); n != garbage || log.DoneBelow(bucket10s) != garbage {
			t.Errorf("%d of %d are dead letters, done below %d", n, garbage, log.DoneBelow(bucket10s))
		}
	})
}
