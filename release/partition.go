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
)

const (
	// maxOpen and maxOpenBytes bound the events that a partition keeps in memory
	// because they are not settled: with more it is not read on.
	maxOpen      = 1000
	maxOpenBytes = 16 << 20
)

// loop serves one partition of the events' topic. Everything in it belongs to the
// goroutine of run; a try runs in one of its own and hands its entry back by
// tries.
type loop struct {
	*Worker
	ctx    context.Context
	claim  orderclose.Claim
	logger *slog.Logger

	reader *partition.Reader
	out    *partition.Out
	mark   *partition.Committer
	queue  []*entry  // to be tried now, in the order of the log
	parked []*entry  // to be tried later
	wake   time.Time // when the first of them is
	paused time.Time // until when none is tried: the service is away
	tries  chan *entry
	pulse  *partition.Pulse
	under  int // tries under way
	going  sync.WaitGroup
	open   int // events that are not settled, and their bytes
	bytes  int
}

// entry is an event on its way through the loop.
type entry struct {
	message orderclose.Message
	id      string
	event   orderclose.OrderClosed
	left    []orderclose.Release // that are not settled
	refused int
	first   time.Time // when it was tried first
	until   time.Time // when parked: when to try again

	failures int // tries that failed by the release's own fault
	// Of the last try:
	spared bool  // no call that failed was made: the breaker was open
	hung   int   // the service was unavailable: how often that was this event's fault, and 1; else 0
	err    error // of the last release that was refused or failed
}

func newLoop(ctx context.Context, w *Worker, claim orderclose.Claim, pulse *partition.Pulse) *loop {
	logger := w.o.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	return &loop{
		Worker: w, ctx: ctx, claim: claim, logger: logger, pulse: pulse,
		reader: partition.NewReader(ctx, w.o.Log, claim, Stage, w.o.Metrics, w.o.Logger),
		out: partition.NewOut(ctx, partition.OutOptions{
			Log: w.o.Log, Claim: claim, Stage: Stage, DeadLetterTopic: w.o.DeadLetterTopic,
			DeadLettered: w.o.Metrics.DeadLettered, Repeated: w.o.Metrics.Repeated, Logger: logger,
		}),
		mark:  partition.NewCommitter(claim, nil),
		tries: make(chan *entry, w.o.Parallel),
	}
}

// run turns until the claim is revoked.
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
			l.takeIn(f)
		case e := <-l.tries:
			l.under--
			l.follow(e)
		case dead := <-l.out.Buried:
			l.out.TookBuried()
			l.mark.Arrived(dead)
		case <-timer.C:
		}
		if l.ctx.Err() != nil {
			return
		}
		l.unpark()
		l.try()
		l.out.StartBurying()
		if l.open < maxOpen && l.bytes < maxOpenBytes && !l.out.Full() {
			l.reader.Start()
		}
		l.mark.Tell(time.Now(), false)
		timer.Reset(l.sleep())
	}
}

// finish waits for what is under way, and commits what was settled.
func (l *loop) finish() {
	l.reader.Wait()
	l.going.Wait()
	for ; l.under > 0; l.under-- {
		l.follow(<-l.tries)
	}
	l.out.WaitBuried(l.mark.Arrived)
	l.mark.Tell(time.Now(), true)
	l.o.Metrics.StockWaiting(-l.open)
}

// takeIn queues what a fetch brought. What tells of no stock is settled.
func (l *loop) takeIn(f orderclose.Fetched) {
	if f.Lost != nil {
		l.lost(&f)
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
			e.left = e.event.Release
			l.queue = append(l.queue, e)
			l.opened(e, 1)
		}
	}
	if f.Corrupt != nil && l.mark.Add(f.Corrupt.First) {
		l.out.BuryCorrupt(f)
	}
	l.mark.Read(f)
}

// opened notes that an event is in memory from now on, or no more.
func (l *loop) opened(e *entry, n int) {
	l.open += n
	l.bytes += n * e.message.Size()
	l.o.Metrics.StockWaiting(n)
}

// lost notes that events which were to be read are gone, and goes on behind them. No sweep
// finds stock that is not released, so that nothing bounds what is read again of a log
// that lost its end: a release has a key, by which a repeat is recognised.
func (l *loop) lost(f *orderclose.Fetched) {
	r := f.Lost
	if f.Replaced {
		l.mark.Restart(f)
		l.reader.Rewind(f.Next)
		l.queue, l.parked = nil, nil
		l.o.Metrics.StockWaiting(-l.open)
		l.open, l.bytes = 0, 0
	}
	l.mark.Read(*f)
	l.logger.Error("the log has lost events: the stock that they told of is not released",
		"first", r.First, "last", r.Last, "err", r.Err)
	l.o.Metrics.Lost(l.claim.Topic, l.claim.Partition, r.Last-r.First+1)
	l.mark.TellNow(time.Now())
}

