package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// deadLetterRetryPause is the pause after the dead-letter topic refused dead letters.
	deadLetterRetryPause = 5 * time.Second
	// maxDeadLetters and maxDeadLetterBytes bound the dead letters of a claim that are in
	// memory, waiting or in flight. At either bound the claim is not read on. The dead
	// letters of one fetch may come on top. A thousand small dead letters take 300 KB;
	// one of the largest takes 130 KB.
	maxDeadLetters     = 1000
	maxDeadLetterBytes = 4 << 20
)

// Causes of dead letters that several stages use.
const (
	CauseUnreadable = "unreadable"  // a record cannot be decoded, or an outbox row cannot be made into a record
	CauseRefused    = "refused"     // Kafka rejects the record for good: it is too large or invalid
	CauseCorrupt    = "corrupt"     // a broker cannot return the records
	CauseDueTooFar  = "due_too_far" // the due time is further ahead than wire.MaxDelayLimit
)

// sharedCauses returns the causes that several stages use.
func sharedCauses() []string {
	causes := []string{CauseUnreadable, CauseRefused, CauseCorrupt, CauseDueTooFar}
	for _, reason := range wire.Reasons() {
		causes = append(causes, reason.Error())
	}
	return causes
}

// UnreadableCause returns the cause of the dead letter of an unreadable record or outbox row. err
// says why it is unreadable. The cause is the reason of a wire.RecordError, or CauseUnreadable
// for any other error.
func UnreadableCause(err error) string {
	if bad := (*wire.RecordError)(nil); errors.As(err, &bad) {
		return bad.Reason.Error()
	}
	return CauseUnreadable
}

// NewDeadLetter returns the record that is appended to the dead-letter topic for m. It keeps
// the offset of m, by which its ack is recognized. m.Topic and m.Partition say where m came from.
func NewDeadLetter(m wire.Message, stage, cause, detail string) wire.RawRecord {
	dead := wire.DeadLetter(m, stage, cause, detail)
	dead.Offset = m.Offset
	return dead.Raw()
}

// deadLetters are the dead letters of a loop that are not acked. Their topic may be missing or full,
// and delays no other record. Until a dead letter is acked its offset stays open.
type deadLetters struct {
	waiting []wire.RawRecord
	records int       // waiting and in flight
	bytes   int       // their size
	retryAt time.Time // no append begins before this time
}

// full reports whether a bound is reached, so that nothing more should be read.
func (d *deadLetters) full() bool {
	return d.records >= maxDeadLetters || d.bytes >= maxDeadLetterBytes //mutant:dead-records-unbounded,dead-bytes-unbounded
}

// acked notes that dead letters are in their topic.
func (d *deadLetters) acked(letters []wire.RawRecord) {
	d.records -= len(letters)
	for _, r := range letters {
		d.bytes -= r.Size()
	}
}

// DeadLetter gives a record up: it makes a dead letter of m, logs it and counts it. m becomes done when
// the dead letter is acked. cause is a word for metrics, detail a sentence for an operator. A stage
// without dead letters only logs that m is skipped.
func (l *Loop) DeadLetter(m wire.Message, cause, detail string) {
	what := "record skipped"
	if l.stage.DeadLetterTopic != "" {
		what = "dead letter"
		l.stage.Metrics.DeadLettered(l.stage.Name, cause)
	}
	l.Logger.Error(what, "offset", m.Offset, "key", string(m.Key[:min(len(m.Key), orderclose.MaxIDBytes)]), "cause", cause, "detail", detail)
	m.Topic, m.Partition = l.Claim.Topic, l.Claim.Partition
	letter := NewDeadLetter(m, l.stage.Name, cause, detail)
	l.dead.waiting = append(l.dead.waiting, letter)
	l.dead.records++
	l.dead.bytes += letter.Size()
}

// DeadLetterRaw is DeadLetter for a record that was not decoded. If it cannot be decoded, its bytes
// become the value.
func (l *Loop) DeadLetterRaw(r wire.RawRecord, cause, detail string) {
	m, err := r.Message()
	if err != nil {
		m.Value = r.Body
	}
	l.DeadLetter(m, cause, detail)
}

// DeadLetterUnreadable is DeadLetter for a record that Due or Decode rejected with err.
func (l *Loop) DeadLetterUnreadable(r wire.RawRecord, err error) {
	l.DeadLetterRaw(r, UnreadableCause(err), err.Error())
}

// deadLetterCorrupt makes one dead letter for the corrupt range of a fetch. Only the offsets of
// the range are known. The dead letter has the first offset.
func (l *Loop) deadLetterCorrupt(f wire.Fetched) {
	r := f.Corrupt
	l.DeadLetter(wire.Message{Offset: r.First}, CauseCorrupt, fmt.Sprintf("offsets %d to %d: %v", r.First, r.Last, r.Err))
}

// sendDeadLetters starts to append the waiting dead letters. Those that their topic did not accept
// wait again.
func (l *Loop) sendDeadLetters() {
	d := &l.dead
	if len(d.waiting) == 0 || time.Now().Before(d.retryAt) {
		return
	}
	letters := d.waiting
	d.waiting = nil
	if l.stage.DeadLetterTopic == "" {
		l.deadLettersSent(send.Result{Acked: []send.Acked{{Records: letters}}})
		return
	}
	l.send(send.MaxTime, l.stage.DeadLetterTopic, letters, l.deadLettersSent)
}

// deadLettersSent handles the result of an append to the dead-letter topic.
func (l *Loop) deadLettersSent(r send.Result) {
	d, pause := &l.dead, r.Pause
	for _, a := range r.Acked {
		d.acked(a.Records)
		l.committer.DoneAll(a.Records)
	}
	for _, refused := range r.Refused { // cut to fit: the limits of the topic are wrong
		d.waiting, pause = append(d.waiting, refused.Record), deadLetterRetryPause
	}
	if len(r.Refused) > 0 {
		l.Logger.Warn("dead-letter topic rejects dead letters, will retry: check its max.message.bytes",
			"to", r.Topic, "records", len(r.Refused), "err", r.Refused[0].Err)
	}
	d.waiting, d.retryAt = append(d.waiting, r.Left...), time.Now().Add(pause) //mutant:dead-letters-forgotten
}

// waited returns how many of the lost offsets were not done: of a log that was replaced, also of those that
// it is known to have had and nobody had read. It is at least 1 if there is another log now, since nobody knows what was appended last.
func (l *Loop) waited(f *wire.Fetched) (n int64) {
	first, end := max(f.Lost.First, l.committer.Low()), f.Lost.Last+1
	if f.Replaced {
		end = max(end, l.end)
	}
	n = max(0, end-first)
	for _, r := range l.committer.Runs() {
		n -= max(0, min(r.End, end)-max(r.First, first))
	}
	if f.Replaced && f.Lost.Err != errTopicGone {
		n = max(1, n) //mutant:unread-topic-lossless
	}
	return n
}
