package delayrelay

import (
	"time"

	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/wire"
)

// compareClocks compares the clock of who created the order of a record with that of the broker, if it is the order's first record.
func (h *handler) compareClocks(r *wire.RawRecord) {
	if h.o.Skews == nil {
		return
	}
	appended := r.AppendedAt()
	created, ok := wire.QuickCreated(r.Value())
	if ok && (clock.Agree(created, appended) || !h.mayBeFirst(created, time.UnixMilli(r.DueAt), appended)) {
		return
	}
	m, err := r.Message()
	if err != nil {
		return
	}
	record, err := m.DecodeWithoutAttributes()
	if o := record.Order; err == nil && record.IsFirst() && h.mayBeFirst(o.CreatedAt, o.Due, appended) {
		h.o.Skews.Compare(clock.AtRelay, o, appended)
	}
}

// mayBeFirst reports whether a record cannot have come from another bucket, or from this one. A new order goes into the bucket for its
// whole delay, and a hop into one for a lesser time, unless both are the largest bucket.
func (h *handler) mayBeFirst(created, due, appended time.Time) bool {
	buckets, delay := h.relay.current.Load().Buckets, due.Sub(created)
	if buckets.Pick(delay).Topic != h.loop.Claim.Topic {
		return false
	}
	hopped := appended.Sub(created) >= h.bucket.Length-h.bucket.Tolerance()
	return !hopped || buckets.Pick(delay-h.bucket.Length).Topic != h.loop.Claim.Topic
}
