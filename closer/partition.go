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
	queue  []*entry           // read, in the order of the log; what was put off comes last
	parked []*entry           // not due yet, by less than parkLimit, or held
	pauses *partition.BackOff // while the store is unavailable, else nil
	resume time.Time          // with pauses: when to try again
	ahead  time.Duration      // of the broker's clock; 0 until an append has told
}

// readAhead is how many records wait here, and one fetch, while the store is
// unavailable.
const readAhead = 500

// entry is a record on its way through the loop.
type entry struct {
	message orderclose.Message
	record  orderclose.Record
	readAt  time.Time
	until   time.Time // when parked: when to try again
}

func newLoop(ctx context.Context, c *Closer, claim orderclose.Claim) *loop {
	logger := c.o.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	return &loop{
		Closer: c, ctx: ctx, claim: claim, replay: claim.Topic == c.o.ReplayTopic, logger: logger,
		reader: partition.NewReader(ctx, c.o.Log, claim, Stage, c.o.Metrics, c.o.Logger),
		out: partition.NewOut(ctx, partition.OutOptions{
			Log: c.o.Log, Claim: claim, Stage: Stage, DeadLetterTopic: c.o.DeadLetterTopic, ControlTopic: c.o.ControlTopic,
			DeadLettered: c.o.Metrics.DeadLettered, Repeated: c.o.Metrics.Repeated, Logger: logger,
		}),
		mark: partition.NewCommitter(claim, nil),
	}
}

// run turns until the claim is revoked: take in what came, close a batch, read on
// once all that was read was tried. Fetching only then lets a busy moment gather into
// one batch. What is parked does not keep it from reading on.
func (l *loop) run() {
	l.logger.Debug("serving", "offset", l.claim.Offset)
	l.out.Begin(l.mark)
	defer l.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case f := <-l.reader.C:
			l.takeIn(f)
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
		l.out.StartBurying()
		l.readOn()
		l.mark.Tell(time.Now(), false)
		timer.Reset(l.out.Sleeping(l.sleep()))
	}
}

// readOn begins a fetch once all that was read was tried. While the store is
// unavailable it reads a little ahead: another order's close may tell whether it is the
// store, or one of those that were put off.
func (l *loop) readOn() {
	enough := 1
	if l.pauses != nil {
		enough = readAhead
	}
	if len(l.queue) < enough && !l.out.Full() {
		l.reader.Start()
	}
}

// finish waits for what is under way, and commits what was settled, also in the
// middle of a turn.
func (l *loop) finish() {
	l.reader.Wait()
	l.out.WaitBuried(l.mark.Arrived)
	l.mark.Tell(time.Now(), true)
}

// takeIn queues what a fetch brought.
func (l *loop) takeIn(f orderclose.Fetched) {
	l.reader.Took(f)
	if f.Lost != nil {
		l.lost(*f.Lost, f.Next, f.Anew)
	}
	now := l.o.Now()
	for _, r := range f.Records {
		if !l.mark.Add(r.Offset) {
			continue
		}
		m, err := r.Message()
		var record orderclose.Record
		if err == nil {
			record, err = m.Decode()
		}
		if err != nil {
			l.out.BuryUnreadable(r, err)
			continue
		}
		if l.replay { // whatever its header says: its retries come back here
			record.Lane = orderclose.LaneReplay
		}
		l.queue = append(l.queue, &entry{message: m, record: record, readAt: now})
	}
	if f.Corrupt != nil && l.mark.Add(f.Corrupt.First) {
		l.out.BuryCorrupt(*f.Corrupt)
	}
	l.mark.Read(f.Next)
}

// lost notes that offsets which were to be read are gone. The database still has
// their orders, the sweep will find them. A log that was made anew begins below
// what was read of the old one: what is still here of that has offsets that now
// mean others, and is left to the sweep too.
func (l *loop) lost(r orderclose.Range, next int64, anew bool) {
	if anew {
		l.mark.Reset(next)
		l.queue, l.parked = nil, nil
	}
	l.mark.Read(next)
	l.logger.Error("the log has lost records: the next sweep closes their orders",
		"first", r.First, "last", r.Last, "err", r.Err)
	l.o.Metrics.Lost(l.claim.Topic, l.claim.Partition, r.Last-r.First+1)
	l.out.TellLost(r, r.Err.Error(), l.mark)
}

