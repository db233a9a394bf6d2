package delayrelay

import (
	"context"
	"log/slog"
	"math"
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

// turnBytes bounds what leaves in one turn, so that commits and reading go on during
// a burst.
const turnBytes = 4 << 20

// loop serves one partition of one bucket. Everything in it belongs to the
// goroutine of run.
type loop struct {
	*Options
	ctx    context.Context
	relay  *Relay
	bucket orderclose.Bucket
	claim  orderclose.Claim
	logger *slog.Logger
	pulse  *partition.Pulse

	reader *partition.Reader
	out    *partition.Out
	mark   *partition.Committer
	window window
	arena  arena
	lots   []*lot          // empty, with the room of the turns before
	late   []time.Duration // the same
	free   func()          // gives back what the last fetch was read into
	clock  clock
	readOn time.Time // when to fetch again
	full   bool      // the window was at its bound, and is not yet read on
	rewind int64     // the first offset that was dropped from the window, or noRewind
}

// lookBackSlack is how much longer than its bucket a record may have been there that has
// not left: clocks differ, and it may be late. If a log lost its end, and nobody can say
// where, what was appended longer ago has left or is found by the sweep.
const lookBackSlack = time.Minute

// noRewind says that nothing was dropped.
const noRewind = math.MaxInt64

func newLoop(ctx context.Context, r *Relay, b orderclose.Bucket, claim orderclose.Claim, pulse *partition.Pulse) *loop {
	o := &r.o
	logger := o.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	l := &loop{
		Options: o, ctx: ctx, relay: r, bucket: b, claim: claim, logger: logger, pulse: pulse,
		reader: partition.NewReader(ctx, o.Log, claim, Stage, o.Metrics, o.Logger),
		out: partition.NewOut(ctx, partition.OutOptions{
			Log: o.Log, Claim: claim, Stage: Stage, DeadLetterTopic: o.DeadLetterTopic, ControlTopic: o.ControlTopic,
			DeadLettered: o.Metrics.DeadLettered, Trying: pulse.Beat, Repeated: o.Metrics.Repeated, Logger: logger,
		}),
		mark:   partition.NewCommitter(claim, o.Metrics.Unrecorded),
		rewind: noRewind,
	}
	l.reader.LookBack = b.Length + lookBackSlack
	return l
}

// run turns until the claim is revoked: read on if it is time to, take in what
// came, move what is to leave, sleep.
func (l *loop) run() {
	l.logger.Debug("serving", "offset", l.claim.Offset)
	l.out.Begin(l.mark)
	defer l.relay.budget.Join()()
	defer l.Metrics.Revoked(l.claim.Topic, l.claim.Partition)
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
			l.reader.Took(f)
			l.takeIn(f)
			l.free = f.Free
		case dead := <-l.out.Buried:
			l.out.TookBuried()
			l.mark.Arrived(dead)
		case sent := <-l.out.Sent:
			l.out.TookSent(sent)
		case <-timer.C:
		}
		l.followClock()
		l.readAhead() // while what is due is appended
		l.release()
		if l.ctx.Err() != nil {
			return
		}
		l.freeFetched()
		l.out.StartWaiting()
		l.readAhead()
		l.mark.Tell(time.Now(), false)
		l.report()
		timer.Reset(l.out.Sleeping(l.sleep()))
	}
}

// freeFetched gives the memory of a fetch back: what was due in it has left, what was
// not was copied, and so was what became a dead letter.
func (l *loop) freeFetched() {
	if l.free == nil || len(l.window.ready) > 0 {
		return
	}
	l.free()
	l.free = nil
}

// finish waits for what is under way, and commits what was acked, also in the
// middle of a turn.
func (l *loop) finish() {
	l.reader.Wait()
	l.out.Wait(l.mark.Arrived)
	l.mark.Tell(time.Now(), true)
}

