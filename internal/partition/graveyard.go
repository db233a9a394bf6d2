package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"orderclose"
)

const (
	// buryPause is how soon dead letters are tried again that the dead-letter topic
	// refused.
	buryPause = 5 * time.Second
	// maxUnburied and maxUnburiedBytes bound the dead letters of a claim that are in
	// memory, waiting or under way: with more it is not read on. What one fetch brings may
	// come on top. A thousand small dead letters are 300 KB; one of the largest records is
	// 130 KB.
	maxUnburied      = 1000
	maxUnburiedBytes = 4 << 20
)

// Graveyard brings the dead letters of a claim to the dead-letter topic, in a
// goroutine of its own, so that a topic that is missing or full stops nobody who
// is well. Until a dead letter is acked its offset stays open. It belongs to the
// claim's loop:
//
//	g.Bury(…)                        // any time
//	g.StartBurying()                 // each turn
//	select { case dead := <-g.Buried: g.TookBuried(); … mark them done }
//	g.WaitBuried(done)               // after ctx has ended, before returning
type Graveyard struct {
	Buried chan []orderclose.RawRecord // dead letters that were acked, with the offsets of their records

	o        OutOptions
	ctx      context.Context
	append   orderclose.AppendFunc
	waiting  []orderclose.RawRecord
	bytes    int // that those take, and those under way
	underway []orderclose.RawRecord
	busy     bool
	under    sync.WaitGroup
}

func newGraveyard(ctx context.Context, o OutOptions) *Graveyard {
	return &Graveyard{Buried: make(chan []orderclose.RawRecord, 1), o: o, ctx: ctx, append: o.Log.Idempotent(nil, o.Repeated)}
}

// Bury makes a dead letter of m and counts it.
func (g *Graveyard) Bury(m orderclose.Message, cause, detail string) {
	g.o.Logger.Error("dead letter", "offset", m.Offset, "key", string(m.Key[:min(len(m.Key), orderclose.MaxIDBytes)]), "cause", cause, "detail", detail)
	g.o.DeadLettered(g.o.Stage, cause)
	m.Topic, m.Partition = g.o.Claim.Topic, g.o.Claim.Partition
	dead := orderclose.DeadLetter(m, g.o.Stage, cause, detail)
	dead.Offset, dead.Generation = m.Offset, m.Generation
	raw := dead.Raw()
	g.waiting = append(g.waiting, raw)
	g.bytes += raw.Size()
}

// BuryRaw makes a dead letter of a record that was not decoded yet. Of one that
// cannot be, the bytes become the value.
func (g *Graveyard) BuryRaw(r orderclose.RawRecord, cause, detail string) {
	m, err := r.Message()
	if err != nil {
		m.Value = r.Body
	}
	g.Bury(m, cause, detail)
}

// BuryUnreadable makes a dead letter of a record that Due or Decode refused.
func (g *Graveyard) BuryUnreadable(r orderclose.RawRecord, err error) {
	cause := "unreadable"
	if bad := (*orderclose.RecordError)(nil); errors.As(err, &bad) {
		cause = bad.Reason.Error()
	}
	g.BuryRaw(r, cause, err.Error())
}

// BuryCorrupt makes a dead letter that stands for the corrupt range of a fetch, of
// which nothing but the offsets is known; its own offset is the first.
func (g *Graveyard) BuryCorrupt(f orderclose.Fetched) {
	r := f.Corrupt
	g.Bury(orderclose.Message{Offset: r.First, Generation: f.Generation}, "corrupt", fmt.Sprintf("offsets %d to %d: %v", r.First, r.Last, r.Err))
}

// Full reports whether so many dead letters wait that no more should be read.
func (g *Graveyard) Full() bool {
	return len(g.waiting)+len(g.underway) >= maxUnburied || g.bytes >= maxUnburiedBytes
}

// StartBurying begins to append what waits, unless that is under way.
func (g *Graveyard) StartBurying() {
	if g.busy || len(g.waiting) == 0 {
		return
	}
	g.busy = true
	batch := g.waiting[:orderclose.Fitting(g.waiting)]
	g.waiting = g.waiting[len(batch):]
	g.underway = batch
	g.under.Go(func() {
		if g.appendDead(batch) {
			g.Buried <- batch
		}
	})
}

// TookBuried notes that a batch was received from Buried.
func (g *Graveyard) TookBuried() {
	for _, r := range g.underway {
		g.bytes -= r.Size()
	}
	g.busy, g.underway = false, nil
}

// WaitBuried waits for the append under way and passes on what was acked by it.
func (g *Graveyard) WaitBuried(done func([]orderclose.RawRecord)) {
	g.under.Wait()
	select {
	case batch := <-g.Buried:
		done(batch)
	default:
	}
}

// appendDead appends a batch, or reports false if the claim has ended first.
func (g *Graveyard) appendDead(batch []orderclose.RawRecord) bool {
	left := batch
	return retry(g.ctx, g.o.Logger, "appending dead letters", func(ctx context.Context) error {
		spread, err := g.o.Log.Spread(ctx, g.o.Claim, g.o.DeadLetterTopic, left)
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
		if errors.Is(err, orderclose.ErrRefused) {
			// They were cut to fit: if they are refused the topic's limits are wrong,
			// which a person has to mend.
			Sleep(g.ctx, buryPause)
			return fmt.Errorf("%s refuses dead letters: check its max.message.bytes: %w", g.o.DeadLetterTopic, err)
		}
		return err
	})
}
