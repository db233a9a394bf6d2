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
	readOn time.Time // when to fetch again
	full   bool      // the window is at its bound
}

func newLoop(ctx context.Context, o *Options, b orderclose.Bucket, claim orderclose.Claim) *loop {
	logger := o.Logger.With("topic", claim.Topic, "partition", claim.Partition)
	return &loop{
		Options: o, ctx: ctx, bucket: b, smallest: b == o.Buckets[0], claim: claim, logger: logger,
		reader: partition.NewReader(ctx, o.Log, claim, o.Logger),
		out: &partition.Out{
			Ctx: ctx, Log: o.Log, Stage: Stage, DeadLetterTopic: o.DeadLetterTopic,
			DeadLettered: o.Metrics.DeadLettered, Logger: logger,
		},
		mark: partition.NewWatermark(claim.Offset), low: claim.Offset,
	}
}

// run turns until the claim is revoked: read on if it is time to, take in what
// came, move what is to leave, sleep.
func (l *loop) run() {
	l.logger.Debug("serving", "offset", l.claim.Offset)
	defer l.Metrics.Revoked(l.claim.Topic, l.claim.Partition)
	defer l.commit() // what was acked when the claim ended in the middle of a turn
	defer l.reader.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case f := <-l.reader.C:
			l.reader.Took(f)
			l.takeIn(f)
		case <-timer.C:
		}
		l.release()
		if l.ctx.Err() != nil {
			return
		}
		now := l.Now()
		if l.wantsMore(now) {
			l.reader.Start()
		}
		l.report()
		timer.Reset(l.sleep(now))
	}
}

// takeIn puts what a fetch brought into the window.
func (l *loop) takeIn(f orderclose.Fetched) {
	if f.Lost != nil {
		l.lost(*f.Lost, f.Next)
	}
	if f.DriftedAppend > 0 {
		l.Metrics.Drifted(l.claim.Topic, f.DriftedAppend)
	}
	var dead []orderclose.Message
	for _, m := range f.Messages {
		l.mark.Add(m.Offset)
		l.readOn = readOn(l.bucket, l.smallest, m.Appended)
		due, err := m.Due()
		if err != nil {
			dead = append(dead, l.out.Unreadable(m, err))
			continue
		}
		l.window.push(waiting{m, due, l.bucket.Release(due, m.Appended)})
	}
	if r := f.Corrupt; r != nil {
		l.mark.Add(r.First)
		dead = append(dead, l.out.Corrupt(l.claim, *r))
	}
	l.mark.Read(f.Next)
	l.report() // before anything is appended, which may take as long as it likes
	l.out.Append(l.DeadLetterTopic, dead, l.done)
	l.commit() // also where nothing waits, past markers and losses
}

// lost notes that offsets which were to be read are gone; reading goes on at
// next. The database still has their orders, the sweep will find them. A log that
// was made anew begins below what was read of the old one: what waits from there
// has offsets that now mean others, and is left to the sweep too.
func (l *loop) lost(r orderclose.Range, next int64) {
	if next < l.mark.Low() {
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
		leaving := l.window.takeReleased(now, turnBytes)
		if len(leaving) == 0 {
			return
		}
		for _, lot := range l.sort(leaving, now) {
			if !l.out.Append(lot.topic, lot.messages, lot.acked) {
				return // revoked: what was not acked is read again by the next owner
			}
		}
		l.commit()
		l.report()
	}
}

// lot is what goes to one topic together.
type lot struct {
	topic    string
	messages []orderclose.Message
	acked    func(m orderclose.Message, at time.Time)
}

// sort decides for each record where it goes. The close topic comes first:
// what is due has waited long enough.
func (l *loop) sort(leaving []waiting, now time.Time) []*lot {
	dues := make(map[int64]time.Time, len(leaving))
	toClose := &lot{topic: l.CloseTopic, acked: func(m orderclose.Message, at time.Time) {
		l.done(m, at)
		l.forwarded(dues[m.Offset], at)
	}}
	lots := []*lot{toClose}
	for _, r := range leaving {
		dues[r.message.Offset] = r.due
		switch to := l.decide(r.due, r.message.Appended, now); {
		case to.cause != "":
			lots = l.add(lots, l.DeadLetterTopic, l.out.Dead(r.message, to.cause, to.why), l.done)
		case to.close:
			toClose.messages = append(toClose.messages, r.message)
		default:
			lots = l.add(lots, to.topic, r.message, func(m orderclose.Message, at time.Time) {
				l.done(m, at)
				l.Metrics.Hopped(l.claim.Topic, to.topic)
			})
		}
	}
	return lots
}

// add puts m into the lot of the topic, making it if there is none.
func (l *loop) add(lots []*lot, topic string, m orderclose.Message, acked func(orderclose.Message, time.Time)) []*lot {
	for _, lot := range lots {
		if lot.topic == topic {
			lot.messages = append(lot.messages, m)
			return lots
		}
	}
	return append(lots, &lot{topic: topic, messages: []orderclose.Message{m}, acked: acked})
}

// done notes that a record has arrived where it goes.
func (l *loop) done(m orderclose.Message, _ time.Time) { l.mark.Done(m.Offset) }

// forwarded counts one record that reached the close topic; at is when the
// broker took it, if that is known.
func (l *loop) forwarded(due, at time.Time) {
	l.Metrics.Forwarded(l.claim.Topic, l.Now().Sub(due))
	if !at.IsZero() && at.Before(due) {
		l.Metrics.Early(l.claim.Topic)
	}
}

// wantsMore says whether to fetch now.
func (l *loop) wantsMore(now time.Time) bool {
	full := l.window.bytes >= l.WindowBytes
	if full && !l.full {
		l.logger.Warn("the look-ahead is at its bound: what lies beyond it may be late", "bytes", l.window.bytes, "records", len(l.window.heap))
		l.Metrics.WindowFull(l.claim.Topic)
	}
	l.full = full
	return !full && !now.Before(l.readOn)
}

// sleep returns how long nothing is to be done, unless a fetch brings something.
func (l *loop) sleep(now time.Time) time.Duration {
	d := maxSleep
	if head, ok := l.window.head(); ok {
		d = min(d, head.release.Sub(now))
	}
	if !l.reader.Busy() && !l.full {
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
	head, _ := l.window.head()
	l.Metrics.Head(l.claim.Topic, l.claim.Partition, head.release)
	l.Metrics.Window(l.claim.Topic, l.claim.Partition, len(l.window.heap), l.window.bytes)
}
