package delayrelay

import (
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

const (
	// hopAwait is how long a turn waits for the answers to its hops: nearly all come
	// within it, and their records need not be put back if the next turn has more.
	hopAwait = 100 * time.Millisecond
	// hopPatience is how long hops are tried before they are put back into the window.
	hopPatience = 3 * time.Second
	// Pauses before hops that were put back are tried again.
	minHopPause, maxHopPause = 50 * time.Millisecond, 4 * time.Second
)

// hops brings records to one delay topic, in a goroutine and under a producer id of
// its own, so that a topic that takes nothing holds up nothing that goes elsewhere.
// One lot is under way at a time. It belongs to the loop.
type hops struct {
	topic   string
	out     *partition.Out
	records []orderclose.RawRecord // under way, while it is busy
	acked   []orderclose.RawRecord // of those; the goroutine's while it is busy
	busy    bool
	slow    bool          // the answer is not waited for
	began   time.Time     // when the last lot was begun
	failing time.Time     // since when nothing was taken; zero if that is not so
	pause   time.Duration // the last one; it grows as long as nothing is taken
	resume  time.Time     // no lot is begun before
}

// hopped is a lot that was under way and is no more.
type hopped struct {
	*hops
	log  int                    // the loop's when it was begun
	left []orderclose.RawRecord // not taken
}

// hop begins to bring records to a delay topic. While that is under way for others,
// or rests, they are put back.
func (l *loop) hop(topic string, records []orderclose.RawRecord) {
	if len(records) == 0 {
		return
	}
	h := l.hops[topic]
	if h == nil {
		h = &hops{topic: topic, out: l.newOut(nil)}
		l.hops[topic] = h
	}
	now := time.Now()
	switch {
	case h.busy:
		l.putBack(records, min(max(now.Sub(h.began), minHopPause), maxHopPause))
		return
	case now.Before(h.resume):
		l.putBack(records, h.resume.Sub(now))
		return
	}
	h.busy, h.began = true, now
	h.records, h.acked = append(h.records[:0], records...), h.acked[:0]
	l.hopping++
	log := l.log
	go func() {
		left := h.out.AppendWithin(hopPatience, topic, h.records, func(acked []orderclose.RawRecord, _ time.Time) {
			h.acked = append(h.acked, acked...)
		})
		l.hopped <- hopped{h, log, left}
	}()
}

// tookHopped notes how a lot fared. What was not taken is put back, and goes to the
// close topic if it becomes due before the delay topic is back.
func (l *loop) tookHopped(h hopped) {
	l.hopping--
	h.busy = false
	if len(h.acked) > 0 {
		l.Metrics.Hopped(l.claim.Topic, h.topic, len(h.acked))
	}
	l.out.TakeOver(h.out.Graveyard)
	if h.log == l.log { // else the offsets mean others by now
		l.mark.Arrived(h.acked)
	}
	switch {
	case len(h.left) == 0:
		h.slow, h.failing, h.pause = false, time.Time{}, 0
	case l.ctx.Err() == nil:
		if h.failing.IsZero() {
			h.failing = l.Now().Add(-time.Since(h.began))
		}
		h.pause = min(max(2*h.pause, minHopPause), maxHopPause)
		h.resume = time.Now().Add(h.pause)
		l.logger.Warn("a delay topic takes no records: they wait here and are tried again", "to", h.topic, "records", len(h.left), "since", h.failing)
		if h.log == l.log {
			l.putBack(h.left, h.pause)
		}
	}
	clear(h.records) // let go of their bytes
	clear(h.acked)
}

// putBack has records leave after a pause, or when they are due.
func (l *loop) putBack(records []orderclose.RawRecord, pause time.Duration) {
	again := l.Now().Add(pause).UnixMilli()
	for _, r := range records {
		l.window.push(waiting{record: r, release: min(again, r.DueAt)})
	}
}

// awaitHops waits a moment for the answers to the hops of a turn, but not for those of
// a topic that was slow the last time.
func (l *loop) awaitHops() {
	var timer *time.Timer
	for l.hopsAwaited() {
		if timer == nil {
			timer = time.NewTimer(hopAwait)
			defer timer.Stop()
		}
		select {
		case h := <-l.hopped:
			l.tookHopped(h)
		case <-l.ctx.Done():
			return
		case <-timer.C:
			for _, h := range l.hops {
				h.slow = h.slow || h.busy
			}
		}
	}
}

func (l *loop) hopsAwaited() bool {
	for _, h := range l.hops {
		if h.busy && !h.slow {
			return true
		}
	}
	return false
}

// finishHops waits for what is under way, which ends soon after the claim has.
func (l *loop) finishHops() {
	for l.hopping > 0 {
		l.tookHopped(<-l.hopped)
	}
}

// hopsHang says whether a lot is under way for much longer than its deadlines allow.
func (l *loop) hopsHang() bool {
	for _, h := range l.hops {
		if h.busy && time.Since(h.began) > stuckAfter {
			return true
		}
	}
	return false
}

// overdueHops is since when hops wait that a topic does not take, or zero if none do.
func (l *loop) overdueHops() (since time.Time) {
	for _, h := range l.hops {
		if !h.busy && time.Since(h.resume) > time.Second { // they were due to be tried: none are left
			h.failing = time.Time{}
		}
		if !h.failing.IsZero() && (since.IsZero() || h.failing.Before(since)) {
			since = h.failing
		}
	}
	return since
}
