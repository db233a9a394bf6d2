package compensator

import (
	"context"
	"hash/fnv"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
)

const (
	// passInterval is the shortest time between the begins of two passes.
	passInterval = 15 * time.Second
	// readShare bounds what passes cost the database: unless news were left to the next pass, it begins at the earliest readShare times the reading
	// of the last one after its end.
	readShare = 10
	// turnSlots is in how many parts the orders are divided that have no rest because too many rest: each part has its turn in five minutes.
	turnSlots = int64(maxRest / turnTime)
)

// pass is a pass over all orders that were overdue when it began, the oldest first. It is a value.
type pass struct {
	running  bool
	again    bool             // a pause has ended: a pass begins at once
	position orderclose.Order // everything up to it was read
	end      time.Time        // the cutoff at its begin
	beganAt  time.Time        // by the database's clock
	began    time.Time        // by the monotonic clock
	ended    time.Time        // by the monotonic clock
	reading  time.Duration    // how long the reads took that returned its orders
	untried  time.Time        // the due time of the oldest order that it has found and not asked for, or has not read yet; zero: none is known
	from, to int64            // the slots whose orders have their turn in this pass, if they have no rest
}

// begins reports whether a pass begins, now by the monotonic clock. The first one of an hour does not wait for passInterval: it is the compensation
// of the hour. left says that news were left to the next pass.
func (p pass) begins(now, cutoff, hour time.Time, left bool) bool {
	if p.began.IsZero() || p.again || cutoff.Before(p.end) { // the last: the database's clock was set back
		return true
	}
	due := now.Sub(p.began) >= passInterval || p.beganAt.Before(hour) //mutant:pass-never-again
	return !p.running && due && (left || now.Sub(p.ended) >= readShare*p.reading)
}

// beginPass returns the pass that follows before. It ends at the cutoff that it begins with, whatever comes due meanwhile. untried is the due
// time of the oldest order that is known to be overdue and not asked for.
func beginPass(before pass, now, cutoff, untried time.Time) pass {
	began := time.Now()
	slot := began.UnixNano() / int64(turnTime)
	from := before.to
	if from == 0 || slot < from || slot-from > turnSlots { // slot < from: the clock of this machine was set back
		from = slot - turnSlots
	}
	return pass{running: true, end: cutoff, beganAt: now, began: began, untried: untried, from: from, to: slot}
}

// skip ends a pass that would find nothing, because all is paused or nothing is overdue. It counts as a finished one.
func (p *pass) skip(now, cutoff time.Time) {
	*p = pass{end: cutoff, beganAt: now, began: time.Now(), ended: time.Now(), from: p.from, to: p.to, again: p.again}
}

// goOn moves the position behind what was asked for. Without more the pass ends.
func (p *pass) goOn(position orderclose.Order, more bool) {
	if p.position = position; !more {
		p.running, p.ended = false, time.Now()
	}
	if !more || !position.Due.Before(p.untried) {
		p.untried = time.Time{}
	}
}

// stopAt moves the position before an order that was found and not asked for.
func (p *pass) stopAt(found []orderclose.Order, o orderclose.Order) {
	p.untried = o.Due
	if i := slices.IndexFunc(found, func(f orderclose.Order) bool { return f.ID == o.ID }); i > 0 {
		p.position = found[i-1]
	}
}

// hasTurn reports whether an order without a rest has its turn in this pass.
func (p pass) hasTurn(id string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // cannot fail
	slot := int64(h.Sum32()) % turnSlots
	behind := (p.to - slot) % turnSlots // slots since its last turn
	return behind < p.to-p.from
}

// readPass reads the next orders of the pass. It returns the position behind them, and whether the pass has more.
func (l *loop) readPass(ctx context.Context, until time.Duration) (orders []orderclose.Order, position orderclose.Order, more bool, err error) {
	r, w := &l.older, overdue.Window{After: l.pass.position, To: l.pass.end}
	if old := w.To.Add(-oldReads); w.After.Due.Before(old) {
		r, w.To = &l.old, old
	}
	before := r.took
	orders, rest, more, err := l.read(ctx, r, w, until)
	l.pass.reading += r.took - before
	return orders, rest.After, more || w.To.Before(l.pass.end), err
}
