package delayrelay

import (
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/wire"
)

// maxReleaseBytes bounds one batch of released records, about. Offsets are committed after
// each batch, so that commits go on during a burst.
const maxReleaseBytes = 4 << 20

// handler forwards the records of one partition of one bucket. Its fields belong to the
// goroutine of the partition's loop. Each turn releases the records whose release time has come.
type handler struct {
	loop    *partition.Loop
	o       *Options
	metrics *relayMetrics
	relay   *Relay
	bucket  orderclose.Bucket

	window   window
	bodyPool bodyPool
	outgoing []*outgoing  // empty; kept to reuse their memory
	free     func()       // frees the memory of the last fetch
	reading  reading      // when to read
	turn     clock.Moment // the last turn
}

// lookBackSlack is added to the bucket's length when a log lost its end at an unknown place.
// Records that were appended in that time are read again: clocks differ, and a record may be
// late. Older records have left, or the sweep closes their orders.
const lookBackSlack = time.Minute

func (r *Relay) newHandler(b orderclose.Bucket, l *partition.Loop) partition.Handler {
	l.SetLookBack(b.Length + lookBackSlack)
	r.metrics.Serve(l.Claim.Topic)
	return &handler{loop: l, o: &r.o, metrics: r.metrics, relay: r, bucket: b}
}

// Turn implements partition.Handler.
func (h *handler) Turn() {
	h.handleClockStep()
	h.releaseDue() //mutant:fetch-freed-early
	if h.loop.Ctx.Err() == nil {
		h.freeFetched()
		h.report()
	}
}

// handleClockStep corrects the times in memory if the database's clock went back since the last turn: it, or a broker's clock, was set.
// Afterwards no partition is read later, and no record stays longer, than if the clock had been right when the record was read. A step
// forward needs no correction: every time comes sooner.
func (h *handler) handleClockStep() {
	var back time.Duration
	if h.turn, back = h.o.Clock.Since(h.turn); back == 0 {
		return
	}
	h.loop.Logger.Warn("the clock of the brokers or of the database went back", "by", back)
	h.reading.on, h.reading.look = h.reading.on.Add(-back), h.reading.look.Add(-back)
	h.window.capRelease(h.now().Add(h.bucket.Length).UnixMilli())
}

// now returns the time by which records are due.
func (h *handler) now() time.Time { return h.o.Clock.Database() } //mutant:relay-broker-clock,relay-local-clock

// appended returns the append time of a record by the database's clock, in Unix milliseconds.
func (h *handler) appended(r *wire.RawRecord) int64 {
	return r.Appended + h.o.Clock.DatabaseAheadOf(h.loop.Claim.Topic, h.loop.Claim.Partition).Milliseconds()
}

// Handle implements partition.Handler. It puts the records into the window. Records whose
// release time has come leave right after, from the fetch's memory. The bodies of the others
// are copied.
func (h *handler) Handle(f wire.Fetched) {
	h.free = f.Free
	h.noteFetch(f)
	now := h.now().UnixMilli()
	ready := f.Records[:0]
	for i := range f.Records {
		r := &f.Records[i]
		release, ok := h.releaseOf(r, f.Ahead, now)
		switch {
		case !ok:
		case release <= now:
			ready = append(ready, *r)
		default:
			w := waiting{*r, release}
			w.record.Body = h.bodyPool.copy(r.Body)
			h.window.push(w)
		}
	}
	h.window.addReady(ready)
	h.dropLatest()
	h.report() // before the appends, which may take seconds
}

