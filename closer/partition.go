package closer

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

// loop serves one partition of the close topic, or of the replay topic. Everything
// in it belongs to the goroutine of run.
type loop struct {
	*Closer
	ctx    context.Context
	claim  orderclose.Claim
	replay bool // of the replay topic
	logger *slog.Logger

	reader *partition.Reader
	out    *partition.Out
	mark   *partition.Committer
	buffer
	pauses *partition.BackOff // while the store is unavailable, else nil
	resume time.Time          // with pauses: when to try again
	pulse  *partition.Pulse

	retries retries
}

// lookBack is how much of a log is read again that lost its end, if nobody can say where:
// what was appended since then. A log loses its end when its leader fails, and what comes
// after that is read within seconds if the closer runs. All that is older is due and
// unpaid, and the sweep that follows a loss closes it sooner than reading a week again,
// which would delay what is due now.
const lookBack = 10 * time.Minute

func newLoop(ctx context.Context, c *Closer, claim orderclose.Claim, pulse *partition.Pulse) *loop {
	logger := c.o.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	l := &loop{
		Closer: c, ctx: ctx, claim: claim, replay: claim.Topic == c.o.ReplayTopic, logger: logger, pulse: pulse,
		reader: partition.NewReader(ctx, c.o.Log, claim, Stage, c.o.Metrics, c.o.Logger),
		out: partition.NewOut(ctx, partition.OutOptions{
			Log: c.o.Log, Claim: claim, Stage: Stage, DeadLetterTopic: c.o.DeadLetterTopic, ControlTopic: c.o.ControlTopic,
			DeadLettered: c.o.Metrics.DeadLettered, Trying: pulse.Beat, Repeated: c.o.Metrics.Repeated, Logger: logger,
		}),
		mark: partition.NewCommitter(claim, nil),
	}
	l.reader.LookBack = lookBack
	return l
}

// run turns until the claim is revoked: take in what came, close a batch, read on
// once all that was read was tried. Fetching only then lets a busy moment gather into
// one batch. What is parked does not keep it from reading on.
func (l *loop) run() {
	l.logger.Debug("serving", "offset", l.claim.Offset)
	l.out.Begin(l.mark)
	defer l.budget.Join()()
	defer l.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !l.out.Hang() {
			l.pulse.Beat()
		}
		select {
		case <-l.ctx.Done():
			return
		case f := <-l.reader.C:
			l.takeIn(f)
		case sent := <-l.out.Sent:
			l.out.TookSent(sent)
		case dead := <-l.out.Buried:
			l.out.TookBuried()
			l.mark.Arrived(dead)
		case <-timer.C:
			select {
			case f := <-l.reader.C: // what was read goes before what is parked
				l.takeIn(f)
			default:
			}
		}
		if !l.out.Held() {
			return
		}
		l.readOn() // beside what is parked
		if batch := l.nextBatch(); len(batch) > 0 {
			l.work(batch)
		}
		if l.ctx.Err() != nil {
			return
		}
		l.sendRetries()
		l.out.StartWaiting()
		l.readOn()
		l.mark.Tell(time.Now(), false)
		timer.Reset(l.out.Sleeping(l.sleep()))
	}
}

// readOn begins a fetch if there is room for what it brings. What is parked does not
// keep it from that: it has room of its own.
func (l *loop) readOn() {
	if l.wantsMore(l.pauses != nil, l.budget.Share()/2) && !l.out.Full() && !l.retries.full() {
		l.reader.Start()
	}
}

// finish waits for what is under way, and commits what was settled, also in the
// middle of a turn.
func (l *loop) finish() {
	l.reader.Wait()
	l.out.Wait(l.mark.Arrived)
	l.mark.Tell(time.Now(), true)
}

// takeIn queues what a fetch brought.
func (l *loop) takeIn(f orderclose.Fetched) {
	l.reader.Took(f)
	if f.Lost != nil {
		l.lost(&f)
	}
	now := l.o.Now()
	for _, r := range f.Records {
		if !l.mark.Add(r.Offset) {
			continue
		}
		e, err := newEntry(r, now)
		if err != nil {
			l.out.BuryUnreadable(r, err)
			continue
		}
		if l.replay { // whatever its header says: its retries come back here
			e.record.Lane = orderclose.LaneReplay
		}
		l.add(e)
	}
	if f.Corrupt != nil && l.mark.Add(f.Corrupt.First) {
		l.out.BuryCorrupt(f)
	}
	l.mark.Read(f)
}

// lost notes that offsets which were to be read are gone. The database still has
// their orders, the sweep will find them. If the log was deleted and recreated, the
// sweep also finds the orders that are still here: their records are of the old log.
func (l *loop) lost(f *orderclose.Fetched) {
	r := f.Lost
	if f.Replaced {
		l.mark.Restart(f)
		l.reader.Rewind(f.Next)
		l.buffer = buffer{}
	}
	l.mark.Read(*f)
	l.logger.Error("the log has lost records: the next sweep closes their orders",
		"first", r.First, "last", r.Last, "err", r.Err)
	l.o.Metrics.Lost(l.claim.Topic, l.claim.Partition, r.Last-r.First+1)
	l.out.TellLost(*r, r.Err.Error(), l.mark)
}

