package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// deadLetterRetryPause is the pause after the dead-letter topic refused dead letters.
	deadLetterRetryPause = 5 * time.Second
	// maxPending and maxPendingBytes bound the dead letters of a claim that are in
	// memory, waiting or in flight. At either bound the claim is not read on. The dead
	// letters of one fetch may come on top. A thousand small dead letters take 300 KB;
	// one of the largest takes 130 KB.
	maxPending      = 1000
	maxPendingBytes = 4 << 20
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
// the offset and the generation of m, by which its ack is recognized. m.Topic and m.Partition
// say where m came from.
func NewDeadLetter(m wire.Message, stage, cause, detail string) wire.RawRecord {
	dead := wire.DeadLetter(m, stage, cause, detail)
	dead.Offset, dead.Generation = m.Offset, m.Generation
	return dead.Raw()
}

// DeadLetters appends the dead letters of a claim to the dead-letter topic, in its own
// goroutine, so that a topic that is missing or full delays no other record. Until a dead
// letter is acked its offset stays open. A DeadLetters belongs to the goroutine of the
// claim's loop:
//
//	d.DeadLetter(…)          // any time
//	d.StartDeadLetters()     // in each iteration
//	select { case acked := <-d.DeadLettersAcked: d.HandleDeadLettersAcked(); … mark them done }
//	d.WaitDeadLetters(acked) // after ctx has ended, before returning
type DeadLetters struct {
	DeadLettersAcked chan []wire.RawRecord // acked dead letters, with the offsets of their records

	opts     OutOptions
	ctx      context.Context
	append   wire.AppendFunc
	waiting  []wire.RawRecord
	bytes    int // of waiting and inFlight
	inFlight []wire.RawRecord
	busy     bool
	wg       sync.WaitGroup
}

func newDeadLetters(ctx context.Context, o OutOptions) *DeadLetters {
	return &DeadLetters{DeadLettersAcked: make(chan []wire.RawRecord, 1), opts: o, ctx: ctx, append: o.Log.Idempotent(nil, o.Repeated)}
}

// DeadLetter makes a dead letter of m, logs it and counts it. It does not wait for the append. In a
// stage without dead letters it only logs that m is skipped.
func (d *DeadLetters) DeadLetter(m wire.Message, cause, detail string) {
	what := "record skipped"
	if d.opts.DeadLetterTopic != "" {
		what = "dead letter"
		d.opts.DeadLettered(d.opts.Stage, cause)
	}
	d.opts.Logger.Error(what, "offset", m.Offset, "key", string(m.Key[:min(len(m.Key), orderclose.MaxIDBytes)]), "cause", cause, "detail", detail)
	m.Topic, m.Partition = d.opts.Claim.Topic, d.opts.Claim.Partition
	raw := NewDeadLetter(m, d.opts.Stage, cause, detail)
	d.waiting = append(d.waiting, raw)
	d.bytes += raw.Size()
}

// DeadLetterRaw makes a dead letter of an undecoded record. If the record cannot be decoded,
// its bytes become the value.
func (d *DeadLetters) DeadLetterRaw(r wire.RawRecord, cause, detail string) {
	m, err := r.Message()
	if err != nil {
		m.Value = r.Body
	}
	d.DeadLetter(m, cause, detail)
}

// DeadLetterUnreadable makes a dead letter of a record that Due or Decode rejected with err.
func (d *DeadLetters) DeadLetterUnreadable(r wire.RawRecord, err error) {
	d.DeadLetterRaw(r, UnreadableCause(err), err.Error())
}

// DeadLetterCorrupt makes one dead letter for the corrupt range of a fetch. Only the offsets of
// the range are known. The dead letter has the first offset.
func (d *DeadLetters) DeadLetterCorrupt(f wire.Fetched) {
	r := f.Corrupt
	d.DeadLetter(wire.Message{Offset: r.First, Generation: f.Generation}, CauseCorrupt, fmt.Sprintf("offsets %d to %d: %v", r.First, r.Last, r.Err))
}

// Full reports whether a bound is reached, so that nothing more should be read.
func (d *DeadLetters) Full() bool {
	return len(d.waiting)+len(d.inFlight) >= maxPending || d.bytes >= maxPendingBytes
}

// StartDeadLetters starts to append the waiting dead letters, unless an append is in flight.
func (d *DeadLetters) StartDeadLetters() {
	if d.busy || len(d.waiting) == 0 {
		return
	}
	d.busy = true
	batch := d.waiting[:wire.Fitting(d.waiting)]
	d.waiting = d.waiting[len(batch):]
	d.inFlight = batch
	d.wg.Go(func() {
		if d.appendBatch(batch) {
			d.DeadLettersAcked <- batch
		}
	})
}

// HandleDeadLettersAcked notes that a batch was received from DeadLettersAcked. The loop must
// call it for each batch.
func (d *DeadLetters) HandleDeadLettersAcked() {
	for _, r := range d.inFlight {
		d.bytes -= r.Size()
	}
	d.busy, d.inFlight = false, nil
}

// WaitDeadLetters waits for the append in flight and passes its acked dead letters to done.
func (d *DeadLetters) WaitDeadLetters(done func([]wire.RawRecord)) {
	d.wg.Wait()
	select {
	case batch := <-d.DeadLettersAcked:
		done(batch)
	default:
	}
}

// appendBatch retries until the batch is appended, or returns false if the claim ends first. A
// stage without dead letters appends nothing.
func (d *DeadLetters) appendBatch(batch []wire.RawRecord) bool {
	if d.opts.DeadLetterTopic == "" {
		return true
	}
	left := batch
	return retry.Do(d.ctx, d.opts.Logger, "dead-letter append", func(ctx context.Context) (err error) {
		left, err = AppendDeadLetters(ctx, d.opts.DeadLetterTopic, left, d.opts.group, d.append)
		if errors.Is(err, wire.ErrRefused) { // an operator has to fix the topic
			retry.Sleep(d.ctx, deadLetterRetryPause)
			return fmt.Errorf("%s rejects dead letters; check its max.message.bytes: %w", d.opts.DeadLetterTopic, err)
		}
		return err
	})
}
