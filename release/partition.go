package release

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/partition"
	"orderclose/internal/wire"
)

const (
	// maxOpen and maxOpenBytes limit the unsettled events that a partition keeps in
	// memory. At the limit it is not read.
	maxOpen      = 1000
	maxOpenBytes = 16 << 20
)

// loop serves one partition of the events topic. All fields belong to the goroutine
// of run. An attempt runs in its own goroutine and returns its entry through
// attempts.
type loop struct {
	*Worker
	ctx    context.Context
	claim  wire.Claim
	logger *slog.Logger

	reader      *partition.Reader
	out         *partition.Out
	mark        *partition.Committer
	queue       []*entry  // to be tried now, in log order
	waiting     []*entry  // to be retried later
	nextRetry   time.Time // time of the next retry
	pausedUntil time.Time // until then no event is tried: the service is unavailable
	attempts    chan *entry
	pulse       *partition.Pulse
	inFlight    int // attempts in flight
	running     sync.WaitGroup
	open        int // number of unsettled events; bytes is their size
	bytes       int
}

// entry is an event that is being released.
type entry struct {
	message wire.Message
	id      string
	event   orderclose.OrderClosed
	open    []orderclose.Release // releases that are not settled
	refused int
	first   time.Time // time of the first attempt
	until   time.Time // time of the next attempt, if the entry waits for a retry

	failures int // attempts that failed by the release's own fault
	// Results of the last attempt:
	notCalled bool  // every failed call was skipped by the open breaker
	hung      int   // 0 unless the service was unavailable; else 1 plus how often that was proved to be this event's fault
	err       error // error of the last release that was refused or failed
}

func newLoop(ctx context.Context, w *Worker, claim wire.Claim, pulse *partition.Pulse) *loop {
	logger := w.o.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	return &loop{
		Worker: w, ctx: ctx, claim: claim, logger: logger, pulse: pulse,
		reader: partition.NewReader(ctx, w.o.Log, claim, Stage, w.o.Metrics, w.o.Logger),
		out: partition.NewOut(ctx, partition.OutOptions{
			Log: w.o.Log, Claim: claim, Stage: Stage, DeadLetterTopic: w.o.DeadLetterTopic,
			DeadLettered: w.o.Metrics.DeadLettered, Repeated: w.o.Metrics.Repeated, Logger: logger,
		}),
		mark:     partition.NewCommitter(claim, nil),
		attempts: make(chan *entry, w.o.Parallel),
	}
}

// run serves the partition until the claim is revoked.
func (l *loop) run() {
	l.logger.Debug("serving", "offset", l.claim.Offset)
	defer l.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.pulse.Beat()
		select {
		case <-l.ctx.Done():
			return
		case f := <-l.reader.C:
			l.reader.Took(f)
			l.handleFetch(f)
		case e := <-l.attempts:
			l.inFlight--
			l.applyAttempt(e)
		case dead := <-l.out.Buried:
			l.out.TookBuried()
			l.mark.Arrived(dead)
		case <-timer.C:
		}
		if l.ctx.Err() != nil {
			return
		}
		l.queueDue()
		l.startAttempts()
		l.out.StartBurying()
		if l.open < maxOpen && l.bytes < maxOpenBytes && !l.out.Full() {
			l.reader.Start()
		}
		l.mark.Tell(time.Now(), false)
		timer.Reset(l.sleep())
	}
}

// finish waits for attempts in flight and commits what was settled.
func (l *loop) finish() {
	l.reader.Wait()
	l.running.Wait()
	for ; l.inFlight > 0; l.inFlight-- {
		l.applyAttempt(<-l.attempts)
	}
	l.out.WaitBuried(l.mark.Arrived)
	l.mark.Tell(time.Now(), true)
	l.o.Metrics.StockWaiting(-l.open)
}

// handleFetch queues the events of a fetch. Events without stock are settled at once.
func (l *loop) handleFetch(f wire.Fetched) {
	if f.Lost != nil {
		l.handleLoss(&f)
	}
	for _, r := range f.Records {
		if !l.mark.Add(r.Offset) {
			continue
		}
		e := &entry{}
		m, err := r.Message()
		if err == nil {
			e.message = m
			e.id, e.event, err = orderclose.DecodeClosed(m.Value, l.o.Event)
		}
		switch {
		case errors.Is(err, orderclose.ErrOtherEvent), err == nil && len(e.event.Release) == 0:
			l.mark.Done(r.Generation, r.Offset)
		case err != nil:
			l.out.BuryUnreadable(r, err)
		default:
			e.open = e.event.Release
			l.queue = append(l.queue, e)
			l.countOpen(e, 1)
		}
	}
	if f.Corrupt != nil && l.mark.Add(f.Corrupt.First) {
		l.out.BuryCorrupt(f)
	}
	l.mark.Read(f)
}

// countOpen adds n, 1 or -1, to the number of events in memory.
func (l *loop) countOpen(e *entry, n int) {
	l.open += n
	l.bytes += n * e.message.Size()
	l.o.Metrics.StockWaiting(n)
}

