package bisect

import (
	"math/rand/v2"
	"slices"
)

// Blame says who may be at fault for the failure of a call.
type Blame int

const (
	// NotItems means that the failure says nothing about the items. The search ends.
	NotItems Blame = iota
	// ItemFault means that one of the items is at fault. The items are halved.
	ItemFault
	// Unclear means that an item or the store may be at fault. Before the items are
	// split, calls for single items show whether the store works.
	Unclear
)

// unclearParts is into how many parts items are split after an Unclear failure. Such a failure may be
// a timeout of seconds, while answers come soon. So many small parts find an item with fewer timeouts
// than halves, and answer the other items earlier.
const unclearParts = 16

// Search asks for items in batches. If a call fails, it splits the items until it has
// found those that fail alone. Use a Search once, in one goroutine.
type Search struct {
	// Ask asks for items together. nil means that all of them are answered.
	Ask func(items []int) error
	// Alone is called with an item that failed although it was asked for alone. An
	// error ends the search.
	Alone func(item int, err error) error
	// Classify returns who may be at fault for an error of Ask.
	Classify func(err error) Blame

	answered int // calls that showed that the store works
}

// Run asks for the items. It returns an error of Alone, or an error of Ask for which
// Classify returns NotItems. The remaining items are then unanswered.
func (s *Search) Run(items []int) error {
	return s.run(slices.Clone(items)) // the search reorders them
}

// RunAll is Run for the items from 0 to n-1.
func (s *Search) RunAll(n int) error {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return s.run(all)
}

func (s *Search) run(items []int) error {
	if len(items) == 0 {
		return nil
	}
	err := s.Ask(items)
	if err == nil {
		s.answered++
		return nil
	}
	blame := s.Classify(err)
	switch {
	case blame == NotItems:
		return err
	case len(items) == 1:
		if err := s.Alone(items[0], err); err != nil {
			return err
		}
		if blame == ItemFault { // one item is at fault, so the store works
			s.answered++
		}
		return nil
	case blame == Unclear:
		if items, err = s.askSingles(items); err != nil {
			return err
		}
	}
	parts := 2
	if blame == Unclear {
		parts = unclearParts
	}
	for part := range slices.Chunk(items, max((len(items)+parts-1)/parts, 1)) {
		if err := s.run(part); err != nil {
			return err
		}
	}
	return nil
}

// askSingles asks for single random items until one is answered, and returns the items
// that it did not ask for. If the store is down this costs a few calls. If it works
// this almost always costs one call, and there is a success between two failures, so
// that no circuit breaker opens.
func (s *Search) askSingles(items []int) ([]int, error) {
	for before := s.answered; s.answered == before && len(items) > 0; items = items[1:] {
		i := rand.IntN(len(items))
		items[0], items[i] = items[i], items[0]
		if err := s.run(items[:1]); err != nil {
			return nil, err
		}
	}
	return items, nil
}
