package checker

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
)

// State is what the database says of orders and stock at one moment. What must change
// nothing is held against it: a replay, a second sweep.
type State map[string]string

// ReadState reads it. Events that wait to be published are no part of it.
func ReadState(ctx context.Context, db *sql.DB) (State, error) {
	t, err := readDatabase(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("checker: database: %w", err)
	}
	s := State{}
	for id, o := range t.orders {
		s["order "+id] = fmt.Sprintf("%+v holds %v", o, t.items[id])
	}
	for id, r := range t.receipts {
		s["receipt "+id] = fmt.Sprintf("%+v", r)
	}
	for id, l := range t.ledger {
		s["ledger "+id] = fmt.Sprint(l)
	}
	for sku, k := range t.stock {
		s["stock "+sku] = fmt.Sprintf("%+v", k)
	}
	return s, nil
}

// Diff says in words what is otherwise in a later State; nothing is good.
func (s State) Diff(later State) []string {
	var all []string
	for key, was := range s {
		if is, ok := later[key]; !ok {
			all = append(all, key+" is gone")
		} else if is != was {
			all = append(all, fmt.Sprintf("%s was %s and is %s", key, was, is))
		}
	}
	for key := range maps.Keys(later) {
		if _, ok := s[key]; !ok {
			all = append(all, key+" is new")
		}
	}
	slices.Sort(all)
	return all
}
