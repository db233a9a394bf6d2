package closer

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"orderclose"
	"orderclose/internal/partition"
	"orderclose/internal/wire"
)

// loop serves one partition of the close topic or of the replay topic. Its fields belong
// to the goroutine of run.
type loop struct {
	*Closer
	ctx    context.Context
	claim  wire.Claim
	replay bool // serves the replay topic
	logger *slog.Logger

	reader    *partition.Reader
	out       *partition.Out
	committer *partition.Committer
	buffer
	backoff *partition.BackOff // set while the store is unavailable
	retryAt time.Time          // with backoff: when to try again
	pulse   *partition.Pulse

	retries retries
}

// lookBack bounds what is read again from a log that lost its end at an unknown place:
// the records appended in this time. A log loses its end when its leader fails, and a
// running closer reads what follows within seconds. Older unpaid orders are due, and the
// sweep that follows a loss closes them sooner than the loop could by reading a week of
// records again, which would delay orders that are due now.
const lookBack = 10 * time.Minute

func newLoop(ctx context.Context, c *Closer, claim wire.Claim, pulse *partition.Pulse) *loop {
	logger := c.o.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	l := &loop{
		Closer: c, ctx: ctx, claim: claim, replay: claim.Topic == c.o.ReplayTopic, logger: logger, pulse: pulse,
		reader: partition.NewReader(ctx, c.o.Log, claim, Stage, c.o.Metrics, c.o.Logger),
		out: partition.NewOut(ctx, partition.OutOptions{
			Log: c.o.Log, Claim: claim, Stage: Stage, DeadLetterTopic: c.o.DeadLetterTopic, ControlTopic: c.o.ControlTopic,
			DeadLettered: c.o.Metrics.DeadLettered, Trying: pulse.Beat, Repeated: c.o.Metrics.Repeated, Logger: logger,
		}),
		committer: partition.NewCommitter(claim, nil),
	}
	l.reader.LookBack = lookBack
	return l
}

// run serves the partition until the claim is revoked. Each turn handles one fetch or
// answer, closes a batch, and fetches more once all that was read was tried. Because the
// loop fetches only then, a burst of records gathers into one batch. Parked orders do not
// delay the next fetch.
func (l *loop) run() {
	l.logger.Debug("serving", "offset", l.claim.Offset)
	l.out.ReportMissingCommit(l.committer)
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
			l.handleFetch(f)
		case sent := <-l.out.Sent:
			l.out.TookSent(sent)
		case dead := <-l.out.Buried:
			l.out.TookBuried()
			l.committer.Arrived(dead)
		case <-timer.C:
			select {
			case f := <-l.reader.C: // fetched records go before parked ones
				l.handleFetch(f)
			default:
			}
		}
		if !l.out.StillAssigned() {
			return
		}
		l.fetchMore()
		if batch := l.nextBatch(); len(batch) > 0 {
			l.closeBatch(batch)
		}
		if l.ctx.Err() != nil {
			return
		}
		l.sendRetries()
		l.out.StartWaiting()
		l.fetchMore()
		l.committer.Tell(time.Now(), false)
		timer.Reset(l.out.Sleeping(l.sleep()))
	}
}

// fetchMore starts a fetch if the buffer, the dead letters and the retries have room for
// the records. Parked orders have room of their own.
func (l *loop) fetchMore() {
	if l.wantsMore(l.backoff != nil, l.budget.Share()/2) && !l.out.Full() && !l.retries.full() {
		l.reader.Start()
	}
}

// finish waits for the fetch and the appends in flight, and commits what was settled,
// also in the middle of a turn.
func (l *loop) finish() {
	l.reader.Wait()
	l.out.Wait(l.committer.Arrived)
	l.committer.Tell(time.Now(), true)
}

// handleFetch queues the fetched records.
func (l *loop) handleFetch(f wire.Fetched) {
	l.reader.Took(f)
	if f.Lost != nil {
		l.handleLoss(&f)
	}
	now := l.o.Now()
	for _, r := range f.Records {
		if !l.committer.Add(r.Offset) {
			continue
		}
		e, err := newEntry(r, now)
		if err != nil {
			l.out.BuryUnreadable(r, err)
			continue
		}
		if l.replay { // without regard to the header, so that retries return to this topic
			e.record.Lane = wire.LaneReplay
		}
		l.add(e)
	}
	if f.Corrupt != nil && l.committer.Add(f.Corrupt.First) {
		l.out.BuryCorrupt(f)
	}
	l.committer.Read(f)
}

// handleLoss reports offsets that the log no longer has. The orders are still in the
// database, and the sweep finds them. If the log was deleted and recreated, the sweep
// also finds the orders in the buffer: their records belong to the old log.
func (l *loop) handleLoss(f *wire.Fetched) {
	r := f.Lost
	if f.Replaced {
		l.committer.Restart(f)
		l.reader.Rewind(f.Next)
		l.buffer = buffer{}
	}
	l.committer.Read(*f)
	l.logger.Error("the log has lost records: the next sweep closes their orders",
		"first", r.First, "last", r.Last, "err", r.Err)
	l.o.Metrics.Lost(l.claim.Topic, l.claim.Partition, r.Last-r.First+1)
	l.out.TellLost(*r, r.Err.Error(), l.committer)
}

