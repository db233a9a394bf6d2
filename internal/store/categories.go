package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/orderclose/orderclose"
)

// ErrNoCategory says that the mapping names no column with the orders' categories.
var ErrNoCategory = errors.New("topics.yaml maps no category (key orders.category)")

// Categories returns the category of each order that exists, by id; an order without a category
// has an empty one. It reads by key without a lock. The error is ErrNoCategory if the mapping
// names no category, and wraps orderclose.ErrUnavailable if the database failed.
func (s *Store) Categories(ctx context.Context, reqs []orderclose.CloseRequest) (map[string]string, error) {
	if s.q.m.Category == "" {
		return nil, ErrNoCategory
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	c, err := s.readForClose(ctx, "", reqs)
	if err != nil {
		return nil, fmt.Errorf("read the categories of %d orders from %q: %w", len(reqs), reqs[0].OrderID, s.explain(ctx, err))
	}
	found := make(map[string]string, len(c.orders))
	for id, row := range c.orders {
		found[id] = row.category
	}
	return found, nil
}
