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

// rests reports whether a topic is not to be tried yet.
func (r *retries) rests(topic string, now time.Time) bool { return now.Before(r.retryAt[topic]) }

// sleep returns how long it takes until a topic is to be tried again, at most d.
func (r *retries) sleep(now time.Time, d time.Duration) time.Duration {
	for topic := range r.waiting {
		d = min(d, max(r.retryAt[topic].Sub(now), 0))
	}
	return d
}

// retry queues a record for the bucket that fits the time until its release. If that one accepts nothing, the record goes to the longest
// shorter one that does, from which a relay moves it on.
func (h *handler) retry(record wire.RawRecord) {
	remaining, buckets := time.UnixMilli(record.DueAt).Sub(h.o.Clock.Time()), *h.buckets.Load()
	fits := buckets.Pick(remaining)
	topic := fits.Topic
	if !h.accepts(topic) {
		for _, b := range buckets {
			if b.Length < fits.Length && h.accepts(b.Topic) { //mutant:retry-keeps-waiting
				topic = b.Topic
			}
		}
	}
	h.retries.add(topic, record)
}

// accepts reports whether a bucket accepts records, as far as is known. After each rest one record tries a bucket that has failed.
func (h *handler) accepts(topic string) bool {
	return !h.loop.Failing(topic) || !h.retries.rests(topic, time.Now()) && len(h.retries.waiting[topic]) == 0
}

// retryAgain queues a record that a bucket has not accepted. If its release time has passed, the order is tried again.
func (h *handler) retryAgain(record wire.RawRecord) {
	if time.UnixMilli(record.DueAt).After(h.o.Clock.Time()) {
		h.retry(record)
		return
	}
	h.read(record) //mutant:due-retry-waits
}

// repick queues the records again that wait for topics that may be tried now.
func (h *handler) repick(now time.Time) {
	r := &h.retries
	var records []wire.RawRecord
	for topic, waiting := range r.waiting {
		if !r.rests(topic, now) {
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
		if r.rests(topic, now) {
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
