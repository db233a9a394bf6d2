package delayrelay

import (
	"context"
	"sync/atomic"
	"time"

	"orderclose"
)

const (
	// stuckAfter is how long a loop may show no sign of life. Whatever it waits for
	// has a deadline of 5 s and is then tried again, which is a sign; so this is not
	// Kafka being away, but something that hangs.
	stuckAfter = 30 * time.Second
	// letGo is how long a loop that was told to stop may take before the process is
	// better restarted.
	letGo = 10 * time.Second
)

// pulse is when a loop last showed a sign of life. Any goroutine may touch it.
type pulse struct{ last atomic.Int64 }

func (p *pulse) beat() { p.last.Store(time.Now().UnixNano()) }

func (p *pulse) silent(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, p.last.Load()))
}

// serve runs a claim's loop until the claim ends. A loop that hangs is begun anew
// from what it told last, within the same generation, so that nobody else's
// partitions move; one that does not even let go is for the supervisor.
func (r *Relay) serve(ctx context.Context, b orderclose.Bucket, claim orderclose.Claim) {
	tell := claim.Done
	for ctx.Err() == nil {
		told := claim
		claim.Done = func(offset int64, acked string) {
			told.Offset, told.Acked, told.Fresh = offset, acked, false
			tell(offset, acked)
		}
		running, stop := context.WithCancel(ctx)
		l := newLoop(running, r, b, claim)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.run()
		}()
		stuck := r.watch(&l.pulse, ended)
		stop()
		if !stuck {
			return
		}
		l.logger.Error("the loop hangs and is begun anew", "silent", stuckAfter)
		r.o.Metrics.Stuck(claim.Topic, claim.Partition)
		select {
		case <-ended:
		case <-time.After(letGo):
			r.o.Abandon("a loop of " + claim.Topic + " hangs and does not let go")
			<-ended
		}
		claim = told
	}
}

// watch returns when the loop has ended, or reports true when it shows no sign of
// life, twice in a row: a process that was stopped and goes on finds everything
// silent for a moment.
func (r *Relay) watch(p *pulse, ended <-chan struct{}) (stuck bool) {
	tick := time.NewTicker(stuckAfter / 6)
	defer tick.Stop()
	for silent := 0; silent < 2; {
		select {
		case <-ended:
			return false
		case <-tick.C:
			silent++
			if p.silent(time.Now()) <= stuckAfter {
				silent = 0
			}
		}
	}
	return true
}
