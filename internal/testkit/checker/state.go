package checker

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
)

// State is what the database holds of orders and stock at one moment, one entry for each row. Compare two States around an operation that must change
// nothing, such as a replay or a second sweep.
type State map[string]string

// ReadState reads the State. Events that wait to be published are not part of it.
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

// Diff describes the differences of a later State; it is empty if there are none.
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
