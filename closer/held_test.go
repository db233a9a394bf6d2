package closer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"orderclose"
)

// askedLog is a fakeLog whose claim can be asked for; if it is lost, asking ends it.
type askedLog struct {
	fakeLog
	lost  bool
	asked atomic.Int32
	stop  atomic.Bool // the process is about to be stopped
}

func (f *askedLog) Fetch(ctx context.Context, topic string, partition int, offset int64) (orderclose.Fetched, error) {
	time.Sleep(100 * time.Millisecond) // the loop sleeps by then
	f.stop.Store(offset == 0)
	return f.fakeLog.Fetch(ctx, topic, partition, offset)
}

func (f *askedLog) Consume(ctx context.Context, _, topic string, serve func(context.Context, orderclose.Claim)) error {
	claimed, revoke := context.WithCancel(ctx)
	defer revoke()
	serve(claimed, orderclose.Claim{Topic: topic, Done: func(int64, string) {}, Confirm: func(context.Context) error {
		f.asked.Add(1)
		if !f.lost {
			return nil
		}
		revoke()
		return errors.New("unknown member")
	}})
	<-ctx.Done()
	return nil
}

// TestCloser_AfterAStopItClosesNothingThatIsNotItsOwn: whoever has the partition now
// closes it, and tells how it went.
func TestCloser_AfterAStopItClosesNothingThatIsNotItsOwn(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log, store := &askedLog{lost: lost}, &fakeStore{}
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
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- c.Run(ctx) }()
			time.Sleep(30 * time.Second) // and it wakes in time from then on
			if closed := len(store.ids()) > 0; closed == lost || log.asked.Load() != 1 {
				t.Errorf("the claim is lost: %v; the order was closed: %v, after asking %d times", lost, closed, log.asked.Load())
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
