package closer

import (
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

const (
	// maxRetriesWaiting and maxRetryBytes bound the records of a partition that are to go
	// through a bucket and are not acked: with more the partition is not read on.
	maxRetriesWaiting = 10_000
	maxRetryBytes     = 4 << 20
)

// retries are records of a partition that go through a bucket again and are not acked yet.
// Until then their offsets stay open. They are appended beside the loop, so that a bucket
// that accepts nothing holds up no order that is due. They belong to the loop.
type retries struct {
	waiting map[string][]orderclose.RawRecord // by topic, not under way
	records int                               // waiting and under way
	bytes   int
	wake    time.Time // when to try a topic again
}

// add has a record appended to a topic.
func (r *retries) add(topic string, record orderclose.RawRecord) {
	if r.waiting == nil {
		r.waiting = map[string][]orderclose.RawRecord{}
	}
	r.waiting[topic] = append(r.waiting[topic], record)
	r.count([]orderclose.RawRecord{record}, 1)
}

// count adds records to those that are not acked yet, or takes them away.
func (r *retries) count(records []orderclose.RawRecord, n int) {
	for _, record := range records {
		r.records += n
		r.bytes += n * record.Size()
	}
}

// full reports whether so many records wait that no more should be read.
func (r *retries) full() bool { return r.records >= maxRetriesWaiting || r.bytes >= maxRetryBytes }

// sleep is how long it takes until a topic is to be tried again, if that is less than d.
func (r *retries) sleep(now time.Time, d time.Duration) time.Duration {
	if len(r.waiting) > 0 {
		d = min(d, r.wake.Sub(now))
	}
	return d
}

// sendRetries begins to append what waits, to each topic that may be tried now.
func (l *loop) sendRetries() {
	r := &l.retries
	r.wake = time.Now().Add(time.Hour)
	for topic, records := range r.waiting {
		wait, ok := l.out.Send(topic, records, func(sent partition.SendResult) { l.retried(records, sent) })
		if ok {
			delete(r.waiting, topic)
		} else if at := time.Now().Add(wait); at.Before(r.wake) {
			r.wake = at
		}
	}
	l.out.Await()
}

// retried notes what became of records that were appended to a bucket. What the bucket
// did not accept is tried again.
func (l *loop) retried(records []orderclose.RawRecord, sent partition.SendResult) {
	l.retries.count(records, -1)
	for _, acked := range sent.Acked {
		l.mark.Arrived(acked.Records)
	}
	for _, record := range sent.Left {
		l.retries.add(sent.Topic, record)
	}
	if at := time.Now().Add(sent.Pause); len(sent.Left) > 0 && at.Before(l.retries.wake) {
		l.retries.wake = at
	}
}
