package delayrelay

import (
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/wire"
)

// maxReleaseBytes bounds one batch of records that the window releases, about. Offsets are committed
// after each batch, so that commits go on during a burst.
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
	ready    []wire.RawRecord // records of the last fetch that leave in this turn; they and their bodies are in its memory
	fetched  *fetched         // the memory of the last fetch; nil: this turn needs it no more
	flights  map[*flight]bool // what is being appended
	reading  reading          // when to read
	full     bool             // the window had no room when the loop asked last
	used     int              // the bytes of the window that the relay's memory counts
	ahead    time.Duration    // how far the relay's clock is ahead of that of the partition's leader, by the last hop into the partition
}

func (r *Relay) newHandler(b orderclose.Bucket, l *partition.Loop) partition.Handler {
	r.metrics.Serve(l.Claim.Topic)
	return &handler{loop: l, o: &r.o, metrics: r.metrics, relay: r, bucket: b, flights: map[*flight]bool{}}
}

// Turn implements partition.Handler.
func (h *handler) Turn() {
	h.releaseDue()
	if h.loop.Ctx.Err() != nil {
		return
	}
	h.fetched.release() // the records that stay, and dead letters, have copies
	h.fetched = nil
	h.report()
}

// Handle implements partition.Handler. A record whose release time has come leaves right after, from the fetch's memory. Others wait in
// the window, with copies of their bodies.
func (h *handler) Handle(f wire.Fetched) {
	v := h.view()
	h.fetched, h.reading = &fetched{f.Free, 1}, h.reading.after(f, v)
	h.metrics.drifted.WithLabelValues(h.loop.Claim.Topic).Add(float64(f.DriftedAppend))
	if len(f.Records) == 0 {
		h.window.taken = nil // a quiet partition keeps no spare memory
	}
	h.ready = f.Records[:0]
	for i := range f.Records {
		r := &f.Records[i]
		release, err := v.plan(r)
		if err == nil {
			h.compareClocks(r)
		}
		switch {
		case err != nil:
			h.loop.DeadLetterUnreadable(*r, err) //mutant:unreadable-dropped
		case release <= v.now.UnixMilli():
			h.ready = append(h.ready, *r)
		default:
			h.stay(*r, release)
		}
	}
	h.report() // before the appends, which may take seconds
}

// now returns the time by which records are due.
func (h *handler) now() time.Time { return h.o.Clock.Time() } //mutant:relay-local-clock

// view returns what reads and records are decided by now.
func (h *handler) view() view {
	return view{bucket: h.bucket, atOnce: h.readsAtOnce(), now: h.now(), ahead: h.ahead, full: h.relay.memory.Full(h.bytes())}
}

// bytes is the memory of the records that wait or are being appended.
func (h *handler) bytes() int {
	n := h.window.bytes
	for f := range h.flights {
		n += f.bytes
	}
	return n
}

// End implements partition.Handler.
func (h *handler) End() {
	h.relay.memory.Use(-h.used)
	h.metrics.Revoked(h.loop.Claim.Topic, h.loop.Claim.Partition)
}

// Room implements partition.Handler. The relay reads on if it is time to.
func (h *handler) Room() (room bool, wait time.Duration) {
	v := h.view()
	if v.full && !h.full {
		h.loop.Logger.Warn("the window is full, reading on after records have left", "bytes", h.window.bytes, "records", len(h.window.heap))
	}
	h.full = v.full
	room, wait, h.reading = h.reading.next(v)
	return room, wait
}

// Sleep implements partition.Handler.
func (h *handler) Sleep(d time.Duration) time.Duration {
	if head, ok := h.window.head(); ok {
		d = min(d, time.UnixMilli(head.release).Sub(h.now()))
	}
	return d
}
