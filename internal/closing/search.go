package closing

import (
	"math/rand/v2"
	"slices"
)

// Blame says who may be at fault when a call for several items fails.
type Blame int

const (
	// Nobody: the failure says nothing about the items. The search ends.
	Nobody Blame = iota
	// Item: one of the items is at fault. The items are halved.
	Item
	// Anybody: an item may be at fault, or the store. Before the items are halved,
	// single items show whether the store works.
	Anybody
)

// Search asks for items together. If a call fails, Search asks for fewer and fewer
// items, until it has found those that fail alone. A Search is for one use.
type Search struct {
	// Ask asks for items together. nil means that each item has its answer.
	Ask func(items []int) error
	// Alone is called with an item that failed although nothing else was asked for.
	// An error ends the search.
	Alone func(item int, err error) error
	// Judge says who may be at fault for an error of Ask.
	Judge func(err error) Blame

	answered int // calls that showed that the store works
}

// Run asks for the items. The error is one of Alone, or one of Ask for which nobody
// is to blame; items that were not asked for by then have no answer.
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
	blame := s.Judge(err)
	switch {
	case blame == Nobody:
		return err
	case len(items) == 1:
		if err := s.Alone(items[0], err); err != nil {
			return err
		}
		if blame == Item { // so the store works
			s.answered++
		}
		return nil
	case blame == Anybody:
		if items, err = s.single(items); err != nil {
			return err
		}
	}
	half := len(items) / 2
	if err := s.run(items[:half]); err != nil {
		return err
	}
	return s.run(items[half:])
}

// single asks for one random item after the other until one has an answer, and
// returns the items that it did not ask for. In a store that is down this costs a few
// calls. In one that works it almost always costs one, and between two failures there
// is a success, so that no circuit breaker opens.
func (s *Search) single(items []int) ([]int, error) {
	for before := s.answered; s.answered == before && len(items) > 0; items = items[1:] {
		i := rand.IntN(len(items))
		items[0], items[i] = items[i], items[0]
		if err := s.run(items[:1]); err != nil {
			return nil, err
		}
	}
	return items, nil
}
