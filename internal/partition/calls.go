package partition

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// FetchMore starts a fetch, unless one is in flight. Handle gets its records.
func (l *Loop) FetchMore() { l.reader.Start() }

// Fetching reports whether a fetch is in flight.
func (l *Loop) Fetching() bool { return l.reader.Busy() }

// FetchFrom makes FetchMore read again from the offset of a dropped record on. No fetch may be
// in flight.
func (l *Loop) FetchFrom(offset int64) { l.reader.Rewind(offset) }

// NextOffset returns the offset from which FetchMore reads.
func (l *Loop) NextOffset() int64 { return l.reader.Next() }

// LookAhead starts a fetch of the records that were appended since the last fetch or look-ahead,
// unless a fetch is in flight. It does not wait for records. A handler that will not call
// FetchMore for long sees in this way which of them cannot wait, and that the log was not
// replaced. Handle gets all of them.
func (l *Loop) LookAhead() { l.reader.LookAhead() }

// Take notes that a record of a look-ahead is processed now, and not when it is read again. It
// returns false if the record is in process, or done, already.
func (l *Loop) Take(offset int64) bool { return l.committer.Take(offset) }

// SetLookBack limits which records are read again from a log that lost its end, if it is unknown
// how much was lost: those that were appended within this time. Zero means all records. Call it
// before the first fetch.
func (l *Loop) SetLookBack(d time.Duration) { l.reader.LookBack = d }

// Done marks a record as done. A record of a log that was replaced meanwhile is ignored.
func (l *Loop) Done(generation uint32, offset int64) { l.committer.Done(generation, offset) }

// DoneAll marks acked records as done.
func (l *Loop) DoneAll(records []wire.RawRecord) { l.committer.DoneAll(records) }

// Drop notes that a record is no longer in memory: it is passed to Handle again when it is
// fetched again.
func (l *Loop) Drop(offset int64) { l.committer.Drop(offset) }

// Current reports whether a record with this generation is of the log that is read now.
func (l *Loop) Current(generation uint32) bool { return l.committer.Current(generation) }

// Commit commits what is done, if the last commit was at least 200 ms ago. The loop does so in
// each iteration. A handler calls it in an iteration that takes long.
func (l *Loop) Commit() { l.committer.Commit(time.Now(), false) }

// StillAssigned reports whether the partition is still assigned to this process, as far as
// that can be known. The loop checks it after each event. A handler checks it again before it
// appends in an iteration that takes long.
func (l *Loop) StillAssigned() bool { return l.out.StillAssigned() }

// DeadLetter gives a record up. It becomes done when its dead letter is acked. cause is a word
// for metrics, detail a sentence for an operator.
func (l *Loop) DeadLetter(m wire.Message, cause, detail string) { l.out.DeadLetter(m, cause, detail) }

// DeadLetterRaw is DeadLetter for a record that was not decoded.
func (l *Loop) DeadLetterRaw(r wire.RawRecord, cause, detail string) {
	l.out.DeadLetterRaw(r, cause, detail)
}

// DeadLetterUnreadable is DeadLetter for a record that cannot be decoded.
func (l *Loop) DeadLetterUnreadable(r wire.RawRecord, err error) { l.out.DeadLetterUnreadable(r, err) }

// DeadLettersFull reports whether so many dead letters wait for their acks that the handler
// must not fetch.
func (l *Loop) DeadLettersFull() bool { return l.out.Full() }

// Send starts to append records to a topic; see Senders.Send.
func (l *Loop) Send(topic string, records []wire.RawRecord, then func(SendResult)) (wait time.Duration, ok bool) {
	return l.out.Send(topic, records, then)
}

// SendNow appends records to a topic and waits for the result, MaxSendTime at most.
func (l *Loop) SendNow(topic string, records []wire.RawRecord) SendResult {
	return l.out.SendNow(topic, records)
}

// SendParts sends to each partition of a topic on its own; see Senders.SendParts.
func (l *Loop) SendParts(topic string, records []wire.RawRecord, then func(SendResult)) bool {
	return l.out.SendParts(topic, records, then)
}

// Await waits up to 100 ms for the results of Send.
func (l *Loop) Await() { l.out.Await() }

// Failing reports whether the last append to a topic left records.
func (l *Loop) Failing(topic string) bool { return l.out.Failing(topic) }

// FailingSince returns since when a topic has not accepted all records that were sent to it: the
// earliest such time of all topics, or zero if there is none.
func (l *Loop) FailingSince() time.Time { return l.out.FailingSince() }

// Beat shows that the loop is alive. The loop does so in each iteration. A handler calls it while
// an iteration waits for something that has a time limit.
func (l *Loop) Beat() { l.pulse.Beat() }

// Go runs work in a goroutine of its own. Afterwards the loop calls then. The context of work
// ends LingerTime after the claim, and work must return soon after that. When the claim ends,
// the loop waits for work, and still calls then.
func (l *Loop) Go(work func(ctx context.Context), then func()) {
	l.running++
	go func() {
		ctx, cancel := retry.Linger(l.Ctx, retry.LingerTime)
		work(ctx)
		cancel()
		l.results <- then
	}()
}
