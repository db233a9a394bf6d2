// Package partition is the engine of every stage that consumes partitions: relay and closer.
//
// A stage describes itself by a Stage, and calls Consume with a function that creates a
// Handler for each assigned partition. A Loop serves the partition: it fetches, commits what
// is done, appends, reads on after losses, and stops when the partition is revoked. A Handler decides
// what to do with the records, in the goroutine of its Loop. A watchdog restarts a Loop that
// hangs.
//
//	loop.go         Stage, Handler and Loop: one iteration after the other
//	reader.go       one fetch in flight
//	watermark.go    which offsets are done
//	committer.go    commits the low watermark, with what is done above it
//	appends.go      appends to other topics beside the loop, by internal/send
//	deadletters.go  dead letters, and how many records a log has lost
//	watchdog.go     restarts a loop that hangs, or whose log was replaced
//	memory.go       divides memory between the loops
//	metrics.go      what every stage measures
//
// An offset is committed only if everything below it is done. After a claim has ended, no append is started. An append in flight
// may take retry.FinishTime more, or longer if other loops share its request; see internal/send.
package partition

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// Log is the part of Kafka that a stage uses; kafka.Cluster implements it.
type Log interface {
	// Consume calls serve for each partition of the topic that the group assigns to this
	// process, until ctx ends.
	Consume(ctx context.Context, group, topic string, serve func(context.Context, wire.Claim)) error
	// Read fetches the records from a position on. If there are none, it waits up to 2 s and
	// returns none.
	Read(ctx context.Context, at wire.Position) (wire.Fetched, error)
	send.Sender
}

// Stage is what the loops of a stage have in common. All fields are required, except those
// that say otherwise.
type Stage struct {
	Name            string // in dead letters, metrics and logs
	Log             Log
	DeadLetterTopic string // "": a record that is given up is only logged
	Loss            string // the message of the log line about a loss; it says what happens to the lost records
	Metrics         *Metrics
	// Unrecorded counts runs of done records that did not fit into the metadata of a commit
	// and may be repeated; may be nil.
	Unrecorded func(runs int)
	Memory     *MemoryLimit     // memory that the loops share; may be nil
	OnHang     func(why string) // ends the process, because a loop hangs and does not stop; nil: a panic
	Logger     *slog.Logger
}

// Consume serves the partitions of a topic as a member of a group until ctx ends. It creates
// a handler for each partition, and runs its loop under a watchdog. It returns an error only
// if it could not start.
func (s *Stage) Consume(ctx context.Context, group, topic string, newHandler func(*Loop) Handler) error {
	return s.Log.Consume(ctx, group, topic, func(ctx context.Context, claim wire.Claim) {
		s.serve(ctx, claim, func(ctx context.Context, claim wire.Claim, pulse *Pulse) (again bool) {
			l := newLoop(ctx, s, claim, pulse)
			return l.run(newHandler(l))
		})
	})
}

// Handler does the work of a stage for one partition. The goroutine of the loop calls its
// methods. A handler calls the methods of its Loop from there, and from nowhere else. Work
// that may take long runs in another goroutine: appends by Loop.Send, other work by Loop.Go.
type Handler interface {
	// Handle takes the records of a fetch that are not done yet; there may be none. The
	// handler owns f. It may call f.Free, if set, once nothing uses the records or their bodies
	// any more. Each record must later be passed to Loop.Done or to Loop.DeadLetter. Until then its offset is not committed.
	Handle(f wire.Fetched)
	// Room reports whether the handler has room for the next records. If not, and wait is positive, the loop asks
	// again after that time at the latest. The loop calls Room before and after Turn if no fetch is
	// in flight and the dead letters have room.
	Room() (room bool, wait time.Duration)
	// Turn does the work that is due. The loop calls it in each iteration: after each event,
	// and when the time of Sleep has passed.
	Turn()
	// Sleep returns how long the loop may wait for an event before it calls Turn again, at
	// most d.
	Sleep(d time.Duration) time.Duration
	// End is called last, after the partition was revoked, or its log was replaced, and everything in flight has ended.
	End()
}