// nextBatch removes and returns what can be tried now, as many as the pace allows.
func (l *loop) nextBatch() []*entry {
	now := l.o.Now()
	if l.pauses != nil && now.Before(l.resume) {
		return nil
	}
	return l.next(now, l.turns.allowed(l.replay))
}

// work closes a batch and does what the outcomes ask for.
func (l *loop) work(batch []*entry) {
	requests := make([]orderclose.CloseRequest, len(batch))
	for i, e := range batch {
		requests[i] = orderclose.CloseRequest{OrderID: e.record.Order.ID, Attempt: e.record.Attempt, CreatedAt: e.record.Order.CreatedAt, Due: e.record.Order.Due}
	}
	for len(requests) > 0 && l.ctx.Err() == nil {
		outcomes, err := l.closeSome(requests)
		if err != nil && !slices.ContainsFunc(outcomes, hasVerdict) {
			l.putOff(batch, err)
			break
		}
		l.pauses = nil
		for i, o := range outcomes {
			if !hasVerdict(o) {
				o.Err = err // the store may fail because of this order
			}
			l.follow(batch[i], o)
		}
		requests, batch = requests[len(outcomes):], batch[len(outcomes):]
	}
}

// closeSome closes the first of the requests, as many as the pace allows by now,
// which may have become fewer since the batch was made. What was begun before a
// revocation may finish.
func (l *loop) closeSome(requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	ctx, cancel := partition.Linger(l.ctx, partition.LingerTime)
	defer cancel()
	return l.turns.close(ctx, requests, l.replay, l.pulse.Beat)
}

// putOff has a batch tried again after a pause that could not be closed, by no
// order's fault as far as the store can tell. It goes behind what else there is: one
// order that the store always fails with would keep that from ever being asked for, and
// the store from ever telling. After a revocation the next owner reads it again.
func (l *loop) putOff(batch []*entry, err error) {
	if l.ctx.Err() != nil {
		return
	}
	if l.pauses == nil {
		l.pauses = partition.NewBackOff()
	}
	if l.pauses.Say() {
		l.logger.Warn("closing a batch failed, trying again", "err", err)
	}
	l.resume = l.o.Now().Add(l.pauses.NextBackOff())
	l.add(batch...)
}

// hasVerdict is false of an order that got none while others of its batch did.
func hasVerdict(o orderclose.Outcome) bool { return o.Verdict != "" }

// follow does what one outcome asks for.
func (l *loop) follow(e *entry, o orderclose.Outcome) {
	now, present := l.o.Now(), l.o.Clock()
	wrong := present.Sub(now).Abs() > wrongClockSkew // one of the two clocks is
	// At least this late by the clock of the partition's leader, which may be ahead of the
	// others for good. One that was set does not count.
	if at := e.message.Appended.Add(now.Sub(e.readAt)); at.After(present) && at.Sub(present) <= wrongClockSkew {
		present = at
	}
	luck := rand.Float64()
	d := decide(e.record, o, present, luck)
	if wrong {
		d = d.inMemory()
	}
	if d.action == park && !l.hasRoom(e, l.budget.Share()/2) {
		d = d.elsewhere(luck)
	}
	l.countPending(e.record, d)
	if d.retry {
		l.logger.Warn("trying an order again", "order", e.record.Order.ID, "offset", e.message.Offset, "in", d.wait, "cause", d.cause, "detail", d.detail)
		l.o.Metrics.Retried(d.cause)
	}
	switch d.action {
	case settle:
		l.mark.Done(e.message.Generation, e.message.Offset)
	case park:
		e.record = d.record // its due may have moved, and a service goes by it
		e.blocked = d.cause != "" || d.bucket > 0
		l.park(e, now.Add(d.wait))
	case give:
		l.out.Bury(e.message, d.cause, d.detail)
	case schedule:
		m, err := e.encode(d.again(present, orderclose.Origin{Topic: l.claim.Topic, Partition: l.claim.Partition, Offset: e.message.Offset}))
		if err != nil { // what was decoded can be encoded, but nothing may be lost on that belief
			l.out.Bury(e.message, "unreadable", err.Error())
			return
		}
		m.Offset, m.Generation = e.message.Offset, e.message.Generation
		topic := l.buckets.Load().Pick(d.wait).Topic
		l.retries.add(topic, m.Raw())
	}
}

// countPending counts an order that begins to wait for the payment provider's
// word, or no longer does.
func (l *loop) countPending(before orderclose.Record, d decision) {
	was, is := !before.PendingSince.IsZero(), !d.record.PendingSince.IsZero()
	switch {
	case is && !was:
		l.o.Metrics.PaymentPending(true)
	case was && !is:
		l.o.Metrics.PaymentPending(false)
	}
}

// sleep returns how long nothing is to be done, unless a fetch brings something.
func (l *loop) sleep() time.Duration {
	d, now := l.retries.sleep(time.Now(), l.mark.Wait(time.Now())), l.o.Now()
	switch {
	case l.pauses != nil && len(l.queue) > 0:
		return max(min(d, l.resume.Sub(now)), 0)
	case len(l.queue) > 0:
		return 0
	}
	return max(l.wake(now, d), 0)
}
