package delayrelay

import (
	"math"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/wire"
)

// maxReleaseBytes bounds one batch of released records, about. Offsets are committed after
// each batch, so that commits go on during a burst.
const maxReleaseBytes = 4 << 20

// handler forwards the records of one partition of one bucket. Its fields belong to the
// goroutine of the partition's loop. Each turn fetches records if it is time to fetch, and
// releases the records whose release time has come.
type handler struct {
	*partition.Loop
	o       *Options
	metrics *relayMetrics
	relay   *Relay
	bucket  orderclose.Bucket

	window    window
	bodyPool  bodyPool
	batches   []*batch        // empty; kept to reuse their memory
	lateness  []time.Duration // likewise
	free      func()          // frees the memory of the last fetch
	clock     clock
	nextFetch time.Time // when to fetch again
	fetchedAt time.Time // when the last fetch began
	full      bool      // the window was over its share and its dropped records are not read again yet
	rewind    int64     // the lowest offset that was dropped from the window, or noRewind
}

// lookBackSlack is added to the bucket's length when a log lost its end at an unknown place.
// Records that were appended in that time are read again: clocks differ, and a record may be
// late. Older records have left, or the sweep closes their orders.
const lookBackSlack = time.Minute

// noRewind means that no record was dropped.
const noRewind = math.MaxInt64

func (r *Relay) newHandler(b orderclose.Bucket, l *partition.Loop) partition.Handler {
	l.SetLookBack(b.Length + lookBackSlack)
	r.metrics.Serve(l.Claim.Topic)
	return &handler{Loop: l, o: &r.o, metrics: r.metrics, relay: r, bucket: b, rewind: noRewind}
}

// Turn implements partition.Handler.
func (h *handler) Turn() {
	h.handleClockStep()
	h.Fetch() // runs while due records are appended
	h.releaseDue()
	if h.Ctx.Err() == nil {
		h.freeFetched()
		h.report()
	}
}

// Handle implements partition.Handler. It puts the records into the window. Records whose
// release time has come leave right after, from the fetch's memory. The bodies of the others
// are copied.
func (h *handler) Handle(f wire.Fetched) {
	h.free = f.Free
	if f.DriftedAppend > 0 {
		h.metrics.Drifted(h.Claim.Topic, f.DriftedAppend)
	}
	if n := len(f.Records); n > 0 {
		h.nextFetch = nextFetch(h.bucket, h.readsAtOnce(), f.Records[n-1].AppendedAt(), h.o.Now())
	} else {
		h.window.trim() // a quiet partition keeps no spare memory
		h.batches, h.lateness = nil, nil
		if f.AtEnd {
			h.nextFetch = nextIdleFetch(h.bucket, h.readsAtOnce(), h.fetchedAt, h.o.Now())
		}
	}
	now := h.o.Now().UnixMilli()
	ready := f.Records[:0]
	for i := range f.Records {
		r := &f.Records[i]
		due, replay, err := r.Route()
		if err != nil {
			h.DeadLetterUnreadable(*r, err)
			continue
		}
		r.DueAt, r.Replay = due, replay
		if mispicked(h.bucket, h.readsAtOnce(), due, r.Appended) {
			h.metrics.Mispicked(h.Claim.Topic)
		}
		release := releaseTime(h.bucket, h.readsAtOnce(), due, h.clock.appended(r.Appended), now)
		if release <= now {
			ready = append(ready, *r)
			continue
		}
		w := waiting{*r, release}
		w.record.Body = h.bodyPool.copy(r.Body)
		h.window.push(w)
	}
	h.window.addReady(ready)
	h.dropLatest()
	h.report() // before the appends, which may take seconds
}

// Reset implements partition.Handler. The sweep that follows the loss closes the orders of
// the old log.
func (h *handler) Reset() { h.window, h.rewind, h.nextFetch = window{}, noRewind, time.Time{} }

// End implements partition.Handler.
func (h *handler) End() { h.metrics.Revoked(h.Claim.Topic, h.Claim.Partition) }

// Fetch implements partition.Handler. It fetches if it is time to fetch. Otherwise it
// sometimes verifies that the log was not replaced.
func (h *handler) Fetch() {
	if h.DeadLettersFull() || h.Fetching() {
		return
	}
	if h.rewind != noRewind {
		// Dropped records are read again when a good part of them has room. That is
		// before their release time, because the records that stayed leave first.
		if h.window.bytes > h.relay.memory.Share()/4 {
			h.VerifyLog()
			return
		}
		h.FetchFrom(h.rewind)
		h.rewind, h.nextFetch, h.full = noRewind, time.Time{}, false
	}
	if h.readsAtOnce() { // SetBuckets may have made the bucket the smallest since
		h.nextFetch = time.Time{}
	}
	if now := h.o.Now(); now.Before(h.nextFetch) {
		h.VerifyLog()
	} else {
		h.fetchedAt = now
		h.FetchMore()
	}
}

// dropLatest drops the records with the latest release times from a window that is over
// its share of the memory. They are read again later.
func (h *handler) dropLatest() {
	share := h.relay.memory.Share()
	if h.window.bytes <= share {
		return
	}
	dropped := h.window.dropLatest(share / 2)
	for _, w := range dropped {
		h.Drop(w.record.Offset)
		h.rewind = min(h.rewind, w.record.Offset)
	}
	h.metrics.WindowDropped(h.Claim.Topic, len(dropped))
	if !h.full && len(dropped) > 0 {
		h.full = true
		h.Logger.Warn("look-ahead over its memory share, latest records dropped and read again later",
			"share", share, "dropped", len(dropped), "kept", h.window.len())
	}
}

// Sleep implements partition.Handler.
func (h *handler) Sleep(d time.Duration) time.Duration {
	now := h.o.Now()
	if head, ok := h.window.head(); ok {
		d = min(d, time.UnixMilli(head.release).Sub(now))
	}
	if !h.Fetching() && h.rewind == noRewind && !h.DeadLettersFull() {
		d = min(d, h.nextFetch.Sub(now))
	}
	return d
}
