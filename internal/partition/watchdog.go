package partition

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"orderclose"
)

const (
	// StuckAfter is how long a loop may show no sign of life. Whatever it waits for has a
	// deadline of 5 s and is then tried again, which is a sign. So a loop that shows none
	// does not wait for a server that is away: something in it hangs.
	StuckAfter = 30 * time.Second
	// stopTimeout is how long a loop that was told to stop may take before the process is
	// better restarted.
	stopTimeout = 10 * time.Second
)

// start is what a Pulse counts from, by the monotonic clock: setting the wall clock is no
// sign of anything.
var start = time.Now()

// Pulse is when a loop last showed a sign of life. Any goroutine may use it. Before the
// first Beat it is silent since the process began.
type Pulse struct{ last atomic.Int64 }

// Beat shows a sign of life.
func (p *Pulse) Beat() { p.last.Store(int64(time.Since(start))) }

// Silent is how long ago the last sign of life was.
func (p *Pulse) Silent() time.Duration { return time.Since(start) - time.Duration(p.last.Load()) }

// Watchdog starts the loops of claims, and starts those again that hang. All fields must
// be set.
type Watchdog struct {
	Stage   string
	Stuck   func(stage, topic string, partition int) // counts a loop that hung
	Abandon func(why string)                         // ends the process: a loop cannot be stopped
	Logger  *slog.Logger
}

// Serve runs a claim's loop until the claim ends. A loop that hangs is stopped and run
// again from the last position that it committed, within the same generation of the
// group, so that no other partition moves. If a loop does not stop, the process is
// abandoned. The loop must call Beat each turn.
func (w *Watchdog) Serve(ctx context.Context, claim orderclose.Claim, run func(ctx context.Context, claim orderclose.Claim, pulse *Pulse)) {
	done := claim.Done
	for ctx.Err() == nil {
		next := claim
		claim.Done = func(offset int64, acked string) {
			next.Offset, next.Acked, next.Fresh = offset, acked, false
			done(offset, acked)
		}
		running, stop := context.WithCancel(ctx)
		pulse := &Pulse{}
		pulse.Beat()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			run(running, claim, pulse)
		}()
		stuck := watch(pulse, ended)
		stop()
		if !stuck {
			return
		}
		w.Logger.Error("the loop of a partition hangs and is started again", "topic", claim.Topic, "partition", claim.Partition, "silent", StuckAfter)
		w.Stuck(w.Stage, claim.Topic, claim.Partition)
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			w.Abandon("the loop of a partition of " + claim.Topic + " hangs and does not stop")
			<-ended
		}
		claim = next
	}
}

// watch returns when the loop has ended, or reports true when it shows no sign of life,
// twice in a row: a process that was stopped and goes on finds everything silent for a
// moment.
func watch(p *Pulse, ended <-chan struct{}) (stuck bool) {
	tick := time.NewTicker(StuckAfter / 6)
	defer tick.Stop()
	for silent := 0; silent < 2; {
		select {
		case <-ended:
			return false
		case <-tick.C:
			silent++
			if p.Silent() <= StuckAfter {
				silent = 0
			}
		}
	}
	return true
}
