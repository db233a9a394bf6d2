package simulation

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/pipeline"
)

// event is one event of a world. Its parameters are drawn when the plan is made, so that an event can be left out without changing the others.
type event struct {
	At   time.Duration // since the world began
	Kind string        // a key of kinds, or "order"
	For  time.Duration // how long it lasts; 0: a moment
	What string        // a topic, a role, a category, or the name of a fault
	How  string        // a variant of the kind
	Then string        // what happens to an order later
	N    int           // a partition, a broker, an order, or a number of requests
	By   time.Duration // by how much a clock steps, or a deadline moves
}

// String implements fmt.Stringer, in one line.
func (e event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%7.3fs %s", e.At.Seconds(), e.Kind)
	for _, word := range []string{e.What, e.How, e.Then} {
		if word != "" {
			b.WriteString(" " + word)
		}
	}
	if e.N != 0 {
		fmt.Fprintf(&b, " #%d", e.N)
	}
	if e.By != 0 {
		fmt.Fprintf(&b, " by %v", e.By)
	}
	if e.For != 0 {
		fmt.Fprintf(&b, " for %v", e.For)
	}
	return b.String()
}

// plan is a world and its events.
type plan struct {
	Seed       uint64
	Brokers    int
	Partitions int
	// Together: one process plays all roles. Otherwise each role has its own process.
	Together bool
	// Sweeps: compensators run. Otherwise no event loses records, because the pipeline alone must close what was published, and nobody writes reminders.
	Sweeps bool
	// Service is what the shop's service does, if the plan has an event of the kind service.
	Service string
	// Apart is by how much the clock of each broker is ahead permanently.
	Apart  []time.Duration
	Events []event
}

// kind is a kind of event.
type kind struct {
	weight int // how often it is drawn, relative to others; 0: never
	// loses: it may delete records, so that only a sweep finds their orders.
	loses bool
	// swept: it runs sweeps, and so hides what the pipeline alone must do.
	swept bool
	draw  func(d *drawing, e *event)
	play  func(w *chaosWorld, e event)
}

// kinds are all kinds of events except orders, by name.
var kinds = map[string]kind{}

// drawing is the source of the random parameters of events.
type drawing struct {
	*rand.Rand
	plan *plan
	only []string // the kinds of events; empty: all
}

// draws reports whether events of a kind are drawn.
func (d *drawing) draws(name string) bool { return len(d.only) == 0 || slices.Contains(d.only, name) }

// window is the time in which events happen. At its end all faults have ended.
const window = time.Minute

// span draws a duration from least to most; its logarithm is uniform.
func (d *drawing) span(least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), d.Float64())).Truncate(time.Millisecond)
}

// among draws one of the strings.
func (d *drawing) among(all ...string) string { return all[d.IntN(len(all))] }

// step draws by how much a clock steps.
func (d *drawing) step() time.Duration {
	steps := []time.Duration{5 * time.Second, time.Minute, time.Hour}
	return steps[d.IntN(len(steps))] * time.Duration(1-2*d.IntN(2))
}

// makePlan draws a plan with events of some kinds, or of all. The same arguments give the same plan.
func makePlan(seed uint64, only ...string) *plan {
	d := &drawing{Rand: rand.New(rand.NewPCG(seed, 0xc4a05)), plan: &plan{Seed: seed, Brokers: 1, Partitions: 1}, only: only}
	p := d.plan
	if d.IntN(4) == 0 {
		p.Brokers = 3
	}
	p.Partitions += d.IntN(2)
	p.Together, p.Sweeps, p.Service = d.IntN(3) > 0, d.IntN(2) == 0, d.among(closes, knows, inGo)
	if p.Service == knows && seed%2 == 0 {
		p.Service = ends
	}
	p.Apart = make([]time.Duration, p.Brokers)
	if p.Brokers > 1 && d.IntN(3) == 0 && d.draws("apart") {
		p.Apart[1], p.Apart[2] = 15*time.Second, -15*time.Second*time.Duration(d.IntN(2))
	}
	for n := range 10 + d.IntN(15) {
		p.Events = append(p.Events, drawOrder(d, n))
	}
	some := d.kinds()
	for range d.IntN(12) {
		if len(some) == 0 {
			break
		}
		name := some[d.IntN(len(some))]
		e := event{At: time.Second + time.Duration(d.Int64N(int64(window-5*time.Second))).Truncate(time.Millisecond), Kind: name}
		kinds[name].draw(d, &e)
		p.Events = append(p.Events, e)
	}
	slices.SortStableFunc(p.Events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	return p
}

// kinds draws up to five kinds, by their weights. A world with a few kinds of faults finds more than a world with all kinds.
func (d *drawing) kinds() []string {
	var all []string
	for _, name := range sortedKeys(kinds) {
		if k := kinds[name]; d.draws(name) && (d.plan.Sweeps || !k.loses && !k.swept) {
			for range k.weight {
				all = append(all, name)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	some := make([]string, 1+d.IntN(5))
	for i := range some {
		some[i] = all[d.IntN(len(all))]
	}
	return some
}

// without returns the plan without the events at these indices.
func (p *plan) without(drop []int) *plan {
	less := *p
	less.Events = nil
	for i, e := range p.Events {
		if !slices.Contains(drop, i) {
			less.Events = append(less.Events, e)
		}
	}
	return &less
}

// roles returns the roles that the processes of the world have.
func (p *plan) roles() []pipeline.Role {
	return slices.DeleteFunc(pipeline.AllRoles(), func(r pipeline.Role) bool { return r == pipeline.Compensator && !p.Sweeps })
}

// describe describes the world in one line.
func (p *plan) describe() string {
	layout, sweeps := "a process for each role", "no sweep"
	if p.Together {
		layout = "one process"
	}
	if p.Sweeps {
		sweeps = "sweeps"
	}
	if p.has("service") {
		sweeps += ", a service that " + p.Service
	}
	return fmt.Sprintf("%d brokers %v apart, %d partitions, %s, %s", p.Brokers, p.Apart, p.Partitions, layout, sweeps)
}