// unpark queues the entries whose time has come.
func (l *loop) unpark() {
	now := l.o.Now()
	if len(l.parked) == 0 || now.Before(l.wake) {
		return
	}
	l.wake = time.Time{}
	l.parked = slices.DeleteFunc(l.parked, func(e *entry) bool {
		due := !now.Before(e.until)
		if due {
			l.queue = append(l.queue, e)
		} else {
			l.wakeBy(e.until)
		}
		return due
	})
}

func (l *loop) wakeBy(t time.Time) {
	if l.wake.IsZero() || t.Before(l.wake) {
		l.wake = t
	}
}

// try begins as many tries as may be under way.
func (l *loop) try() {
	for len(l.queue) > 0 && l.under < cap(l.tries) && !l.o.Now().Before(l.paused) {
		e := l.queue[0]
		l.queue = l.queue[1:]
		if e.first.IsZero() {
			e.first = l.o.Now()
		}
		l.under++
		l.going.Go(func() {
			ctx, cancel := partition.Linger(l.ctx, partition.LingerTime)
			defer cancel()
			l.attempt(ctx, e)
			l.tries <- e // has room for all
		})
	}
}

// attempt calls the Releaser for each release that is not settled. It has the entry
// to itself.
func (l *loop) attempt(ctx context.Context, e *entry) {
	var left []orderclose.Release
	own := false
	e.spared, e.hung, e.err = true, 0, nil
	for i, r := range e.left {
		made, err := false, error(nil)
		if l.ctx.Err() == nil {
			made, err = l.call(ctx, Request{OrderID: e.event.OrderID, SKU: r.SKU, Quantity: r.Quantity, Key: r.Key, EventID: e.id})
		}
		if !made { // the others would fare alike
			left = append(left, e.left[i:]...)
			e.err = cmp.Or(err, e.err)
			break
		}
		switch resultOf(err) {
		case Refused:
			e.refused, e.err = e.refused+1, err
		case Failed:
			left = append(left, r)
			e.spared, e.err = false, err
			if !unavailable(err) {
				own = true
			} else if failures, _ := l.suspects.Failed(e.id, true); e.hung == 0 {
				e.hung = failures + 1
			}
		}
	}
	e.left = left
	if own && e.hung == 0 {
		e.failures++
	}
	if len(left) == 0 {
		l.suspects.Heard(e.id)
	}
}

// follow does what a try asks for. An event for which the service was called in vain
// waits for its retry behind the others, also while the breaker is open: else an event
// on which the service hangs would be each call that tries whether it is better.
func (l *loop) follow(e *entry) {
	if !l.mark.Current(e.message.Generation) || l.ctx.Err() != nil && len(e.left) > 0 {
		return // gone, or the next owner's
	}
	d := decide(tried{left: len(e.left), refused: e.refused, failures: e.failures + e.hung, spared: e.spared, since: l.o.Now().Sub(e.first), last: e.err})
	switch {
	case d.settled:
		l.mark.Done(e.message.Generation, e.message.Offset)
		l.opened(e, -1)
	case d.cause != "":
		for range e.left {
			l.o.Metrics.StockRelease(string(GivenUp), 0)
		}
		l.suspects.Blamed(e.id)
		l.out.Bury(e.message, d.cause, d.detail)
		l.opened(e, -1)
	case d.all:
		l.queue = slices.Insert(l.queue, 0, e)
		l.paused = l.o.Now().Add(d.wait)
	default:
		l.logger.Warn("stock is not released yet, trying again", "order", e.event.OrderID, "left", len(e.left), "in", d.wait.Round(time.Second), "err", e.err)
		e.until = l.o.Now().Add(d.wait)
		l.wakeBy(e.until)
		l.parked = append(l.parked, e)
	}
}

// sleep returns how long nothing is to be done, unless something comes.
func (l *loop) sleep() time.Duration {
	d, now := l.mark.Wait(time.Now()), l.o.Now()
	if len(l.parked) > 0 {
		d = min(d, l.wake.Sub(now))
	}
	if len(l.queue) > 0 && now.Before(l.paused) {
		d = min(d, l.paused.Sub(now))
	}
	return max(d, 0)
}
