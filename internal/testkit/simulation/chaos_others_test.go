package simulation

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/pipeline"
)

func init() {
	kinds["database"] = kind{weight: 8, draw: func(d *drawing, e *event) {
		all := testkit.AllFaults()
		e.N, e.For = d.IntN(len(all)), d.span(100*time.Millisecond, 20*time.Second)
		e.What, e.How = all[e.N].Name, d.among("sometimes", "often", "always")
	}, play: (*chaosWorld).database}
	kinds["redis"] = kind{weight: 2, draw: func(d *drawing, e *event) {
		e.How, e.For = d.among("away", "empty", "lock lost", "lock without expiry"), d.span(100*time.Millisecond, 30*time.Second)
	}, play: (*chaosWorld).redis}
	kinds["pause-closes"] = kind{weight: 2, draw: func(d *drawing, e *event) {
		e.How, e.For = d.among("all", "virtual", "quick"), d.span(time.Second, 40*time.Second)
		if !d.plan.Sweeps { // closers leave the orders of a paused category to the compensator
			e.How = "all"
		}
	}, play: (*chaosWorld).pauseCloses}
	clock := func(d *drawing, e *event) { e.For, e.By = d.span(time.Second, 40*time.Second), d.step() }
	kinds["broker-clock"] = kind{weight: 3, draw: func(d *drawing, e *event) { clock(d, e); e.N = d.IntN(d.plan.Brokers) },
		play: func(w *chaosWorld, e event) { w.stepClock(e, &w.brokerAhead[e.N]) }}
	kinds["database-clock"] = kind{weight: 2, draw: clock, play: func(w *chaosWorld, e event) { w.stepClock(e, &w.dbAhead) }}
	kinds["checkout-clock"] = kind{weight: 2, draw: clock, play: func(w *chaosWorld, e event) { w.stepClock(e, &w.shopAhead) }}
	kinds["process-clock"] = kind{weight: 3, draw: func(d *drawing, e *event) { clock(d, e); drawRole(d, e) }, play: func(w *chaosWorld, e event) {
		for _, p := range w.playing(pipeline.Role(e.What)) {
			w.events.Go(func() { w.stepClock(e, p.ahead) })
		}
	}}
}

// adder is a clock that can be stepped.
type adder interface{ Add(int64) int64 }

// stepClock makes a clock wrong, and right again after a while.
func (w *chaosWorld) stepClock(e event, clock adder) {
	clock.Add(int64(e.By))
	w.hold(e)
	clock.Add(-int64(e.By))
}

// database makes a fault strike a share of the database operations, in addition to faults that strike already.
func (w *chaosWorld) database(e event) {
	fault := testkit.AllFaults()[e.N]
	share := map[string]float64{"sometimes": 0.1, "often": 0.5, "always": 1}[e.How]
	set := func(change func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		change()
		w.dbfault.Set(share, w.dbFaults...)
	}
	set(func() { w.dbFaults = append(w.dbFaults, fault) })
	w.hold(e)
	set(func() {
		for i, f := range w.dbFaults {
			if f.Name == fault.Name {
				w.dbFaults = append(append([]testkit.Fault{}, w.dbFaults[:i]...), w.dbFaults[i+1:]...)
				return
			}
		}
	})
}

// pauseCloses pauses closing, of all orders or of a category, as orderclose pause does, and resumes it after a while.
func (w *chaosWorld) pauseCloses(e event) {
	category := e.How
	if e.How == "all" {
		category = ""
	}
	for w.faulty.Err() == nil {
		if _, err := w.db.Pause(w.faulty, category, pausing.MaxPause, "a random world", true); err == nil {
			break
		}
		time.Sleep(time.Second)
	}
	w.hold(e)
	for {
		if _, err := w.db.Resume(context.Background(), category); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// redis disturbs the lock of the sweeps in Redis.
func (w *chaosWorld) redis(e event) {
	r, key := w.servers.Redis, w.cfg.Compensator.Lock.Key
	switch e.How {
	case "away":
		r.SetError("LOADING Redis is loading the dataset in memory")
		w.hold(e)
		r.SetError("")
	case "empty":
		r.FlushAll()
	case "lock lost":
		r.Del(key)
	case "lock without expiry":
		_ = r.Set(key, "somebody")
		w.hold(e)
		r.Del(key)
	}
}