// nextBatch removes and returns the entries to close now, as many as the limiter allows.
// It returns none while the store is unavailable and the pause lasts.
func (l *loop) nextBatch() []*entry {
	now := l.o.Now()
	if l.backoff != nil && now.Before(l.retryAt) {
		return nil
	}
	return l.next(now, l.batcher.batchSize(l.replay))
}

// closeBatch closes a batch and applies the outcomes.
func (l *loop) closeBatch(batch []*entry) {
	requests := make([]orderclose.CloseRequest, len(batch))
	for i, e := range batch {
		requests[i] = orderclose.CloseRequest{OrderID: e.record.Order.ID, Attempt: e.record.Attempt, CreatedAt: e.record.Order.CreatedAt, Due: e.record.Order.Due}
	}
	for len(requests) > 0 && l.ctx.Err() == nil {
		outcomes, err := l.closeSome(requests)
		if err != nil && !slices.ContainsFunc(outcomes, hasVerdict) {
			l.requeue(batch, err)
			break
		}
		l.backoff = nil
		for i, o := range outcomes {
			if !hasVerdict(o) {
				o.Err = err // the store may fail because of this order
			}
			l.applyOutcome(batch[i], o)
		}
		requests, batch = requests[len(outcomes):], batch[len(outcomes):]
	}
}

// closeSome closes the first of the requests, as many as the limiter allows by now, which
// may be fewer than when the batch was made. A transaction that began before a revocation
// may finish.
func (l *loop) closeSome(requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	ctx, cancel := partition.Linger(l.ctx, partition.LingerTime)
	defer cancel()
	return l.batcher.close(ctx, requests, l.replay, l.pulse.Beat)
}

// requeue queues a batch that the store did not close, to be tried after a pause. As far
// as the store tells, no order is at fault. The batch goes behind the other orders: if
// one order makes the store fail each time, closing the others shows that the store
// works. After a revocation the next owner reads the batch again.
func (l *loop) requeue(batch []*entry, err error) {
	if l.ctx.Err() != nil {
		return
	}
	if l.backoff == nil {
		l.backoff = partition.NewBackOff()
	}
	if l.backoff.ShouldLog() {
		l.logger.Warn("closing a batch failed, will retry", "err", err)
	}
	l.retryAt = l.o.Now().Add(l.backoff.NextBackOff())
	l.add(batch...)
}

// hasVerdict reports whether the order got a verdict. If an error ends a batch, some of
// its orders have none.
func hasVerdict(o orderclose.Outcome) bool { return o.Verdict != "" }

// applyOutcome decides what to do with an entry after its outcome, and does it.
func (l *loop) applyOutcome(e *entry, o orderclose.Outcome) {
	now, brokerNow := l.o.Now(), l.o.Clock()
	clockWrong := brokerNow.Sub(now).Abs() > wrongClockSkew // the brokers' or the local one
	// By the clock of the partition's leader it is at least this late. That clock may be
	// permanently ahead of the others. A difference above wrongClockSkew comes from a clock
	// that was set, and is ignored.
	if at := e.message.Appended.Add(now.Sub(e.readAt)); at.After(brokerNow) && at.Sub(brokerNow) <= wrongClockSkew {
		brokerNow = at
	}
	jitter := rand.Float64()
	d := decide(e.record, o, brokerNow, jitter)
	if clockWrong {
		d = d.inMemory()
	}
	if d.action == park && !l.hasRoom(e, l.budget.Share()/2) {
		d = d.inBucket(jitter)
	}
	l.countPending(e.record, d)
	if d.retry {
		l.logger.Warn("order not closed, will retry", "order", e.record.Order.ID, "offset", e.message.Offset, "in", d.wait, "cause", d.cause, "detail", d.detail)
		l.o.Metrics.Retried(d.cause)
	}
	switch d.action {
	case settle:
		l.committer.Done(e.message.Generation, e.message.Offset)
	case park:
		e.record = d.record // the due time may have moved, and a closing service uses it
		e.blocked = d.cause != "" || d.bucket > 0
		l.park(e, now.Add(d.wait))
	case giveUp:
		l.out.Bury(e.message, d.cause, d.detail)
	case schedule:
		m, err := e.encode(d.retryRecord(brokerNow, wire.Origin{Topic: l.claim.Topic, Partition: l.claim.Partition, Offset: e.message.Offset}))
		if err != nil { // unexpected, since the record was decoded; still no record may be lost
			l.out.Bury(e.message, "unreadable", err.Error())
			return
		}
		m.Offset, m.Generation = e.message.Offset, e.message.Generation
		topic := l.buckets.Load().Pick(d.wait).Topic
		l.retries.add(topic, m.Raw())
	}
}

// countPending counts an order that starts or stops waiting for the payment provider.
func (l *loop) countPending(before wire.Record, d decision) {
	was, is := !before.PendingSince.IsZero(), !d.record.PendingSince.IsZero()
	switch {
	case is && !was:
		l.o.Metrics.PaymentPending(true)
	case was && !is:
		l.o.Metrics.PaymentPending(false)
	}
}

// sleep returns how long the loop has nothing to do unless a fetch or an answer arrives.
func (l *loop) sleep() time.Duration {
	d, now := l.retries.sleep(time.Now(), l.committer.Wait(time.Now())), l.o.Now()
	switch {
	case l.backoff != nil && len(l.queue) > 0:
		return max(min(d, l.retryAt.Sub(now)), 0)
	case len(l.queue) > 0:
		return 0
	}
	return max(l.wake(now, d), 0)
}
