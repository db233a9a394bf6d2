package delayrelay

import (
	"context"
	"log/slog"
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

const (
	// maxSleep is the longest that a loop sleeps without looking at the clock
	// again: a wall clock that was set forward makes nothing later than this.
	maxSleep = 5 * time.Second
	// turnBytes bounds what leaves in one turn, so that commits and reading go on
	// during a burst.
	turnBytes = 4 << 20
)

// loop serves one partition of one bucket. Everything in it belongs to the
// goroutine of run.
type loop struct {
	*Options
	ctx      context.Context
	bucket   orderclose.Bucket
	smallest bool
	claim    orderclose.Claim
	logger   *slog.Logger

	reader *partition.Reader
	out    *partition.Out
	mark   *partition.Watermark
	low    int64 // the watermark as it was last reported
	window window
	arena  arena
	readOn time.Time // when to fetch again
	full   bool      // the window is at its bound
}

func newLoop(ctx context.Context, o *Options, b orderclose.Bucket, claim orderclose.Claim) *loop {
	logger := o.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	return &loop{
		Options: o, ctx: ctx, bucket: b, smallest: b == o.Buckets[0], claim: claim, logger: logger,
		reader: partition.NewReader(ctx, o.Log, claim, o.Logger),
		out: partition.NewOut(ctx, partition.OutOptions{
			Log: o.Log, Claim: claim, Stage: Stage, DeadLetterTopic: o.DeadLetterTopic,
			DeadLettered: o.Metrics.DeadLettered, Repeated: o.Metrics.Repeated, Logger: logger,
		}),
		mark: partition.NewWatermark(claim.Offset), low: claim.Offset,
	}
}

// run turns until the claim is revoked: read on if it is time to, take in what
// came, move what is to leave, sleep.
func (l *loop) run() {
	l.logger.Debug("serving", "offset", l.claim.Offset)
	defer l.Metrics.Revoked(l.claim.Topic, l.claim.Partition)
	defer l.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case f := <-l.reader.C:
			l.reader.Took(f)
			l.takeIn(f)
		case dead := <-l.out.Buried:
			l.out.TookBuried()
			l.done(dead)
		case <-timer.C:
		}
		l.release()
		if l.ctx.Err() != nil {
			return
		}
		l.out.StartBurying()
		now := l.Now()
		if l.wantsMore(now) {
			l.reader.Start()
		}
		l.commit() // also where nothing waits, past markers and losses
		l.report()
		timer.Reset(l.sleep(now))
	}
}

// finish waits for what is under way, and commits what was acked, also in the
// middle of a turn.
func (l *loop) finish() {
	l.reader.Wait()
	l.out.WaitBuried(l.done)
	l.commit()
}

// takeIn puts what a fetch brought into the window. What is due already leaves
// right after; the rest is copied out of the fetch's buffer.
func (l *loop) takeIn(f orderclose.Fetched) {
	if f.Lost != nil {
		l.lost(*f.Lost, f.Next)
	}
	if f.DriftedAppend > 0 {
		l.Metrics.Drifted(l.claim.Topic, f.DriftedAppend)
	}
	now := l.Now().UnixMilli()
	l.window.grow(len(f.Records))
	for _, r := range f.Records {
		l.mark.Add(r.Offset)
		due, err := r.Due()
		if err != nil {
			l.out.BuryUnreadable(r, err)
			continue
		}
		r.DueAt = due
		w := waiting{record: r, release: release(l.bucket, due, r.Appended)}
		if w.release <= now {
			l.window.pushReady(w)
			continue
		}
		w.record.Body = l.arena.copy(r.Body)
		l.window.push(w)
	}
	if n := len(f.Records); n > 0 {
		l.readOn = readOn(l.bucket, l.smallest, f.Records[n-1].AppendedAt(), l.Now())
	}
	if f.Corrupt != nil {
		l.mark.Add(f.Corrupt.First)
		l.out.BuryCorrupt(*f.Corrupt)
	}
	l.mark.Read(f.Next)
	l.report() // before anything is appended, which may take as long as it likes
}

// lost notes that offsets which were to be read are gone; reading goes on at
// next. The database still has their orders, the sweep will find them. A log that
// was made anew begins below what was read of the old one: what waits from there
// has offsets that now mean others, and is left to the sweep too.
func (l *loop) lost(r orderclose.Range, next int64) {
	if l.mark.Read(next) {
		l.window = window{}
	}
	l.logger.Error("the log has lost records: the next sweep closes their orders",
		"first", r.First, "last", r.Last, "err", r.Err)
	l.Metrics.Lost(l.claim.Topic, l.claim.Partition, r.Last-r.First+1)
}

