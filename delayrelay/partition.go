package delayrelay

import (
	"context"
	"log/slog"
	"math"
	"time"

	"orderclose"
	"orderclose/internal/partition"
	"orderclose/internal/wire"
)

// maxReleaseBytes bounds what leaves in one turn, so that commits and fetches go on
// during a burst.
const maxReleaseBytes = 4 << 20

// loop serves one partition of one bucket. Its fields belong to the goroutine of run.
type loop struct {
	*Options
	ctx    context.Context
	relay  *Relay
	bucket orderclose.Bucket
	claim  wire.Claim
	logger *slog.Logger
	pulse  *partition.Pulse

	reader    *partition.Reader
	out       *partition.Out
	committer *partition.Committer
	window    window
	bodyPool  bodyPool
	batches   []*batch        // empty; kept to reuse their memory
	lateness  []time.Duration // likewise
	free      func()          // frees the memory of the last fetch
	clock     clock
	nextFetch time.Time // when to fetch again
	full      bool      // the window was over its share and its dropped records are not read again yet
	rewind    int64     // the lowest offset that was dropped from the window, or noRewind
}

// lookBackSlack is how much longer than the bucket's length a record may have been in the
// topic without having left: clocks differ, and it may be late. If a log lost its end at
// an unknown place, records that were appended earlier have left, or the sweep closes
// their orders.
const lookBackSlack = time.Minute

// noRewind means that no record was dropped.
const noRewind = math.MaxInt64

func newLoop(ctx context.Context, r *Relay, b orderclose.Bucket, claim wire.Claim, pulse *partition.Pulse) *loop {
	o := &r.o
	logger := o.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	l := &loop{
		Options: o, ctx: ctx, relay: r, bucket: b, claim: claim, logger: logger, pulse: pulse,
		reader: partition.NewReader(ctx, o.Log, claim, Stage, o.Metrics, o.Logger),
		out: partition.NewOut(ctx, partition.OutOptions{
			Log: o.Log, Claim: claim, Stage: Stage, DeadLetterTopic: o.DeadLetterTopic, ControlTopic: o.ControlTopic,
			DeadLettered: o.Metrics.DeadLettered, Trying: pulse.Beat, Repeated: o.Metrics.Repeated, Logger: logger,
		}),
		committer: partition.NewCommitter(claim, o.Metrics.Unrecorded),
		rewind:    noRewind,
	}
	l.reader.LookBack = b.Length + lookBackSlack
	return l
}

// run serves the partition until the claim is revoked. Each turn handles one fetch or
// answer, fetches more if it is time to, releases records, and sleeps.
func (l *loop) run() {
	l.logger.Debug("serving", "offset", l.claim.Offset)
	l.out.ReportMissingCommit(l.committer)
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
			l.handleFetch(f)
			l.free = f.Free
		case dead := <-l.out.Buried:
			l.out.TookBuried()
			l.committer.Arrived(dead)
		case sent := <-l.out.Sent:
			l.out.TookSent(sent)
		case <-timer.C:
		}
		l.handleClockStep()
		l.fetchAhead() // runs while due records are appended
		l.release()
		if l.ctx.Err() != nil {
			return
		}
		l.freeFetched()
		l.out.StartWaiting()
		l.fetchAhead()
		l.committer.Tell(time.Now(), false)
		l.report()
		timer.Reset(l.out.Sleeping(l.sleep()))
	}
}

// freeFetched frees the memory of a fetch after its due records have left. Records that
// stay, and dead letters, have copies.
func (l *loop) freeFetched() {
	if l.free == nil || len(l.window.ready) > 0 {
		return
	}
	l.free()
	l.free = nil
}

// finish waits for the fetch and the appends in flight, and commits what was acked, also
// in the middle of a turn.
func (l *loop) finish() {
	l.reader.Wait()
	l.out.Wait(l.committer.Arrived)
	l.committer.Tell(time.Now(), true)
}