// Loop serves one claimed partition. It fetches records for its handler, commits what is
// done, and appends dead letters and the handler's records. It stops
// when the partition is revoked.
type Loop struct {
	Ctx    context.Context // ends when the partition is revoked, or its log was replaced
	Claim  wire.Claim
	Logger *slog.Logger

	stop      context.CancelFunc // of Ctx
	stage     *Stage
	pulse     *Pulse
	reader    *reader
	committer *committer
	end       int64       // of the log when it was fetched last; 0: unknown
	replaced  bool        // the log was replaced: the loop ends, and another one begins
	wake      time.Time   // when the loop wakes at the latest; see stillAssigned
	results   chan func() // from Go
	running   int         // calls of Go whose results have not arrived yet

	flights map[*flight]bool     // appends that have not ended
	left    map[string]time.Time // topics of which the last append has left records, and by when these are tried again
	dead    deadLetters
}

func newLoop(ctx context.Context, s *Stage, claim wire.Claim, pulse *Pulse) *Loop {
	s.Metrics.Claimed(s.Name, claim.Topic, claim.Partition)
	logger := s.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	ctx, stop := context.WithCancel(ctx)
	l := &Loop{
		Ctx: ctx, stop: stop, Claim: claim, Logger: logger,
		stage: s, pulse: pulse, wake: time.Now(), results: make(chan func()),
		reader:    newReader(ctx, s, claim, logger),
		committer: newCommitter(claim, s.Unrecorded),
		flights:   map[*flight]bool{}, left: map[string]time.Time{},
	}
	return l
}

// run serves the partition until it is revoked, or its log was replaced. Then another loop must begin: again. Each iteration handles one
// event.
func (l *Loop) run(h Handler) (again bool) {
	defer l.stop()
	l.Logger.Debug("serving", "offset", l.Claim.Offset)
	if l.Claim.NoCommit { // so that the next owner notices if the topic is deleted
		l.committer.CommitNow(time.Now()) //mutant:first-commit-missing
	}
	if l.stage.Memory != nil {
		defer l.stage.Memory.Join()()
	}
	defer l.finish(h)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !l.appendHangs() { //mutant:append-hang-unseen
			l.Beat()
		}
		select {
		case <-l.Ctx.Done():
			return l.replaced
		case f := <-l.reader.fetched:
			l.handleFetch(h, f)
		case then := <-l.results:
			l.StillAssigned() // then may append
			l.handleResult(then)
		case <-timer.C:
			select {
			case f := <-l.reader.fetched: // fetched records go before those that wait in the handler
				l.handleFetch(h, f)
			default:
			}
		}
		if l.Ctx.Err() != nil || !l.StillAssigned() {
			return l.replaced
		}
		l.fetch(h) // runs while Turn works
		h.Turn()
		if l.Ctx.Err() != nil {
			return l.replaced
		}
		l.sendDeadLetters()
		wait := l.fetch(h)
		l.committer.Commit(time.Now(), false)
		sleep := max(h.Sleep(min(wait, l.committer.Wait(time.Now()))), 0)
		l.wake = time.Now().Add(sleep)
		timer.Reset(sleep)
	}
}

// fetch starts a fetch if the handler has room for its records. It returns after how long to ask
// the handler again, at most maxSleep.
func (l *Loop) fetch(h Handler) (wait time.Duration) {
	if l.reader.busy || l.dead.full() { //mutant:relay-reads-on,closer-reads-on
		return maxSleep
	}
	room, wait := h.Room()
	switch {
	case room:
		l.reader.start()
	case wait > 0:
		return min(wait, maxSleep)
	}
	return maxSleep
}

var errTopicGone = errors.New("the topic is gone")

// finish waits for everything in flight, commits what is done, and calls End. It also runs if
// the claim ends in the middle of an iteration.
func (l *Loop) finish(h Handler) {
	gone, late := false, time.Since(l.wake) > lateWake
	if l.Claim.Log.Gone != nil && !l.replaced && !late { // a partition that is late may have another owner, who counts //mutant:late-loop-counts
		l.Go(func(ctx context.Context) { gone = l.Claim.Log.Gone(ctx) }, func() {})
	}
	l.reader.wait()
	for l.running > 0 {
		l.handleResult(<-l.results)
	}
	if gone {
		l.handleLoss(wire.Fetched{Replaced: true, Lost: &wire.Range{Last: -1, Err: errTopicGone}})
	}
	if !l.replaced { //mutant:old-log-answer
		l.committer.Commit(time.Now(), true) //mutant:last-commit-missing
	}
	h.End()
}

