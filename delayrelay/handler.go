package delayrelay

import (
	"time"

	"github.com/orderclose/orderclose"
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

	window    window
	bodyPool  bodyPool
	outgoing  []*outgoing // empty; kept to reuse their memory
	free      func()      // frees the memory of the last fetch
	clock     clock
	nextFetch time.Time // when to read on
	nextLook  time.Time // when to look ahead
	fetchedAt time.Time // when the last fetch or look-ahead began
	dropped   dropped   // records that were dropped from the window
	readTo    int64     // dropped records below are urgent: read on at once up to here
}

// dropped describes the records that a handler has dropped. The handler reads them again once the
// window has room. It drops the records that leave last, so the records that stay leave first.
type dropped struct {
	any       bool
	from      int64 // the lowest offset
	release   int64 // the earliest release time
	urgentEnd int64 // all urgent records are below
}

// add adds a dropped record. An urgent record may leave before nextFetch reads it again.
func (d *dropped) add(offset, release int64, urgent bool) {
	if !d.any {
		*d = dropped{any: true, from: offset, release: release}
	}
	d.from, d.release = min(d.from, offset), min(d.release, release)
	if urgent {
		d.urgentEnd = max(d.urgentEnd, offset+1)
	}
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

// Handle implements partition.Handler. It puts the records into the window. Records whose
// release time has come leave right after, from the fetch's memory. The bodies of the others
// are copied.
func (h *handler) Handle(f wire.Fetched) {
	h.free = f.Free
	h.scheduleFetches(f)
	now := h.o.Now().UnixMilli()
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
	release = releaseTime(h.bucket, h.readsAtOnce(), due, h.clock.appended(r.Appended), now)
	if h.dropped.any && release >= h.dropped.release { //mutant:window-takes-later
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

// scheduleFetches decides when to read on, and when to look ahead, after a fetch.
func (h *handler) scheduleFetches(f wire.Fetched) {
	if !f.Ahead {
		h.metrics.drifted.WithLabelValues(h.loop.Claim.Topic).Add(float64(f.DriftedAppend))
	}
	now := h.o.Now()
	if f.AtEnd {
		h.nextLook = nextLook(h.bucket, h.readsAtOnce(), h.fetchedAt, now)
	}
	n := len(f.Records)
	switch {
	case f.Ahead && f.Next > h.loop.NextOffset(): // unread records are left for nextFetch
	case n > 0 && h.loop.NextOffset() >= h.readTo:
		h.nextFetch = nextFetch(h.bucket, time.UnixMilli(h.clock.appended(f.Records[n-1].Appended)), now)
	case n == 0 && f.AtEnd:
		h.nextFetch = nextIdleFetch(h.bucket, h.fetchedAt, now)
	}
	if n == 0 {
		h.window.taken, h.outgoing = nil, nil // a quiet partition keeps no spare memory
	}
}

// urgent reports whether a record may leave before nextFetch would have it read.
func (h *handler) urgent(r *wire.RawRecord, now int64) bool {
	return h.readsAtOnce() || mispicked(h.bucket, r.DueAt, min(h.clock.appended(r.Appended), now))
}

// Reset implements partition.Handler. The sweep that follows the loss closes the orders of
// the old log.
func (h *handler) Reset() {
	h.window, h.dropped, h.readTo = window{}, dropped{}, 0
	h.nextFetch, h.nextLook = time.Time{}, time.Time{}
}

// End implements partition.Handler.
func (h *handler) End() { h.metrics.Revoked(h.loop.Claim.Topic, h.loop.Claim.Partition) }

// Room implements partition.Handler. The relay reads on if it is time to, or else looks ahead.
func (h *handler) Room() (what partition.Room, wait time.Duration) {
	// Dropped records are read again when a good part of them has room. That is before their
	// release time, because the records that stayed leave first. Urgent ones are all read before
	// any is read once more.
	if h.dropped.any && h.loop.NextOffset() >= h.readTo && h.window.bytes <= h.relay.memory.Share()/4 { //mutant:window-forgets-urgent
		h.loop.FetchFrom(h.dropped.from)
		h.readTo = h.dropped.urgentEnd
		h.dropped, h.nextFetch = dropped{}, time.Time{}
	}
	now := h.o.Now()
	switch {
	case h.mayRead() && !now.Before(h.readAt()):
		h.fetchedAt = now
		return partition.Next, 0
	case !now.Before(h.nextLook):
		h.fetchedAt = now
		return partition.LookAhead, 0
	case h.mayRead() && h.readAt().Before(h.nextLook):
		return partition.Nothing, h.readAt().Sub(now)
	}
	return partition.Nothing, h.nextLook.Sub(now)
}

// mayRead reports whether the loop may read on when readAt says so. What it reads takes the place of
// records that leave later. If the bucket is read at once and its window is full, the window must
// shrink first, unless dropped records are urgent: until then look-aheads read what is new.
func (h *handler) mayRead() bool {
	return !h.dropped.any || !h.readsAtOnce() || h.loop.NextOffset() < h.readTo
}

// readAt returns when to read on: in a bucket whose records may have any time left, at once.
func (h *handler) readAt() time.Time {
	if h.readsAtOnce() {
		return time.Time{}
	}
	return h.nextFetch
}

// dropLatest drops the records with the latest release times from a window that is over
// its share of the memory. They are read again later.
func (h *handler) dropLatest() {
	share := h.relay.memory.Share()
	if h.window.bytes <= share { //mutant:window-bytes-unbounded
		return
	}
	latest := h.window.dropLatest(share / 2)
	if len(latest) > 0 && !h.dropped.any {
		h.loop.Logger.Warn("look-ahead over its memory share, latest records dropped and read again later",
			"share", share, "dropped", len(latest), "kept", h.window.len())
	}
	now := h.o.Now().UnixMilli()
	for _, w := range latest {
		h.drop(&w.record, w.release, h.urgent(&w.record, now))
	}
	h.metrics.windowDropped.WithLabelValues(h.loop.Claim.Topic).Add(float64(len(latest)))
}

// drop notes that a record is not in the window, and must be read again.
func (h *handler) drop(r *wire.RawRecord, release int64, urgent bool) {
	h.loop.Drop(r.Offset)
	h.dropped.add(r.Offset, release, urgent)
}

// Sleep implements partition.Handler.
func (h *handler) Sleep(d time.Duration) time.Duration {
	if head, ok := h.window.head(); ok {
		d = min(d, time.UnixMilli(head.release).Sub(h.o.Now()))
	}
	return d
}
