package delayrelay

import (
	"context"

	"orderclose"
	"orderclose/internal/partition"
)

// Change changes the buckets while the relay runs: it serves those of serve, and
// hops go to those of pick, which may differ for a while, because others pick by
// the old list until all relays serve the new one. A bucket that is served already
// goes on undisturbed; one that is left out is left when its loops have committed.
// Both must be sorted, shortest first.
func (r *Relay) Change(serve, pick orderclose.Buckets) {
	// Whatever is shorter than the smallest bucket is put there, by whoever knows it
	// to be the smallest. So a topic that is the smallest by either list is read whole,
	// and stays so: not everybody changes at once.
	for _, bs := range []orderclose.Buckets{serve, pick} {
		if open := bs.Open(); len(open) > 0 {
			r.whole.Store(max(r.whole.Load(), int64(open[0].Length)))
		}
	}
	live := *r.live.Load()
	live.Buckets = pick
	r.live.Store(&live)
	for { // the latest replaces one that nobody has taken yet
		select {
		case r.serving <- serve:
			return
		case <-r.serving:
		}
	}
}

// whole says whether the loop's topic takes whatever is shorter than its bucket.
func (l *loop) whole() bool { return int64(l.bucket.Length) <= l.relay.whole.Load() }

// consumer is a membership in the group of one bucket.
type consumer struct {
	stop  context.CancelFunc
	ended chan struct{} // closed when the group has been left
}

// consume joins the groups of buckets that are new, and leaves those of buckets
// that are gone. Only Run's goroutine calls it.
func (r *Relay) consume(ctx context.Context, consumers map[string]*consumer, serve orderclose.Buckets, failed chan<- error) {
	wanted := map[string]bool{}
	for _, b := range serve {
		wanted[b.Topic] = true
	}
	for topic, c := range consumers {
		if !wanted[topic] {
			r.o.Logger.Info("no longer relaying", "topic", topic)
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
			err := r.o.Log.Consume(ctx, r.o.Group(b), b.Topic, func(ctx context.Context, claim orderclose.Claim) {
				r.watchdog.Serve(ctx, claim, func(ctx context.Context, claim orderclose.Claim, pulse *partition.Pulse) {
					newLoop(ctx, r, b, claim, pulse).run()
				})
			})
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		}()
	}
}