// release appends what is to leave by now to where it goes.
func (l *loop) release() {
	for l.ctx.Err() == nil {
		now := l.Now()
		leaving := l.window.takeReleased(now.UnixMilli(), turnBytes)
		if len(leaving) == 0 {
			return
		}
		for _, lot := range l.sort(leaving, now.UnixMilli()) {
			if !l.out.Append(lot.topic, lot.records, lot.acked) {
				return // revoked: what was not acked is read again by the next owner
			}
		}
		l.commit()
		l.report()
	}
}

// lot is what goes to one topic together.
type lot struct {
	topic   string
	records []orderclose.RawRecord
	acked   func(records []orderclose.RawRecord, at time.Time)
}

// sort decides for each record where it goes. The close topic comes first:
// what is due has waited long enough.
func (l *loop) sort(leaving []waiting, now int64) []*lot {
	toClose := &lot{topic: l.CloseTopic, acked: l.forwarded}
	lots := []*lot{toClose}
	for _, w := range leaving {
		switch to := l.decide(w.record.DueAt, w.record.Appended, now); {
		case to.cause != "":
			l.out.BuryRaw(w.record, to.cause, to.why)
		case to.close:
			toClose.records = append(toClose.records, w.record)
		default:
			lots = l.add(lots, to.topic, w.record)
		}
	}
	return lots
}

// add puts a record into the lot of a delay topic, making it if there is none.
func (l *loop) add(lots []*lot, topic string, r orderclose.RawRecord) []*lot {
	for _, lot := range lots {
		if lot.topic == topic {
			lot.records = append(lot.records, r)
			return lots
		}
	}
	return append(lots, &lot{topic: topic, records: []orderclose.RawRecord{r}, acked: func(records []orderclose.RawRecord, _ time.Time) {
		l.done(records)
		l.Metrics.Hopped(l.claim.Topic, topic, len(records))
	}})
}

// done notes that records have arrived where they go.
func (l *loop) done(records []orderclose.RawRecord) {
	for _, r := range records {
		l.mark.Done(r.Offset)
	}
}

// forwarded counts records that reached the close topic; at is when the broker
// took them, if that is known.
func (l *loop) forwarded(records []orderclose.RawRecord, at time.Time) {
	l.done(records)
	now := l.Now().UnixMilli()
	late := make([]time.Duration, len(records))
	for i, r := range records {
		late[i] = time.Duration(now-r.DueAt) * time.Millisecond
		if !at.IsZero() && at.UnixMilli() < r.DueAt {
			l.Metrics.Early(l.claim.Topic)
		}
	}
	l.Metrics.Forwarded(l.claim.Topic, late)
}

// wantsMore says whether to fetch now.
func (l *loop) wantsMore(now time.Time) bool {
	full := l.window.bytes >= l.WindowBytes
	if full && !l.full {
		l.logger.Warn("the look-ahead is at its bound: what lies beyond it may be late", "bytes", l.window.bytes, "records", l.window.len())
		l.Metrics.WindowFull(l.claim.Topic)
	}
	l.full = full
	return !full && !l.out.Full() && !now.Before(l.readOn)
}

// sleep returns how long nothing is to be done, unless a fetch brings something.
func (l *loop) sleep(now time.Time) time.Duration {
	d := maxSleep
	if head, ok := l.window.head(); ok {
		d = min(d, time.UnixMilli(head.release).Sub(now))
	}
	if !l.reader.Busy() && !l.full && !l.out.Full() {
		d = min(d, l.readOn.Sub(now))
	}
	return max(d, 0)
}

// commit lets everything below the low watermark be committed.
func (l *loop) commit() {
	if low := l.mark.Low(); low != l.low {
		l.low = low
		l.claim.Done(low)
	}
}

// report tells the metrics how the partition stands.
func (l *loop) report() {
	var release time.Time
	if head, ok := l.window.head(); ok {
		release = time.UnixMilli(head.release)
	}
	l.Metrics.Head(l.claim.Topic, l.claim.Partition, release)
	l.Metrics.Window(l.claim.Topic, l.claim.Partition, l.window.len(), l.window.bytes)
}