// handleFetch puts fetched records into the window. Records whose release time has come
// leave right after, from the fetch's memory. The bodies of the others are copied.
func (l *loop) handleFetch(f wire.Fetched) {
	if f.Lost != nil {
		l.handleLoss(&f)
	}
	if f.DriftedAppend > 0 {
		l.Metrics.Drifted(l.claim.Topic, f.DriftedAppend)
	}
	now := l.Now().UnixMilli()
	l.window.grow(len(f.Records))
	for _, r := range f.Records {
		if !l.committer.Add(r.Offset) {
			continue
		}
		due, replay, err := r.Route()
		if err != nil {
			l.out.BuryUnreadable(r, err)
			continue
		}
		r.DueAt, r.Replay = due, replay
		if mispicked(l.bucket, l.readsWhole(), due, r.Appended) {
			l.Metrics.Mispicked(l.claim.Topic)
		}
		w := waiting{record: r, release: release(l.bucket, l.readsWhole(), due, l.clock.appended(r), now)}
		if w.release <= now {
			w.fetched = true
			l.window.pushReady(w)
			continue
		}
		w.record.Body = l.bodyPool.copy(r.Body)
		l.window.push(w)
	}
	if n := len(f.Records); n == 0 {
		l.window.trim() // a quiet partition keeps no spare memory
		l.batches, l.lateness = nil, nil
	} else {
		l.nextFetch = nextFetch(l.bucket, l.readsWhole(), f.Records[n-1].AppendedAt(), l.Now())
	}
	if f.Corrupt != nil && l.committer.Add(f.Corrupt.First) {
		l.out.BuryCorrupt(f)
	}
	l.committer.Read(f)
	l.dropLatest()
	l.report() // before the appends, which may take seconds
}

// handleLoss reports offsets that the log no longer has. The orders are still in the
// database, and the sweep finds them. If the log was deleted and recreated, the sweep
// also finds the orders in the window: their records belong to the old log.
func (l *loop) handleLoss(f *wire.Fetched) {
	r := f.Lost
	if f.Replaced {
		l.committer.Restart(f)
		l.reader.Rewind(f.Next)
		l.window, l.rewind, l.nextFetch = window{}, noRewind, time.Time{}
	}
	l.committer.Lose(f.Next)
	l.committer.Read(*f)
	l.logger.Error("the log has lost records: the next sweep closes their orders",
		"first", r.First, "last", r.Last, "err", r.Err)
	l.Metrics.Lost(l.claim.Topic, l.claim.Partition, r.Last-r.First+1)
	l.out.TellLost(*r, r.Err.Error(), l.committer)
}

// release appends the records whose release time has come to their destinations.
func (l *loop) release() {
	for l.ctx.Err() == nil && l.out.StillAssigned() {
		now := l.Now()
		leaving := l.window.takeReleased(now.UnixMilli(), maxReleaseBytes)
		if len(leaving) == 0 {
			return
		}
		for _, b := range l.batchByTopic(leaving, now.UnixMilli()) {
			b.send(b.topic, b.records)
			b.reset()
		}
		l.out.Await()
		l.window.reuse(leaving)
		l.committer.Tell(time.Now(), false)
		l.report()
	}
}

// batch is the records that go to one topic together.
type batch struct {
	topic   string
	records []wire.RawRecord
	send    func(topic string, records []wire.RawRecord)
}

// reset drops the records and keeps the slice's memory.
func (b *batch) reset() {
	clear(b.records)
	b.records = b.records[:0]
}

// batchByTopic decides the destination of each record. The batch of the close topic comes
// first, because due records are the most urgent. Replays go to the replay topic.
func (l *loop) batchByTopic(leaving []waiting, now int64) []*batch {
	if l.batches == nil {
		l.batches = []*batch{{topic: l.CloseTopic, send: l.forward}, {topic: l.ReplayTopic, send: l.replay}}
	}
	toClose, toReplay := l.batches[0], l.batches[1]
	current := l.relay.current.Load()
	for _, w := range leaving {
		switch to := current.decide(w.record.DueAt, w.record.Appended, now); {
		case to.cause != "":
			l.out.BuryRaw(w.record, to.cause, to.detail)
		case to.close && w.record.Replay && l.ReplayTopic != l.CloseTopic:
			toReplay.records = append(toReplay.records, l.ownBytes(w))
		case to.close:
			toClose.records = append(toClose.records, w.record)
		default:
			l.addHop(to.topic, l.ownBytes(w))
		}
	}
	return l.batches
}

