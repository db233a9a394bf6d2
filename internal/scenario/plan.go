// Package scenario is the story that the demo tells and the tests repeat, in the
// bubble and on real servers: orders of several categories are created, most are
// published, some are paid, and in the end everything must have come right.
//
//	plan.go  what will happen to each order; a pure function of a seed
//	run.go   makes it happen, against a store and a producer
package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"orderclose/internal/store"
)

// Fate is what happens to an order after it was created.
type Fate string

const (
	Unpaid      Fate = "unpaid"      // published, never paid
	Paid        Fate = "paid"        // published, paid in time
	Cancelled   Fate = "cancelled"   // published, cancelled in time
	Unpublished Fate = "unpublished" // never published, never paid: only a sweep finds it
	Twice       Fate = "twice"       // published twice, never paid
)

// Spec says what a plan should be like.
type Spec struct {
	Seed       uint64
	Orders     int
	Over       time.Duration // the creations are spread over this
	Categories []string
	SKUs       int
}

// Step is one order: when it is created, counted from the beginning, what is in
// it and what becomes of it.
type Step struct {
	At         time.Duration
	ID         string
	Categories []string
	Items      []store.Item
	Fate       Fate
	// ByOutbox: it is scheduled in the transaction that creates it, if the shop has an
	// outbox, rather than after it; one that is published Twice is both.
	ByOutbox bool
	// Undone: before that, the same is done for another order in a transaction that is
	// rolled back.
	Undone bool
	// PayAfter is the share of its delay after which it is paid or cancelled.
	PayAfter float64
}

// Plan returns the steps of a spec, in the order of At. The same spec gives the
// same plan. Of four or more orders at least one is paid, one unpublished and one
// published twice.
func Plan(s Spec) []Step {
	r := rand.New(rand.NewPCG(s.Seed, 0x0c105e))
	steps := make([]Step, s.Orders)
	for i := range steps {
		steps[i] = Step{
			At:         time.Duration(r.Float64() * float64(s.Over)),
			ID:         fmt.Sprintf("order-%d-%05d", s.Seed, i),
			Categories: s.categories(r),
			Items:      s.items(r),
			Fate:       fate(i, r),
			PayAfter:   0.1 + 0.8*r.Float64(),
			ByOutbox:   i%2 == 1,
			Undone:     i%10 == 5,
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return int(a.At - b.At) })
	return steps
}

// fate gives the first orders one of each that must be there.
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

func (s Spec) items(r *rand.Rand) []store.Item {
	items := make([]store.Item, 1+r.IntN(3))
	for i := range items {
		items[i] = store.Item{SKU: SKU(r.IntN(s.SKUs)), Quantity: int64(1 + r.IntN(3))}
	}
	return items
}

// SKU is the name of the n-th SKU.
func SKU(n int) string { return fmt.Sprintf("sku-%03d", n) }
