package closer

import (
	"container/heap"
	"time"

	"orderclose"
)

const (
	// DefaultBufferBytes bounds what the partitions of a process keep in memory: 2.7 MB
	// for each of 12 partitions of the close topic and 12 of the replay topic, which is
	// what two fetches of small records take.
	DefaultBufferBytes = 64 << 20
	// maxParked bounds the parked orders of a partition. With many more, the runs of
	// closed orders between them do not fit into the metadata of a commit (4,000 bytes).
	maxParked = 10_000
	// readAhead is how many records wait in a partition, and one fetch, while the store
	// is unavailable.
	readAhead = 500
	// leastAhead is how many of them wait however large they are.
	leastAhead = 10
	// entryBytes is what an entry takes beside its message.
	entryBytes = 400
)

// entry is a record on its way through the loop.
type entry struct {
	message orderclose.Message
	record  orderclose.Record // without the order's attributes; see encode
	readAt  time.Time
	until   time.Time // when parked: when to try again
	blocked bool      // it was parked because another transaction held a row, or without a verdict
	paused  bool      // it was parked because it keeps coming too soon
}

// newEntry decodes a record. Attributes take many times the memory of their JSON, and
// are decoded again if they are needed.
func newEntry(r orderclose.RawRecord, now time.Time) (*entry, error) {
	m, err := r.Message()
	if err != nil {
		return nil, err
	}
	record, err := m.Decode()
	record.Order.Attributes = nil
	return &entry{message: m, record: record, readAt: now}, err
}

// encode returns the message of a record that is made of the entry's.
func (e *entry) encode(r orderclose.Record) (orderclose.Message, error) {
	whole, err := e.message.Decode()
	if err != nil {
		return orderclose.Message{}, err
	}
	r.Order.Attributes = whole.Order.Attributes
	return r.Encode()
}

// size is roughly what the entry keeps in memory, in bytes.
func (e *entry) size() int { return entryBytes + e.message.Size() }

// buffer holds what a loop has read and not settled, but for the batch that is being
// tried. What one call costs does not depend on how many orders are parked. It belongs
// to the loop.
type buffer struct {
	queue       []*entry // to be tried now, in the order of the log; what was put off comes last
	parked      byUntil  // not due yet by less than parkLimit, or contended
	queueBytes  int
	parkedBytes int
}

// add queues entries to be tried now.
func (b *buffer) add(entries ...*entry) {
	for _, e := range entries {
		b.queueBytes += e.size()
	}
	b.queue = append(b.queue, entries...)
}

// park has an entry tried again at a later time.
func (b *buffer) park(e *entry, until time.Time) {
	e.until = until
	b.parkedBytes += e.size()
	heap.Push(&b.parked, e)
}

// hasRoom reports whether an order may be parked within so many bytes. An order that
// was blocked before, and so for 3 s at least, gets half of them: there is room left for
// orders that are blocked for a moment.
func (b *buffer) hasRoom(e *entry, bytes int) bool {
	records := maxParked
	if e.blocked {
		records, bytes = records/2, bytes/2
	}
	return len(b.parked) < records && b.parkedBytes+e.size() <= bytes
}

// wantsMore reports whether to read on: once all that was read was tried. While the
// store is unavailable a little is read ahead, within so many bytes: another order's
// close may tell whether it is the store, or one of those that were put off.
func (b *buffer) wantsMore(unavailable bool, bytes int) bool {
	n := len(b.queue)
	return n == 0 || unavailable && n < readAhead && (n < leastAhead || b.queueBytes < bytes)
}

// next removes and returns what can be tried now, most entries at most: queued ones and
// parked ones whose time has come, half of each if there are more. Rows that somebody
// holds bring the same orders back every few seconds; they must not keep out what is due
// now, nor the other way round.
func (b *buffer) next(now time.Time, most int) []*entry {
	var ready []*entry
	for len(ready) < most && len(b.parked) > 0 && !now.Before(b.parked[0].until) {
		ready = append(ready, heap.Pop(&b.parked).(*entry))
	}
	n := min(len(b.queue), max(most-len(ready), (most+1)/2))
	batch := append(make([]*entry, 0, n+len(ready)), b.queue[:n]...)
	clear(b.queue[:n]) // let go of them
	b.queue = b.queue[n:]
	for _, e := range batch {
		b.queueBytes -= e.size()
	}
	fitting := min(len(ready), most-n)
	for _, e := range ready[:fitting] {
		b.parkedBytes -= e.size()
	}
	for _, e := range ready[fitting:] {
		heap.Push(&b.parked, e)
	}
	return append(batch, ready[:fitting]...)
}

// wake is how long it takes until the first of the parked orders is to be tried again,
// if that is less than d.
func (b *buffer) wake(now time.Time, d time.Duration) time.Duration {
	if len(b.parked) > 0 {
		d = min(d, b.parked[0].until.Sub(now))
	}
	return d
}

// byUntil is a heap of entries: the one that is to be tried first comes first, ties in
// the order of the log.
type byUntil []*entry

func (h byUntil) Len() int      { return len(h) }
func (h byUntil) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h byUntil) Less(i, j int) bool {
	if c := h[i].until.Compare(h[j].until); c != 0 {
		return c < 0
	}
	return h[i].message.Offset < h[j].message.Offset
}
func (h *byUntil) Push(e any) { *h = append(*h, e.(*entry)) }
func (h *byUntil) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil // let go of it
	*h = (*h)[:last]
	return e
}