// Go runs work in a goroutine of its own. Afterwards the loop calls then. The context of work
// ends FinishTime after the claim, and work must return soon after that. When the claim ends,
// the loop waits for work, and still calls then.
func (l *Loop) Go(work func(ctx context.Context), then func()) {
	l.running++
	go func() {
		ctx, cancel := retry.WithFinishTime(l.Ctx, retry.FinishTime)
		work(ctx)
		cancel()
		l.results <- then
	}()
}

// handleResult calls what Go was given.
func (l *Loop) handleResult(then func()) {
	l.running--
	then()
}

// lateWake is how much later than planned a loop may wake before it checks that the
// partition is still assigned to it. Together with the 5 s that loops sleep at most, it
// is less than the session timeout.
const lateWake = 500 * time.Millisecond

// StillAssigned reports whether the claim is still assigned to this process, as far as that
// can be known. If a process or its machine is stopped for longer than the session timeout, its
// loops wake with records that another owner has handled already. So a loop that wakes much
// later than planned first checks with Confirm, a commit that the group refuses to a
// former owner. The loop checks it after each event. A handler checks it again before it
// appends in an iteration that takes long.
func (l *Loop) StillAssigned() bool {
	late := time.Since(l.wake) > lateWake
	l.wake = time.Now()
	return !late || l.Claim.Confirm == nil || //mutant:stale-claim-unconfirmed
		retry.Do(l.Ctx, l.Logger, "ownership check", func(ctx context.Context) error {
			l.Beat()
			return l.Claim.Confirm(ctx)
		})
}

// Beat shows that the loop is alive. The loop does so in each iteration. A handler calls it while
// an iteration waits for something that has a time limit.
func (l *Loop) Beat() { l.pulse.Beat() }

// Done marks a record as done.
func (l *Loop) Done(offset int64) { l.committer.Done(offset) }

// Split says that a record has n parts. Done, or the ack of a record that was sent with its offset, ends one part. The last part makes the record done.
func (l *Loop) Split(offset int64, n int) { l.committer.parts[offset] = n }

// Commit commits what is done, if the last commit was at least 200 ms ago. The loop does so in
// each iteration. A handler calls it in an iteration that takes long.
func (l *Loop) Commit() { l.committer.Commit(time.Now(), false) }

// handleFetch passes the records that are not done to the handler.
func (l *Loop) handleFetch(h Handler, f wire.Fetched) {
	l.reader.handleFetched(f)
	if f.Lost != nil {
		if l.handleLoss(f); l.replaced {
			return
		}
	}
	l.end = f.End
	n := 0
	for i := range f.Records {
		if !l.committer.Add(f.Records[i].Offset) {
			continue
		}
		if n != i {
			f.Records[n] = f.Records[i]
		}
		n++
	}
	f.Records = f.Records[:n]
	if f.Corrupt != nil && l.committer.Add(f.Corrupt.First) {
		l.deadLetterCorrupt(f)
	}
	l.committer.Read(f.Next)
	h.Handle(f)
}

// handleLoss logs and counts offsets that the log no longer has, and continues behind them. If the log was replaced, the loop ends, and
// another one begins where the new log is to be read: nothing in memory can be taken for a record of it.
func (l *Loop) handleLoss(f wire.Fetched) {
	if end := l.Claim.Log.End; end != nil {
		l.end = max(l.end, end())
	}
	r, waited := f.Lost, l.waited(&f)
	l.Logger.Error(l.stage.Loss, "first", r.First, "last", r.Last, "waited", waited, "err", r.Err)
	l.stage.Metrics.Lost(l.Claim.Topic, l.Claim.Partition, waited)
	if l.replaced = f.Replaced; l.replaced {
		l.Claim.Done(min(l.committer.Low(), f.Next), "")
		l.stop()
		return
	}
	l.committer.Read(f.Next)
	l.committer.CommitNow(time.Now())
}
