package closer

import (
	"time"

	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// maxRetriesWaiting and maxRetryBytes bound the records of a partition that wait for
	// an ack of a bucket. At either bound the partition is not read on: no bucket accepts records.
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
	waiting []wire.RawRecord // without those in flight; DueAt is set
	at      time.Time        // when to append those that wait
	records int              // waiting and in flight
	bytes   int
}

// count adds n times the records and their bytes to the totals; n is 1 or -1.
func (r *retries) count(records []wire.RawRecord, n int) {
	r.records += n * len(records)
	for _, record := range records {
		r.bytes += n * record.Size()
	}
}

// full reports whether a bound is reached.
func (r *retries) full() bool { return r.records >= maxRetriesWaiting || r.bytes >= maxRetryBytes }

// retry queues a record for a bucket.
func (h *handler) retry(record wire.RawRecord) {
	h.retries.waiting = append(h.retries.waiting, record)
	h.retries.count([]wire.RawRecord{record}, 1)
}

// sendRetries appends the waiting records, each to the bucket that fits the time until its release, or to another one while that one fails.
// If the release time has passed, the order is tried again.
func (h *handler) sendRetries() {
	r := &h.retries
	if time.Now().Before(r.at) {
		return
	}
	waiting, topics, buckets, now := r.waiting, map[string][]wire.RawRecord{}, *h.buckets.Load(), h.o.Clock.Time()
	r.waiting = nil
	for _, record := range waiting {
		left := time.UnixMilli(record.DueAt).Sub(now)
		if left <= 0 {
			r.count([]wire.RawRecord{record}, -1)
			h.read(record) //mutant:due-retry-waits
			continue
		}
		to := h.loop.Accepting(buckets, buckets.Pick(left).Topic)
		topics[to] = append(topics[to], record)
	}
	for topic, records := range topics {
		h.loop.SendUntilDue(now, topic, records, func(sent send.Result) { //mutant:retry-waits-bucket
			r.count(records, -1)
			h.retryAgain(sent)
		})
	}
	h.loop.Await()
}

// retryAgain queues the records that a bucket has not accepted. They wait for its pause, and no longer than until the first release.
func (h *handler) retryAgain(sent send.Result) {
	if len(sent.Left) > 0 {
		h.retries.at = time.Now().Add(sent.Pause)
	}
	for _, record := range sent.Left {
		if release := time.Now().Add(time.UnixMilli(record.DueAt).Sub(h.o.Clock.Time())); release.Before(h.retries.at) {
			h.retries.at = release
		}
		h.retry(record)
	}
}
