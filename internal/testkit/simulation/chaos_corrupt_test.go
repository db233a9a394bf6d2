package simulation

import (
	"regexp"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/pipeline"
)

func init() {
	kinds["corrupt"] = kind{weight: 3, draw: func(d *drawing, e *event) {
		e.What = d.among(string(pipeline.Relay), string(pipeline.Closer), string(pipeline.Compensator))
		e.For, e.N = window, 1+d.IntN(2)
		if d.plan.Sweeps && d.IntN(2) == 0 {
			e.For, e.N = d.span(100*time.Millisecond, 20*time.Second), 1000
		}
	}, play: func(w *chaosWorld, e event) {
		left := &atomic.Int64{}
		left.Store(int64(e.N))
		w.each(e, func(c *network) { c.damage.Store(&damage{world: w, left: left}) })
		w.hold(e)
		w.each(e, func(c *network) { c.damage.Store(nil) })
	}}
}

// damage flips a bit of a record's key or value in the bytes that a process reads, so that the
// checksum of the batch is wrong. The framing of the batch stays right.
type damage struct {
	world *chaosWorld
	left  *atomic.Int64 // how many answers are still to be damaged
}

// batchTries is the number of damaged answers after which a batch is given up. A world without
// sweeps damages fewer, because only a sweep finds the orders of a batch that is given up.
const batchTries = 3

// inRecord is found in records only: an order's id, and fields of pauses and of notices of losses.
var inRecord = regexp.MustCompile(`order-\d\d|"until"|"reason"`)

func (d *damage) strike(b []byte) {
	at := inRecord.FindIndex(b)
	if at == nil || d.left.Add(-1) < 0 {
		return
	}
	if n := d.world.damaged.Add(1); n >= batchTries && !d.world.plan.Sweeps {
		return
	}
	b[at[0]] ^= 0x20
}
