package closer

import (
	"time"

	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// maxRetriesWaiting and maxRetryBytes bound the records of a partition that wait for
	// an ack of a bucket. Above either bound the orders of further retries wait in memory without
	// the bodies of their records, see keep.
	maxRetriesWaiting = 10_000
	maxRetryBytes     = 4 << 20
)

// retries are the records of a partition that go back to a bucket and are not acked yet.
// Their offsets stay open until the ack. They are appended beside the loop, so that a
// bucket that accepts nothing does not delay due orders. Each append picks the bucket again:
// a relay reads a bucket only as often as a record with the bucket's whole length needs, so
// a record with less time left would be late there. A record whose release time has passed
// goes to no bucket any longer: its order is tried again. They belong to the loop's goroutine.
type retries struct {
	waiting map[string][]wire.RawRecord // by topic, without the records in flight; DueAt is set
	retryAt map[string]time.Time        // by topic: when to try it again; absent: now
	records int                         // waiting and in flight
	bytes   int
}

// add queues a record for a topic.
func (r *retries) add(topic string, record wire.RawRecord) {
	if r.waiting == nil {
		r.waiting, r.retryAt = map[string][]wire.RawRecord{}, map[string]time.Time{}
	}
	r.waiting[topic] = append(r.waiting[topic], record)
	r.count([]wire.RawRecord{record}, 1)
}

// count adds n times the records and their bytes to the totals; n is 1 or -1.
func (r *retries) count(records []wire.RawRecord, n int) {
	for _, record := range records {
		r.records += n
		r.bytes += n * record.Size()
	}
}

// full reports whether a bound is reached.
func (r *retries) full() bool { return r.records >= maxRetriesWaiting || r.bytes >= maxRetryBytes }

// sleep returns how long it takes until a topic is to be tried again, at most d.
func (r *retries) sleep(now time.Time, d time.Duration) time.Duration {
	for topic := range r.waiting {
		d = min(d, max(r.retryAt[topic].Sub(now), 0))
	}
	return d
}

// retry queues a record for the bucket that fits the time until its release.
func (h *handler) retry(record wire.RawRecord) {
	remaining := time.UnixMilli(record.DueAt).Sub(h.o.Clock.Database())
	h.retries.add(h.buckets.Load().Pick(remaining).Topic, record)
}

// retryAgain queues a record that a bucket has not accepted. If its release time has passed, the order is tried again.
func (h *handler) retryAgain(record wire.RawRecord) {
	if time.UnixMilli(record.DueAt).After(h.o.Clock.Database()) {
		h.retry(record)
		return
	}
	h.read(record) //mutant:due-retry-waits
}

// mayKeep reports whether memory has room for one more order that keep is called with.
func (h *handler) mayKeep() bool { return h.buffer.hasRoom(&entry{blocked: true}, h.memory.Share()/2) }

// keep makes an order wait in memory for its next try, because too many records wait for a bucket. It drops the body of the
// record. The closer needs the body again if a bucket accepts records, or if the record becomes a dead letter. Then readAgain reads it.
func (h *handler) keep(e *entry, record wire.Record, retryAt time.Time) {
	m := &e.message
	e.record, e.blocked, e.bare = record, true, true
	e.message = wire.Message{Key: m.Key, Offset: m.Offset, Generation: m.Generation, Appended: m.Appended}
	h.buffer.park(e, retryAt)
}

// readAgain reads the record of an order whose body is not in memory again, and continues with the same tries. If the log
// does not have the record any longer, it counts as lost, and the sweep closes its order.
func (h *handler) readAgain(e *entry) {
	h.buffer.readAgain(e)
	h.loop.Drop(e.message.Offset)
}

// repick queues the records again that wait for topics that may be tried now.
func (h *handler) repick(now time.Time) {
	r := &h.retries
	var records []wire.RawRecord
	for topic, waiting := range r.waiting {
		if !now.Before(r.retryAt[topic]) {
			records = append(records, waiting...)
			delete(r.waiting, topic)
		}
	}
	r.count(records, -1)
	for _, record := range records {
		h.retryAgain(record)
	}
}

// sendRetries starts an append to each topic that has waiting records and may be tried
// now.
func (h *handler) sendRetries() {
	r, now := &h.retries, time.Now()
	h.repick(now) //mutant:retry-keeps-bucket
	for topic, records := range r.waiting {
		if now.Before(r.retryAt[topic]) {
			continue
		}
		delete(r.waiting, topic)
		h.loop.Send(topic, records, h.handleSent) //mutant:retry-waits-bucket
	}
	h.loop.Await()
}

// handleSent processes the result of an append to a bucket. Records that the bucket did
// not accept are queued again.
func (h *handler) handleSent(sent send.Result) {
	for _, acked := range sent.Acked {
		h.retries.count(acked.Records, -1)
	}
	for _, refused := range sent.Refused {
		h.retries.count([]wire.RawRecord{refused.Record}, -1)
	}
	h.retries.count(sent.Left, -1)
	h.retries.retryAt[sent.Topic] = time.Now().Add(sent.Pause)
	for _, record := range sent.Left {
		h.retryAgain(record) //mutant:retry-keeps-bucket
	}
}
