package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"orderclose"
	"orderclose/internal/wire"
)

const (
	// buryRetryPause is the pause after the dead-letter topic refused dead letters.
	buryRetryPause = 5 * time.Second
	// maxPending and maxPendingBytes bound the dead letters of a claim that are in
	// memory, waiting or in flight. Above either bound the claim is not read on. The
	// records of one fetch may come on top. A thousand small dead letters take 300 KB;
	// one of the largest takes 130 KB.
	maxPending      = 1000
	maxPendingBytes = 4 << 20
)

// Graveyard appends the dead letters of a claim to the dead-letter topic, in its own
// goroutine, so that a topic that is missing or full delays no other record. Until a dead
// letter is acked its offset stays open. A Graveyard belongs to the goroutine of the
// claim's loop:
//
//	g.Bury(…)                        // any time
//	g.StartBurying()                 // each turn
//	select { case dead := <-g.Buried: g.TookBuried(); … mark them done }
//	g.WaitBuried(done)               // after ctx has ended, before returning
type Graveyard struct {
	Buried chan []wire.RawRecord // acked dead letters, with the offsets of their records

	o        OutOptions
	ctx      context.Context
	append   wire.AppendFunc
	waiting  []wire.RawRecord
	bytes    int // of waiting and inFlight
	inFlight []wire.RawRecord
	busy     bool
	wg       sync.WaitGroup
}

func newGraveyard(ctx context.Context, o OutOptions) *Graveyard {
	return &Graveyard{Buried: make(chan []wire.RawRecord, 1), o: o, ctx: ctx, append: o.Log.Idempotent(nil, o.Repeated)}
}

// Bury turns m into a dead letter and counts it. It does not wait for the append.
func (g *Graveyard) Bury(m wire.Message, cause, detail string) {
	g.o.Logger.Error("dead letter", "offset", m.Offset, "key", string(m.Key[:min(len(m.Key), orderclose.MaxIDBytes)]), "cause", cause, "detail", detail)
	g.o.DeadLettered(g.o.Stage, cause)
	m.Topic, m.Partition = g.o.Claim.Topic, g.o.Claim.Partition
	dead := wire.DeadLetter(m, g.o.Stage, cause, detail)
	dead.Offset, dead.Generation = m.Offset, m.Generation
	raw := dead.Raw()
	g.waiting = append(g.waiting, raw)
	g.bytes += raw.Size()
}

// BuryRaw turns an undecoded record into a dead letter. If the record cannot be decoded,
// its bytes become the value.
func (g *Graveyard) BuryRaw(r wire.RawRecord, cause, detail string) {
	m, err := r.Message()
	if err != nil {
		m.Value = r.Body
	}
	g.Bury(m, cause, detail)
}

// BuryUnreadable turns a record that Due or Decode rejected into a dead letter.
func (g *Graveyard) BuryUnreadable(r wire.RawRecord, err error) {
	cause := "unreadable"
	if bad := (*wire.RecordError)(nil); errors.As(err, &bad) {
		cause = bad.Reason.Error()
	}
	g.BuryRaw(r, cause, err.Error())
}

// BuryCorrupt makes one dead letter for the corrupt range of a fetch. Only the offsets of
// the range are known. The dead letter has the first offset.
func (g *Graveyard) BuryCorrupt(f wire.Fetched) {
	r := f.Corrupt
	g.Bury(wire.Message{Offset: r.First, Generation: f.Generation}, "corrupt", fmt.Sprintf("offsets %d to %d: %v", r.First, r.Last, r.Err))
}

// Full reports whether a bound is reached, so that nothing more should be read.
func (g *Graveyard) Full() bool {
	return len(g.waiting)+len(g.inFlight) >= maxPending || g.bytes >= maxPendingBytes
}

// StartBurying starts to append the waiting dead letters, unless an append is in flight.
func (g *Graveyard) StartBurying() {
	if g.busy || len(g.waiting) == 0 {
		return
	}
	g.busy = true
	batch := g.waiting[:wire.Fitting(g.waiting)]
	g.waiting = g.waiting[len(batch):]
	g.inFlight = batch
	g.wg.Go(func() {
		if g.appendDead(batch) {
			g.Buried <- batch
		}
	})
}

// TookBuried notes that a batch was received from Buried. The loop must call it for each
// batch.
func (g *Graveyard) TookBuried() {
	for _, r := range g.inFlight {
		g.bytes -= r.Size()
	}
	g.busy, g.inFlight = false, nil
}

// WaitBuried waits for the append in flight and passes its acked dead letters to done.
func (g *Graveyard) WaitBuried(done func([]wire.RawRecord)) {
	g.wg.Wait()
	select {
	case batch := <-g.Buried:
		done(batch)
	default:
	}
}

// appendDead appends a batch, or returns false if the claim ends first.
func (g *Graveyard) appendDead(batch []wire.RawRecord) bool {
	left := batch
	return retry(g.ctx, g.o.Logger, "dead-letter append", func(ctx context.Context) error {
		spread, err := g.o.Log.GroupForClaim(ctx, g.o.Claim, g.o.DeadLetterTopic, left)
		if err != nil {
			return err
		}
		left = nil
		for p, part := range spread {
			if err == nil {
				_, err = g.append(ctx, g.o.DeadLetterTopic, p, part)
			}
			if err != nil {
				left = append(left, part...)
			}
		}
		if errors.Is(err, wire.ErrRefused) {
			// Dead letters are cut to fit. A refusal means that the topic's limits are
			// wrong, which an operator has to fix.
			Sleep(g.ctx, buryRetryPause)
			return fmt.Errorf("%s rejects dead letters; check its max.message.bytes: %w", g.o.DeadLetterTopic, err)
		}
		return err
	})
}