// releaseOf reads when a record is due, and returns its release time. If ok is false, the record does
// not go into the window now: a look-ahead leaves what is not urgent, and a window that is full
// leaves what would not leave before the records that it dropped.
func (h *handler) releaseOf(r *wire.RawRecord, ahead bool, now int64) (release int64, ok bool) {
	due, replay, err := r.Route()
	r.DueAt, r.Replay = due, replay
	urgent := err == nil && h.urgent(r, now)
	switch {
	case ahead && !urgent:
		return 0, false
	case err != nil:
		h.loop.DeadLetterUnreadable(*r, err) //mutant:unreadable-dropped
		return 0, false
	}
	release = releaseTime(h.bucket, h.readsAtOnce(), due, h.appended(r), now)
	if h.window.dropped.before(release) { //mutant:window-takes-later
		h.drop(r, release, urgent)
		return 0, false
	}
	if ahead && !h.loop.Take(r.Offset) {
		return 0, false
	}
	if urgent && !h.readsAtOnce() {
		h.metrics.mispicked.WithLabelValues(h.loop.Claim.Topic).Inc()
	}
	return release, true
}

// noteFetch counts what a fetch says about the log, and sets when to read next.
func (h *handler) noteFetch(f wire.Fetched) {
	if !f.Ahead {
		h.metrics.drifted.WithLabelValues(h.loop.Claim.Topic).Add(float64(f.DriftedAppend))
	}
	var last time.Time
	if n := len(f.Records); n > 0 {
		last = time.UnixMilli(h.appended(&f.Records[n-1]))
	} else {
		h.window.taken, h.outgoing = nil, nil // a quiet partition keeps no spare memory
	}
	h.reading = h.reading.after(f, last, h.view())
}

// view returns what the next read is decided by.
func (h *handler) view() view {
	return view{
		bucket: h.bucket, atOnce: h.readsAtOnce(), now: h.now(), offset: h.loop.NextOffset(), dropped: h.window.dropped,
		room: h.window.bytes <= h.relay.memory.Share()/4,
	}
}

// urgent reports whether a record may leave before nextFetch would have it read.
func (h *handler) urgent(r *wire.RawRecord, now int64) bool {
	return h.readsAtOnce() || mispicked(h.bucket, r.DueAt, min(h.appended(r), now))
}

// Reset implements partition.Handler. The sweep that follows the loss closes the orders of
// the old log.
func (h *handler) Reset() {
	h.window, h.reading = window{}, reading{began: h.reading.began}
}

// End implements partition.Handler.
func (h *handler) End() { h.metrics.Revoked(h.loop.Claim.Topic, h.loop.Claim.Partition) }

// Room implements partition.Handler. The relay reads on if it is time to, or else looks ahead.
func (h *handler) Room() (what partition.Room, wait time.Duration) {
	v := h.view()
	if v.readsAgain(h.reading) {
		h.loop.FetchFrom(v.dropped.from)
		h.reading, h.window.dropped = h.reading.again(v.dropped), dropped{}
		v = h.view()
	}
	what, wait, h.reading = h.reading.next(v)
	return what, wait
}

// dropLatest drops the records with the latest release times from a window that is over
// its share of the memory. They are read again later.
func (h *handler) dropLatest() {
	share := h.relay.memory.Share()
	if h.window.bytes <= share { //mutant:window-bytes-unbounded
		return
	}
	latest := h.window.dropLatest(share / 2)
	if len(latest) > 0 && !h.window.dropped.any {
		h.loop.Logger.Warn("look-ahead over its memory share, latest records dropped and read again later",
			"share", share, "dropped", len(latest), "kept", h.window.len())
	}
	now := h.now().UnixMilli()
	for _, w := range latest {
		h.drop(&w.record, w.release, h.urgent(&w.record, now))
	}
	h.metrics.windowDropped.WithLabelValues(h.loop.Claim.Topic).Add(float64(len(latest)))
}

// drop notes that a record is not in the window, and must be read again.
func (h *handler) drop(r *wire.RawRecord, release int64, urgent bool) {
	h.loop.Drop(r.Offset)
	h.window.dropped.add(r.Offset, release, urgent)
}

// Sleep implements partition.Handler.
func (h *handler) Sleep(d time.Duration) time.Duration {
	if head, ok := h.window.head(); ok {
		d = min(d, time.UnixMilli(head.release).Sub(h.now()))
	}
	return d
}
