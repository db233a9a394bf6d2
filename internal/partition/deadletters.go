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
	// memory, waiting or in flight. Above either bound the claim is not read on. The
	// records of one fetch may come on top. A thousand small dead letters take 300 KB;
	// one of the largest takes 130 KB.
	maxPending      = 1000
	maxPendingBytes = 4 << 20
)

// DeadLetters appends the dead letters of a claim to the dead-letter topic, in its own
// goroutine, so that a topic that is missing or full delays no other record. Until a dead
// letter is acked its offset stays open. A DeadLetters belongs to the goroutine of the
// claim's loop:
//
//	d.DeadLetter(…)          // any time
//	d.StartDeadLetters()     // each turn
//	select { case acked := <-d.DeadLettersAcked: d.HandleDeadLettersAcked(); … mark them done }
//	d.WaitDeadLetters(acked) // after ctx has ended, before returning
type DeadLetters struct {
	DeadLettersAcked chan []wire.RawRecord // acked dead letters, with the offsets of their records

	o        OutOptions
	ctx      context.Context
	append   wire.AppendFunc
	waiting  []wire.RawRecord
	bytes    int // of waiting and inFlight
	inFlight []wire.RawRecord
	busy     bool
	wg       sync.WaitGroup
}

func newDeadLetters(ctx context.Context, o OutOptions) *DeadLetters {
	return &DeadLetters{DeadLettersAcked: make(chan []wire.RawRecord, 1), o: o, ctx: ctx, append: o.Log.Idempotent(nil, o.Repeated)}
}

// DeadLetter turns m into a dead letter and counts it. It does not wait for the append.
func (d *DeadLetters) DeadLetter(m wire.Message, cause, detail string) {
	d.o.Logger.Error("dead letter", "offset", m.Offset, "key", string(m.Key[:min(len(m.Key), orderclose.MaxIDBytes)]), "cause", cause, "detail", detail)
	d.o.DeadLettered(d.o.Stage, cause)
	m.Topic, m.Partition = d.o.Claim.Topic, d.o.Claim.Partition
	dead := wire.DeadLetter(m, d.o.Stage, cause, detail)
	dead.Offset, dead.Generation = m.Offset, m.Generation
	raw := dead.Raw()
	d.waiting = append(d.waiting, raw)
	d.bytes += raw.Size()
}

// DeadLetterRaw turns an undecoded record into a dead letter. If the record cannot be decoded,
// its bytes become the value.
func (d *DeadLetters) DeadLetterRaw(r wire.RawRecord, cause, detail string) {
	m, err := r.Message()
	if err != nil {
		m.Value = r.Body
	}
	d.DeadLetter(m, cause, detail)
}

// DeadLetterUnreadable turns a record that Due or Decode rejected into a dead letter.
func (d *DeadLetters) DeadLetterUnreadable(r wire.RawRecord, err error) {
	cause := "unreadable"
	if bad := (*wire.RecordError)(nil); errors.As(err, &bad) {
		cause = bad.Reason.Error()
	}
	d.DeadLetterRaw(r, cause, err.Error())
}

// DeadLetterCorrupt makes one dead letter for the corrupt range of a fetch. Only the offsets of
// the range are known. The dead letter has the first offset.
func (d *DeadLetters) DeadLetterCorrupt(f wire.Fetched) {
	r := f.Corrupt
	d.DeadLetter(wire.Message{Offset: r.First, Generation: f.Generation}, "corrupt", fmt.Sprintf("offsets %d to %d: %v", r.First, r.Last, r.Err))
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

// appendBatch appends a batch, or returns false if the claim ends first.
func (d *DeadLetters) appendBatch(batch []wire.RawRecord) bool {
	left := batch
	return retry.Do(d.ctx, d.o.Logger, "dead-letter append", func(ctx context.Context) error {
		spread, err := d.o.Log.GroupForClaim(ctx, d.o.Claim, d.o.DeadLetterTopic, left)
		if err != nil {
			return err
		}
		left = nil
		for p, part := range spread {
			if err == nil {
				_, err = d.append(ctx, d.o.DeadLetterTopic, p, part)
			}
			if err != nil {
				left = append(left, part...)
			}
		}
		if errors.Is(err, wire.ErrRefused) {
			// Dead letters are cut to fit. A refusal means that the topic's limits are
			// wrong, which an operator has to fix.
			retry.Sleep(d.ctx, deadLetterRetryPause)
			return fmt.Errorf("%s rejects dead letters; check its max.message.bytes: %w", d.o.DeadLetterTopic, err)
		}
		return err
	})
}
