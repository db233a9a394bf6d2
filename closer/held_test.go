package closer

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"orderclose"
	"orderclose/internal/partition/partitiontest"
)

// stoppedLog is a log whose reader's process is about to be stopped, once it sleeps.
type stoppedLog struct {
	orderLog
	stop atomic.Bool
}

func (l *stoppedLog) Read(ctx context.Context, at orderclose.Position) (orderclose.Fetched, error) {
	time.Sleep(100 * time.Millisecond) // the loop sleeps by then
	l.stop.Store(at.Offset == 0)
	return l.orderLog.Read(ctx, at)
}

// TestCloser_AfterAStopItClosesNothingThatIsNotItsOwn: whoever has the partition now
// closes it, and tells how it went.
func TestCloser_AfterAStopItClosesNothingThatIsNotItsOwn(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log, store := &stoppedLog{}, &fakeStore{}
			log.Lost = lost
			log.add(t, "a")
			c, err := New(Options{
				Log: log, Store: store, Group: "g", CloseTopic: "order-close", DeadLetterTopic: "dead", ControlTopic: "control",
				Buckets: orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}},
				Now: func() time.Time { // as SIGSTOP stops a process that has just woken
					if log.stop.CompareAndSwap(true, false) {
						time.Sleep(8 * time.Second)
					}
					return time.Now()
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer partitiontest.Start(t, c.Run)()
			time.Sleep(30 * time.Second) // and it wakes in time from then on
			if closed := len(store.ids()) > 0; closed == lost || log.Confirms() != 1 {
				t.Errorf("the claim is lost: %v; the order was closed: %v, after asking %d times", lost, closed, log.Confirms())
			}
		})
	}
}
