package compensator

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// block is why reads of the model take too long, for a while.
type block int

const (
	tableLocked block = iota + 1 // by LOCK TABLES, or an ALTER TABLE that waits: no statement gets at the orders
	stalled                      // no statement ends, as on a disk that hangs
	overloaded                   // each statement takes a thousand times as long
	blocks
)

func (b block) String() string { return [...]string{"", "locked", "stalled", "overloaded"}[b] }

// blockedFor takes the time of a statement on the orders that costs took while the shop works. The server ends reads after readLimit.
func (s *shop) blockedFor(ctx context.Context, took time.Duration, read bool) error {
	s.mu.Lock()
	why, free := s.blocked, time.Until(s.freeAt)
	s.mu.Unlock()
	if free <= 0 {
		return wait(ctx, took)
	}
	switch why {
	case overloaded:
		took *= 700
	case tableLocked, stalled:
		took += free
	}
	if read && why != stalled && took > readLimit { // a server whose disk hangs does not even end a statement
		if err := wait(ctx, readLimit); err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", overdue.ErrSlow, orderclose.ErrUnavailable)
	}
	return wait(ctx, took)
}

// Whatever makes reads take long, and for how long: what is overdue at the end closes within half a minute.
func TestLoop_OrdersCloseWithinHalfAMinuteAfterReadsWereBlocked(t *testing.T) {
	shortest, longest := math.Log(float64(time.Second)), math.Log(float64(10*time.Minute))
	const draws = 4 // of a duration
	for why := tableLocked; why < blocks; why++ {
		for seed := range draws * seeds() {
			play(t, seed, func(w *world) {
				part := (float64(seed%draws) + w.r.Float64()) / draws
				lasts := time.Duration(math.Exp(shortest + part*(longest-shortest)))
				alone, every := w.r.IntN(2) == 0, []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}[w.r.IntN(3)]
				w.options = func(o *Options) { o.Alone, o.Every = alone, every }
				perSecond, backlog := 1+w.r.IntN(20), []int{0, 10, 6000}[w.r.IntN(3)]
				what := fmt.Sprintf("seed %d: %v for %v, alone %v, a turn each %v, %d orders a second beside %d paused", seed, why, lasts, alone, every, perSecond, backlog)
				some(healthy, backlog, "virtual")(w)
				w.setPauses(Pause{Category: "virtual", Until: w.now().Add(24 * time.Hour)})
				again := w.add(healthy, "", "again", w.now().Add(-time.Minute))
				again[0].open = false
				due := w.add(healthy, "", "due", spread(w.r, perSecond*int((lasts+time.Minute)/time.Second), w.now(), w.now().Add(lasts+time.Minute))...)
				w.process("a")
				time.Sleep(time.Minute - time.Duration(w.r.Int64N(int64(20*time.Second))))
				w.change(func() { w.blocked, w.freeAt = why, time.Now().Add(lasts) })
				time.Sleep(time.Duration(w.r.Int64N(int64(lasts))))
				w.reopen(again...)
				time.Sleep(time.Until(w.freeAt))
				var overdue []*shopOrder
				w.change(func() {
					for _, o := range append(due, again...) {
						if o.open && !o.Due.After(w.now()) {
							overdue = append(overdue, o)
						}
					}
				})
				bound := 30*time.Second + max(0, every-turnTime)
				expect.AtMost(t, w.within(10*bound, overdue), bound, "%s: the time until %d overdue orders are closed", what, len(overdue))
				time.Sleep(time.Minute)
				expect.AtMost(t, w.worst(due[len(due)-perSecond:]), bound, "%s: the lateness of orders that came due afterwards", what)
			})
		}
	}
}

// A loop that cannot read, or that closes nothing, says so after each turn, and says when it works again.
func TestLoop_TellsWhetherItsTurnsWork(t *testing.T) {
	for name, disturb := range map[string]func(w *world, on bool){
		"the table is locked": func(w *world, on bool) {
			w.blocked, w.freeAt = tableLocked, time.Now()
			if on {
				w.freeAt = time.Now().Add(time.Hour)
			}
		},
		"reads fail": func(w *world, on bool) {
			if w.down = nil; on {
				w.down = errBroken
			}
		},
		"closes have no answer": func(w *world, on bool) { w.mute = on },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				var last error
				w.options = func(o *Options) { o.TurnEnded = func(err error) { w.change(func() { last = err }) } }
				w.process("a")
				w.probe(time.Minute)
				w.change(func() {
					expect.NoError(t, last)
					disturb(w, true)
				})
				w.probe(time.Minute)
				w.change(func() {
					expect.That(t, last != nil, "the last turn counts as good")
					disturb(w, false)
				})
				w.probe(time.Minute)
				w.change(func() { expect.NoError(t, last) })
			})
		})
	}
}
