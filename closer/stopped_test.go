package closer

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

// stoppedLog is a log that sets stop while its reader's loop sleeps, so that the process
// is stopped when it wakes.
type stoppedLog struct {
	orderLog
	stop atomic.Bool
}

func (l *stoppedLog) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	time.Sleep(100 * time.Millisecond) // the loop sleeps by then
	l.stop.Store(at.Offset == 0)
	return l.orderLog.Read(ctx, at)
}

// The new owner of the partition closes the order and commits.
func TestCloser_AfterAPauseItClosesNothingOfALostPartition(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log, store := &stoppedLog{}, &fakeStore{}
			log.Lost = lost
			log.add(t, "a")
			c, err := New(Options{
				Log: log, Store: store, Group: "g", CloseTopic: "order-close", DeadLetterTopic: "dead", ControlTopic: "control",
				Buckets: orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}},
				Now: func() time.Time { // like a process that SIGSTOP stops when it wakes
					if log.stop.CompareAndSwap(true, false) {
						time.Sleep(8 * time.Second)
					}
					return time.Now()
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer testkit.Start(t, c.Run)()
			time.Sleep(30 * time.Second) // later the loop wakes in time
			if closed := len(store.ids()) > 0; closed == lost || log.Confirms() != 1 {
				t.Errorf("claim lost: %v; order closed: %v, after %d calls of Confirm", lost, closed, log.Confirms())
			}
		})
	}
}
