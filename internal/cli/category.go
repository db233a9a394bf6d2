package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
)

// maxCategoryPages is how many pages of unpaid orders are searched for a category that topics.yaml does
// not name.
const maxCategoryPages = 50

// checkCategories refuses a category that neither topics.yaml nor an unpaid order has, because it is
// probably a typo. If there are so many unpaid orders that the search ends before, or the database does
// not answer, the category is accepted: the command itself reports the failure.
func (c *common) checkCategories(ctx context.Context, s *session, categories ...string) error {
	unknown := slices.DeleteFunc(slices.Clone(categories), func(category string) bool {
		_, listed := s.cfg.Delays.ByCategory[category]
		return category == "" || listed
	})
	if s.Store == nil || len(unknown) == 0 {
		return nil
	}
	if _, err := s.Store.Categories(ctx, nil); err != nil { // orders have no category
		return nil
	}
	after, end := orderclose.Order{}, time.Now().Add(s.cfg.MaxDelay).Add(24*time.Hour)
	for range maxCategoryPages {
		page, err := s.Store.DueBetween(ctx, time.UnixMilli(0), end, after, s.cfg.Compensator.PageSize)
		if err != nil {
			return nil
		}
		if len(page) == 0 {
			return Exit(NotFound, fmt.Errorf("--category %s: neither topics.yaml (delays.categories) nor an unpaid order has this category", oneLine(unknown[0], 100)))
		}
		after = page[len(page)-1]
		unknown = slices.DeleteFunc(unknown, func(category string) bool {
			return slices.ContainsFunc(page, func(o orderclose.Order) bool { return o.Category == category })
		})
		if len(unknown) == 0 {
			return nil
		}
	}
	return nil
}
