package closer

import (
	"container/heap"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// DefaultBufferBytes bounds the orders that all partitions of a process keep in
	// memory: 5.6 MB for each of 12 partitions of the close topic. Four fetches of small records
	// take as much.
	DefaultBufferBytes = 64 << 20
	// maxParked bounds the parked orders of a partition. With many more, the runs of
	// closed orders between them do not fit into the metadata of a commit (4,000 bytes).
	maxParked = 10_000
	// readAhead is how many records may wait in a partition before the next fetch while
	// the store is unavailable.
	readAhead = 500
	// minReadAhead is how many of these records may wait whatever their size.
	minReadAhead = 10
	// entryBytes is the size of an entry without its message.
	entryBytes = 400
)

// entry is a record that the loop has read and not settled.
type entry struct {
	raw     wire.RawRecord // decoded again when its headers or attributes are needed: they take many times its bytes
	record  wire.Record    // without the order's attributes; see encode
	readAt  time.Time
	retryAt time.Time // if parked: when to try again
	// blocked: it is parked because of a locked row, a pause, a missing verdict, a clock that may be
	// wrong, or because no bucket accepts records. The other parked orders are due in the next seconds.
	blocked bool
}

// encode returns r as a message, with the attributes of the entry's order.
func (e *entry) encode(r wire.Record) (wire.Message, error) {
	m, err := e.raw.View()
	if err != nil {
		return wire.Message{}, err
	}
	whole, err := m.Decode()
	if err != nil {
		return wire.Message{}, err
	}
	r.Order.Attributes = whole.Order.Attributes
	return r.Encode()
}

// size is roughly how much memory the entry takes, in bytes.
func (e *entry) size() int { return entryBytes + e.raw.Size() + len(e.record.Order.Category) }

// buffer holds the records that a loop has read and not settled, without the batch that
// is being closed. The cost of a call does not depend on the number of parked orders. The
// buffer belongs to the loop's goroutine.
type buffer struct {
	queue       []*entry  // to close now, in log order; requeued entries are last
	parked      byRetryAt // to close at their retryAt: nearly due, or blocked; see entry
	queueBytes  int
	parkedBytes int
}

// entry decodes a record without the attributes: they take many times the memory of their JSON, and encode decodes them when they are
// needed.
func (b *buffer) entry(r wire.RawRecord, now time.Time) (*entry, error) {
	m, err := r.View()
	if err != nil {
		return nil, err
	}
	record, err := m.DecodeWithoutAttributes()
	return &entry{raw: r.Clone(), record: record, readAt: now}, err
}

// add queues entries to be closed now.
func (b *buffer) add(entries ...*entry) {
	for _, e := range entries {
		b.queueBytes += e.size()
	}
	b.queue = append(b.queue, entries...)
}

// park keeps an entry until it is tried again at retryAt.
func (b *buffer) park(e *entry, retryAt time.Time) {
	e.retryAt = retryAt
	b.parkedBytes += e.size()
	heap.Push(&b.parked, e)
}

// hasRoom reports whether the entry may be parked within the given bytes. An order that
// was already blocked when it was parked before may only use half of them. The rest stays
// free for orders that wait only once.
func (b *buffer) hasRoom(e *entry, bytes int) bool {
	records := maxParked
	if e.blocked {
		records, bytes = records/2, bytes/2
	}
	return len(b.parked) < records && b.parkedBytes+e.size() <= bytes //mutant:parked-records-unbounded,parked-bytes-unbounded
}

// wantsMore reports whether to fetch more records. Normally the queue must be empty.
// While the store is unavailable the loop reads a little ahead, within the given
// bytes: closing another order may show whether the store or one of the requeued orders
// is at fault.
func (b *buffer) wantsMore(unavailable bool, bytes int) bool {
	n := len(b.queue)
	return n == 0 || unavailable && n < readAhead && (n < minReadAhead || b.queueBytes < bytes)
}

// next removes and returns at most limit entries to close now: queued entries, and parked
// entries whose time has come. If there are more of both, each kind gets half. Orders with
// locked rows return every few seconds. They must not keep out orders that are due now, and
// orders that are due now must not keep them out.
func (b *buffer) next(now time.Time, limit int) []*entry {
	var ready []*entry
	for len(ready) < limit && len(b.parked) > 0 && !now.Before(b.parked[0].retryAt) {
		ready = append(ready, heap.Pop(&b.parked).(*entry))
	}
	n := min(len(b.queue), max(limit-len(ready), (limit+1)/2)) //mutant:locked-rows-first
	batch := append(make([]*entry, 0, n+len(ready)), b.queue[:n]...)
	clear(b.queue[:n]) // so that the entries can be freed
	b.queue = b.queue[n:]
	for _, e := range batch {
		b.queueBytes -= e.size()
	}
	fitting := min(len(ready), limit-n)
	for _, e := range ready[:fitting] {
		b.parkedBytes -= e.size()
	}
	for _, e := range ready[fitting:] {
		heap.Push(&b.parked, e)
	}
	return append(batch, ready[:fitting]...)
}

// wake returns how long it takes until the first parked order is to be tried again, at
// most d.
func (b *buffer) wake(now time.Time, d time.Duration) time.Duration {
	if len(b.parked) > 0 {
		d = min(d, b.parked[0].retryAt.Sub(now))
	}
	return d
}

// byRetryAt is a heap of entries by retryAt, ties by offset.
type byRetryAt []*entry

func (h byRetryAt) Len() int      { return len(h) }
func (h byRetryAt) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h byRetryAt) Less(i, j int) bool {
	if c := h[i].retryAt.Compare(h[j].retryAt); c != 0 {
		return c < 0
	}
	return h[i].raw.Offset < h[j].raw.Offset
}
func (h *byRetryAt) Push(e any) { *h = append(*h, e.(*entry)) }
func (h *byRetryAt) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil // so that the entry can be freed
	*h = (*h)[:last]
	return e
}
