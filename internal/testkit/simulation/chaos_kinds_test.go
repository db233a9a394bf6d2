package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/orderclose/orderclose/pipeline"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func drawRole(d *drawing, e *event) {
	roles := pipeline.AllRoles()
	e.What = string(roles[d.IntN(len(roles))])
}

func init() {
	long := func(d *drawing, e *event) { drawRole(d, e); e.For = d.span(100*time.Millisecond, 20*time.Second) }
	kinds["stop"] = kind{weight: 3, draw: long, play: func(w *chaosWorld, e event) { w.replace(e, (*process).stop) }}
	kinds["kill"] = kind{weight: 5, draw: long, play: func(w *chaosWorld, e event) { w.replace(e, (*process).kill) }}
	kinds["join"] = kind{weight: 3, draw: long, play: (*chaosWorld).join}
	kinds["reset"] = kind{weight: 3, draw: drawRole, play: func(w *chaosWorld, e event) { w.each(e, (*network).reset) }}
	kinds["half-open"] = kind{weight: 3, draw: func(d *drawing, e *event) {
		drawRole(d, e)
		e.How = d.among("both ways", "answers only")
	}, play: func(w *chaosWorld, e event) { w.each(e, func(c *network) { c.silence(e.How == "answers only") }) }}
	kinds["cut"] = kind{weight: 3, draw: long, play: func(w *chaosWorld, e event) {
		w.each(e, (*network).cut)
		w.hold(e)
		w.each(e, (*network).restore)
	}}
	kinds["pause"] = kind{weight: 4, draw: long, play: (*chaosWorld).pause}
	// Each wait for a broker is drawn, up to By. How resets all connections first.
	kinds["slow"] = kind{weight: 4, draw: func(d *drawing, e *event) {
		long(d, e)
		e.By, e.N, e.How = d.span(10*time.Millisecond, slowest), d.IntN(1000), d.among("", "and reset")
	}, play: func(w *chaosWorld, e event) {
		w.each(e, func(c *network) {
			c.slowDown(e.By, uint64(e.N))
			if e.How != "" {
				c.reset()
			}
		})
		w.hold(e)
		w.each(e, func(c *network) { c.slowDown(0, 0) })
	}}
}

// each calls do with the network of every process that plays the event's role. For the role of
// the dispatcher it also calls do with the network of the checkout.
func (w *chaosWorld) each(e event, do func(*network)) {
	for _, p := range w.playing(pipeline.Role(e.What)) {
		do(p.network)
	}
	if pipeline.Role(e.What) == pipeline.Outbox {
		do(w.network)
	}
}

// replace ends a process of a role, and starts another with the same roles after a while.
func (w *chaosWorld) replace(e event, end func(*process)) {
	all := w.playing(pipeline.Role(e.What))
	if len(all) == 0 {
		return // another event has stopped it
	}
	p := w.take(all[0].name)
	if p == nil {
		return
	}
	end(p)
	w.hold(e)
	w.launch(p.name, p.roles...)
}

// join starts another process of a role, and stops it after a while.
func (w *chaosWorld) join(e event) {
	roles := rolesOf(w.plan, e.What)
	if len(roles) == 0 {
		return
	}
	name := w.next(e.What)
	w.launch(name, roles...)
	w.hold(e)
	if p := w.take(name); p != nil {
		p.stop()
	}
}

// pause stalls all traffic between the processes of a role and the servers, which is how a SIGSTOP looks to the servers.
func (w *chaosWorld) pause(e event) {
	var resume []func()
	for _, p := range w.playing(pipeline.Role(e.What)) {
		resume = append(resume, p.network.stall())
	}
	w.hold(e)
	for _, r := range resume {
		r()
	}
}
