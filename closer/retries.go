package closer

import (
	"time"

	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// maxRetriesWaiting and maxRetryBytes bound the records of a partition that wait for
	// an ack of a bucket. Above either bound the partition is not read on.
	maxRetriesWaiting = 10_000
	maxRetryBytes     = 4 << 20
)

// retries are the records of a partition that go back to a bucket and are not acked yet.
// Their offsets stay open until the ack. They are appended beside the loop, so that a
// bucket that accepts nothing does not delay due orders. They belong to the loop's
// goroutine.
type retries struct {
	waiting map[string][]wire.RawRecord // by topic, without the records in flight
	records int                         // waiting and in flight
	bytes   int
	wake    time.Time // when to try a topic again
}

// add queues a record for a topic.
func (r *retries) add(topic string, record wire.RawRecord) {
	if r.waiting == nil {
		r.waiting = map[string][]wire.RawRecord{}
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

// full reports whether a bound is reached, so that nothing more should be read.
func (r *retries) full() bool { return r.records >= maxRetriesWaiting || r.bytes >= maxRetryBytes }

// sleep returns how long it takes until a topic is to be tried again, at most d.
func (r *retries) sleep(now time.Time, d time.Duration) time.Duration {
	if len(r.waiting) > 0 {
		d = min(d, r.wake.Sub(now))
	}
	return d
}

// sendRetries starts an append to each topic that has waiting records and may be tried
// now.
func (h *handler) sendRetries() {
	r := &h.retries
	r.wake = time.Now().Add(time.Hour)
	for topic, records := range r.waiting {
		wait, ok := h.Send(topic, records, func(sent partition.SendResult) { h.handleSent(records, sent) })
		if ok {
			delete(r.waiting, topic)
		} else if at := time.Now().Add(wait); at.Before(r.wake) {
			r.wake = at
		}
	}
	h.Await()
}

// handleSent processes the result of an append to a bucket. Records that the bucket did
// not accept are queued again.
func (h *handler) handleSent(records []wire.RawRecord, sent partition.SendResult) {
	h.retries.count(records, -1)
	for _, acked := range sent.Acked {
		h.DoneAll(acked.Records)
	}
	for _, record := range sent.Left {
		h.retries.add(sent.Topic, record)
	}
	if at := time.Now().Add(sent.Pause); len(sent.Left) > 0 && at.Before(h.retries.wake) {
		h.retries.wake = at
	}
}
