package bubble

import (
	"regexp"
	"sync/atomic"
	"time"

	"orderclose/internal/app"
)

func init() {
	kinds["corrupt"] = kind{weight: 3, draw: func(d *drawing, e *event) {
		e.What = d.among(string(app.Relay), string(app.Closer), string(app.Compensator))
		e.For, e.N = window, 1+d.IntN(2)
		if d.plan.Sweeps && d.IntN(2) == 0 {
			e.For, e.N = d.span(100*time.Millisecond, 20*time.Second), 1000
		}
	}, play: func(w *chaosWorld, e event) {
		left := &atomic.Int64{}
		left.Store(int64(e.N))
		w.each(e, func(c *way) { c.damage.Store(&damage{world: w, left: left}) })
		w.hold(e)
		w.each(e, func(c *way) { c.damage.Store(nil) })
	}}
}

// damage flips a byte of a record's key or value in what is read, so that a batch has
// another checksum than it says. Its framing stays whole.
type damage struct {
	world *chaosWorld
	left  *atomic.Int64 // answers to be damaged
}

// batchTries is after how many damaged answers a batch is given up. A world without
// sweeps has fewer, since the orders of such a batch are then found by a sweep only.
const batchTries = 3

var orderInRecord = regexp.MustCompile(`order-\d\d`)

func (d *damage) strike(b []byte) {
	at := orderInRecord.FindIndex(b)
	if at == nil || d.left.Add(-1) < 0 {
		return
	}
	if n := d.world.damaged.Add(1); n >= batchTries && !d.world.plan.Sweeps {
		return
	}
	b[at[0]] ^= 0x20
}