// ownBytes returns the record with a copy of its body: an append beside the loop may
// outlast the turn, and so the memory of the fetch.
func (l *loop) ownBytes(w waiting) wire.RawRecord {
	if w.fetched {
		w.record.Body = l.bodyPool.copy(w.record.Body)
	}
	return w.record
}

// addHop adds a record to the batch of a delay topic.
func (l *loop) addHop(topic string, r wire.RawRecord) {
	for _, b := range l.batches {
		if b.topic == topic {
			b.records = append(b.records, r)
			return
		}
	}
	l.batches = append(l.batches, &batch{topic: topic, records: []wire.RawRecord{r}, send: l.hop})
}

// forward appends due records to the close topic and waits for the answer, since nothing
// is more urgent. Records that are not acked within a few seconds go back into the
// window, so that a close topic that accepts nothing does not block hops and replays.
func (l *loop) forward(topic string, records []wire.RawRecord) {
	if len(records) == 0 {
		return
	}
	sent := l.out.SendNow(topic, records)
	l.countForwarded(sent)
	for i := range sent.Left { // the bodies may be in the memory of the fetch
		sent.Left[i].Body = l.bodyPool.copy(sent.Left[i].Body)
	}
	l.putBack(sent.Left, sent.Pause)
}

// countForwarded marks and counts records that were appended to the close topic or the
// replay topic.
func (l *loop) countForwarded(sent partition.SendResult) {
	for _, acked := range sent.Acked {
		l.committer.Arrived(acked.Records)
		now := l.brokerTime(acked.Answered).UnixMilli()
		l.lateness = l.lateness[:0]
		for _, r := range acked.Records {
			l.lateness = append(l.lateness, time.Duration(now-r.DueAt)*time.Millisecond)
			if !acked.At.IsZero() && acked.At.UnixMilli() < r.DueAt {
				l.Metrics.Early(l.claim.Topic)
			}
		}
		l.Metrics.Forwarded(l.claim.Topic, l.lateness)
	}
}

// fetchAhead starts a fetch if it is time to and none is in flight. While it is not time,
// it verifies the log now and then.
func (l *loop) fetchAhead() {
	if l.out.Full() || l.reader.Busy() {
		return
	}
	if l.rewind != noRewind {
		// Dropped records are read again when a good part of them has room. That is
		// before their release time, because the records that stayed leave first.
		if l.window.bytes > l.relay.budget.Share()/4 {
			l.reader.Verify()
			return
		}
		l.reader.Rewind(l.rewind)
		l.rewind, l.nextFetch, l.full = noRewind, time.Time{}, false
	}
	if l.readsWhole() { // this may be new: Change may have made the bucket the smallest
		l.nextFetch = time.Time{}
	}
	if l.Now().Before(l.nextFetch) {
		l.reader.Verify()
	} else {
		l.reader.Start()
	}
}

// dropLatest drops the records with the latest release times from a window that is over
// its share of the memory. They are read again later.
func (l *loop) dropLatest() {
	share := l.relay.budget.Share()
	if l.window.bytes <= share {
		return
	}
	dropped := l.window.dropLatest(share / 2)
	for _, w := range dropped {
		l.committer.Drop(w.record.Offset)
		l.rewind = min(l.rewind, w.record.Offset)
	}
	l.Metrics.WindowDropped(l.claim.Topic, len(dropped))
	if !l.full && len(dropped) > 0 {
		l.full = true
		l.logger.Warn("look-ahead over its memory share, latest records dropped and read again later",
			"share", share, "dropped", len(dropped), "kept", l.window.len())
	}
}

// sleep returns how long the loop has nothing to do unless a fetch or an answer arrives.
func (l *loop) sleep() time.Duration {
	d, now := l.committer.Wait(time.Now()), l.Now()
	if head, ok := l.window.head(); ok {
		d = min(d, time.UnixMilli(head.release).Sub(now))
	}
	if !l.reader.Busy() && l.rewind == noRewind && !l.out.Full() {
		d = min(d, l.nextFetch.Sub(now))
	}
	return max(d, 0)
}

// report updates the metrics of the partition.
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
