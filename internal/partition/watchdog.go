package partition

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// stuckAfter is how long a loop may show no sign of life. A loop shows one before each
	// attempt. Each request ends within 5 s, and an attempt makes at most two requests, or opens a connection to a broker that
	// is slow. So a silent loop does not wait for an unavailable server: it hangs.
	stuckAfter = 30 * time.Second
	// stopTimeout is how long a loop, or a call in code of the user, may take to stop before the process is better restarted.
	stopTimeout = 10 * time.Second
)

// start is the zero of all Pulses, by the monotonic clock, so that setting the wall clock has no effect.
var start = time.Now()

// Pulse records when a loop last showed a sign of life. It is safe for concurrent use.
// Before the first Beat it has been silent since the process began.
type Pulse struct{ last atomic.Int64 }

// Beat records a sign of life.
func (p *Pulse) Beat() { p.last.Store(int64(time.Since(start))) }

// Silent returns the time since the last Beat.
func (p *Pulse) Silent() time.Duration { return time.Since(start) - time.Duration(p.last.Load()) }

// serve runs a claim's loop until the claim ends. If run returns true, another loop begins at the last committed position, within the
// same generation of the group, so that no other partition moves. So it does after a loop that hangs, which is stopped. If the loop does
// not stop, serve calls OnHang. The loop must call Beat in each iteration.
func (s *Stage) serve(ctx context.Context, claim wire.Claim, run func(ctx context.Context, claim wire.Claim, pulse *Pulse) (again bool)) {
	done := claim.Done
	for ctx.Err() == nil {
		next := claim
		claim.Done = func(offset int64, acked string) {
			next.Offset, next.Acked, next.NoCommit = offset, acked, false
			done(offset, acked)
		}
		running, stop := context.WithCancel(ctx)
		pulse := &Pulse{}
		pulse.Beat()
		ended, again := make(chan struct{}), false
		go func() {
			defer close(ended)
			again = run(running, claim, pulse)
		}()
		stuck := watch(pulse, ended)
		stop()
		switch {
		case stuck:
			// In a goroutine of its own: the loop may hang because nobody reads the log.
			go s.Logger.Error("partition loop hangs, restarting it", "topic", claim.Topic, "partition", claim.Partition, "silent", stuckAfter)
			s.Metrics.Stuck(s.Name, claim.Topic, claim.Partition)
			select {
			case <-ended:
			case <-time.After(stopTimeout):
				s.Hangs("the loop of a partition of " + claim.Topic + " hangs and does not stop")
				<-ended
			}
		case !again:
			return
		default:
			next.Log = wire.ClaimedLog{}
		}
		claim = next //mutant:hang-restarts-claim
	}
}

// Hangs calls OnHang.
func (s *Stage) Hangs(why string) {
	if s.OnHang == nil {
		panic(s.Name + ": " + why)
	}
	s.OnHang(why)
}

// watch returns false when the loop has ended, or true when it was silent at two looks in
// a row, 5 s apart. One is not enough: when a stopped process continues, every loop looks silent for
// a moment. A ticker would not do: its next tick may follow at once.
func watch(p *Pulse, ended <-chan struct{}) (stuck bool) {
	for silent := 0; silent < 2; { //mutant:stopped-counts-hanging
		select {
		case <-ended:
			return false
		case <-time.After(stuckAfter / 6):
			silent++
			if p.Silent() <= stuckAfter { //mutant:hang-unnoticed
				silent = 0
			}
		}
	}
	return true
}

// WatchCall watches a call in code of the user. If the call has not returned stopTimeout after its
// context has ended, it ignores its context, and WatchCall calls onHang. The caller calls returned
// when the call has returned.
func WatchCall(ctx context.Context, onHang func()) (returned func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			onHang()
		}
	})
	return func() {
		stop()
		close(ended)
	}
}
