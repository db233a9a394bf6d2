// Package scenario is a workload for the demo and for tests, in the simulation and on real servers. It creates orders of several categories, publishes
// most of them, and pays some. In the end every order must be in the right state; package checker says so.
//
// Plan makes the steps of a run, and Shop.Run plays them.
//
//	plan.go     what happens to each order: a pure function of a seed
//	run.go      plays the steps against the orders of a shop and a producer
//	pace.go     waits at the pace of a load
//	persist.go  orders of a shop that retries while its database fails
//	expect.go   what the checker expects of a run
//	database.go creates and deletes databases of runs
//	topics.go   a topics.yaml with seconds in place of minutes
//	waiting.go  how many records a group has not done yet
package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

// Fate is what happens to an order after its creation.
type Fate string

const (
	Unpaid      Fate = "unpaid"      // published, never paid
	Paid        Fate = "paid"        // published, paid in time
	Cancelled   Fate = "cancelled"   // published, cancelled in time
	Unpublished Fate = "unpublished" // never published, never paid: only a sweep finds it
	Twice       Fate = "twice"       // published twice, never paid
	Later       Fate = "later"       // published, then due later; never paid. No plan has it
	Earlier     Fate = "earlier"     // published, then due earlier, and published again; likewise
)

// Spec is the input of Plan.
type Spec struct {
	Seed       uint64
	Orders     int
	Over       time.Duration // the orders are created within this time
	Categories []string
	SKUs       int
}

// Step is one order: when it is created, as the time since the start of the run, its items, and its fate.
type Step struct {
	At         time.Duration
	ID         string
	Categories []string
	Items      []shopdb.Item
	Fate       Fate
	// ByOutbox: if the shop has an outbox, the order is scheduled in the transaction that
	// creates it, and not after it. An order with the fate Twice is scheduled both ways.
	ByOutbox bool
	// RollBackFirst: before the order, another order is created and scheduled in a transaction that is rolled back.
	RollBackFirst bool
	// PayAfter is the share of the order's delay after which it is paid, cancelled or moved.
	PayAfter float64
	MoveBy   time.Duration // of Later and Earlier
}

// Plan returns the steps of a spec, in the order of At. The same spec gives the same plan. A plan of four or more orders has at least one that is paid,
// one unpublished and one published twice.
func Plan(s Spec) []Step {
	r := rand.New(rand.NewPCG(s.Seed, 0x0c105e))
	steps := make([]Step, s.Orders)
	for i := range steps {
		steps[i] = Step{
			At:            time.Duration(r.Float64() * float64(s.Over)),
			ID:            fmt.Sprintf("order-%d-%05d", s.Seed, i),
			Categories:    s.categories(r),
			Items:         s.items(r),
			Fate:          fate(i, r),
			PayAfter:      0.1 + 0.8*r.Float64(),
			ByOutbox:      i%2 == 1,
			RollBackFirst: i%10 == 5,
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return int(a.At - b.At) })
	return steps
}

// fate returns the fate of the i-th order. The first orders get the fates that every plan has.
func fate(i int, r *rand.Rand) Fate {
	if must := []Fate{Unpublished, Twice, Paid}; i < len(must) {
		return must[i]
	}
	switch n := r.IntN(100); {
	case n < 25:
		return Paid
	case n < 28:
		return Cancelled
	case n < 33:
		return Unpublished
	case n < 36:
		return Twice
	}
	return Unpaid
}

func (s Spec) categories(r *rand.Rand) []string {
	first := s.Categories[r.IntN(len(s.Categories))]
	if r.IntN(10) > 0 {
		return []string{first}
	}
	return []string{first, s.Categories[r.IntN(len(s.Categories))]}
}

func (s Spec) items(r *rand.Rand) []shopdb.Item {
	items := make([]shopdb.Item, 1+r.IntN(3))
	for i := range items {
		items[i] = shopdb.Item{SKU: SKU(r.IntN(s.SKUs)), Quantity: int64(1 + r.IntN(3))}
	}
	return items
}

// SKU returns the name of the n-th SKU.
func SKU(n int) string { return fmt.Sprintf("sku-%03d", n) }