// nextBatch removes and returns what can be tried now, as many as the pace allows:
// queued entries and parked ones whose time has come, half of each if there are more.
// Rows that somebody holds bring the same orders back every few seconds; they must
// not keep out what is due now, nor the other way round.
func (l *loop) nextBatch() []*entry {
	now, most := l.o.Now(), l.turns.allowed(l.replay)
	if l.pauses != nil && now.Before(l.resume) {
		return nil
	}
	ready := 0
	for _, e := range l.parked {
		if !now.Before(e.until) {
			ready++
		}
	}
	n := min(len(l.queue), max(most-ready, (most+1)/2))
	batch := slices.Clone(l.queue[:n])
	l.queue = l.queue[n:]
	var parked []*entry
	for _, e := range l.parked {
		if len(batch) < most && !now.Before(e.until) {
			batch = append(batch, e)
		} else {
			parked = append(parked, e)
		}
	}
	l.parked = parked
	return batch
}

// work closes a batch and does what the outcomes ask for.
func (l *loop) work(batch []*entry) {
	requests := make([]orderclose.CloseRequest, len(batch))
	for i, e := range batch {
		requests[i] = orderclose.CloseRequest{OrderID: e.record.Order.ID, Attempt: e.record.Attempt, CreatedAt: e.record.Order.CreatedAt, Due: e.record.Order.Due}
	}
	later := map[string][]orderclose.RawRecord{} // by topic
	for len(requests) > 0 && l.ctx.Err() == nil {
		outcomes, err := l.closeSome(requests)
		if err != nil {
			l.putOff(batch, err)
			break
		}
		l.pauses = nil
		for i, o := range outcomes {
			l.follow(batch[i], o, later)
		}
		requests, batch = requests[len(outcomes):], batch[len(outcomes):]
	}
	for topic, messages := range later {
		l.out.Append(topic, messages, func(acked []orderclose.RawRecord, at time.Time) {
			if !at.IsZero() {
				l.ahead = at.Sub(l.o.Now())
			}
			l.mark.Arrived(acked)
		})
	}
}

// present is now by the broker's clock, as far as it can be told from here: at the
// least what a record that was read here says.
func (l *loop) present(at, now time.Time) time.Time {
	if p := now.Add(l.ahead); p.After(at) {
		return p
	}
	return at
}

// closeSome closes the first of the requests, as many as the pace allows by now,
// which may have become fewer since the batch was made. What was begun before a
// revocation may finish.
func (l *loop) closeSome(requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	ctx, cancel := partition.Linger(l.ctx, partition.LingerTime)
	defer cancel()
	return l.turns.close(ctx, requests, l.replay)
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
	l.queue = append(l.queue, batch...)
}

// follow does what one outcome asks for; what is to be appended goes into later.
func (l *loop) follow(e *entry, o orderclose.Outcome, later map[string][]orderclose.RawRecord) {
	now := l.o.Now()
	at := e.message.Appended.Add(now.Sub(e.readAt)) // by the broker's clock, but for how long it lay there unread
	present := l.present(at, now)
	d := decide(e.record, o, present, rand.Float64())
	l.countPending(e.record, d)
	switch d.action {
	case settle:
		l.mark.Done(e.message.Offset)
	case park:
		e.record, e.until = d.record, now.Add(d.wait) // its due may have moved, and a service goes by it
		l.parked = append(l.parked, e)
	case give:
		l.out.Bury(e.message, d.cause, d.detail)
	case schedule:
		if d.retry {
			at = present // so long from now, however late this is
			l.logger.Warn("trying an order again", "order", e.record.Order.ID, "offset", e.message.Offset, "in", d.wait, "cause", d.cause, "detail", d.detail)
			l.o.Metrics.Retried(d.cause)
		}
		m, err := d.again(at, orderclose.Origin{Topic: l.claim.Topic, Partition: l.claim.Partition, Offset: e.message.Offset}).Encode()
		if err != nil { // what was decoded can be encoded, but nothing may be lost on that belief
			l.out.Bury(e.message, "unreadable", err.Error())
			return
		}
		m.Offset = e.message.Offset
		topic := l.buckets.Load().Pick(d.wait).Topic
		later[topic] = append(later[topic], m.Raw())
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
	d, now := l.mark.Wait(time.Now()), l.o.Now()
	switch {
	case l.pauses != nil && len(l.queue) > 0:
		return max(min(d, l.resume.Sub(now)), 0)
	case len(l.queue) > 0:
		return 0
	}
	for _, e := range l.parked {
		d = min(d, e.until.Sub(now))
	}
	return max(d, 0)
}