// handleLoss handles events that are gone, and continues behind them. Nothing limits how
// far a log that lost its end is read again, because no sweep finds stock that was
// not released. Duplicates are harmless: a release has an idempotency key.
func (l *loop) handleLoss(f *wire.Fetched) {
	r := f.Lost
	if f.Replaced {
		l.mark.Restart(f)
		l.reader.Rewind(f.Next)
		l.queue, l.waiting = nil, nil
		l.o.Metrics.StockWaiting(-l.open)
		l.open, l.bytes = 0, 0
	}
	l.mark.Read(*f)
	l.logger.Error("log has lost events, their stock is not released",
		"first", r.First, "last", r.Last, "err", r.Err)
	l.o.Metrics.Lost(l.claim.Topic, l.claim.Partition, r.Last-r.First+1)
	l.mark.TellNow(time.Now())
}

// queueDue queues the entries whose retry is due.
func (l *loop) queueDue() {
	now := l.o.Now()
	if len(l.waiting) == 0 || now.Before(l.nextRetry) {
		return
	}
	l.nextRetry = time.Time{}
	l.waiting = slices.DeleteFunc(l.waiting, func(e *entry) bool {
		due := !now.Before(e.until)
		if due {
			l.queue = append(l.queue, e)
		} else {
			l.retryBy(e.until)
		}
		return due
	})
}

func (l *loop) retryBy(t time.Time) {
	if l.nextRetry.IsZero() || t.Before(l.nextRetry) {
		l.nextRetry = t
	}
}

// startAttempts starts attempts up to the limit.
func (l *loop) startAttempts() {
	for len(l.queue) > 0 && l.inFlight < cap(l.attempts) && !l.o.Now().Before(l.pausedUntil) {
		e := l.queue[0]
		l.queue = l.queue[1:]
		if e.first.IsZero() {
			e.first = l.o.Now()
		}
		l.inFlight++
		l.running.Go(func() {
			ctx, cancel := partition.Linger(l.ctx, partition.LingerTime)
			defer cancel()
			l.attempt(ctx, e)
			l.attempts <- e // the channel has room for all attempts
		})
	}
}

// attempt calls the Releaser for each unsettled release. It owns the entry while it
// runs.
func (l *loop) attempt(ctx context.Context, e *entry) {
	var open []orderclose.Release
	ownFault := false
	e.notCalled, e.hung, e.err = true, 0, nil
	for i, r := range e.open {
		made, err := false, error(nil)
		if l.ctx.Err() == nil {
			made, err = l.call(ctx, Request{OrderID: e.event.OrderID, SKU: r.SKU, Quantity: r.Quantity, Key: r.Key, EventID: e.id})
		}
		if !made { // the other calls would not be made either
			open = append(open, e.open[i:]...)
			e.err = cmp.Or(err, e.err)
			break
		}
		switch resultOf(err) {
		case Refused:
			e.refused, e.err = e.refused+1, err
		case Failed:
			open = append(open, r)
			e.notCalled, e.err = false, err
			if !unavailable(err) {
				ownFault = true
			} else if failures, _ := l.suspects.Failed(e.id, true); e.hung == 0 {
				e.hung = failures + 1
			}
		}
	}
	e.open = open
	if ownFault && e.hung == 0 {
		e.failures++
	}
	if len(open) == 0 {
		l.suspects.StoreAnswered(e.id)
	}
}

// applyAttempt applies the result of an attempt. An event for which the service was
// called without success waits for its retry behind the other events, also while the
// breaker is open. Otherwise an event on which the service hangs would be the probe
// each time.
func (l *loop) applyAttempt(e *entry) {
	if !l.mark.Current(e.message.Generation) || l.ctx.Err() != nil && len(e.open) > 0 {
		return // the event is gone, or belongs to the next owner
	}
	d := decide(attempted{open: len(e.open), refused: e.refused, failures: e.failures + e.hung, notCalled: e.notCalled, since: l.o.Now().Sub(e.first), lastErr: e.err})
	switch {
	case d.settled:
		l.mark.Done(e.message.Generation, e.message.Offset)
		l.countOpen(e, -1)
	case d.cause != "":
		for range e.open {
			l.o.Metrics.StockRelease(string(GivenUp), 0)
		}
		l.suspects.Blamed(e.id)
		l.out.Bury(e.message, d.cause, d.detail)
		l.countOpen(e, -1)
	case d.pauseAll:
		l.queue = slices.Insert(l.queue, 0, e)
		l.pausedUntil = l.o.Now().Add(d.wait)
	default:
		l.logger.Warn("stock release failed, will retry", "order", e.event.OrderID, "open", len(e.open), "in", d.wait.Round(time.Second), "err", e.err)
		e.until = l.o.Now().Add(d.wait)
		l.retryBy(e.until)
		l.waiting = append(l.waiting, e)
	}
}

// sleep returns the time until there is something to do without a new event.
func (l *loop) sleep() time.Duration {
	d, now := l.mark.Wait(time.Now()), l.o.Now()
	if len(l.waiting) > 0 {
		d = min(d, l.nextRetry.Sub(now))
	}
	if len(l.queue) > 0 && now.Before(l.pausedUntil) {
		d = min(d, l.pausedUntil.Sub(now))
	}
	return max(d, 0)
}
