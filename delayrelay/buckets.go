package delayrelay

import (
	"context"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
)

// SetBuckets replaces the buckets while the relay runs. The relay consumes the buckets of serve, and hops go to the buckets of pick. serve may also
// have buckets that are not picked any more. A bucket in both the old and the new serve list is not disturbed. A bucket that is not in serve is left
// after its loops have committed. Both lists must be sorted, shortest first.
func (r *Relay) SetBuckets(serve, pick orderclose.Buckets) {
	// Producers put a delay that is shorter than every bucket into the smallest bucket that they know. So the smallest bucket of either list is read
	// at once. A producer that knows an older list may put it elsewhere: the compensator closes its order.
	var atOnce time.Duration
	for _, bs := range []orderclose.Buckets{serve, pick} {
		atOnce = max(atOnce, bs[0].Length)
	}
	r.atOnceUpTo.Store(int64(atOnce))
	current := *r.current.Load()
	current.Buckets = pick
	r.current.Store(&current)
	for { // the latest list replaces one that Run has not received yet
		select {
		case r.newBuckets <- serve:
			return
		case <-r.newBuckets:
		}
	}
}

// readsAtOnce reports whether the loop must read each record at once, because records with
// much less than the bucket's length to wait may be in the topic.
func (h *handler) readsAtOnce() bool { return int64(h.bucket.Length) <= h.relay.atOnceUpTo.Load() }

// consumer is a membership in the group of one bucket.
type consumer struct {
	stop  context.CancelFunc
	ended chan struct{} // closed after the group was left
}

// consume joins the groups of new buckets and leaves the groups of removed ones. Only Run's goroutine calls it.
func (r *Relay) consume(ctx context.Context, consumers map[string]*consumer, serve orderclose.Buckets, failed chan<- error) {
	wanted := map[string]bool{}
	for _, b := range serve {
		wanted[b.Topic] = true
	}
	for topic, c := range consumers {
		if !wanted[topic] {
			r.o.Logger.Info("bucket removed, leaving its group", "topic", topic)
			c.stop()
			<-c.ended
			delete(consumers, topic)
		}
	}
	for _, b := range serve {
		if consumers[b.Topic] != nil {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		c := &consumer{stop: stop, ended: make(chan struct{})}
		consumers[b.Topic] = c
		go func() {
			defer close(c.ended)
			defer stop()
			err := r.stage.Consume(ctx, r.o.Group(b), b.Topic, func(l *partition.Loop) partition.Handler { return r.newHandler(b, l) })
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		}()
	}
}