// takeIn puts what a fetch brought into the window. What is due already leaves
// right after; the rest is copied out of the fetch's buffer.
func (l *loop) takeIn(f orderclose.Fetched) {
	if f.Lost != nil {
		l.lost(&f)
	}
	if f.DriftedAppend > 0 {
		l.Metrics.Drifted(l.claim.Topic, f.DriftedAppend)
	}
	now := l.Now().UnixMilli()
	l.window.grow(len(f.Records))
	for _, r := range f.Records {
		if !l.mark.Add(r.Offset) {
			continue
		}
		due, replay, err := r.Route()
		if err != nil {
			l.out.BuryUnreadable(r, err)
			continue
		}
		r.DueAt, r.Replay = due, replay
		if mispicked(l.bucket, l.whole(), due, r.Appended) {
			l.Metrics.Mispicked(l.claim.Topic)
		}
		w := waiting{record: r, release: release(l.bucket, l.whole(), due, l.clock.appended(r), now)}
		if w.release <= now {
			w.fetched = true
			l.window.pushReady(w)
			continue
		}
		w.record.Body = l.arena.copy(r.Body)
		l.window.push(w)
	}
	if n := len(f.Records); n == 0 {
		l.window.trim() // a quiet partition keeps no room
		l.lots, l.late = nil, nil
	} else {
		l.readOn = readOn(l.bucket, l.whole(), f.Records[n-1].AppendedAt(), l.Now())
	}
	if f.Corrupt != nil && l.mark.Add(f.Corrupt.First) {
		l.out.BuryCorrupt(f)
	}
	l.mark.Read(f)
	l.shed()
	l.report() // before anything is appended, which may take as long as it likes
}

// lost notes that offsets which were to be read are gone. The database still has
// their orders, the sweep will find them. If the log was deleted and recreated, the
// sweep also finds the orders that wait in the window: their records are of the old
// log.
func (l *loop) lost(f *orderclose.Fetched) {
	r := f.Lost
	if f.Replaced {
		l.mark.Restart(f)
		l.reader.Rewind(f.Next)
		l.window, l.rewind, l.readOn = window{}, noRewind, time.Time{}
	}
	l.mark.Lose(f.Next)
	l.mark.Read(*f)
	l.logger.Error("the log has lost records: the next sweep closes their orders",
		"first", r.First, "last", r.Last, "err", r.Err)
	l.Metrics.Lost(l.claim.Topic, l.claim.Partition, r.Last-r.First+1)
	l.out.TellLost(*r, r.Err.Error(), l.mark)
}

// release appends what is to leave by now to where it goes.
func (l *loop) release() {
	for l.ctx.Err() == nil && l.out.Held() {
		now := l.Now()
		leaving := l.window.takeReleased(now.UnixMilli(), turnBytes)
		if len(leaving) == 0 {
			return
		}
		for _, lot := range l.sort(leaving, now.UnixMilli()) {
			lot.send(lot.topic, lot.records)
			lot.empty()
		}
		l.out.Await()
		l.window.reuse(leaving)
		l.mark.Tell(time.Now(), false)
		l.report()
	}
}

// lot is what goes to one topic together.
type lot struct {
	topic   string
	records []orderclose.RawRecord
	send    func(topic string, records []orderclose.RawRecord)
}

// empty lets go of the records and keeps their room.
func (t *lot) empty() {
	clear(t.records)
	t.records = t.records[:0]
}

// sort decides for each record where it goes. The close topic comes first:
// what is due has waited long enough. What was sent again by hand has a topic of
// its own there.
func (l *loop) sort(leaving []waiting, now int64) []*lot {
	if l.lots == nil {
		l.lots = []*lot{{topic: l.CloseTopic, send: l.forward}, {topic: l.ReplayTopic, send: l.replay}}
	}
	toClose, toReplay := l.lots[0], l.lots[1]
	live := l.relay.live.Load()
	for _, w := range leaving {
		switch to := live.decide(w.record.DueAt, w.record.Appended, now); {
		case to.cause != "":
			l.out.BuryRaw(w.record, to.cause, to.why)
		case to.close && w.record.Replay && l.ReplayTopic != l.CloseTopic:
			toReplay.records = append(toReplay.records, l.own(w))
		case to.close:
			toClose.records = append(toClose.records, w.record)
		default:
			l.add(to.topic, l.own(w))
		}
	}
	return l.lots
}

// own returns the record with bytes of its own: an append beside the loop may outlast the
// turn, and so the memory of the fetch.
func (l *loop) own(w waiting) orderclose.RawRecord {
	if w.fetched {
		w.record.Body = l.arena.copy(w.record.Body)
	}
	return w.record
}

// add puts a record into the lot of a delay topic, making it if there is none.
func (l *loop) add(topic string, r orderclose.RawRecord) {
	for _, lot := range l.lots {
		if lot.topic == topic {
			lot.records = append(lot.records, r)
			return
		}
	}
	l.lots = append(l.lots, &lot{topic: topic, records: []orderclose.RawRecord{r}, send: l.hop})
}

// forward appends what is due to the close topic. The loop waits for the answer: nothing
// is more urgent. What is not acked within a few seconds is put back, so that a close topic
// that accepts nothing does not keep hops and replays from leaving.
func (l *loop) forward(topic string, records []orderclose.RawRecord) {
	if len(records) == 0 {
		return
	}
	sent := l.out.SendNow(topic, records)
	l.forwarded(sent)
	for i := range sent.Left { // which may be in the memory of the fetch
		sent.Left[i].Body = l.arena.copy(sent.Left[i].Body)
	}
	l.putBack(sent.Left, sent.Pause)
}

// forwarded counts records that reached the close topic, or the replay topic.
func (l *loop) forwarded(sent partition.SendResult) {
	for _, acked := range sent.Acked {
		l.mark.Arrived(acked.Records)
		now := l.brokerTime(acked.Answered).UnixMilli()
		l.late = l.late[:0]
		for _, r := range acked.Records {
			l.late = append(l.late, time.Duration(now-r.DueAt)*time.Millisecond)
			if !acked.At.IsZero() && acked.At.UnixMilli() < r.DueAt {
				l.Metrics.Early(l.claim.Topic)
			}
		}
		l.Metrics.Forwarded(l.claim.Topic, l.late)
	}
}

// readAhead begins a fetch if it is time to, and none is under way.
func (l *loop) readAhead() {
	if l.out.Full() || l.reader.Busy() {
		return
	}
	if l.rewind != noRewind {
		// What was dropped is read again when there is room for a good part of it, which
		// is before it has to leave: what stayed leaves first.
		if l.window.bytes > l.relay.budget.Share()/4 {
			l.reader.Verify()
			return
		}
		l.reader.Rewind(l.rewind)
		l.rewind, l.readOn, l.full = noRewind, time.Time{}, false
	}
	if l.whole() { // since a while ago, or since the buckets have changed
		l.readOn = time.Time{}
	}
	if l.Now().Before(l.readOn) {
		l.reader.Verify()
	} else {
		l.reader.Start()
	}
}

// shed drops the latest releases from a window that is over its share of the
// memory, to be read again later.
func (l *loop) shed() {
	share := l.relay.budget.Share()
	if l.window.bytes <= share {
		return
	}
	shed := l.window.shed(share / 2)
	for _, w := range shed {
		l.mark.Drop(w.record.Offset)
		l.rewind = min(l.rewind, w.record.Offset)
	}
	l.Metrics.WindowDropped(l.claim.Topic, len(shed))
	if !l.full && len(shed) > 0 {
		l.full = true
		l.logger.Warn("the look-ahead is over its share of the memory: the latest are dropped and read again",
			"share", share, "dropped", len(shed), "kept", l.window.len())
	}
}

// sleep returns how long nothing is to be done, unless a fetch brings something.
func (l *loop) sleep() time.Duration {
	d, now := l.mark.Wait(time.Now()), l.Now()
	if head, ok := l.window.head(); ok {
		d = min(d, time.UnixMilli(head.release).Sub(now))
	}
	if !l.reader.Busy() && l.rewind == noRewind && !l.out.Full() {
		d = min(d, l.readOn.Sub(now))
	}
	return max(d, 0)
}

// report tells the metrics how the partition stands.
func (l *loop) report() {
	var release time.Time
	if head, ok := l.window.head(); ok {
		release = time.UnixMilli(head.release)
	}
	if since := l.overdueSince(); !since.IsZero() && (release.IsZero() || since.Before(release)) {
		release = since
	}
	l.Metrics.Head(l.claim.Topic, l.claim.Partition, release)
	l.Metrics.Window(l.claim.Topic, l.claim.Partition, l.window.len(), l.window.bytes)
}
